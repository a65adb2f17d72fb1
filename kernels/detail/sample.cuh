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

// The lowest ordered keys to admit. `secondary` <= `primary` is for rows where `primary` admits fewer than k. What is
// not `usable` admits every score.
struct Boundary {
  std::uint32_t primary = 0;
  std::uint32_t secondary = 0;
  bool usable = false;
};

// The paper's proposal: every stride-th score from the row's phase, 11-bit fp16 coarse keys, inclusive bin endpoints.
template <class Group>
__device__ __forceinline__ Boundary propose_strided(const Group& group, const Row& row, SamplePolicy policy, int k,
                                                    int* histogram, Scratch* scratch) {
  const StridedView view = strided_view(policy, row.length, k, row.seed);
  if (!view.usable()) return {};
  clear_histogram(group, histogram);
  group.sync();
  for (int i = group.thread; i < view.samples; i += Group::kSize) {
    const float score = load_streaming(row.scores + view.phase + static_cast<std::int64_t>(i) * view.stride);
    atomicAdd(&histogram[coarse_key(ordered_key(score))], 1);
  }
  group.sync();
  find_rank(group, histogram, scratch, view.rank, view.second_rank);
  return {coarse_floor(scratch->found[0].bin), coarse_floor(scratch->found[1].bin), true};
}

// The default proposal: one chunk at a hashed place in each stratum. The histogram's bins divide the range from a key
// that is certainly below the boundary to the sample's maximum, so that the boundary stays sharp whatever range the
// scores have. That key is the lowest of the maxima of disjoint subsets of the sample: with at least `rank` subsets,
// at least `rank` samples reach it. The sample waits in `stage`, shared memory for `room` keys.
template <class Group>
__device__ __forceinline__ Boundary propose_hashed(const Group& group, const Row& row, SamplePolicy policy, int k,
                                                   int* histogram, Scratch* scratch, std::uint32_t* stage, int room) {
  policy.max_samples = min(policy.max_samples, room);
  const HashedView view = hashed_view(policy, row.length, row.quads, k);
  if (!view.usable()) return {};
  const int quads = view.samples / 4;
  auto* const staged = reinterpret_cast<uint4*>(stage);
  group.sync();  // the last row's candidates have been read
  clear_histogram(group, histogram);
  if (group.thread == 0) {
    scratch->low_key = kNanKey;
    scratch->high_key = 0;
  }

  constexpr int kInFlight = 2;  // quads
  std::uint32_t highest = 0;
  std::uint32_t lowest = kNanKey;
  for (int base = group.thread; base < quads; base += kInFlight * Group::kSize) {
    float4 scores[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int quad = min(base + i * Group::kSize, quads - 1);  // unconditional loads are in flight together
      scores[i] = load_streaming(row.quad(view.quad(quad, row.seed)));
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int quad = base + i * Group::kSize;
      if (quad >= quads) continue;
      const uint4 keys = make_uint4(ordered_key(scores[i].x), ordered_key(scores[i].y), ordered_key(scores[i].z),
                                    ordered_key(scores[i].w));
      staged[quad] = keys;
      highest = max(highest, max(max(keys.x, keys.y), max(keys.z, keys.w)));
      lowest = min(lowest, min(min(keys.x, keys.y), min(keys.z, keys.w)));
    }
  }
  group.sync();

  const int active = min(Group::kSize, quads);  // threads that hold samples; whole subsets only below
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
  const auto count = [&](std::uint32_t key) {
    if (key >= low) atomicAdd(&histogram[(key - low) >> shift], 1);
  };
  for (int quad = group.thread; quad < quads; quad += Group::kSize) {
    const uint4 keys = staged[quad];
    count(keys.x);
    count(keys.y);
    count(keys.z);
    count(keys.w);
  }
  group.sync();
  find_rank(group, histogram, scratch, view.rank, view.second_rank);
  return {low + (static_cast<std::uint32_t>(scratch->found[0].bin) << shift),
          low + (static_cast<std::uint32_t>(scratch->found[1].bin) << shift), true};
}

// The exact coarse boundary (sections 4.3 and 5.2): the coarse bin that holds rank k of all valid scores. Each of the
// owner's members counts its part. Out of line, and so by value: what a scan keeps in registers stays there.
template <class Group, class Owner>
__device__ __noinline__ std::uint32_t exact_coarse_boundary(Group group, Owner owner, Row part, int k, int* histogram,
                                                            Scratch* scratch) {
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
