// SPDX-License-Identifier: Apache-2.0
//
// Phase 3 and the output where the proposal says what range the candidates span: as a rule one histogram, whose bins
// divide that range, leaves a bin that is ranked directly.

#ifndef HPCTOPK_KERNELS_DETAIL_SELECT_BEST_CUH_
#define HPCTOPK_KERNELS_DETAIL_SELECT_BEST_CUH_

#include <cstdint>

#include "kernels/detail/histogram.cuh"
#include "kernels/detail/ordered_key.h"
#include "kernels/detail/output.cuh"
#include "kernels/detail/refine.cuh"

namespace hpctopk::detail {

// Composites, inclusive at both ends.
struct Interval {
  std::uint64_t low, high;
  __device__ bool has(std::uint64_t c) const { return low <= c && c <= high; }
};

// An interval divided into equal bins, with one more for what is below and one for what is above.
struct IntervalBins {
  static constexpr int kBelow = 0;
  static constexpr int kAbove = kBins - 1;

  Interval interval;
  int shift;

  __device__ static IntervalBins of(Interval interval) {
    const std::uint64_t span = interval.high > interval.low ? interval.high - interval.low : 0;
    int shift = max(0, 64 - __clzll(static_cast<long long>(span)) - kDigitBits);
    shift += span >> shift >= kBins - 2;
    return {interval, shift};
  }
  __device__ int bin(std::uint64_t c) const {
    if (c < interval.low) return kBelow;
    return c > interval.high ? kAbove : 1 + static_cast<int>((c - interval.low) >> shift);
  }
  // Holds what the bin holds, and from the two outer bins maybe more.
  __device__ Interval of_bin(int bin) const {
    if (bin == kBelow) return {0, interval.low - 1};
    if (bin == kAbove) return {max(interval.high + 1, interval.low), ~std::uint64_t{0}};
    const std::uint64_t low = interval.low + (static_cast<std::uint64_t>(bin - 1) << shift);
    return {low, low + min(interval.high - low, (std::uint64_t{1} << shift) - 1)};
  }
};

__device__ __forceinline__ std::uint64_t warp_min(std::uint64_t value) {
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    value = min(value, static_cast<std::uint64_t>(
                           __shfl_xor_sync(kFullWarp, static_cast<unsigned long long>(value), distance)));
  }
  return value;
}

// Writes the columns of the k best of `count` >= k distinct candidates in shared memory. Their keys are at least
// `floor`, and most are expected above it and up to `highest`: where they are not, it takes another round.
template <class Group>
__device__ __forceinline__ void select_best(const Group& group, const std::uint64_t* candidates, int count, int k,
                                            std::uint32_t floor, std::uint32_t highest, int* histogram,
                                            Scratch* scratch, std::int32_t start, std::int32_t* out) {
  constexpr int kAtOnce = 4;
  auto* const tied = reinterpret_cast<std::uint64_t*>(histogram);  // once the histogram is done with
  static_assert(kDirectRank * sizeof(std::uint64_t) <= kBins * sizeof(int));
  // What equals the floor stands apart: on a plateau it is nearly everything, and only its indices are to be ranked.
  const std::uint64_t above_floor =
      floor == kNanKey ? ~std::uint64_t{0} : static_cast<std::uint64_t>(floor + 1) << 32;
  Interval left{1, ~std::uint64_t{0}};  // blanks are 0
  IntervalBins bins = IntervalBins::of({above_floor, static_cast<std::uint64_t>(highest) << 32 | 0xFFFFFFFFU});
  int need = k;  // of what is left; all that is above it is written
  if (group.thread == 0) scratch->count = 0;
  while (true) {
    clear_histogram(group, histogram);
    if (group.thread == 0) {
      scratch->listed = 0;
      scratch->span_low = ~std::uint64_t{0};
      scratch->span_high = 0;
    }
    group.sync();
#pragma unroll 2
    for (int i = group.thread; i < count; i += Group::kSize) {
      const std::uint64_t c = candidates[i];
      if (left.has(c)) atomicAdd(&histogram[bins.bin(c)], 1);
    }
    group.sync();
    find_rank(group, histogram, scratch, need);
    const RankBin found = scratch->found[0];
    Interval bin = bins.of_bin(found.bin);
    bin = {max(bin.low, left.low), min(bin.high, left.high)};
    const bool all = found.above + found.inside == need;
    const bool rankable = found.inside <= kDirectRank;
    // A warp reserves room for all it writes of a few candidates with one atomic.
    std::uint64_t lowest = ~std::uint64_t{0};
    std::uint64_t highest_inside = 0;
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
        const bool inside = bin.has(c[i]);
        kept[i] = __ballot_sync(kFullWarp, inside ? all : left.has(c[i]) && c[i] > bin.high);
        total += __popc(kept[i]);
        if (!inside || all) continue;
        if (rankable) tied[atomicAdd(&scratch->listed, 1)] = c[i];
        lowest = min(lowest, c[i]);
        highest_inside = max(highest_inside, c[i]);
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
    if (all) return;
    need -= found.above;
    if (rankable) {
      group.sync();
      for (int i = group.warp(); i < found.inside; i += Group::kWarps) {
        const std::uint64_t c = tied[i];
        int better = 0;
        for (int j = group.lane(); j < found.inside; j += kWarpSize) better += tied[j] > c;
        better = __reduce_add_sync(kFullWarp, better);
        if (better < need && group.lane() == 0) {
          out[k - need + better] = start + static_cast<std::int32_t>(composite_index(c));
        }
      }
      return;
    }
    // Many in one bin, as equal scores are: again, over what they really span.
    lowest = warp_min(lowest);
    highest_inside = ~warp_min(~highest_inside);
    if (group.lane() == 0 && lowest <= highest_inside) {
      atomicMin(atomic_word(&scratch->span_low), static_cast<unsigned long long>(lowest));
      atomicMax(atomic_word(&scratch->span_high), static_cast<unsigned long long>(highest_inside));
    }
    group.sync();
    left = {scratch->span_low, scratch->span_high};
    bins = IntervalBins::of(left);
    group.sync();  // the next round begins by writing them
  }
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SELECT_BEST_CUH_
