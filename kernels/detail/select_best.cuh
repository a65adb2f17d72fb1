// SPDX-License-Identifier: Apache-2.0
//
// Phase 3 and the output where the proposal says what range the candidates span: as a rule one histogram, whose bins
// divide that range, leaves a bin that is ranked directly.

#ifndef HPCTOPK_KERNELS_DETAIL_SELECT_BEST_CUH_
#define HPCTOPK_KERNELS_DETAIL_SELECT_BEST_CUH_

#include <cstdint>
#include <type_traits>

#include "kernels/detail/histogram.cuh"
#include "kernels/detail/ordered_key.h"
#include "kernels/detail/output.cuh"
#include "kernels/detail/refine.cuh"

namespace hpctopk::detail {

// Digits >= base in bins of equal width, but for bin 0, which holds base alone, and for the last, which is open.
struct DigitBins {
  std::uint32_t base;
  int shift;

  __device__ static DigitBins of(std::uint32_t base, std::uint32_t highest) {
    const std::uint32_t span = highest > base ? highest - base : 0;
    int shift = max(0, kWarpSize - __clz(static_cast<int>(span)) - kDigitBits);
    shift += span >> shift >= kBins - 1;
    return {base, shift};
  }
  __device__ int bin(std::uint32_t digit) const {
    return static_cast<int>(min((digit - base + (1U << shift) - 1) >> shift, kBins - 1U));
  }
  __device__ std::uint32_t low_of(int bin) const {
    return bin == 0 ? base : base + (static_cast<std::uint32_t>(bin - 1) << shift) + 1;
  }
  __device__ std::uint32_t high_of(int bin) const {
    const std::uint32_t high = base + (static_cast<std::uint32_t>(bin) << shift);
    return bin == kBins - 1 || high < base ? 0xFFFFFFFFU : high;  // a bin may reach beyond the last digit
  }
};

// Candidates in shared memory, and where the columns of the best go.
struct Selection {
  const std::uint64_t* candidates;
  int count;
  int k;
  int length;  // bounds the indices
  std::int32_t start;
  std::int32_t* out;
};

// Writes the columns of the `need` best of the `listed` composites in `tied`, after all others. A warp ranks kAtOnce.
template <int kAtOnce = 1, class Group>
__device__ __forceinline__ void rank_directly(const Group& group, const std::uint64_t* tied, int listed, int need,
                                              const Selection& selection) {
#pragma unroll 1
  for (int begin = group.warp(); begin < listed; begin += kAtOnce * Group::kWarps) {
    std::uint64_t c[kAtOnce];
    int better[kAtOnce] = {};
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) c[i] = tied[min(begin + i * Group::kWarps, listed - 1)];
#pragma unroll 1
    for (int j = group.lane(); j < listed; j += kWarpSize) {
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) better[i] += tied[j] > c[i];
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      better[i] = __reduce_add_sync(kFullWarp, better[i]);
      if (better[i] < need && group.lane() == 0) {
        selection.out[selection.k - need + better[i]] =
            selection.start + static_cast<std::int32_t>(composite_index(c[i]));
      }
    }
  }
}

// The rest of a selection: `need` more from the candidates with keys in [low, high], where they are many, as equal
// scores are. Rounds over what they really span, first by key and, once one key is left, by index. Out of line: few
// rows come here.
template <class Group>
__device__ HPCTOPK_RARE void select_among(Group group, Selection selection, std::uint32_t low, std::uint32_t high,
                                          int need, int* histogram, Scratch* scratch) {
  auto* const tied = reinterpret_cast<std::uint64_t*>(histogram);
  bool by_index = false;
  std::uint32_t key = 0;  // where by_index
  const auto rank_indices = [&] {
    by_index = true;
    key = low;
    low = ~static_cast<std::uint32_t>(selection.length - 1);
    high = 0xFFFFFFFFU;
  };
  const auto digit_of = [&](std::uint64_t c) {
    return by_index ? static_cast<std::uint32_t>(c) : composite_key(c);  // the complement of the index ranks it
  };
  const auto for_each_left = [&](const auto& visit) {
    for (int base = 0; base < selection.count; base += Group::kSize) {
      const int i = base + group.thread;
      const std::uint64_t c = selection.candidates[min(i, selection.count - 1)];
      const std::uint32_t digit = digit_of(c);
      const bool is_left = i < selection.count && low <= digit && digit <= high;
      if (is_left && (!by_index || composite_key(c) == key)) visit(c, digit);
      __syncwarp();
    }
  };
  const auto find_span = [&] {
    std::uint32_t lowest = 0xFFFFFFFFU;
    std::uint32_t highest = 0;
    for_each_left([&](std::uint64_t, std::uint32_t digit) {
      lowest = min(lowest, digit);
      highest = max(highest, digit);
    });
    publish_range(group, lowest, highest, scratch);
    low = scratch->low_key;
    high = scratch->high_key;
    if (!by_index && low == high) rank_indices();
  };
  while (true) {
    group.sync();
    clear_histogram(group, histogram);
    if (group.thread == 0) {
      scratch->listed = 0;
      scratch->low_key = 0xFFFFFFFFU;
      scratch->high_key = 0;
    }
    group.sync();
    if (!by_index && low == high) {
      rank_indices();
    } else {
      find_span();
    }
    const DigitBins bins = DigitBins::of(low, high);
    for_each_left([&](std::uint64_t, std::uint32_t digit) { atomicAdd(&histogram[bins.bin(digit)], 1); });
    group.sync();
    find_rank(group, histogram, scratch, need);
    const RankBin found = scratch->found[0];
    const bool all = found.above + found.inside == need;
    const bool rankable = found.inside <= kDirectRank;
    const std::uint32_t bin_low = bins.low_of(found.bin);
    const std::uint32_t bin_high = min(high, bins.high_of(found.bin));
    for_each_left([&](std::uint64_t c, std::uint32_t digit) {
      if (digit > bin_high || (all && digit >= bin_low)) {
        selection.out[atomicAdd(&scratch->count, 1)] = selection.start + static_cast<std::int32_t>(composite_index(c));
      } else if (rankable && digit >= bin_low) {
        tied[atomicAdd(&scratch->listed, 1)] = c;
      }
    });
    if (all) return;
    need -= found.above;
    if (rankable) {
      group.sync();
      rank_directly(group, tied, found.inside, need, selection);
      return;
    }
    low = bin_low;
    high = bin_high;
  }
}

// Writes the columns of the k best of `count` >= k distinct candidates. Their keys are at least `floor`, and most are
// expected above it and up to `highest`: where they are not, it takes longer.
template <class Group>
__device__ __forceinline__ void select_best(const Group& group, const Selection& selection, std::uint32_t floor,
                                            std::uint32_t highest, int* histogram, Scratch* scratch) {
  constexpr int kAtOnce = 4;
  const std::uint64_t* const candidates = selection.candidates;
  const int count = selection.count;
  auto* const tied = reinterpret_cast<std::uint64_t*>(histogram);  // once the histogram is done with
  static_assert(kDirectRank * sizeof(std::uint64_t) <= kBins * sizeof(int));
  group.sync();  // all have read the count that the scan left
  clear_histogram(group, histogram);
  if (group.thread == 0) {
    scratch->count = 0;
    scratch->listed = 0;
  }
  group.sync();
  // What equals the floor has a bin of its own: on a plateau it is nearly everything, and has its indices to be ranked.
  const DigitBins bins = DigitBins::of(max(floor, kLowestKey), highest);
  for (int base = group.thread; base < count; base += kAtOnce * Group::kSize) {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (base + i * Group::kSize >= count) continue;
      atomicAdd(&histogram[bins.bin(composite_key(candidates[base + i * Group::kSize]))], 1);
    }
  }
  group.sync();
  find_rank(group, histogram, scratch, selection.k);
  const RankBin found = scratch->found[0];
  const std::uint32_t low = bins.low_of(found.bin);
  const std::uint32_t high = bins.high_of(found.bin);
  const bool all = found.above + found.inside == selection.k;
  const bool rankable = found.inside <= kDirectRank;
  const std::uint32_t below_winners = all ? low - 1 : high;
  // A warp reserves room for all it writes of a few candidates with one atomic.
  for (int base = 0; base < count; base += kAtOnce * Group::kSize) {
    std::uint64_t c[kAtOnce];
    unsigned kept[kAtOnce];
    int total = 0;
    unsigned ties = 0;
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) c[i] = candidates[min(base + i * Group::kSize + group.thread, count - 1)];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const bool valid = base + i * Group::kSize + group.thread < count;
      const bool wins = composite_key(c[i]) > below_winners;
      kept[i] = __ballot_sync(kFullWarp, valid && wins);
      total += __popc(kept[i]);
      if (valid && !wins && rankable && composite_key(c[i]) >= low) ties |= 1U << i;
    }
    int slot = 0;
    if (group.lane() == 0) slot = atomicAdd(&scratch->count, total);
    slot = __shfl_sync(kFullWarp, slot, 0);
    const unsigned below = lanes_below(group.lane());
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if ((kept[i] >> group.lane() & 1) != 0) {
        selection.out[slot + __popc(kept[i] & below)] =
            selection.start + static_cast<std::int32_t>(composite_index(c[i]));
      }
      slot += __popc(kept[i]);
    }
#pragma unroll 1
    while (ties != 0) {
      const int i = __ffs(static_cast<int>(ties)) - 1;
      ties &= ties - 1;
      tied[atomicAdd(&scratch->listed, 1)] = candidates[base + i * Group::kSize + group.thread];
    }
    __syncwarp();
  }
  if (all) return;
  const int need = selection.k - found.above;
  if (!rankable) {
    select_among(group, selection, low, high, need, histogram, scratch);
    return;
  }
  group.sync();
  rank_directly(group, tied, found.inside, need, selection);
}

// What select_by_bins() needs beside.
struct BestStage {
  std::uint64_t* tied;  // [kDirectRank]
  std::uint64_t* list;  // [gathered_capacity(k)], where they are not on chip
  std::int32_t* best;   // [k]
};

// Candidates in shared memory, as select_in_bins() takes them. Nothing of them is kept.
struct CandidatesOnChip {
  const std::uint64_t* candidates;

  template <class Group>
  class Entries {
   public:
    // Counts each entry in its bin.
    template <class Bins>
    __device__ __forceinline__ Entries(const Group& group, const CandidatesOnChip& load, int count, const Bins& bins,
                                       int* histogram)
        : candidates_(load.candidates), count_(count) {
      for_each(group, [&](const std::uint64_t* c, int valid) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) atomicAdd(&histogram[bins.bin_of(c[i])], i < valid ? 1 : 0);
      });
    }

    // visit(bin, place, entry) for those in bins >= `lowest`: the place is among the entries of that bin and of higher
    // ones, which histogram[bin] counts before.
    template <class Bins, class Visit>
    __device__ __forceinline__ void place(const Group& group, int lowest, const Bins& bins, int* histogram,
                                          const Visit& visit) const {
      for_each(group, [&](const std::uint64_t* c, int valid) {
        int bin[kAtOnce];
        int place[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          bin[i] = i < valid ? bins.bin_of(c[i]) : -1;
          place[i] = add_one_if(bin[i] >= lowest, &histogram[max(bin[i], 0)]);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (bin[i] >= lowest) visit(bin[i], place[i], c[i]);
        }
      });
    }

    __device__ __forceinline__ const std::uint64_t* list(const Group&, std::uint64_t*) const { return candidates_; }

   private:
    static constexpr int kAtOnce = 4;  // so that their latencies overlap

    template <class Visit>
    __device__ __forceinline__ void for_each(const Group& group, const Visit& visit) const {
#pragma unroll 1
      for (int base = group.thread; base < count_; base += kAtOnce * Group::kSize) {
        const int valid = (count_ - base + Group::kSize - 1) / Group::kSize;  // of the thread's next
        std::uint64_t c[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) c[i] = candidates_[min(base + i * Group::kSize, count_ - 1)];
        visit(c, valid);
      }
    }

    const std::uint64_t* candidates_;
    int count_;
  };
};

// Candidates that load(i) brings from elsewhere, once, to be kept in registers. The atomic that counts an entry in its
// bin returns its place there.
template <class Group, class Load>
class KeptEntries {
 public:
  template <class Bins>
  __device__ __forceinline__ KeptEntries(const Group& group, const Load& load, int count, const Bins& bins,
                                         int* histogram)
      : count_(count) {
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      c_[i] = 0;
      if (i * Group::kSize < count) c_[i] = load(min(i * Group::kSize + group.thread, count - 1));
    }
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      places_[i] = -1;  // in no bin
      if (i * Group::kSize + group.thread >= count) continue;
      const int bin = bins.bin_of(c_[i]);
      places_[i] = bin << 16 | atomicAdd(&histogram[bin], 1);
    }
  }

  template <class Bins, class Visit>
  __device__ __forceinline__ void place(const Group&, int lowest, const Bins&, const int* histogram,
                                        const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      const int bin = places_[i] >> 16;
      if (bin >= lowest) visit(bin, histogram[bin] + (places_[i] & 0xFFFF), c_[i]);
    }
  }

  __device__ __forceinline__ const std::uint64_t* list(const Group& group, std::uint64_t* to) const {
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      if (i * Group::kSize + group.thread < count_) to[i * Group::kSize + group.thread] = c_[i];
    }
    return to;
  }

 private:
  static constexpr int kEntries = kernels::kMaxGathered / Group::kSize;
  int count_;
  std::uint64_t c_[kEntries];
  int places_[kEntries];  // bin and place in it
};

// Candidates by their keys, which are at least `floor` and as a rule up to `highest`.
struct KeyBins : DigitBins {
  __device__ static KeyBins of(std::uint32_t floor, std::uint32_t highest) {
    return {DigitBins::of(max(floor, kLowestKey), highest)};
  }
  __device__ int bin_of(std::uint64_t c) const { return bin(composite_key(c)); }
};

// Candidates of which those above `plateau` are fewer than k: what equals it, by its indices, which as a rule are below
// `limit`. Half of the bins are for the others, in any order.
struct PlateauBins {
  static constexpr int kEqual = kBins / 2;
  std::uint32_t plateau;
  int last;
  int shift;

  __device__ static PlateauBins of(std::uint32_t plateau, int limit) {
    const int last = limit - 1;
    return {plateau, last, max(0, kWarpSize - __clz(last) - (kDigitBits - 1))};
  }
  __device__ int bin_of(std::uint64_t c) const {
    const auto index = static_cast<int>(composite_index(c));
    return composite_key(c) > plateau ? kEqual + index % kEqual : max(0, last - index) >> shift;
  }
};

// As select_by_bins(): an entry's place in its bin, and the entries of higher bins, are its place among the
// best.
template <class Group, class Load, class Bins>
__device__ __forceinline__ void select_in_bins(const Group& group, const Selection& selection, const Load& load,
                                               const Bins& bins, std::uint32_t floor, std::uint32_t highest,
                                               int* histogram, Scratch* scratch, const BestStage& stage) {
  using Entries = typename Load::template Entries<Group>;
  constexpr bool kByIndex = std::is_same_v<Bins, PlateauBins>;
  clear_histogram(group, histogram);
  group.sync();
  const Entries entries(group, load, selection.count, bins, histogram);
  group.sync();
  find_rank<true>(group, histogram, scratch, selection.k);
  const RankBin found = scratch->found[0];
  const bool all = found.above + found.inside == selection.k;
  const bool rankable = found.inside <= kDirectRank;
  // The others are not ordered: there must be fewer than k of them.
  const bool misled = kByIndex && (found.bin >= PlateauBins::kEqual || !(all || rankable));
  const int lowest_winner = all ? found.bin : found.bin + 1;
  entries.place(group, rankable ? found.bin : lowest_winner, bins, histogram, [&](int bin, int place, std::uint64_t c) {
    if (bin >= lowest_winner) {
      stage.best[place] = selection.start + static_cast<std::int32_t>(composite_index(c));
    } else {
      stage.tied[place - found.above] = c;
    }
  });
  const int placed = all ? selection.k : found.above;
  Selection rest = selection;
  if (misled || (!all && !rankable)) rest.candidates = entries.list(group, stage.list);
  if (group.thread == 0) scratch->count = placed;
  group.sync();
  if (misled) {
    select_best(group, rest, floor, highest, histogram, scratch);
    return;
  }
  // Consecutive threads write consecutive words: stores to scattered words leave the SM one sector a cycle.
  for (int i = group.thread; i < placed; i += Group::kSize) selection.out[i] = stage.best[i];
  if (all) return;
  if (rankable) {
    rank_directly(group, stage.tied, found.inside, selection.k - placed, selection);
  } else if constexpr (!kByIndex) {
    select_among(group, rest, bins.low_of(found.bin), bins.high_of(found.bin), selection.k - placed, histogram,
                 scratch);
  }
}

// Out of line: few rows come here.
template <class Group, class Load>
__device__ HPCTOPK_RARE void select_on_plateau(Group group, Selection selection, Load load, PlateauBins bins,
                                               std::uint32_t highest, int* histogram, Scratch* scratch,
                                               BestStage stage) {
  select_in_bins(group, selection, load, bins, bins.plateau, highest, histogram, scratch, stage);
}

// As select_best() for candidates that `load` has: CandidatesOnChip, or what KeptEntries reads once. A `limit` says
// that `floor` is a plateau, of which the k best hold what is below that index.
template <class Group, class Load>
__device__ __forceinline__ void select_by_bins(const Group& group, const Selection& selection, const Load& load,
                                               std::uint32_t floor, std::uint32_t highest, int limit, int* histogram,
                                               Scratch* scratch, const BestStage& stage) {
  if (limit != Boundary::kNoLimit) {
    select_on_plateau(group, selection, load, PlateauBins::of(floor, limit), highest, histogram, scratch, stage);
  } else {
    select_in_bins(group, selection, load, KeyBins::of(floor, highest), floor, highest, histogram, scratch, stage);
  }
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SELECT_BEST_CUH_
