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
  std::uint64_t kth;
  std::uint64_t bound;           // a cluster's members read each other's k-th best here
  int published[2];              // a cluster's members read each other's candidate counts here, in turns
  int ends[kernels::kMaxParts];  // where the lists of a row's parts end when they are read as one
};

template <class Group>
__device__ void clear_histogram(const Group& group, int* histogram) {
#pragma unroll
  for (int i = 0; i < kBins / 4 / Group::kSize || i == 0; ++i) {
    const int quad = group.thread + i * Group::kSize;
    if (quad < kBins / 4) reinterpret_cast<int4*>(histogram)[quad] = make_int4(0, 0, 0, 0);
  }
}

// Finds the bins that hold `rank` and `second_rank` (1 is the highest entry; 0 is not looked for) into found[0] and
// found[1]. The caller has synchronised the histogram; the result may be read on return.
template <class Group>
__device__ void find_rank(const Group& group, const int* histogram, Scratch* scratch, int rank, int second_rank = 0) {
  constexpr int kPerThread = kBins / Group::kSize;
  static_assert(kPerThread * Group::kSize == kBins);
  const int top = kBins - 1 - group.thread * kPerThread;  // this thread's highest bin
  int bins[kPerThread];
  int total = 0;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) total += bins[i] = histogram[top - i];
  const int inclusive = inclusive_scan(total, group.lane());
  if (group.lane() == kWarpSize - 1) scratch->warp_totals[group.warp()] = inclusive;
  group.sync();
  const int before = group.lane() < group.warp() ? scratch->warp_totals[group.lane()] : 0;
  int above = __reduce_add_sync(kFullWarp, before) + inclusive - total;
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int reached = above + bins[i];
    if (above < rank && rank <= reached) scratch->found[0] = {top - i, above, bins[i]};
    if (above < second_rank && second_rank <= reached) scratch->found[1] = {top - i, above, bins[i]};
    above = reached;
  }
  group.sync();
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_HISTOGRAM_CUH_
