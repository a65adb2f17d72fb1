// SPDX-License-Identifier: Apache-2.0
//
// A 2,048-bin histogram in shared memory and the search for the bin that holds a rank, counted from the highest bin.

#ifndef HPCTOPK_KERNELS_DETAIL_HISTOGRAM_CUH_
#define HPCTOPK_KERNELS_DETAIL_HISTOGRAM_CUH_

#include <cstdint>

#include "kernels/detail/group.cuh"
#include "kernels/kernels.h"

namespace hpctopk::detail {

inline constexpr int kBins = 2048;
inline constexpr int kDigitBits = 11;

struct RankBin {
  int bin;     // the bin that holds the rank
  int above;   // entries in higher bins
  int inside;  // entries in the bin
};

// Shared memory that the phases of one group pass scalars through.
struct Scratch {
  int warp_totals[32];
  RankBin found[2];
  int count;              // candidates admitted
  int above;              // candidates above the floor
  int listed;             // entries of the boundary bin
  std::uint32_t low_key;  // range of keys that a histogram covers
  std::uint32_t high_key;
  std::int64_t next[2];  // the CTA's next row, in turns
  std::uint64_t kth;
  std::uint64_t bound;                         // a cluster's members read each other's k-th best here
  int published[2][kernels::kMaxClusterSize];  // candidates of a cluster's members, in turns
  int front, back;                             // entries written from the front and the back of a list
  int fronts[kernels::kMaxParts];              // of the lists of a row's parts
  int ends[kernels::kMaxParts];                // where the lists of a row's parts end when they are read as one
};

template <class Group>
__device__ void clear_histogram(const Group& group, int* histogram) {
#pragma unroll
  for (int i = 0; i < kBins / 4 / Group::kSize || i == 0; ++i) {
    const int quad = group.thread + i * Group::kSize;
    if (quad < kBins / 4) reinterpret_cast<int4*>(histogram)[quad] = make_int4(0, 0, 0, 0);
  }
}

// Makes scratch->low_key and high_key, 0xFFFFFFFF and 0 before a barrier, the lowest `low` and the highest `high` of
// all threads. Ends with a barrier.
template <class Group>
__device__ __forceinline__ void publish_range(const Group& group, std::uint32_t low, std::uint32_t high,
                                              Scratch* scratch) {
  low = __reduce_min_sync(kFullWarp, low);
  high = __reduce_max_sync(kFullWarp, high);
  if (group.lane() == 0) {
    atomicMin(&scratch->low_key, low);
    atomicMax(&scratch->high_key, high);
  }
  group.sync();
}

// Finds the bins that hold `rank` and `second_rank` (1 is the highest entry; 0 is not looked for) into found[0] and
// found[1]. The caller has synchronised the histogram; the result may be read on return. With kCountAbove each bin's
// count becomes that of the entries in higher bins.
template <bool kCountAbove = false, class Group>
__device__ __forceinline__ void find_rank(const Group& group, int* histogram, Scratch* scratch, int rank,
                                          int second_rank = 0) {
  constexpr int kPerThread = kBins / Group::kSize;
  static_assert(kPerThread * Group::kSize == kBins);
  struct alignas(sizeof(int) * kPerThread) Bins {  // ascending; read and written as a vector
    int count[kPerThread];
  };
  Bins* const mine = reinterpret_cast<Bins*>(histogram) + Group::kSize - 1 - group.thread;
  Bins bins = *mine;
  int total = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) total += bins.count[i];
  const int inclusive = inclusive_scan(total);
  if (group.lane() == kWarpSize - 1) scratch->warp_totals[group.warp()] = inclusive;
  group.sync();
  const int before = group.lane() < group.warp() ? scratch->warp_totals[group.lane()] : 0;
  int above = __reduce_add_sync(kFullWarp, before) + inclusive - total;
#pragma unroll
  for (int i = kPerThread - 1; i >= 0; --i) {
    const int bin = kBins - (group.thread + 1) * kPerThread + i;
    const int inside = bins.count[i];
    const int reached = above + inside;
    if (above < rank && rank <= reached) scratch->found[0] = {bin, above, inside};
    if (second_rank > 0 && above < second_rank && second_rank <= reached) scratch->found[1] = {bin, above, inside};
    bins.count[i] = above;
    above = reached;
  }
  if constexpr (kCountAbove) *mine = bins;
  group.sync();
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_HISTOGRAM_CUH_
