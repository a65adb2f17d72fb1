// SPDX-License-Identifier: Apache-2.0
//
// Phase 1 (paper, sections 4.2 and 5.2): a view of the row proposes the boundary that the complete scan starts from.

#ifndef HPCTOPK_KERNELS_DETAIL_SAMPLE_CUH_
#define HPCTOPK_KERNELS_DETAIL_SAMPLE_CUH_

#include <cstdint>

#include "kernels/detail/histogram.cuh"
#include "kernels/detail/ordered_key.h"
#include "kernels/detail/ptx.cuh"
#include "kernels/detail/row.cuh"
#include "kernels/detail/view.h"

namespace hpctopk::detail {

// The lowest ordered keys to admit. `secondary` <= `primary` is for rows where `primary` admits fewer than k.
struct Boundary {
  std::uint32_t primary;
  std::uint32_t secondary;
};

// The paper's proposal: every stride-th score from the row's phase, 11-bit fp16 coarse keys, inclusive bin endpoints.
template <class Group>
__device__ __noinline__ bool propose_strided(const Group& group, const Row& row, const SamplePolicy& policy, int k,
                                             int* histogram, Scratch* scratch, Boundary* boundary) {
  const StridedView view = strided_view(policy, row.length, k, row.seed);
  if (!view.usable()) return false;
  clear_histogram(group, histogram);
  group.sync();
  for (int i = group.thread; i < view.samples; i += Group::kSize) {
    const float score = load_streaming(row.scores + view.phase + static_cast<std::int64_t>(i) * view.stride);
    atomicAdd(&histogram[coarse_key(ordered_key(score))], 1);
  }
  group.sync();
  find_rank(group, histogram, scratch, view.rank, view.second_rank);
  boundary->primary = coarse_floor(scratch->found[0].bin);
  boundary->secondary = coarse_floor(scratch->found[1].bin);
  return true;
}

// The default proposal: one chunk at a hashed place in each stratum. The histogram's bins divide the range from a key
// that is certainly below the boundary to the sample's maximum, so that the boundary stays sharp whatever range the
// scores have. That key is the lowest of the maxima of disjoint subsets of the sample: with at least `rank` subsets,
// at least `rank` samples reach it.
template <class Group>
__device__ __noinline__ bool propose_hashed(const Group& group, const Row& row, const SamplePolicy& policy, int k,
                                            int* histogram, Scratch* scratch, Boundary* boundary) {
  constexpr int kQuadsPerThread = kMaxHashedSamples / 4 / Group::kSize;
  const HashedView view = hashed_view(policy, row.length, row.quads, k);
  if (!view.usable()) return false;
  std::uint32_t keys[4 * kQuadsPerThread];
#pragma unroll
  for (int i = 0; i < kQuadsPerThread; ++i) {
    const int quad = group.thread + i * Group::kSize;
    if (quad < view.samples / 4) {
      const float4 scores = load_streaming(row.quad(view.quad(quad, row.seed)));
      keys[4 * i] = ordered_key(scores.x);
      keys[4 * i + 1] = ordered_key(scores.y);
      keys[4 * i + 2] = ordered_key(scores.z);
      keys[4 * i + 3] = ordered_key(scores.w);
    }
  }
  clear_histogram(group, histogram);
  if (group.thread == 0) {
    scratch->low_key = kNanKey;
    scratch->high_key = 0;
  }
  group.sync();

  std::uint32_t highest = 0;
  std::uint32_t lowest = kNanKey;
#pragma unroll
  for (int i = 0; i < 4 * kQuadsPerThread; ++i) {
    if (group.thread + i / 4 * Group::kSize < view.samples / 4) {
      highest = max(highest, keys[i]);
      lowest = min(lowest, keys[i]);
    }
  }
  const int active = min(Group::kSize, view.samples / 4);  // threads that hold samples; whole subsets only below
  int lanes = kWarpSize;
  while (lanes > 1 && active / lanes < view.second_rank) lanes /= 2;
  std::uint32_t low = lowest;
  if (active / lanes >= view.second_rank) {
    low = highest;
    for (int distance = 1; distance < lanes; distance *= 2) low = max(low, __shfl_xor_sync(kFullWarp, low, distance));
    if (group.thread >= active / lanes * lanes) low = kNanKey;
  }
  low = __reduce_min_sync(kFullWarp, low);
  highest = __reduce_max_sync(kFullWarp, highest);
  if (group.lane() == 0) {
    atomicMin(&scratch->low_key, low);
    atomicMax(&scratch->high_key, highest);
  }
  group.sync();
  low = scratch->low_key;
  const int shift = max(0, kWarpSize - __clz(scratch->high_key - low) - kDigitBits);
#pragma unroll
  for (int i = 0; i < 4 * kQuadsPerThread; ++i) {
    if (group.thread + i / 4 * Group::kSize < view.samples / 4 && keys[i] >= low)
      atomicAdd(&histogram[(keys[i] - low) >> shift], 1);
  }
  group.sync();
  find_rank(group, histogram, scratch, view.rank, view.second_rank);
  boundary->primary = low + (static_cast<std::uint32_t>(scratch->found[0].bin) << shift);
  boundary->secondary = low + (static_cast<std::uint32_t>(scratch->found[1].bin) << shift);
  return true;
}

// The exact coarse boundary (sections 4.3 and 5.2): the coarse bin that holds rank k of all valid scores. Each of the
// owner's members counts its part.
template <class Group, class Owner>
__device__ __noinline__ std::uint32_t exact_coarse_boundary(const Group& group, const Owner& owner, const Row& part,
                                                            int k, int* histogram, Scratch* scratch) {
  group.sync();
  clear_histogram(group, histogram);
  group.sync();
  const auto count = [&](float score) { atomicAdd(&histogram[coarse_key(ordered_key(score))], 1); };
  for (int q = group.thread; q < part.quads; q += Group::kSize) {
    const float4 scores = load_streaming(part.quad(q));
    count(scores.x);
    count(scores.y);
    count(scores.z);
    count(scores.w);
  }
  if (group.thread < part.head) count(part.scores[group.thread]);
  if (group.thread < part.tail()) count(part.scores[part.length - part.tail() + group.thread]);
  group.sync();
  owner.add_histograms(group, histogram);
  find_rank(group, histogram, scratch, k);
  return coarse_floor(scratch->found[0].bin);
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SAMPLE_CUH_
