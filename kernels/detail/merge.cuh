// SPDX-License-Identifier: Apache-2.0
//
// The candidate lists of a row's parts, brought together by the CTA that finishes the row.

#ifndef HPCTOPK_KERNELS_DETAIL_MERGE_CUH_
#define HPCTOPK_KERNELS_DETAIL_MERGE_CUH_

#include <cstdint>

#include "kernels/detail/scan.cuh"

namespace hpctopk::detail {

// Sets scratch->ends so that `parts` lists, of size_of(part) entries each, can be read as one; returns their total.
template <class Group, class SizeOf>
__device__ int end_lists(const Group& group, Scratch* scratch, int parts, const SizeOf& size_of) {
  group.sync();
  if (group.warp() == 0) {
    int before = 0;
    for (int base = 0; base < parts; base += kWarpSize) {
      const int part = base + group.lane();
      const int end = before + inclusive_scan(part < parts ? size_of(part) : 0);
      if (part < parts) scratch->ends[part] = end;
      before = __shfl_sync(kFullWarp, end, kWarpSize - 1);
    }
  }
  group.sync();
  return scratch->ends[parts - 1];
}

struct ListEntry {
  int list;
  int index;
};

// Entry i of the lists read as one.
__device__ __forceinline__ ListEntry find_entry(const Scratch* scratch, int parts, int i) {
  int low = 0;
  int high = parts - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (scratch->ends[middle] <= i) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return {low, low == 0 ? i : i - scratch->ends[low - 1]};
}

// Adds load(0), ..., load(listed - 1) to the buffer's first `count` candidates and returns how many there are then. A
// buffer that runs full keeps its k best, and only what is better than the k-th comes in from there on.
template <class Group, class Load>
__device__ int merge_candidates(const Group& group, const Load& load, int listed, int count, int k, std::uint32_t floor,
                                int length, Digits digits, const CandidateBuffer& buffer, Statistics* statistics) {
  Scratch* const scratch = buffer.scratch;
  std::uint64_t kth = 0;  // below every candidate
  int begin = 0;
  group.sync();
  if (group.thread == 0) scratch->count = count;
  group.sync();
  while (true) {
    const int end = min(listed, begin + buffer.capacity - count);
    for (int base = begin; base < end; base += Group::kSize) {
      const int i = base + group.thread;
      const std::uint64_t c = i < end ? load(i) : 0;
      const bool keep = c > kth;
      const int slot = append_slot(keep, &scratch->count, group.lane());
      if (keep) buffer.candidates[slot] = c;
    }
    begin = end;
    group.sync();
    count = scratch->count;
    group.sync();
    if (begin == listed) return count;
    if (buffer.capacity - count >= (buffer.capacity - k) / 2) continue;
    kth = keep_k_best(group, k, floor, length, digits, buffer, count);
    count = k;
    if (statistics != nullptr && group.thread == 0) atomicAdd(atomic_word(&statistics->tightened), 1ULL);
  }
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_MERGE_CUH_
