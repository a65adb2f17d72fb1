// SPDX-License-Identifier: Apache-2.0
//
// Phase 1 of a member of a cluster, in the fewest steps: a quad a thread and bins so few that every warp looks for the
// boundary itself. The members share the work that a wide margin leaves, so a small sample will do.

#ifndef HPCTOPK_KERNELS_DETAIL_QUAD_SAMPLE_CUH_
#define HPCTOPK_KERNELS_DETAIL_QUAD_SAMPLE_CUH_

#include <cstdint>

#include "kernels/detail/sample.cuh"
#include "kernels/detail/view.h"

namespace hpctopk::detail {

inline constexpr int kLogFewBins = 7;
inline constexpr int kFewBins = 1 << kLogFewBins;

// Places of keys among bins of equal width, the highest first. The first and the last are open.
struct FewBins {
  std::uint32_t base;
  int shift;
  __device__ int place(std::uint32_t key) const {
    const std::uint32_t bin = (max(key, base) - base) >> shift;
    return kFewBins - 1 - static_cast<int>(min(bin, kFewBins - 1U));
  }
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
    const int before = inclusive_scan(through[3], lane) - through[3];
#pragma unroll
    for (int i = 0; i < kCount; ++i) through[i] += before;
  }
};

// In shared memory.
template <class Group>
struct QuadSampleStage {
  int histogram[kFewBins];  // cleared before the barrier that the range takes
  uint2 ranges[Group::kWarps];
};

// What a sample says of a row.
struct QuadProposal {
  Boundary boundary;
  std::uint32_t low;  // the lowest key that was counted,
  int shift;          // in bins of this width
  FewBins bins;       // for the candidates: from the boundary to where all are certainly among the k best
};

// A group's quads of a row, on their way.
struct QuadSample {
  int quad;
  float4 scores;

  // `row` is as long as it may be.
  template <class Group>
  __device__ __forceinline__ QuadSample(const Group& group, const Row& row, const QuadView& view)
      : quad(0x7FFFFFFF), scores(make_float4(0, 0, 0, 0)) {
    const int most = min(view.quads, row.quads) - 1;
    if (group.thread >= view.hashed.samples / 4) return;
    const int q = view.hashed.quad(group.thread, row.seed);
    if (q > most) return;
    quad = q;
    scores = load_streaming(row.quad(q));
  }
};

// The boundary of a row's first `length` scores, of which `quads` are whole quads.
template <class Group>
__device__ __forceinline__ QuadProposal propose_by_quads(const Group& group, const QuadView& view,
                                                         const QuadSample& sample, int length, int quads,
                                                         QuadSampleStage<Group>* stage) {
  constexpr std::uint32_t kAbsent = 0;  // no score's key
  uint4 keys = ordered_keys(sample.scores);
  if (sample.quad >= quads) keys = make_uint4(kAbsent, kAbsent, kAbsent, kAbsent);
  // A key that `rank` samples reach, as in hashed_boundary(). A shorter row has the fewer subsets, which are to be the
  // smaller.
  int log_subset = length < view.least ? -1 : view.log_subset;
#pragma unroll 1
  for (int w = view.quads; w > quads && log_subset >= 0; w = (w + 1) >> 1) --log_subset;
  std::uint32_t highest = highest_of(keys);
  std::uint32_t low = log_subset < 0 ? lowest_of(keys) : highest;
#pragma unroll 1
  for (int i = 0; i < log_subset; ++i) low = max(low, __shfl_xor_sync(kFullWarp, low, 1 << i));
  low = __reduce_min_sync(kFullWarp, low == kAbsent ? kNanKey : low);
  highest = __reduce_max_sync(kFullWarp, highest);
  if (group.lane() == 0) stage->ranges[group.warp()] = make_uint2(low, highest);
  group.sync();
  const uint2 range = stage->ranges[group.lane() % Group::kWarps];
  low = __reduce_min_sync(kFullWarp, range.x);
  highest = max(low, __reduce_max_sync(kFullWarp, range.y));
  const int shift = max(0, kWarpSize - __clz(static_cast<int>(highest - low)) - kLogFewBins);
  const FewBins bins{low, shift};
  // What equals `low` is not counted, and taken for enough: on a plateau all threads would wait for one bin.
  for_each_of(keys, 0, [&](std::uint32_t key, int) {
    if (key > low) atomicAdd(&stage->histogram[bins.place(key)], 1);
  });
  group.sync();
  const SummedBins sums(stage->histogram, group.lane());
  int fewer = 0;  // bins through which there are fewer than view.rank and, in the upper half, than view.certain
#pragma unroll
  for (int i = 0; i < SummedBins::kCount; ++i) {
    fewer += sums.through[i] < view.hashed.rank;
    fewer += sums.through[i] < view.certain ? 0x10000 : 0;
  }
  fewer = __reduce_add_sync(kFullWarp, fewer);
  const int place = fewer & 0xFFFF;
  const int admitted = min(place, kFewBins - 1);
  const int certain = min(fewer >> 16, kFewBins - 1);
  const std::uint32_t floor = low + (static_cast<std::uint32_t>(kFewBins - 1 - admitted) << shift);
  QuadProposal result;
  result.low = low;
  result.shift = shift;
  result.bins.base = floor;
  result.bins.shift = max(0, shift + kWarpSize - __clz(admitted - certain) - kLogFewBins);
  const bool thin = length < view.least;  // so few that all are admitted
  result.boundary.primary = thin ? 0 : floor;
  result.boundary.highest = highest;
  result.boundary.usable = true;
  result.boundary.crowded = !thin && (place == kFewBins || stage->histogram[admitted] > view.hashed.rank);
  return result;
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_QUAD_SAMPLE_CUH_
