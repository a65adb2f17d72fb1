// SPDX-License-Identifier: Apache-2.0
//
// The ring of bulk copies: one thread streams rows through stages of shared memory and never waits where a row ends,
// warps scan the stages, and other warps propose boundaries and refine meanwhile. Scan warps do not wait for each
// other: each reserves room for what it admits of a stage, and stops before the stage where there is none. Once all
// have stopped or come to the row's end, they meet and tighten the threshold.

#ifndef HPCTOPK_KERNELS_DETAIL_PIPELINE_CUH_
#define HPCTOPK_KERNELS_DETAIL_PIPELINE_CUH_

#include <cstdint>

#include "kernels/detail/ordered_key.h"
#include "kernels/detail/ptx.cuh"
#include "kernels/detail/refine.cuh"
#include "kernels/detail/row.cuh"
#include "kernels/detail/sample.cuh"
#include "kernels/detail/scan.cuh"
#include "kernels/kernels.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace hpctopk::detail {

inline constexpr int kStageQuads = static_cast<int>(kernels::kStageBytes / sizeof(float4));
inline constexpr int kStageScores = 4 * kStageQuads;

// The stages and the barriers that say when one is full (bytes have landed) and empty (every scan warp is past it). Its
// users count the stages they have passed.
struct Ring {
  static constexpr int kStages = kernels::kRingStages;
  static_assert((kStages & (kStages - 1)) == 0, "a stage is found by a mask");

  float4* stages;  // [kStages][kStageQuads]
  Barrier* full;   // [kStages]
  Barrier* empty;  // [kStages]

  __device__ void init(int scan_warps) const {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&full[i], 1);
      barrier_init(&empty[i], scan_warps);
    }
    barrier_init_fence();
  }
  __device__ static int stage(unsigned passed) { return static_cast<int>(passed % kStages); }
  __device__ static std::uint32_t parity(unsigned passed) { return passed / kStages & 1; }
};

// Streams a row's quads into the ring; returns the stages passed. One thread.
__device__ __forceinline__ unsigned produce_row(const Ring& ring, const Row& row, unsigned passed) {
  for (int begin = 0; begin < row.quads; begin += kStageQuads, ++passed) {
    const int stage = Ring::stage(passed);
    const auto bytes = static_cast<std::uint32_t>(min(kStageQuads, row.quads - begin) * sizeof(float4));
    barrier_wait(&ring.empty[stage], Ring::parity(passed) ^ 1);
    barrier_arrive_expect(&ring.full[stage], bytes);
    bulk_copy(ring.stages + stage * kStageQuads, row.quad(begin), bytes, &ring.full[stage]);
  }
  return passed;
}

// What the scan and the selector pass each other of a row: one slot is scanned while the other is refined. It lives in
// shared memory, and so does what they would otherwise carry in registers from phase to phase.
struct Slot {
  Row row;
  std::int64_t index;      // of the row; -1 after the last
  std::uint64_t kth;       // of the last tightening
  std::uint32_t boundary;  // the lowest key to admit
  int count;               // candidates
};

// What a scan admits at an index: after a tightening, equals of the k-th key win only before its index.
struct Admission {
  float floor;  // from `index` on
  float floor_before;
  int index;
  bool closed;  // nothing more from `index` on

  __device__ static Admission at_least(std::uint32_t key) {
    const float floor = admission_floor(key);
    return {floor, floor, 0, false};
  }
  __device__ static Admission after(std::uint64_t kth) {
    const std::uint32_t key = composite_key(kth);
    return {key_score(key), admission_floor(key), static_cast<int>(composite_index(kth)), key == kNanKey};
  }
};

// Where a warp stands in a row.
struct ScanProgress {
  int begin;        // the row's quads before it are done
  unsigned passed;  // stages of the ring
};

// Scans stages until the row's `quads` are done or what a warp admits finds no room; first_index is the index of the
// row's first quad.
template <class Group>
__device__ __forceinline__ ScanProgress scan_stages(const Group& group, const Ring& ring, ScanProgress progress,
                                                    int quads, int first_index, const Admission& admission,
                                                    std::uint64_t* candidates, int* count, int capacity) {
  constexpr int kQuads = kStageQuads / Group::kSize;
  static_assert(kQuads * Group::kSize == kStageQuads && kQuads <= 8);
  for (; progress.begin < quads; progress.begin += kStageQuads, ++progress.passed) {
    const float4* const stage = ring.stages + Ring::stage(progress.passed) * kStageQuads;
    const int index = first_index + 4 * progress.begin;
    const bool before = index < admission.index;
    const float floor = before ? admission.floor_before : admission.floor;
    const int left = quads - progress.begin;
    // A warp that stopped keeps its stage from being filled anew, so one that waits for that must stop too.
    while (!__all_sync(kFullWarp,
                       barrier_try_wait(&ring.full[Ring::stage(progress.passed)], Ring::parity(progress.passed)))) {
      if (__any_sync(kFullWarp, *static_cast<volatile int*>(count) > capacity)) return progress;
    }
    unsigned mask = 0;
    float4 scores[kQuads];
#pragma unroll
    for (int i = 0; i < kQuads; ++i) scores[i] = stage[group.thread + i * Group::kSize];
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const unsigned admits = admitted(scores[i], floor) << (4 * i);
      if (group.thread + i * Group::kSize < left) mask |= admits;
    }
    if (admission.closed && !before) mask = 0;
    if (__any_sync(kFullWarp, mask != 0)) {
      const int mine = __popc(mask);
      const int through = inclusive_scan(mine, group.lane());
      int slot = 0;
      if (group.lane() == kWarpSize - 1) slot = atomicAdd(count, through);
      slot = __shfl_sync(kFullWarp, slot, kWarpSize - 1);
      const int end = slot + __shfl_sync(kFullWarp, through, kWarpSize - 1);
      if (end > capacity) {  // no room: blanks, which rank below every candidate, and the stage another time
        for (int i = slot + group.lane(); i < capacity; i += kWarpSize) candidates[i] = 0;
        return progress;
      }
      slot += through - mine;
      const auto* const values = reinterpret_cast<const float*>(stage + group.thread);
      while (mask != 0) {
        const unsigned i = __ffs(static_cast<int>(mask)) - 1;
        mask &= mask - 1;
        const unsigned j = i / 4 * (4 * Group::kSize) + i % 4;
        candidates[slot++] = composite(ordered_key(values[j]), index + 4 * group.thread + j);
      }
      __syncwarp();
    }
    if (group.lane() == 0) barrier_arrive(&ring.empty[Ring::stage(progress.passed)]);
  }
  return progress;
}

// Keeps the k best of a full buffer. Out of line: few rows come here.
template <class Group>
__device__ __noinline__ void tighten(Group group, int k, std::uint32_t floor, int length, Digits digits, Slot* slot,
                                     CandidateBuffer buffer, int capacity) {
  const std::uint64_t kth =
      kth_best(group, buffer.candidates, capacity, k, floor, length, digits, buffer.histogram, buffer.scratch);
  keep_best(group, buffer.candidates, capacity, kth, buffer.scratch);
  if (group.thread == 0) {
    slot->count = k;
    slot->kth = kth;
  }
}

// Scans the slot's row from the ring into the buffer's candidates; returns the stages passed. All threads of `group`
// call; `tighten_group` is its first threads, as many as a histogram search takes.
template <class Group, class TightenGroup>
__device__ __forceinline__ unsigned scan_ring(const Group& group, const TightenGroup& tighten_group, const Ring& ring,
                                              unsigned passed, int k, Digits digits, Slot* slot,
                                              const CandidateBuffer& buffer, Statistics* statistics) {
  const Row row = slot->row;
  const int capacity = buffer.capacity - kEdgeScores;
  std::uint32_t floor = slot->boundary;
  Admission admission = Admission::at_least(floor);
  scan_edge(group, row, 0, row.head, admission.floor, buffer.candidates, &slot->count);
  ScanProgress progress{0, passed};
  while (true) {
    progress = scan_stages(group, ring, progress, row.quads, row.offset + row.head, admission, buffer.candidates,
                           &slot->count, capacity);
    if (!group.sync_or(progress.begin < row.quads)) break;
    if (group.thread < TightenGroup::kSize) {
      tighten(tighten_group, k, floor, row.length, digits, slot, buffer, capacity);
      if (statistics != nullptr && group.thread == 0) atomicAdd(counter(&statistics->tightened), 1ULL);
    }
    group.sync();
    floor = composite_key(slot->kth);
    admission = Admission::after(slot->kth);
  }
  const int tail = row.length - row.tail();
  if (!admission.closed || tail < admission.index) {
    scan_edge(group, row, tail, row.length, tail < admission.index ? admission.floor_before : admission.floor,
              buffer.candidates, &slot->count);
  }
  return progress.passed;
}

}  // namespace hpctopk::detail
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_PIPELINE_CUH_
