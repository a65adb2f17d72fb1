// SPDX-License-Identifier: Apache-2.0
//
// A short row in the registers of a CTA. It is read once, by the allocated width and masked by its window afterwards,
// so that the scores and the window are on their way together. Histograms have bins of equal width in the scores' own
// range, so that shared memory sees few atomics and the boundary's bin few scores. Rows that this does not suit (most
// of their scores near the boundary in one bin) are left to select_general().

#ifndef HPCTOPK_KERNELS_DETAIL_SHORT_ROW_CUH_
#define HPCTOPK_KERNELS_DETAIL_SHORT_ROW_CUH_

#include <cstdint>

#include "kernels/detail/histogram.cuh"
#include "kernels/detail/ordered_key.h"
#include "kernels/detail/ptx.cuh"
#include "kernels/detail/refine.cuh"
#include "kernels/detail/row.cuh"
#include "kernels/detail/scan.cuh"
#include "kernels/detail/select_best.cuh"
#include "kernels/detail/view.h"

namespace hpctopk::detail {

__device__ __forceinline__ float infinity() { return bits_float(0x7F800000U); }
__device__ __forceinline__ float not_a_number() { return bits_float(0x7FFFFFFFU); }

// The window of a row as it is in memory, and the rows there are. Nothing waits for the loads yet.
struct RawWindow {
  std::int32_t start, length, num_rows;

  __device__ __forceinline__ RawWindow(const Operands& operands, std::int64_t index)
      : start(0), length(kMaxLength), num_rows(kMaxLength) {
    if (operands.row_starts != nullptr) start = operands.row_starts[index];
    if (operands.lengths != nullptr) length = operands.lengths[index];
    if (operands.num_rows != nullptr) num_rows = *operands.num_rows;
  }
  __device__ __forceinline__ void clamp(int width) {
    start = min(max(start, 0), width);
    length = min(max(length, 0), width - start);
  }

 private:
  static constexpr std::int32_t kMaxLength = 0x7FFFFFFF;
};

// Up to 4 * kQuads * Group::kSize scores, beginning at the row's first quad boundary or up to three columns before it.
template <class Group, int kQuads>
struct ShortRow {
  static constexpr int kEntries = 4 * kQuads;
  static_assert(kEntries <= 32);

  float score[kEntries];  // -infinity outside of the window
  unsigned valid;         // a bit for each
  int first;              // the column of the first

  __device__ int column(int i) const { return first + i / 4 * 4 * Group::kSize + i % 4; }
  __device__ bool has(int i) const { return (valid & 1U << i) != 0; }
  __device__ static bool none_from(int) { return false; }

  __device__ static int skipped(const float* row) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(row) / sizeof(float) % 4);
  }
  __device__ static bool fits(const float* row, int width) { return skipped(row) + width <= kEntries * Group::kSize; }

  // Reads all columns: 0..width - 1.
  __device__ __forceinline__ void load(const Group& group, const float* row, int width) {
    first = 4 * group.thread - skipped(row);
    keep_in_register(&first);
    const float* const mine = row + first;
    if (first >= 0 && is_whole(kQuads - 1, width)) {
#pragma unroll
      for (int i = 0; i < kQuads; ++i) set(i, load_streaming(quad_of(mine, i)));
      return;
    }
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int c = column(4 * i);
      const bool whole = is_whole(i, width);
      float4 quad = make_float4(-infinity(), -infinity(), -infinity(), -infinity());
      if (whole) quad = load_streaming(quad_of(mine, i));
      set(i, quad);
      if (whole || c >= width) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {  // a quad that reaches over the row's edge
        if (c + j >= 0 && c + j < width) score[4 * i + j] = load_streaming(mine + i * 4 * Group::kSize + j);
      }
    }
  }
  __device__ static const float4* quad_of(const float* mine, int i) {
    return reinterpret_cast<const float4*>(mine) + i * Group::kSize;
  }
  __device__ void set(int i, const float4& quad) {
    score[4 * i] = quad.x;
    score[4 * i + 1] = quad.y;
    score[4 * i + 2] = quad.z;
    score[4 * i + 3] = quad.w;
  }
  __device__ bool is_whole(int i, int width) const {
    return (i > 0 || first >= 0) && first <= width - 4 - i * 4 * Group::kSize;
  }

  // Leaves columns [begin, end).
  __device__ __forceinline__ void mask(int begin, int end) {
    valid = 0xFFFFFFFFU >> (32 - kEntries);
    if (first >= begin && column(kEntries - 1) < end) return;
    valid = 0;
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      if (column(i) >= begin && column(i) < end) {
        valid |= 1U << i;
      } else {
        score[i] = -infinity();
      }
    }
  }
};

// Bins of equal width for scores from `low` to `high`. The first takes what is lower too, the last what is higher, NaNs
// included: a monotone map of the contract's order, whatever low and high are, so that no result depends on them.
template <int kCount>
struct LinearBins {
  float low, width, scale;

  __device__ static LinearBins of(float low, float high) {
    const float range = fmaxf(high - low, 1e-30F);
    return {low, range * (1.0F / (kCount - 3)), (kCount - 3) * approximate_reciprocal(range)};
  }
  __device__ int bin(float x) const {
    constexpr float kInteger = 8388608.0F;  // 2^23, from where a float's last bit is 1
    const float place = fmaf(x - low, scale, kInteger + 1);
    return static_cast<int>(float_bits(fmaxf(fminf(place, kInteger + (kCount - 1)), kInteger)) - float_bits(kInteger));
  }
  // About the lowest score of a bin other than the first.
  __device__ float low_of(int bin) const { return low + (static_cast<float>(bin) - 1.5F) * width; }
};

inline constexpr int kSampleBins = 4 * kWarpSize;

// In the shared memory of the candidates.
struct ShortRowStage {
  int* sample;         // [kSampleBins]
  uint2* ranges;       // [Group::kWarps]
  std::int32_t* best;  // [k + kDirectRank] columns, the boundary's bin last
  float* tied;         // [k + kDirectRank] the scores of that bin
  uint2* list;         // [room] scores in the band between the sample's two boundaries, and their columns
  int room;

  __device__ ShortRowStage(const CandidateBuffer& buffer, int k, int most) {
    const int places = (k + kDirectRank + 3) / 4 * 4;
    sample = reinterpret_cast<int*>(buffer.candidates);
    ranges = reinterpret_cast<uint2*>(sample + kSampleBins);
    best = reinterpret_cast<std::int32_t*>(ranges + kWarpSize);
    tied = reinterpret_cast<float*>(best + places);
    list = reinterpret_cast<uint2*>(tied + places);
    const int before = kSampleBins / 2 + kWarpSize + places;
    room = min(most, buffer.capacity - before - kWarpSize);  // warps read all of their lanes
  }
};

// The range that each warp's scores have, infinities left out, and from those of all warps one that holds nearly all
// scores: outliers of a few warps do not widen it.
struct ScoreRange {
  float low = infinity();
  float high = -infinity();

  __device__ __forceinline__ void add(float score) {
    if (score > -infinity()) low = fminf(low, score);
    if (score < infinity()) high = fmaxf(high, score);
  }
  template <class Group>
  __device__ __forceinline__ void publish(const Group& group, uint2* ranges) const {
    const std::uint32_t lowest = __reduce_min_sync(kFullWarp, key_of(low));
    const std::uint32_t highest = __reduce_max_sync(kFullWarp, key_of(high));
    if (group.lane() == 0) ranges[group.warp()] = make_uint2(lowest, highest);
  }
  // Whether there is one.
  template <class Group>
  __device__ __forceinline__ bool inner_of_all(const Group& group, const uint2* ranges) {
    const uint2 range = ranges[group.lane() & (Group::kWarps - 1)];
    const std::uint32_t a = __reduce_max_sync(kFullWarp, range.x == kInfinityKey ? 0 : range.x);
    const std::uint32_t b = __reduce_min_sync(kFullWarp, range.y == kLowestKey ? kNanKey : range.y);
    low = key_score(min(a, b));
    high = key_score(max(a, b));
    return a != 0 && b != kNanKey && a != b;
  }
  template <class Group>
  __device__ __forceinline__ void outer_of_all(const Group& group, const uint2* ranges) {
    const uint2 range = ranges[group.lane() & (Group::kWarps - 1)];
    low = key_score(__reduce_min_sync(kFullWarp, range.x));
    high = key_score(__reduce_max_sync(kFullWarp, range.y));
  }

 private:
  // ordered_key() of what is no NaN. Either zero will do.
  __device__ static std::uint32_t key_of(float x) {
    const std::uint32_t bits = float_bits(x);
    return bits ^ (static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | 0x80000000U);
  }
};

// The column of best[i] goes to out[i]. Consecutive threads write consecutive words: stores to scattered words leave
// the SM one sector a cycle.
template <class Group>
__device__ __forceinline__ void copy_best(const Group& group, const std::int32_t* best, int count, std::int32_t* out) {
  int done = 0;
  if (reinterpret_cast<std::uintptr_t>(out) % sizeof(int4) == 0) {
#pragma unroll 1
    for (int i = group.thread; i < count / 4; i += Group::kSize) {
      reinterpret_cast<int4*>(out)[i] = reinterpret_cast<const int4*>(best)[i];
    }
    done = count / 4 * 4;
  }
#pragma unroll 1
  for (int i = done + group.thread; i < count; i += Group::kSize) out[i] = best[i];
}

// Writes the columns of the `need` best of the `listed` entries behind all others.
template <class Group>
__device__ __forceinline__ void rank_ties(const Group& group, const float* scores, const std::int32_t* columns,
                                          int listed, int need, int k, std::int32_t* out) {
  const auto entry = [&](int i) { return composite(ordered_key(scores[i]), static_cast<std::uint32_t>(columns[i])); };
#pragma unroll 1
  for (int i = group.warp(); i < listed; i += Group::kWarps) {
    const std::uint64_t c = entry(i);
    int better = 0;
#pragma unroll 1
    for (int j = group.lane(); j < listed; j += kWarpSize) better += entry(j) > c;
    better = __reduce_add_sync(kFullWarp, better);
    if (better < need && group.lane() == 0) out[k - need + better] = static_cast<std::int32_t>(composite_index(c));
  }
}

// Writes the columns of the `need` best of the entries, after `placed` others that are in stage.best. The atomic that
// counts an entry in its bin returns its place there, which with the entries of higher bins is its place among the
// best; those of the boundary's bin come last. `width` bounds the columns. False: too many share that bin, and nothing
// is written. The histogram was cleared before a barrier.
template <class Group, class Entries>
__device__ __forceinline__ bool select_entries(const Group& group, const Entries& entries, float low, float high,
                                               int need, int placed, int* histogram, Scratch* scratch,
                                               const ShortRowStage& stage, int k, int width, std::int32_t* out) {
  constexpr int kEntries = Entries::kEntries;
  constexpr int kFirstBin = kWarpSize;  // the lowest bins are for what is no entry, one for each lane
  const auto bins = LinearBins<kBins - kFirstBin>::of(low, high);
  int bin[kEntries];
  int place[kEntries];  // in the bin
#pragma unroll
  for (int i = 0; i < kEntries; ++i) {
    bin[i] = 0;
    place[i] = 0;
    if (entries.none_from(i)) continue;
    const int b = kFirstBin + bins.bin(entries.score[i]);
    bin[i] = entries.has(i) ? b : group.lane();
    place[i] = atomicAdd(&histogram[bin[i]], 1);
  }
  group.sync();
  find_rank<true>(group, histogram, scratch, need);
  const RankBin found = scratch->found[0];
  const bool all = found.above + found.inside == need;
  const bool crowded = !all && found.inside > kDirectRank;
  if (crowded && found.inside > stage.room) return false;
  const int lowest = found.bin + crowded;
  const int tied_bin = crowded ? kBins : found.bin;
  int slot[kEntries];
#pragma unroll
  for (int i = 0; i < kEntries; ++i) {
    if (!entries.none_from(i)) slot[i] = placed + histogram[bin[i]] + place[i];  // all on their way together
  }
#pragma unroll
  for (int i = 0; i < kEntries; ++i) {
    if (entries.none_from(i)) continue;
    if (bin[i] >= lowest) stage.best[slot[i]] = entries.column(i);
    if (bin[i] == tied_bin) stage.tied[slot[i]] = entries.score[i];
  }
  if (crowded) {
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      if (bin[i] == found.bin) {
        reinterpret_cast<std::uint64_t*>(stage.list)[place[i]] =
            composite(ordered_key(entries.score[i]), static_cast<std::uint32_t>(entries.column(i)));
      }
    }
    if (group.thread == 0) scratch->count = placed + found.above;
  }
  group.sync();
  placed = all ? k : placed + found.above;
  copy_best(group, stage.best, placed, out);
  if (crowded) {
    const Selection rest{reinterpret_cast<const std::uint64_t*>(stage.list), found.inside, k, width, 0, out};
    select_among(group, rest, 0, kNanKey, k - placed, histogram, scratch);
  } else if (!all) {
    rank_ties(group, stage.tied + placed, stage.best + placed, found.inside, k - placed, k, out);
  }
  return true;
}

// Entries of a list in shared memory, brought to registers.
template <class Group, int kMost>
struct ListEntries {
  static constexpr int kEntries = kMost;
  float score[kEntries];
  int columns[kEntries];
  int left;  // entries from this thread's first on
  int most;  // and from the first of its warp

  __device__ __forceinline__ ListEntries(const Group& group, const uint2* list, int count)
      : left(count - group.thread), most(count - group.warp() * kWarpSize) {
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      uint2 entry = make_uint2(0, 0);
      if (!none_from(i)) entry = list[i * Group::kSize + group.thread];
      score[i] = bits_float(entry.x);
      columns[i] = static_cast<int>(entry.y);
    }
  }
  __device__ int column(int i) const { return columns[i]; }
  __device__ bool has(int i) const { return i * Group::kSize < left; }
  // No thread of the warp has the i-th or a later one.
  __device__ bool none_from(int i) const { return i * Group::kSize >= most; }
};

// Sets the bits of `mask` for the scores that are admitted.
template <int kFirst = 0, int kEntries>
__device__ __forceinline__ void admit_scores(const float (&score)[kEntries], float floor, unsigned* mask) {
  if constexpr (kFirst < kEntries) {
    admit<kFirst>(make_float4(score[kFirst], score[kFirst + 1], score[kFirst + 2], score[kFirst + 3]), floor, mask);
    admit_scores<kFirst + 4>(score, floor, mask);
  }
}

// Appends the columns of the scores in `winners`, and the scores and columns of those in `band`.
template <int kFirst = 0, class Group, int kQuads>
__device__ __forceinline__ void append_scores(const ShortRow<Group, kQuads>& row, unsigned winners, unsigned band,
                                              SharedCursor* best, SharedCursor* list) {
  if constexpr (kFirst < 4 * kQuads) {
    const auto column = static_cast<std::uint32_t>(row.column(kFirst));
    best->template append_if<1U << kFirst>(winners, column);
    list->template append_if<1U << kFirst>(band, float_bits(row.score[kFirst]), column);
    append_scores<kFirst + 1>(row, winners, band, best, list);
  }
}

// One of kCount scores, as the lowest bits of `hash` say.
template <int kCount>
__device__ __forceinline__ float pick(const float* scores, unsigned hash) {
  if constexpr (kCount == 1) {
    return scores[0];
  } else {
    const float low = pick<kCount / 2>(scores, hash);
    const float high = pick<kCount / 2>(scores + kCount / 2, hash);
    return (hash & kCount / 2) != 0 ? high : low;
  }
}

// Selects the k best columns of a row that is in registers: all of its scores go into one histogram. False: it did not
// come to an end, and nothing is written. begin_short_row() came before.
template <class Group, int kQuads>
__device__ __forceinline__ bool select_directly(const Group& group, const ShortRow<Group, kQuads>& row, int k,
                                                int width, int* histogram, Scratch* scratch, const ShortRowStage& stage,
                                                std::int32_t* out) {
  ScoreRange range;
#pragma unroll
  for (int i = 0; i < 4 * kQuads; i += 2) range.add(row.score[i]);
  range.publish(group, stage.ranges);
  group.sync();
  if (!range.inner_of_all(group, stage.ranges)) return false;
  return select_entries(group, row, range.low, range.high, k, 0, histogram, scratch, stage, k, width, out);
}

// The same where a sample of one score in kStride comes first. It gives two boundaries: what is above the higher are
// winners, and only the band between the two has its scores compared.
template <int kStride, int kMost, class Group, int kQuads>
__device__ __forceinline__ bool select_by_sample(const Group& group, const ShortRow<Group, kQuads>& row,
                                                 const BandRanks& ranks, int k, int width, int* histogram,
                                                 Scratch* scratch, const ShortRowStage& stage, std::int32_t* out) {
  constexpr int kSamples = 4 * kQuads / kStride;
  static_assert(kSamples >= 1);
  const unsigned hash = static_cast<unsigned>(group.thread) * 0x9E3779B1U >> 28;
  float sample[kSamples];
  ScoreRange range;
#pragma unroll
  for (int i = 0; i < kSamples; ++i) {
    sample[i] = pick<kStride>(row.score + i * kStride, hash);
    range.add(sample[i]);
  }
  range.publish(group, stage.ranges);
  group.sync();
  if (!range.inner_of_all(group, stage.ranges)) return false;
  const auto bins = LinearBins<kSampleBins>::of(range.low, range.high);
#pragma unroll
  for (int i = 0; i < kSamples; ++i) {
    if (!(sample[i] <= -infinity())) atomicAdd(&stage.sample[bins.bin(sample[i])], 1);
  }
  group.sync();
  // Every warp looks for itself: four bins a lane, the highest first. Bins whose scores and all higher ones are fewer
  // than a rank are above the one that holds it.
  const int4 counts = reinterpret_cast<const int4*>(stage.sample)[kWarpSize - 1 - group.lane()];
  const int through[4] = {counts.w, counts.w + counts.z, counts.w + counts.z + counts.y,
                          counts.w + counts.z + counts.y + counts.x};
  const int before = inclusive_scan(through[3], group.lane()) - through[3];
  int above = 0;  // bins above that of ranks.certain, and in the upper half of the word above that of ranks.admitted
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    above += before + through[i] < ranks.certain;
    above += before + through[i] < ranks.admitted ? 0x10000 : 0;
  }
  above = __reduce_add_sync(kFullWarp, above);
  const int certain_bin = kSampleBins - (above & 0xFFFF);  // the lowest of those above
  const int admitted_bin = kSampleBins - 1 - (above >> 16);
  const float certain = certain_bin == kSampleBins ? infinity() : bins.low_of(certain_bin);
  const float floor = admitted_bin <= 0 ? not_a_number() : bins.low_of(admitted_bin);  // a NaN admits everything

  unsigned winners = 0;
  unsigned band = 0;
  admit_scores(row.score, certain, &winners);
  admit_scores(row.score, floor, &band);
  winners &= row.valid;
  band &= row.valid & ~winners;
  // Winners are counted in the lower half of the word, the band in the upper.
  const int mine = __popc(winners) | __popc(band) << 16;
  const int end = inclusive_scan(mine, group.lane());
  int base = 0;
  if (group.lane() == kWarpSize - 1) base = atomicAdd(&scratch->count, end);
  base = __shfl_sync(kFullWarp, base, kWarpSize - 1) + end;
  const int warp_end = __shfl_sync(kFullWarp, base, kWarpSize - 1);
  if ((warp_end & 0xFFFF) <= k && warp_end >> 16 <= stage.room) {
    SharedCursor best(stage.best + ((base - mine) & 0xFFFF));
    SharedCursor list(stage.list + ((base - mine) >> 16));
    append_scores(row, winners, band, &best, &list);
  }
  group.sync();
  const int placed = scratch->count & 0xFFFF;
  const int listed = scratch->count >> 16;
  const int need = k - placed;
  if (need < 0 || listed < need || listed > stage.room) return false;
  if (need == 0) {
    copy_best(group, stage.best, k, out);
    return true;
  }
  float low = floor;
  float high = certain;
  if (admitted_bin <= 0 || certain_bin == kSampleBins) {
    range.outer_of_all(group, stage.ranges);
    if (admitted_bin <= 0) low = range.low;
    if (certain_bin == kSampleBins) high = range.high;
  }
  const ListEntries<Group, kMost> entries(group, stage.list, listed);
  return select_entries(group, entries, low, high, need, placed, histogram, scratch, stage, k, width, out);
}

// Before the first barrier of a selection, when nobody reads the shared memory any more.
template <class Group>
__device__ __forceinline__ void begin_short_row(const Group& group, int* histogram, Scratch* scratch,
                                                const ShortRowStage& stage) {
  clear_histogram(group, histogram);
  if (group.thread < kSampleBins / 4) reinterpret_cast<int4*>(stage.sample)[group.thread] = make_int4(0, 0, 0, 0);
  if (group.thread == 0) scratch->count = 0;
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SHORT_ROW_CUH_
