// SPDX-License-Identifier: Apache-2.0
//
// Phase 3 (paper, sections 4.4 and 5.4): the exact k-th best of the admitted candidates. Candidates are composites
// (key, index) on chip, so no score is gathered again, and every tie is decided by the same digits as everything else.

#ifndef HPCTOPK_KERNELS_DETAIL_REFINE_CUH_
#define HPCTOPK_KERNELS_DETAIL_REFINE_CUH_

#include <cstdint>

#include "kernels/detail/histogram.cuh"
#include "kernels/detail/ordered_key.h"

namespace hpctopk::detail {

// A boundary bin of at most this many entries is ranked directly: a warp an entry.
inline constexpr int kDirectRank = 256;

// Candidates in shared memory, as a source of composites: for_each gives every thread its share of them.
template <class Group>
struct CandidateList {
  const Group& group;
  const std::uint64_t* candidates;
  int count;

  template <class Visit>
  __device__ void for_each(const Visit& visit) const {
    for (int i = group.thread; i < count; i += Group::kSize) visit(candidates[i]);
  }
};

// The k-th largest of the source's composites, which are distinct and at least k >= 1: exactly k of them are >= the
// result. Its key is known to be at least `floor`, and `length` bounds the indices. The caller has synchronised the
// source; `histogram` and `scratch` are overwritten.
template <class Group, class Source>
__device__ __forceinline__ std::uint64_t kth_best_of(const Group& group, const Source& source, int k,
                                                     std::uint32_t floor, int length, Digits digits, int* histogram,
                                                     Scratch* scratch) {
  std::uint64_t low = 0;
  std::uint64_t high = ~std::uint64_t{0};
  int need = k;  // entries still to take from [low, high]; all above it are taken
  if (digits == Digits::kNormalised) {
    if (group.thread == 0) {
      scratch->low_key = kNanKey;
      scratch->high_key = 0;
      scratch->above = 0;
    }
    group.sync();
    std::uint32_t lowest = kNanKey;
    std::uint32_t highest = 0;
    int above = 0;
    source.for_each([&](std::uint64_t c) {
      lowest = min(lowest, composite_key(c));
      highest = max(highest, composite_key(c));
      above += composite_key(c) > floor;
    });
    lowest = __reduce_min_sync(kFullWarp, lowest);
    highest = __reduce_max_sync(kFullWarp, highest);
    above = __reduce_add_sync(kFullWarp, above);
    if (group.lane() == 0) {
      atomicMin(&scratch->low_key, lowest);
      atomicMax(&scratch->high_key, highest);
      atomicAdd(&scratch->above, above);
    }
    group.sync();
    const bool plateau = scratch->above < k;  // at the floor, and only its indices are left to rank
    if (plateau) need -= scratch->above;
    low = static_cast<std::uint64_t>(max(scratch->low_key, floor)) << 32;
    high = static_cast<std::uint64_t>(plateau ? floor : scratch->high_key) << 32 | 0xFFFFFFFFU;
  }

  while (true) {
    if (composite_key(low) == composite_key(high)) {  // one key left: only indices differ
      low = max(low, composite(composite_key(low), static_cast<std::uint32_t>(length - 1)));
    }
    const int bits = 64 - __clzll(static_cast<long long>(high - low));
    int shift = max(0, bits - kDigitBits);
    if (digits == Digits::kFixed && bits > 32) shift = max(32, shift);  // 11 + 11 + 10 bits of the key
    clear_histogram(group, histogram);
    if (group.thread == 0) scratch->listed = 0;
    group.sync();
    source.for_each([&](std::uint64_t c) {
      if (c >= low && c <= high) atomicAdd(&histogram[static_cast<int>((c - low) >> shift)], 1);
    });
    group.sync();
    find_rank(group, histogram, scratch, need);
    const RankBin found = scratch->found[0];
    need -= found.above;
    low += static_cast<std::uint64_t>(found.bin) << shift;
    high = low + min(high - low, (std::uint64_t{1} << shift) - 1);
    if (found.inside == need || shift == 0) return low;
    if (found.inside <= kDirectRank) break;
  }

  auto* list = reinterpret_cast<std::uint64_t*>(histogram);
  static_assert(kDirectRank * sizeof(std::uint64_t) <= kBins * sizeof(int));
  source.for_each([&](std::uint64_t c) {
    if (c >= low && c <= high) list[atomicAdd(&scratch->listed, 1)] = c;
  });
  group.sync();
  const int listed = scratch->listed;
  for (int i = group.warp(); i < listed; i += Group::kWarps) {
    const std::uint64_t c = list[i];
    int better = 0;
    for (int j = group.lane(); j < listed; j += kWarpSize) better += list[j] > c;
    better = __reduce_add_sync(kFullWarp, better);
    if (better == need - 1 && group.lane() == 0) scratch->kth = c;
  }
  group.sync();
  return scratch->kth;
}

// The k-th largest of candidates[0, count). Out of line and by value: scans have better use for their
// registers.
template <class Group>
__device__ HPCTOPK_RARE std::uint64_t kth_best(Group group, const std::uint64_t* candidates, int count, int k,
                                               std::uint32_t floor, int length, Digits digits, int* histogram,
                                               Scratch* scratch) {
  return kth_best_of(group, CandidateList<Group>{group, candidates, count}, k, floor, length, digits, histogram,
                     scratch);
}

// Keeps the candidates >= kth, in place and in some order. Slots are written only once everything up to them was read.
template <class Group>
__device__ HPCTOPK_RARE void keep_best(Group group, std::uint64_t* candidates, int count, std::uint64_t kth,
                                       Scratch* scratch) {
  group.sync();
  if (group.thread == 0) scratch->count = 0;
  for (int base = 0; base < count; base += Group::kSize) {
    const int i = base + group.thread;
    const std::uint64_t c = i < count ? candidates[i] : 0;
    group.sync();
    const bool keep = i < count && c >= kth;
    const int slot = append_slot(keep, &scratch->count, group.lane());
    if (keep) candidates[slot] = c;
  }
  group.sync();
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_REFINE_CUH_
