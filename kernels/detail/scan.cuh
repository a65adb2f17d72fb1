// SPDX-License-Identifier: Apache-2.0
//
// Phase 2 (paper, sections 4.3 and 5.3): one pass over the complete row admits candidates and so certifies the
// boundary.
//
// The paper lets candidates that find no room spill to memory. Here the threshold tightens instead: when the buffer
// nears its capacity, its k best are kept and only scores strictly above the k-th are admitted from there on. Strictly
// is exact, because the scan runs in index order: an equal score further on has a higher index and loses the tie. So a
// row needs one buffer of fixed size, whatever it holds. (The ring and a cluster on bulk copies do not tighten: they
// count what finds no room, and the row is scanned once more.)

#ifndef HPCTOPK_KERNELS_DETAIL_SCAN_CUH_
#define HPCTOPK_KERNELS_DETAIL_SCAN_CUH_

#include <cstdint>

#include "kernels/detail/ordered_key.h"
#include "kernels/detail/output.cuh"
#include "kernels/detail/ptx.cuh"
#include "kernels/detail/refine.cuh"
#include "kernels/detail/row.cuh"
#include "kernels/detail/sample.cuh"

namespace hpctopk::detail {

// Where a group keeps a row's candidates, and what it refines them with.
struct CandidateBuffer {
  std::uint64_t* candidates;  // [capacity]
  int* histogram;             // [kBins]
  Scratch* scratch;
  int capacity;
};

// Keeps the k best of the buffer's `count` candidates, whose keys are >= `floor`; returns the k-th. Out of line: few
// rows come here.
template <class Group>
__device__ HPCTOPK_RARE std::uint64_t keep_k_best(Group group, int k, std::uint32_t floor, int length, Digits digits,
                                                  CandidateBuffer buffer, int count) {
  const std::uint64_t kth =
      kth_best(group, buffer.candidates, count, k, floor, length, digits, buffer.histogram, buffer.scratch);
  keep_best(group, buffer.candidates, count, kth, buffer.scratch);
  return kth;
}

// Scores of the row's edges: at most three before the first quad and three after the last.
inline constexpr int kEdgeScores = 6;

__device__ __forceinline__ float pick(const float4& quad, unsigned i) {
  const float low = (i & 1) != 0 ? quad.y : quad.x;
  const float high = (i & 1) != 0 ? quad.w : quad.z;
  return (i & 2) != 0 ? high : low;
}

__device__ __forceinline__ unsigned admitted(const float4& quad, float floor) {
  unsigned mask = 0;
  admit<0>(quad, floor, &mask);
  return mask;
}
// Of kQuads quads: bits 4 i..4 i + 3 for quad i.
template <int kQuads, int kFirst = 0>
__device__ __forceinline__ void admit_all(const float4* quads, float floor, unsigned* mask) {
  if constexpr (kFirst < kQuads) {
    admit<4 * kFirst>(quads[kFirst], floor, mask);
    admit_all<kQuads, kFirst + 1>(quads, floor, mask);
  }
}

// What a scan admits: scores of more than a key, and equals of it before an index. A quad that begins before the index
// is taken for before: those few more do no harm, because no equal before them is left out.
struct Admission {
  float floor;  // from `index` on
  float floor_before;
  int index;
  bool closed;  // nothing more from `index` on

  __device__ static Admission from(std::uint32_t key, int limit) {
    if (limit != Boundary::kNoLimit) return after(composite(key, static_cast<std::uint32_t>(limit)));
    const float floor = admission_floor(key);
    return {floor, floor, 0, false};
  }
  __device__ static Admission after(std::uint64_t last) {
    const std::uint32_t key = composite_key(last);
    return {key_score(key), admission_floor(key), static_cast<int>(composite_index(last)), key == kNanKey};
  }
  // Of scores at indices [begin, end): whether equals come in at their begin, and whether only there.
  __device__ bool before(int begin) const { return begin < index; }
  __device__ bool mixed(int begin, int end) const { return begin < index && index < end; }
  __device__ float floor_at(int begin) const { return before(begin) ? floor_before : floor; }
};

// Appends composite_of(i) for the bits i of each lane's mask, with one atomic a warp, in room for `capacity`
// candidates. Where there is not enough, appends none and fills what there is with blanks, which rank below every
// candidate; `count` is then above the capacity. All lanes of a warp call; whether there was room.
template <class CompositeOf>
__device__ __forceinline__ bool append(int lane, unsigned mask, const CompositeOf& composite_of,
                                       std::uint64_t* candidates, int* count, int capacity) {
  if (!__any_sync(kFullWarp, mask != 0)) return true;
  const int mine = __popc(mask);
  const int through = inclusive_scan(mine);
  int slot = 0;
  if (lane == kWarpSize - 1) slot = atomicAdd(count, through);
  slot = __shfl_sync(kFullWarp, slot, kWarpSize - 1);
  if (__any_sync(kFullWarp, slot + through > capacity)) {
#pragma unroll 1
    for (int i = slot + lane; i < capacity; i += kWarpSize) candidates[i] = 0;
    return false;
  }
  std::uint64_t* to = candidates + slot + through - mine;
#pragma unroll 1
  while (mask != 0) {
    const int i = kWarpSize - 1 - __clz(static_cast<int>(mask));
    mask ^= 1U << i;
    *to++ = composite_of(i);
  }
  return true;
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
    const int through = inclusive_scan(mine);
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

// Admits what the boundary's primary key and limit do, as long as k scores are not known to beat it, and returns the
// number of candidates: at least k of them hold the k best of the row, or all that the boundary admits are there.
template <class Group>
__device__ int scan_row(const Group& group, const Row& row, const Boundary& boundary, int k, Digits digits,
                        const CandidateBuffer& buffer, Statistics* statistics) {
  Scratch* const scratch = buffer.scratch;
  std::uint32_t lowest = boundary.primary;
  Admission admission = Admission::from(lowest, boundary.limit);
  if (admission.closed) admission = Admission::from(lowest, Boundary::kNoLimit);  // rounds have no such state
  // Rounds lie before the limit, which counts in whole quads here, or behind it.
  const int limit = min(row.quads, max(0, (admission.index - row.offset - row.head + 3) / 4));
  int count = 0;
  int begin = 0;
  group.sync();
  if (group.thread == 0) scratch->count = 0;
  group.sync();
  scan_edge(group, row, 0, row.head, admission.floor_at(row.offset), buffer.candidates, &scratch->count);
  while (true) {
    const int room = buffer.capacity - kEdgeScores - count;
    const int end = min(begin < limit ? limit : row.quads, begin + room / 4);
    const float floor = begin < limit ? admission.floor_before : admission.floor;
    scan_quads(group, row, begin, end, floor, buffer.candidates, &scratch->count);
    begin = end;
    if (begin == row.quads) break;
    group.sync();
    count = scratch->count;
    group.sync();  // the next round counts on from there
    if (buffer.capacity - count >= (buffer.capacity - k) / 2) continue;
    const std::uint64_t kth = keep_k_best(group, k, lowest, row.offset + row.length, digits, buffer, count);
    count = k;
    if (statistics != nullptr && group.thread == 0) atomicAdd(atomic_word(&statistics->tightened), 1ULL);
    if (composite_key(kth) == kNanKey) return k;  // nothing ranks above a NaN
    lowest = composite_key(kth);
    admission.floor = admission.floor_before = key_score(lowest);  // what comes has higher indices
  }
  const int tail = row.length - row.tail();
  scan_edge(group, row, tail, row.length, admission.floor_at(row.offset + tail), buffer.candidates, &scratch->count);
  group.sync();
  return scratch->count;
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SCAN_CUH_
