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
__device__ __forceinline__ unsigned long long* counter(std::uint64_t* value) {
  static_assert(sizeof(unsigned long long) == sizeof(std::uint64_t));
  return reinterpret_cast<unsigned long long*>(value);
}

// A row with no more than k scores: all of its columns in order, then -1.
template <class Group>
__device__ void write_whole_row(const Group& group, const Row& row, int k, std::int32_t* out) {
  for (int i = group.thread; i < k; i += Group::kSize) out[i] = i < row.length ? row.start + i : -1;
}

// The columns of the k candidates >= kth.
template <class Group>
__device__ void write_best(const Group& group, const Row& row, const std::uint64_t* candidates, int count,
                           std::uint64_t kth, std::int32_t* out, Scratch* scratch) {
  group.sync();
  if (group.thread == 0) scratch->count = 0;
  group.sync();
  for (int base = 0; base < count; base += Group::kSize) {
    const int i = base + group.thread;
    const std::uint64_t c = i < count ? candidates[i] : 0;
    const bool keep = i < count && c >= kth;
    const int slot = append_slot(keep, &scratch->count, group.lane());
    if (keep) out[slot] = row.start + static_cast<std::int32_t>(composite_index(c));
  }
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_OUTPUT_CUH_
