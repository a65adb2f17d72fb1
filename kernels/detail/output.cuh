// SPDX-License-Identifier: Apache-2.0
//
// What a row leaves behind: its columns, and its share of the counters.

#ifndef HPCTOPK_KERNELS_DETAIL_OUTPUT_CUH_
#define HPCTOPK_KERNELS_DETAIL_OUTPUT_CUH_

#include <cstdint>

#include "kernels/detail/histogram.cuh"
#include "kernels/detail/ordered_key.h"
#include "kernels/detail/row.cuh"

namespace hpctopk::detail {

// CUDA's 64-bit atomics take unsigned long long, which is not the type behind std::uint64_t everywhere.
__device__ __forceinline__ unsigned long long* atomic_word(std::uint64_t* value) {
  static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
  return reinterpret_cast<unsigned long long*>(value);
}

// A row with no more than k scores: all of its columns in order, then -1.
template <class Group>
__device__ void write_whole_row(const Group& group, const Row& row, int k, std::int32_t* out) {
  for (int i = group.thread; i < k; i += Group::kSize) out[i] = i < row.length ? row.start + i : -1;
}

// The columns of the k candidates >= kth. A warp reserves room for all it takes of a few candidates with one atomic.
template <class Group>
__device__ __forceinline__ void write_best(const Group& group, std::int32_t start, const std::uint64_t* candidates,
                                           int count, std::uint64_t kth, std::int32_t* out, Scratch* scratch) {
  constexpr int kAtOnce = 4;
  group.sync();
  if (group.thread == 0) scratch->count = 0;
  group.sync();
  for (int base = 0; base < count; base += kAtOnce * Group::kSize) {
    std::uint64_t c[kAtOnce];
    unsigned kept[kAtOnce];
    int total = 0;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = base + i * Group::kSize + group.thread;
      c[i] = index < count ? candidates[index] : 0;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int index = base + i * Group::kSize + group.thread;
      kept[i] = __ballot_sync(kFullWarp, index < count && c[i] >= kth);
      total += __popc(kept[i]);
    }
    int slot = 0;
    if (group.lane() == 0 && total != 0) slot = atomicAdd(&scratch->count, total);
    slot = __shfl_sync(kFullWarp, slot, 0);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if ((kept[i] >> group.lane() & 1) != 0) {
        out[slot + __popc(kept[i] & lanes_below(group.lane()))] =
            start + static_cast<std::int32_t>(composite_index(c[i]));
      }
      slot += __popc(kept[i]);
    }
  }
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_OUTPUT_CUH_
