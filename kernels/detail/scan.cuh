// SPDX-License-Identifier: Apache-2.0
//
// Phase 2 (paper, sections 4.3 and 5.3): one pass over the complete row admits candidates and so certifies the
// boundary.
//
// The paper lets candidates that find no room spill to memory. Here the threshold tightens instead: when the buffer
// nears its capacity, its k best are kept and only scores strictly above the k-th are admitted from there on. Strictly
// is exact, because the scan runs in index order: an equal score further on has a higher index and loses the tie. So a
// row needs one buffer of fixed size, whatever it holds.

#ifndef HPCTOPK_KERNELS_DETAIL_SCAN_CUH_
#define HPCTOPK_KERNELS_DETAIL_SCAN_CUH_

#include <cstdint>

#include "kernels/detail/ordered_key.h"
#include "kernels/detail/output.cuh"
#include "kernels/detail/ptx.cuh"
#include "kernels/detail/refine.cuh"
#include "kernels/detail/row.cuh"

namespace hpctopk::detail {

// Where a group keeps a row's candidates, and what it refines them with.
struct CandidateBuffer {
  std::uint64_t* candidates;  // [capacity]
  int* histogram;             // [kBins]
  Scratch* scratch;
  int capacity;
};

// Scores of the row's edges: at most three before the first quad and three after the last.
inline constexpr int kEdgeScores = 6;

__device__ __forceinline__ float pick(const float4& quad, unsigned i) {
  const float low = (i & 1) != 0 ? quad.y : quad.x;
  const float high = (i & 1) != 0 ? quad.w : quad.z;
  return (i & 2) != 0 ? high : low;
}

__device__ __forceinline__ unsigned admitted(const float4& quad, float floor) {
  return static_cast<unsigned>(!(quad.x <= floor)) | static_cast<unsigned>(!(quad.y <= floor)) << 1 |
         static_cast<unsigned>(!(quad.z <= floor)) << 2 | static_cast<unsigned>(!(quad.w <= floor)) << 3;
}

// Admits the scores of quads [begin, end). The caller knows that there is room for all of them.
template <class Group>
__device__ __forceinline__ void scan_quads(const Group& group, const Row& row, int begin, int end, float floor,
                                           std::uint64_t* candidates, int* count) {
  constexpr int kQuads = 4;  // in flight for each thread
  for (int base = begin; base < end; base += kQuads * Group::kSize) {
    float4 quads[kQuads];
    unsigned mask = 0;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int q = base + i * Group::kSize + group.thread;
      if (q < end) quads[i] = load_streaming(row.quad(q));
    }
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int q = base + i * Group::kSize + group.thread;
      if (q < end) mask |= admitted(quads[i], floor) << (4 * i);
    }
    if (!__any_sync(kFullWarp, mask != 0)) continue;
    const int mine = __popc(mask);
    const int through = inclusive_scan(mine, group.lane());
    int slot = 0;
    if (group.lane() == kWarpSize - 1) slot = atomicAdd(count, through);
    slot = __shfl_sync(kFullWarp, slot, kWarpSize - 1) + through - mine;
    while (mask != 0) {
      const unsigned i = __ffs(static_cast<int>(mask)) - 1;
      mask &= mask - 1;
      const float low = (i & 4) != 0 ? pick(quads[1], i) : pick(quads[0], i);
      const float high = (i & 4) != 0 ? pick(quads[3], i) : pick(quads[2], i);
      const float score = (i & 8) != 0 ? high : low;
      const int q = base + static_cast<int>(i / 4) * Group::kSize + group.thread;
      candidates[slot++] = composite(ordered_key(score), row.offset + row.head + 4 * q + (i & 3));
    }
  }
}

template <class Group>
__device__ __forceinline__ void scan_edge(const Group& group, const Row& row, int begin, int end, float floor,
                                          std::uint64_t* candidates, int* count) {
  const int index = begin + group.thread;
  if (index < end) {
    const float score = row.scores[index];
    if (!(score <= floor)) candidates[atomicAdd(count, 1)] = composite(ordered_key(score), row.offset + index);
  }
}

// Admits every score of the row whose key is >= `boundary`, as long as k of them are not known to beat it, and returns
// the number of candidates: at least k of them hold the k best of the row, or all scores >= boundary were admitted.
template <class Group>
__device__ int scan_row(const Group& group, const Row& row, std::uint32_t boundary, int k, Digits digits,
                        const CandidateBuffer& buffer, Statistics* statistics) {
  Scratch* const scratch = buffer.scratch;
  float floor = admission_floor(boundary);
  int count = 0;
  int begin = 0;
  group.sync();
  if (group.thread == 0) scratch->count = 0;
  group.sync();
  scan_edge(group, row, 0, row.head, floor, buffer.candidates, &scratch->count);
  while (true) {
    const int room = buffer.capacity - kEdgeScores - count;
    const int end = min(row.quads, begin + room / 4);
    scan_quads(group, row, begin, end, floor, buffer.candidates, &scratch->count);
    begin = end;
    if (begin == row.quads) break;
    group.sync();
    count = scratch->count;
    group.sync();  // the next round counts on from there
    if (buffer.capacity - count >= (buffer.capacity - k) / 2) continue;
    const std::uint64_t kth = kth_best(group, buffer.candidates, count, k, boundary, row.offset + row.length, digits,
                                       buffer.histogram, scratch);
    keep_best(group, buffer.candidates, count, kth, scratch);
    count = k;
    if (statistics != nullptr && group.thread == 0) atomicAdd(counter(&statistics->tightened), 1ULL);
    if (composite_key(kth) == kNanKey) return k;  // nothing ranks above a NaN
    boundary = composite_key(kth);
    floor = key_score(boundary);
  }
  scan_edge(group, row, row.length - row.tail(), row.length, floor, buffer.candidates, &scratch->count);
  group.sync();
  return scratch->count;
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SCAN_CUH_
