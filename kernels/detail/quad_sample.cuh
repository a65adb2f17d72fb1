// SPDX-License-Identifier: Apache-2.0
//
// Phase 1 of a member of a cluster, in the fewest steps: one quad a thread, or four, and bins so few that every warp
// looks for the boundary itself. The members share the work that a wide margin leaves, so a small sample will do.

#ifndef HPCTOPK_KERNELS_DETAIL_QUAD_SAMPLE_CUH_
#define HPCTOPK_KERNELS_DETAIL_QUAD_SAMPLE_CUH_

#include <cstdint>

#include "kernels/detail/linear_bins.cuh"
#include "kernels/detail/sample.cuh"
#include "kernels/detail/view.h"

namespace hpctopk::detail {

inline constexpr int kLogFewBins = 7;
inline constexpr int kFewBins = 1 << kLogFewBins;

// Bins of a range of keys, of equal widths in the scores or, where those are far apart, in the keys, which are about
// their logarithms. (About zero lie most of the keys, so that these do not suit a range that zero is in.) The first
// bin takes what is lower too, the last what is higher.
struct FewBins {
  std::uint32_t base;
  int shift;
  LinearBins<kFewBins> scores;
  bool by_scores;

  __device__ static FewBins of(std::uint32_t low, std::uint32_t high) {
    constexpr std::uint32_t kZero = 0x80000000U;
    constexpr std::uint32_t kFar = 4U << 23;  // powers of two
    FewBins bins;
    bins.base = low;
    bins.shift = max(0, kWarpSize - __clz(static_cast<int>(high - low)) - kLogFewBins);
    bins.by_scores = high - low < kFar || (low <= kZero && kZero < high);
    bins.scores = LinearBins<kFewBins>::of(key_score(low), key_score(high));
    return bins;
  }
  // The place of a key's bin, the highest first.
  __device__ __forceinline__ int place(std::uint32_t key) const { return place(key, key_score(key)); }
  __device__ __forceinline__ int place(std::uint32_t key, float score) const {
    if (by_scores) return kFewBins - 1 - scores.bin(score);
    const std::uint32_t bin = (max(key, base) - base) >> shift;
    return kFewBins - 1 - static_cast<int>(min(bin, kFewBins - 1U));
  }
  // About the lowest key of the bin at a place; that of kFewBins - 1 is the range's.
  __device__ __forceinline__ std::uint32_t low_of(int place) const {
    const int bin = kFewBins - 1 - place;
    if (bin <= 0) return base;
    if (by_scores) return ordered_key(scores.low_of(bin));
    return base + (static_cast<std::uint32_t>(bin) << shift);
  }
  __device__ std::uint32_t high_of(int place) const { return place == 0 ? kNanKey : low_of(place - 1) - 1; }
};

// A lane's bins of a histogram by their places: the entries of all bins through each.
struct SummedBins {
  static constexpr int kCount = kFewBins / kWarpSize;
  int through[kCount];

  __device__ __forceinline__ SummedBins(const int* histogram, int lane) {
    static_assert(kCount == 4);
    const int4 counts = reinterpret_cast<const int4*>(histogram)[lane];
    through[0] = counts.x;
    through[1] = through[0] + counts.y;
    through[2] = through[1] + counts.z;
    through[3] = through[2] + counts.w;
    const int before = inclusive_scan(through[3]) - through[3];
#pragma unroll
    for (int i = 0; i < kCount; ++i) through[i] += before;
  }
};

// In shared memory.
template <class Group>
struct QuadSampleStage {
  struct alignas(16) Range {
    std::uint32_t low, high;
    bool masked;  // has an infinite subset, for which no bins begin at -infinity
  };
  int histogram[kFewBins];  // cleared before a barrier
  Range ranges[Group::kWarps];
};

// A group's quads of a row, kQuads a thread, on their way.
template <int kQuads>
struct QuadSample {
  static constexpr int kAbsent = 0x7FFFFFFF;
  int quads[kQuads];
  float4 scores[kQuads];

  // `row` is as long as it may be. Every warp's quads are spread over all of it.
  template <class Group>
  __device__ __forceinline__ QuadSample(const Group& group, const Row& row, const QuadView& view) {
    const int last = view.hashed.samples / 4 - 1;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      quads[i] = kAbsent;
      scores[i] = make_float4(0, 0, 0, 0);
      const int n = index_of(group, view, i);
      if (n > last) continue;
      const int quad = view.hashed.quad(n, row.seed);
      if (quad >= row.quads) continue;
      quads[i] = quad;
      scores[i] = load_streaming(row.quad(quad));
    }
  }
  // Which of the sample's quads, in the row's order, is a thread's i-th. Those of a chunk go to neighbours.
  template <class Group>
  __device__ __forceinline__ static int index_of(const Group& group, const QuadView& view, int i) {
    const int log_run = min(view.hashed.log_chunk, 5);
    const int run = (group.lane() >> log_run) * Group::kWarps + group.warp();
    return i * Group::kSize + (run << log_run) + (group.lane() & ((1 << log_run) - 1));
  }
  // The keys of a thread's i-th quad, where it lies in the row's first `end` quads; of no score where not.
  __device__ __forceinline__ uint4 keys(int i, int end) const {
    return quads[i] < end ? ordered_keys(scores[i]) : make_uint4(0, 0, 0, 0);
  }
};

// What a sample says of a row.
struct QuadProposal {
  Boundary boundary;
  FewBins sampled;  // the sample's bins,
  int place;        // and the boundary's among them; kFewBins: they count fewer than its rank
  FewBins certain;  // for the candidates: from the boundary to where all are certainly among the k best
};

// The range of keys that a stage's histogram is of, and up to where the sample matters.
struct QuadRange {
  std::uint32_t low, high, top;

  // `high`: the highest that is not one warp's alone.
  template <class Group>
  __device__ __forceinline__ static QuadRange of(const Group& group, const QuadSampleStage<Group>* stage) {
    const int warp = group.lane() % Group::kWarps;
    QuadRange range;
    range.low = __reduce_min_sync(kFullWarp, stage->ranges[warp].low);
    range.high = __reduce_max_sync(kFullWarp, min(stage->ranges[warp].high, stage->ranges[warp ^ 1].high));
    range.top = __reduce_max_sync(kFullWarp, stage->ranges[warp].high);
    return range;
  }
  __device__ __forceinline__ FewBins bins() const { return FewBins::of(low, max(low, high)); }
};

// A boundary by what a sample has in a range. Its keys are those of its quads within the row. `thin`: that all scores
// are admitted.
template <int kQuads, class Group>
__device__ __forceinline__ QuadProposal propose_within(const Group& group, const QuadView& view,
                                                       const QuadSample<kQuads>& sample, const uint4* keys,
                                                       const QuadRange& range, bool thin,
                                                       QuadSampleStage<Group>* stage) {
  QuadProposal result;
  result.sampled = range.bins();
  // What equals range.low is not counted, and taken for enough: on a plateau all threads would wait for one bin.
  const auto count = [&](std::uint32_t key, float score) {
    if (key > range.low) atomicAdd(&stage->histogram[result.sampled.place(key, score)], 1);
  };
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    count(keys[i].x, sample.scores[i].x);
    count(keys[i].y, sample.scores[i].y);
    count(keys[i].z, sample.scores[i].z);
    count(keys[i].w, sample.scores[i].w);
  }
  group.sync();
  const SummedBins sums(stage->histogram, group.lane());
  int fewer = 0;  // bins through which there are fewer than view.rank and, in the upper half, than view.certain
#pragma unroll
  for (int i = 0; i < SummedBins::kCount; ++i) {
    fewer += sums.through[i] < view.hashed.rank;
    fewer += sums.through[i] < view.certain ? 0x10000 : 0;
  }
  fewer = __reduce_add_sync(kFullWarp, fewer);
  result.place = fewer & 0xFFFF;
  const bool reached = result.place < kFewBins;
  const std::uint32_t floor = result.sampled.low_of(result.place);
  const int certain = min(fewer >> 16, kFewBins - 1);
  result.certain = FewBins::of(floor, max(floor, certain == 0 ? range.top : result.sampled.low_of(certain - 1)));
  result.boundary.primary = thin ? 0 : floor;
  const int warp = group.lane() % Group::kWarps;
  if (!thin && !reached && __any_sync(kFullWarp, stage->ranges[warp].masked)) result.boundary.primary = kLowestKey;
  result.boundary.highest = range.top;
  result.boundary.usable = true;
  const bool lowest = floor <= range.low;  // with what is not counted
  result.boundary.crowded = !thin && (lowest || stage->histogram[result.place] > 2 * view.hashed.rank);
  return result;
}

// The key that a rank of a stage's sample has, or about the lowest that is counted.
template <class Group>
__device__ __forceinline__ std::uint32_t key_of_rank(const Group& group, const QuadSampleStage<Group>* stage,
                                                     int rank) {
  const FewBins bins = QuadRange::of(group, stage).bins();
  const SummedBins sums(stage->histogram, group.lane());
  int fewer = 0;
#pragma unroll
  for (int i = 0; i < SummedBins::kCount; ++i) fewer += sums.through[i] < rank;
  return bins.low_of(min(__reduce_add_sync(kFullWarp, fewer), kFewBins - 1));
}

// The boundary of a row's first `length` scores, of which `end` are whole quads.
template <int kQuads, class Group>
__device__ __forceinline__ QuadProposal propose_by_quads(const Group& group, const QuadView& view,
                                                         const QuadSample<kQuads>& sample, int length, int end,
                                                         QuadSampleStage<Group>* stage) {
  uint4 keys[kQuads];
  std::uint32_t most = 0;
  std::uint32_t least = kNanKey;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    keys[i] = sample.keys(i, end);
    most = max(most, highest_of(keys[i]));
    if (sample.quads[i] < end) least = min(least, lowest_of(keys[i]));
  }
  const bool thin = length < view.least;  // so few that all are admitted
  // A key that `rank` samples reach, as in hashed_boundary(). A shorter row has fewer subsets, so they are smaller.
  int log_subset = thin ? -1 : view.log_subset;
#pragma unroll 1
  for (int w = view.quads; w > end && log_subset >= 0; w = (w + 1) >> 1) --log_subset;
  std::uint32_t low = log_subset < 0 ? least : most;
#pragma unroll 1
  for (int i = 0; i < log_subset; ++i) low = max(low, __shfl_xor_sync(kFullWarp, low, 1 << i));
  const bool masked = __any_sync(kFullWarp, low == kLowestKey);
  low = __reduce_min_sync(kFullWarp, low <= kLowestKey ? kNanKey : low);
  std::uint32_t high = __reduce_max_sync(kFullWarp, most < kInfinityKey ? most : 0);
  if (group.lane() == 0) stage->ranges[group.warp()] = {low, high, masked};
  group.sync();
  return propose_within(group, view, sample, keys, QuadRange::of(group, stage), thin, stage);
}

// A sample's quads within a row, as limit_plateau() visits them.
template <int kQuads, class Group>
struct PresentSample {
  const Group& group;
  const QuadView& view;
  const QuadSample<kQuads>& sample;
  int end;

  template <class Visit>
  __device__ __forceinline__ void for_each_quad(const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if (sample.quads[i] < end) visit(sample.keys(i, end), QuadSample<kQuads>::index_of(group, view, i));
    }
    __syncwarp();
  }
};

// The score that most of a sample's quads are named after that have one in a range of keys: of a warp, the first.
template <int kQuads, class Group>
__device__ __forceinline__ std::uint32_t most_named(const Group& group, const PresentSample<kQuads, Group>& sample,
                                                    std::uint32_t low, std::uint32_t high, Scratch* scratch) {
  std::uint32_t named = 0;
  sample.for_each_quad([&](const uint4& keys, int) {
    for_each_of(keys, 0, [&](std::uint32_t key, int) {
      if (low <= key && key <= high) named = key;
    });
  });
  const unsigned some = __ballot_sync(kFullWarp, named != 0);
  named = __shfl_sync(kFullWarp, named, max(0, __ffs(static_cast<int>(some)) - 1));
  group.sync();
  if (group.lane() == 0) scratch->warp_totals[group.warp()] = static_cast<int>(named);
  group.sync();
  named = static_cast<std::uint32_t>(scratch->warp_totals[group.lane() % Group::kWarps]);
  const auto votes = static_cast<unsigned>(__popc(__match_any_sync(kFullWarp, named)));
  const auto lane = static_cast<unsigned>(group.lane());
  const unsigned most = __reduce_max_sync(kFullWarp, named != 0 ? votes * kWarpSize + lane : lane);
  return __shfl_sync(kFullWarp, named, static_cast<int>(most % kWarpSize));
}

// Divides the bin that propose_by_quads() found crowded: what is above a plateau in it, the plateau by a limit, or,
// where there is none, what is below the score that was taken for one.
template <int kQuads, class Group>
__device__ __forceinline__ QuadProposal divide_crowd(const Group& group, const QuadView& view,
                                                     const QuadSample<kQuads>& sample, int length, int end, int k,
                                                     float sigmas, const QuadProposal& crowded,
                                                     QuadSampleStage<Group>* stage, int* histogram, Scratch* scratch) {
  const PresentSample<kQuads, Group> present{group, view, sample, end};
  const std::uint32_t floor = crowded.boundary.primary;
  uint4 keys[kQuads];
#pragma unroll
  for (int i = 0; i < kQuads; ++i) keys[i] = sample.keys(i, end);
  const auto propose = [&](std::uint32_t low, std::uint32_t high) {
    group.sync();
    if (group.thread < kFewBins) stage->histogram[group.thread] = 0;
    if (group.lane() == 0) stage->ranges[group.warp()] = {low, high, false};
    group.sync();
    return propose_within(group, view, sample, keys, QuadRange{low, high, crowded.certain.low_of(0)}, false, stage);
  };
  QuadProposal proposal = crowded;
  std::uint32_t plateau = floor;  // of what equals it enough is there, as it is the lowest
  if (crowded.place < kFewBins) {
    const std::uint32_t high = crowded.sampled.high_of(crowded.place);
    plateau = max(floor, most_named(group, present, floor, high, scratch));
    proposal = propose(plateau, max(plateau, min(high, crowded.boundary.highest)));
    if (proposal.place < kFewBins) return proposal;
  }
  const auto samples = static_cast<int>(static_cast<std::int64_t>(view.hashed.samples) * length / view.columns);
  Boundary boundary = crowded.boundary;
  boundary.primary = plateau;
  boundary = limit_plateau(group, present, samples, length, k, sigmas, boundary, plateau, 0, histogram, scratch);
  if (boundary.limit == Boundary::kNoLimit && floor < plateau) return propose(floor, plateau);
  proposal.boundary = boundary;
  return proposal;
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_QUAD_SAMPLE_CUH_
