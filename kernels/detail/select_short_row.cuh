// SPDX-License-Identifier: Apache-2.0
//
// The selection from a short row in registers. One histogram of linear bins leaves the boundary's bin to be ranked: of
// all scores, or of a list of those that reach a floor that a sample proposes. Where that bin is crowded, or the sample
// misleads, up to three more are about a score of the crowd. What is crowded still is left to select_general().

#ifndef HPCTOPK_KERNELS_DETAIL_SELECT_SHORT_ROW_CUH_
#define HPCTOPK_KERNELS_DETAIL_SELECT_SHORT_ROW_CUH_

#include <cstdint>

#include "kernels/detail/coarse_bins.cuh"
#include "kernels/detail/histogram.cuh"
#include "kernels/detail/linear_bins.cuh"
#include "kernels/detail/ordered_key.h"
#include "kernels/detail/pivot_bins.cuh"
#include "kernels/detail/ptx.cuh"
#include "kernels/detail/refine.cuh"
#include "kernels/detail/scan.cuh"
#include "kernels/detail/select_best.cuh"
#include "kernels/detail/short_row.cuh"

namespace hpctopk::detail {

// Entries of the boundary's bin that are ranked: with more, another histogram is faster.
inline constexpr int kMostTied = 128;
inline constexpr int kNotCrowded = -1;

// The shared memory of a selection; what is of variable size takes that of the candidates.
struct ShortRowStage {
  int* histogram;
  std::uint64_t* tied;  // [kMostTied] composites of the boundary's bin, once the histogram is done with
  Scratch* scratch;
  std::uint32_t* ranges;  // [2 * kWarpSize] see Crowd
  uint2* list;            // [list_room] scores that reach the floor, and their columns
  std::int32_t* columns;  // or [k] those of the winners
  float4* quads;          // [quad_room] or all scores
  int list_room, quad_room;

  __device__ explicit ShortRowStage(const CandidateBuffer& buffer)
      : histogram(buffer.histogram),
        tied(reinterpret_cast<std::uint64_t*>(buffer.histogram)),
        scratch(buffer.scratch),
        ranges(reinterpret_cast<std::uint32_t*>(buffer.candidates)) {
    static_assert(kMostTied * sizeof(std::uint64_t) <= kBins * sizeof(int));
    list = reinterpret_cast<uint2*>(ranges + 2 * kWarpSize);
    columns = reinterpret_cast<std::int32_t*>(list);
    quads = reinterpret_cast<float4*>(list);
    const int room = buffer.capacity - kWarpSize;
    list_room = room / 8 * 5;  // of more scores it is faster to look at all again
    quad_room = room / 2;
  }

  // Before a barrier and a selection.
  template <class Group>
  __device__ __forceinline__ void clear(const Group& group) const {
    clear_histogram(group, histogram);
    if (group.thread == 0) {
      scratch->front = 0;   // listed
      scratch->count = 0;   // winners; see StagedWinners
      scratch->listed = 0;  // tied, where they are counted apart
    }
  }
};

// One of kCount values, as the lowest bits of `which` say.
template <int kCount, class Value>
__device__ __forceinline__ Value pick(const Value* values, unsigned which) {
  if constexpr (kCount == 1) {
    return values[0];
  } else {
    const Value low = pick<kCount / 2>(values, which);
    const Value high = pick<kCount / 2>(values + kCount / 2, which);
    return (which & kCount / 2) != 0 ? high : low;
  }
}

// Where the winners of a warp go, the first score's of all lanes before the second's and so on: stores to scattered
// words leave the SM one sector a cycle. A byte of a word counts one score's, and one scan all four.
template <int kAtOnce>
class WinnerSlots {
 public:
  __device__ explicit WinnerSlots(unsigned mask) : mask_(mask) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) wins_[w] = (mask >> 4 * w & 0xFU) * 0x00204081U & 0x01010101U;
  }
  __device__ bool has(int i) const { return (mask_ & 1U << i) != 0; }
  __device__ int slot(int i) const {
    return base_[i / 4] + static_cast<int>(__byte_perm(slots_[i / 4], 0, 0x4440U + static_cast<unsigned>(i % 4)));
  }
  // Has the slots begin where scratch->count is, and moves it on. Returns where the thread's ties begin in their list.
  __device__ __forceinline__ int reserve(int lane, unsigned ties, Scratch* scratch) {
    int last = 0;  // the warp's winners, where this is its last lane
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      slots_[w] = static_cast<unsigned>(inclusive_scan(static_cast<int>(wins_[w])));
      last += static_cast<int>(slots_[w] * 0x01010101U >> 24);
    }
    int base = add_if(lane == kWarpSize - 1, &scratch->count, last);
    base = __shfl_sync(kFullWarp, base, kWarpSize - 1);
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      const unsigned sums = __shfl_sync(kFullWarp, slots_[w], kWarpSize - 1) * 0x01010101U;  // of the scores up to each
      slots_[w] += (sums << 8) - wins_[w];
      base_[w] = base;
      base += static_cast<int>(sums >> 24);
    }
    return add_if(ties != 0, &scratch->listed, __popc(ties));
  }
  template <class Batch>
  __device__ __forceinline__ void write(int /*lane*/, const Batch& batch, std::int32_t* /*stage*/,
                                        std::int32_t* out) const {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (has(i)) store_global(out + slot(i), batch.column(i));
    }
  }

 private:
  static constexpr int kWords = kAtOnce / 4;
  unsigned mask_;
  unsigned wins_[kWords];
  unsigned slots_[kWords];
  int base_[kWords];
};

// The winners of a warp, of which there are many. They meet in shared memory, so that consecutive lanes write
// consecutive words. At most 32 of a thread.
template <int kAtOnce>
class StagedWinners {
 public:
  __device__ explicit StagedWinners(unsigned mask) : mask_(mask) {}
  // Has them begin where scratch->count is, and moves it on. Returns where the thread's ties begin in their list, whose
  // length is the count's upper half: one scan and one atomic do for both.
  __device__ __forceinline__ int reserve(int lane, unsigned ties, Scratch* scratch) {
    const int mine = __popc(mask_) + (__popc(ties) << kHalf);
    const int through = inclusive_scan(mine);
    int base = add_if(lane == kWarpSize - 1, &scratch->count, through);
    base = __shfl_sync(kFullWarp, base, kWarpSize - 1);
    base_ = base & kWins;
    begin_ = (base + through - mine) & kWins;
    count_ = __shfl_sync(kFullWarp, through, kWarpSize - 1) & kWins;
    return (base + through - mine) >> kHalf;
  }
  // `stage` is for as many columns as `out`.
  template <class Batch>
  __device__ __forceinline__ void write(int lane, const Batch& batch, std::int32_t* stage, std::int32_t* out) const {
    int end = begin_;
#pragma unroll
    for (int begin = 0; begin < kAtOnce; begin += kStores) {
      int slot[kStores];  // all of them before the first store, which else the next would wait for
#pragma unroll
      for (int i = 0; i < kStores; ++i) {
        slot[i] = end;
        end += (mask_ & 1U << (begin + i)) != 0 ? 1 : 0;
      }
#pragma unroll
      for (int i = 0; i < kStores; ++i) {
        if ((mask_ & 1U << (begin + i)) != 0) stage[slot[i]] = batch.column(begin + i);
      }
    }
    __syncwarp();
    const std::int32_t* from = stage + base_ + lane;
    std::int32_t* to = out + base_ + lane;
    keep_in_register(&to);
#pragma unroll 1
    for (int left = count_ - lane; left > 0; left -= kStores * kWarpSize) {
      std::int32_t column[kStores];
#pragma unroll
      for (int i = 0; i < kStores; ++i) {
        if (i * kWarpSize < left) column[i] = from[i * kWarpSize];
      }
#pragma unroll
      for (int i = 0; i < kStores; ++i) {
        if (i * kWarpSize < left) store_global(to + i * kWarpSize, column[i]);
      }
      from += kStores * kWarpSize;
      to += kStores * kWarpSize;
    }
  }

 private:
  static constexpr int kStores = kAtOnce < 8 ? kAtOnce : 8;
  static constexpr int kHalf = 16;
  static constexpr int kWins = (1 << kHalf) - 1;
  unsigned mask_;
  int base_, count_;  // the warp's
  int begin_;         // the thread's
};

// A row's scores as entries, all of them at once. What is no entry has the score -infinity.
template <class Group, int kQuads>
struct RowEntries {
  using Batch = ShortRow<Group, kQuads>;
  using Winners = StagedWinners<Batch::kEntries>;
  const Batch& row;
  int count;

  template <class Visit>
  __device__ __forceinline__ void for_each_batch(const Visit& visit) const {
    visit(row);
  }
};

// Those of a list, some at a time.
template <class Group>
struct ListEntries {
  using Winners = WinnerSlots<4>;
  struct Batch {
    static constexpr int kEntries = 4;
    float score[kEntries];
    int columns[kEntries];
    int left;  // entries from this thread's first on

    __device__ int column(int i) const { return pick<kEntries>(columns, static_cast<unsigned>(i)); }
    __device__ bool has(int i) const { return i * Group::kSize < left; }
    __device__ unsigned entries() const {
      unsigned mask = 0;
#pragma unroll
      for (int i = 0; i < kEntries; ++i) mask |= has(i) ? 1U << i : 0;
      return mask;
    }
  };
  const uint2* list;
  int count;
  int thread;

  template <class Visit>
  __device__ __forceinline__ void for_each_batch(const Visit& visit) const {
#pragma unroll 1
    for (int begin = 0; begin < count; begin += Batch::kEntries * Group::kSize) {
      Batch batch;
      batch.left = count - begin - thread;
#pragma unroll
      for (int i = 0; i < Batch::kEntries; ++i) {
        uint2 entry = make_uint2(float_bits(-infinity()), 0);
        if (batch.has(i)) entry = list[begin + i * Group::kSize + thread];
        batch.score[i] = bits_float(entry.x);
        batch.columns[i] = static_cast<int>(entry.y);
      }
      visit(batch);
    }
  }
};

// A row's scores from shared memory, some at a time. Every thread has those that it had in registers.
template <class Group, int kQuads>
struct StagedEntries {
  using Winners = WinnerSlots<4 * kQuads>;
  struct Batch {
    static constexpr int kEntries = 4 * kQuads;
    float score[kEntries];
    unsigned valid;
    int first;

    __device__ int column(int i) const { return first + i / 4 * 4 * Group::kSize + i % 4; }
    __device__ unsigned entries() const { return valid; }
  };
  const float4* quads;
  int num_quads;  // of a thread
  int count;
  unsigned valid;
  int first;
  int thread;

  template <class Visit>
  __device__ __forceinline__ void for_each_batch(const Visit& visit) const {
#pragma unroll 1
    for (int q = 0; q < num_quads; q += kQuads) {
      Batch batch;
      batch.first = first + q * 4 * Group::kSize;
      batch.valid = valid >> 4 * q;
#pragma unroll
      for (int i = 0; i < kQuads; ++i) {
        const float4 quad = quads[(q + i) * Group::kSize + thread];
        batch.score[4 * i] = quad.x;
        batch.score[4 * i + 1] = quad.y;
        batch.score[4 * i + 2] = quad.z;
        batch.score[4 * i + 3] = quad.w;
      }
      visit(batch);
    }
  }
};

// Scores to be counted.
template <int kCount>
struct Sample {
  static constexpr int kEntries = kCount;
  float score[kCount];

  __device__ static bool has(int) { return true; }
};

// Counts what select_entries() takes.
template <class Batch, class Bins>
__device__ __forceinline__ void count_entries(const Batch& batch, const Bins& bins, const ShortRowStage& stage) {
  int bin[Batch::kEntries];
  bins.find(batch, bin);
#pragma unroll
  for (int i = 0; i < Batch::kEntries; ++i) atomicAdd(&stage.histogram[bin[i]], 1);
}

// The same for a row, quad by quad, so that none waits for the next one's load. The branch keeps the compiler from
// converting all of them first.
template <class Group, int kQuads>
__device__ __forceinline__ void count_row(const ShortRow<Group, kQuads>& row, const ShortRowStage& stage) {
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    if ((row.valid >> 4 * q & 0xFU) != 0) count_entries(row.quad(q), CoarseBins{}, stage);
  }
}

// Writes the columns of the k best of entries.count >= k entries, which are at columns below `width`. Or returns the
// boundary's bin, where too many share it, and nothing is written. All entries have been counted.
template <class Group, class Entries, class Bins>
__device__ __forceinline__ int select_entries(const Group& group, const Entries& entries, const Bins& bins, int k,
                                              int width, const ShortRowStage& stage, std::int32_t* out) {
  using Batch = typename Entries::Batch;
  Scratch* const scratch = stage.scratch;
  group.sync();
  find_rank(group, stage.histogram, scratch, k);
  RankBin found = scratch->found[0];
  const bool lowest = found.bin == Bins::kLowest;
  if (lowest) found.inside = entries.count - found.above;  // what is no entry was counted there
  const bool all = found.above + found.inside == k && !lowest;
  const bool crowded = !all && (found.inside > kMostTied || found.bin == Bins::kNans);
  if (__builtin_expect(static_cast<long>(crowded), 0) != 0) return found.bin;
  const auto last_loser = Bins::last_of(found.bin - 1);
  const auto last_tied = all ? last_loser : Bins::last_of(found.bin);
  entries.for_each_batch([&](const Batch& batch) {
    const unsigned wins = bins.above(batch, last_tied);
    unsigned ties = (bins.above(batch, last_loser) ^ wins) & batch.entries();
    typename Entries::Winners winners(wins);
    std::uint64_t* tied = stage.tied + winners.reserve(group.lane(), ties, scratch);
    winners.write(group.lane(), batch, stage.columns, out);
#pragma unroll 1
    for (; ties != 0; ties &= ties - 1) {
      const int i = __ffs(static_cast<int>(ties)) - 1;
      const float score = pick<Batch::kEntries>(batch.score, static_cast<unsigned>(i));
      *tied++ = composite(ordered_key(score), static_cast<std::uint32_t>(batch.column(i)));
    }
    __syncwarp();
  });
  if (all) return kNotCrowded;
  group.sync();
  rank_directly<4>(group, stage.tied, found.inside, k - found.above, {stage.tied, found.inside, k, width, 0, out});
  return kNotCrowded;
}

// The same for a boundary that is likely in a crowded interval. False: still too many share its bin. Out of line: few
// rows come here.
template <class Group, class Entries>
__device__ __noinline__ bool select_in_crowd(Group group, Entries entries, ScoreInterval crowded, int k, int width,
                                             ShortRowStage stage, std::int32_t* out) {
  constexpr int kRounds = 3;  // one will do as a rule
#pragma unroll 1
  for (int round = 0; round < kRounds; ++round) {
    group.sync();  // nobody reads the histogram or the ranges any more
    clear_histogram(group, stage.histogram);
    if (group.thread == 0) stage.scratch->count = 0;
    Crowd crowd;
    entries.for_each_batch([&](const typename Entries::Batch& batch) {
#pragma unroll
      for (int i = 0; i < Entries::Batch::kEntries; ++i) {
        if (crowded.has(batch.score[i])) crowd.add(batch.score[i]);
      }
    });
    const Pivot pivot = crowd.pivot(group, stage.ranges);
    if (!is_finite(pivot.score)) return false;
    const PivotBins bins = PivotBins::of(pivot, width);
    entries.for_each_batch([&](const typename Entries::Batch& batch) { count_entries(batch, bins, stage); });
    const int bin = select_entries(group, entries, bins, k, width, stage, out);
    if (bin == kNotCrowded) return true;
    crowded = bins.interval(bin);
  }
  return false;
}

// The same for a row in registers.
template <class Group, int kQuads>
__device__ __forceinline__ bool select_in_crowd(const Group& group, const ShortRow<Group, kQuads>& row,
                                                ScoreInterval crowded, int length, int k, int width,
                                                const ShortRowStage& stage, std::int32_t* out) {
  constexpr int kAtOnce = kQuads < 4 ? kQuads : 4;
  if (kQuads * Group::kSize > stage.quad_room) return false;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    stage.quads[i * Group::kSize + group.thread] =
        make_float4(row.score[4 * i], row.score[4 * i + 1], row.score[4 * i + 2], row.score[4 * i + 3]);
  }
  const StagedEntries<Group, kAtOnce> entries{stage.quads, kQuads, length, row.valid, row.first, group.thread};
  return select_in_crowd(group, entries, crowded, k, width, stage, out);
}

// Appends the scores in `mask` and their columns.
template <int kFirst = 0, class Group, int kQuads>
__device__ __forceinline__ void append_scores(const ShortRow<Group, kQuads>& row, unsigned mask, SharedCursor* list) {
  if constexpr (kFirst < 4 * kQuads) {
    list->template append_if<1U << kFirst>(mask, float_bits(row.score[kFirst]),
                                           static_cast<std::uint32_t>(row.column(kFirst)));
    append_scores<kFirst + 1>(row, mask, list);
  }
}

// How many scores of a row equal a plateau's, for each quad of the row in order: who owns them, and what comes before.
template <class Group, int kQuads>
class PlateauSlots {
 public:
  __device__ void add(int i) { mine_[i / 16] += 1U << i / 4 % 4 * 8; }
  // To `totals`, for kQuads * Group::kWarps words.
  __device__ __forceinline__ void publish(const Group& group, int* totals) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) before_[w] = static_cast<unsigned>(inclusive_scan(static_cast<int>(mine_[w])));
    if (group.lane() == kWarpSize - 1) {
#pragma unroll
      for (int i = 0; i < kQuads; ++i) totals[i * Group::kWarps + group.warp()] = of_quad(before_, i);
    }
  }
  // Of all.
  __device__ __forceinline__ int read(const Group& group, const int* totals) {
#pragma unroll
    for (int j = 0; j < kLoads; ++j) {
      const int place = group.lane() + j * kWarpSize;
      total_[j] = place < kQuads * Group::kWarps ? totals[place] : 0;
    }
    return sum_below(group, kQuads * Group::kWarps);
  }
  // The slot of the first of a quad.
  __device__ __forceinline__ int first(const Group& group, int quad) const {
    return sum_below(group, quad * Group::kWarps + group.warp()) + of_quad(before_, quad) - of_quad(mine_, quad);
  }

 private:
  static constexpr int kWords = (kQuads + 3) / 4;
  static constexpr int kLoads = (kQuads * Group::kWarps + kWarpSize - 1) / kWarpSize;

  __device__ static int of_quad(const unsigned* words, int i) {
    return static_cast<int>(words[i / 4] >> i % 4 * 8 & 0xFFU);
  }
  __device__ __forceinline__ int sum_below(const Group& group, int end) const {
    int sum = 0;
#pragma unroll
    for (int j = 0; j < kLoads; ++j) sum += group.lane() + j * kWarpSize < end ? total_[j] : 0;
    return __reduce_add_sync(kFullWarp, sum);
  }

  unsigned mine_[kWords] = {};
  unsigned before_[kWords];
  int total_[kLoads];
};

// visit(score) for a thread's scores in a bin.
template <class Batch, class Visit>
__device__ __forceinline__ void for_each_in_bin(const Batch& batch, int bin, const Visit& visit) {
  const float lower = CoarseBins::last_of(bin - 1);
  const float last = CoarseBins::last_of(bin);
#pragma unroll
  for (int i = 0; i < Batch::kEntries; ++i) {
    if (!(batch.score[i] <= lower) && batch.score[i] <= last && batch.has(i)) visit(batch.score[i]);
  }
}

// Bins of the range that the scores of a bin have. Ends with a barrier.
template <class Group, class Batch>
__device__ __forceinline__ LinearBins<kBins> bins_of_range(const Group& group, const Batch& batch, int bin,
                                                           const ShortRowStage& stage) {
  ScoreRange range;
  for_each_in_bin(batch, bin, [&](float score) { range.add(score); });
  range.publish(group, stage.ranges);
  group.sync();
  if (!range.of_all(group, stage.ranges) && !(is_finite(range.low) && is_finite(range.high))) range = {0, 0};
  return LinearBins<kBins>::of(range.low, range.high);
}

// Writes the columns of the k best of a row whose boundary is likely at a score that many of the boundary's bin have:
// those with higher scores, and the first columns of those that equal it. False: it is not, and nothing is written.
// Comes after select_entries() with CoarseBins found the bin.
template <class Group, int kQuads>
__device__ __forceinline__ bool select_on_plateau(const Group& group, const ShortRow<Group, kQuads>& row, int crowded,
                                                  int k, const ShortRowStage& stage, std::int32_t* out) {
  constexpr int kEntries = 4 * kQuads;
  Scratch* const scratch = stage.scratch;
  float named = not_a_number();
  for_each_in_bin(row, crowded, [&](float score) { named = score; });
  const unsigned naming = __ballot_sync(kFullWarp, named == named);
  if (naming != 0 && group.lane() == __ffs(static_cast<int>(naming)) - 1) {
    atomicExch(&scratch->low_key, float_bits(named));  // anyone's
  }
  group.sync();
  const float plateau = bits_float(scratch->low_key);
  PlateauSlots<Group, kQuads> slots;
#pragma unroll
  for (int i = 0; i < kEntries; ++i) {
    if (row.score[i] == plateau && row.has(i)) slots.add(i);
  }
  StagedWinners<kEntries> winners(CoarseBins{}.above(row, plateau));
  slots.publish(group, stage.histogram);
  winners.reserve(group.lane(), 0, scratch);
  group.sync();
  const int above = scratch->count;
  const int need = k - above;
  if (!(0 < need && need <= slots.read(group, stage.histogram))) return false;
  winners.write(group.lane(), row, stage.columns, out);
#pragma unroll
  for (int q = 0; q < kQuads; ++q) {
    int slot = slots.first(group, q);
#pragma unroll
    for (int i = 4 * q; i < 4 * q + 4; ++i) {
      if (row.score[i] != plateau || !row.has(i)) continue;
      if (slot < need) store_global(out + above + slot, row.column(i));
      ++slot;
    }
  }
  return true;
}

// The same where the scores of the boundary's bin differ, but lie so close together that it holds many: all are counted
// once more, in bins of the range that those have.
template <class Group, int kQuads>
__device__ __forceinline__ bool select_in_range(const Group& group, const ShortRow<Group, kQuads>& row, int crowded,
                                                int length, int k, int width, const ShortRowStage& stage,
                                                std::int32_t* out) {
  group.sync();  // nobody reads the histogram any more
  clear_histogram(group, stage.histogram);
  if (group.thread == 0) stage.scratch->count = 0;
  const auto bins = bins_of_range(group, row, crowded, stage);
  count_entries(row, bins, stage);
  return select_entries(group, RowEntries<Group, kQuads>{row, length}, bins, k, width, stage, out) == kNotCrowded;
}

// Writes the columns of the k best of a row with a window of `length`, all of whose scores have been counted in
// CoarseBins. False: it did not come to an end.
template <class Group, int kQuads>
__device__ __forceinline__ bool select_directly(const Group& group, const ShortRow<Group, kQuads>& row, int length,
                                                int k, int width, const ShortRowStage& stage, std::int32_t* out) {
  const CoarseBins bins;
  const int bin = select_entries(group, RowEntries<Group, kQuads>{row, length}, bins, k, width, stage, out);
  if (__builtin_expect(static_cast<long>(bin == kNotCrowded), 1) != 0) return true;
  if (select_on_plateau(group, row, bin, k, stage, out)) return true;
  if (select_in_range(group, row, bin, length, k, width, stage, out)) return true;
  return select_in_crowd(group, row, bins.interval(bin), length, k, width, stage, out);
}

// The same where a sample of one score in kStride, whose `rank`-th the k best reach, leaves few scores to compare.
// Where its bin is crowded, as the zeros of an indexer's rows are, what is higher is listed, and may be enough.
template <int kStride, class Group, int kQuads>
__device__ __forceinline__ bool select_by_sample(const Group& group, const ShortRow<Group, kQuads>& row, int rank,
                                                 int length, int k, int width, const ShortRowStage& stage,
                                                 std::int32_t* out) {
  constexpr int kSamples = 4 * kQuads / kStride;
  static_assert(kSamples >= 2);
  constexpr int kAll = kSamples * Group::kSize;
  const unsigned hash = static_cast<unsigned>(group.thread) * 0x9E3779B1U >> 28;
  Sample<kSamples> sample;
#pragma unroll
  for (int i = 0; i < kSamples; ++i) sample.score[i] = pick<kStride>(row.score + i * kStride, hash);
  count_entries(sample, CoarseBins{}, stage);
  group.sync();
  rank = min(rank, kAll);
  find_rank(group, stage.histogram, stage.scratch, rank, max(1, 2 * (k / kStride) - rank));
  const RankBin found = stage.scratch->found[0];
  bool crowded = found.inside > kAll / 8;
  bool finer = false;
  float low = CoarseBins::last_of(crowded ? found.bin : found.bin - 1);
  float high = CoarseBins::last_of(stage.scratch->found[1].bin);  // as far above the boundary as low is below
  clear_histogram(group, stage.histogram);
  if (__builtin_expect(static_cast<long>(crowded), 0) != 0) {
    // By equal scores, or by such as lie close together: bins of their range tell those apart.
    const auto bins = bins_of_range(group, sample, found.bin, stage);
    count_entries(sample, bins, stage);
    group.sync();
    find_rank(group, stage.histogram, stage.scratch, rank, max(1, 2 * (k / kStride) - rank));
    if (stage.scratch->found[0].inside <= kAll / 8) {
      crowded = false;
      finer = true;
      low = bins.low_of(stage.scratch->found[0].bin);
      high = bins.low_of(stage.scratch->found[1].bin + 1);
    }
    clear_histogram(group, stage.histogram);
  }
  unsigned mask = 0;
  admit_scores(row.score, low, &mask);
  mask &= row.valid;
  const int mine = __popc(mask);
  const int through = inclusive_scan(mine);
  int end = 0;
  if (group.lane() == kWarpSize - 1) end = atomicAdd(&stage.scratch->front, through) + through;
  end = __shfl_sync(kFullWarp, end, kWarpSize - 1);
  const int warp_total = __shfl_sync(kFullWarp, through, kWarpSize - 1);
  if (end <= stage.list_room) {
    SharedCursor list(stage.list + (end - warp_total + through - mine));
    append_scores(row, mask, &list);
  }
  group.sync();
  const int listed = stage.scratch->front;
  if (listed < k || listed > stage.list_room) {
    if (listed < k && crowded && select_on_plateau(group, row, found.bin, k, stage, out)) return true;
    ScoreInterval interval;
    if (!finer) interval = CoarseBins{}.interval(found.bin);
    if (listed < k && !crowded) interval.low = -infinity();
    if (listed >= k) interval.high = infinity();
    return select_in_crowd(group, row, interval, length, k, width, stage, out);
  }
  const ListEntries<Group> entries{stage.list, listed, group.thread};
  const auto fine_bins = LinearBins<kBins>::of(fmaxf(low, lowest_finite()), high);  // -infinity is in the first
  entries.for_each_batch([&](const auto& batch) { count_entries(batch, fine_bins, stage); });
  const int fine_bin = select_entries(group, entries, fine_bins, k, width, stage, out);
  if (fine_bin == kNotCrowded) return true;
  return select_in_crowd(group, entries, fine_bins.interval(fine_bin), k, width, stage, out);
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SELECT_SHORT_ROW_CUH_
