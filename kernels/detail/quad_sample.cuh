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
  int place;        // and the boundary's among them
  FewBins certain;  // for the candidates: from the boundary to where all are certainly among the k best
};

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
  // The highest that is not one warp's alone.
  const int warp = group.lane() % Group::kWarps;
  low = __reduce_min_sync(kFullWarp, stage->ranges[warp].low);
  high = __reduce_max_sync(kFullWarp, min(stage->ranges[warp].high, stage->ranges[warp ^ 1].high));
  const std::uint32_t top = __reduce_max_sync(kFullWarp, stage->ranges[warp].high);
  QuadProposal result;
  result.sampled = FewBins::of(low, max(low, high));
  // What equals `low` is not counted, and taken for enough: on a plateau all threads would wait for one bin.
  const auto count = [&](std::uint32_t key, float score) {
    if (key > low) atomicAdd(&stage->histogram[result.sampled.place(key, score)], 1);
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
  const bool reached = (fewer & 0xFFFF) < kFewBins;
  result.place = min(fewer & 0xFFFF, kFewBins - 1);
  const std::uint32_t floor = result.sampled.low_of(result.place);
  const int certain = min(fewer >> 16, kFewBins - 1);
  result.certain = FewBins::of(floor, max(floor, certain == 0 ? top : result.sampled.low_of(certain - 1)));
  result.boundary.primary = thin ? 0 : floor;
  if (!thin && !reached && __any_sync(kFullWarp, stage->ranges[warp].masked)) result.boundary.primary = kLowestKey;
  result.boundary.highest = top;
  result.boundary.usable = true;
  result.boundary.crowded = !thin && (!reached || stage->histogram[result.place] > 2 * view.hashed.rank);
  return result;
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

// Limits what propose_by_quads() found crowded.
template <int kQuads, class Group>
__device__ __forceinline__ Boundary limit_plateau(const Group& group, const QuadView& view,
                                                  const QuadSample<kQuads>& sample, int length, int end, int k,
                                                  float sigmas, const QuadProposal& proposal, int* histogram,
                                                  Scratch* scratch) {
  const PresentSample<kQuads, Group> present{group, view, sample, end};
  const std::uint32_t key = proposal.boundary.primary;
  const bool lowest = proposal.place == kFewBins - 1;
  const auto samples = static_cast<int>(static_cast<std::int64_t>(view.hashed.samples) * length / view.columns);
  return limit_plateau(group, present, samples, length, k, sigmas, proposal.boundary,
                       lowest ? key : proposal.sampled.base, proposal.sampled.high_of(proposal.place) - key, histogram,
                       scratch);
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_QUAD_SAMPLE_CUH_
