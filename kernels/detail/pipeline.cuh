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

// What the scan leaves of a row: one slot is scanned while the other is refined. It lives in shared memory, and so does
// what would otherwise be carried in registers from phase to phase.
struct Slot {
  Row row;
  std::int64_t index;  // of the row; -1 after the last
  Boundary boundary;
  int count;          // candidates
  std::uint64_t kth;  // of the last tightening
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
    const float floor = admission.floor_at(index);
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
    admit_all<kQuads>(scores, floor, &mask);
    if (left < kStageQuads) {  // what a stage held before lies beyond
      const int mine = (left - group.thread + Group::kSize - 1) / Group::kSize;
      if (mine < kQuads) mask &= (1U << (4 * max(0, mine))) - 1;
    }
    if (admission.closed && !admission.before(index)) mask = 0;
    const auto* const values = reinterpret_cast<const float*>(stage + group.thread);
    const auto composite_of = [&](unsigned i) {
      const unsigned j = i / 4 * (4 * Group::kSize) + i % 4;
      return composite(ordered_key(values[j]), index + 4 * group.thread + j);
    };
    if (admission.mixed(index, index + kStageScores)) {
      for (int i = 0; i < kQuads; ++i) {
        const int quad = group.thread + i * Group::kSize;
        if (admission.before(index + 4 * quad)) continue;
        const unsigned admits = admission.closed ? 0 : admitted(stage[quad], admission.floor);
        mask &= admits << (4 * i) | ~(0xFU << (4 * i));
      }
    }
    if (!append(group.lane(), mask, composite_of, candidates, count, capacity)) return progress;
    __syncwarp();
    if (group.lane() == 0) barrier_arrive(&ring.empty[Ring::stage(progress.passed)]);
  }
  return progress;
}

// Scans the slot's row from the ring into the buffer's candidates; returns the stages passed. All threads of `group`
// call; `tighten_group` is its first threads, as many as a histogram search takes.
template <class Group, class TightenGroup>
__device__ __forceinline__ unsigned scan_ring(const Group& group, const TightenGroup& tighten_group, const Ring& ring,
                                              unsigned passed, int k, Digits digits, Slot* slot,
                                              const CandidateBuffer& buffer, Statistics* statistics) {
  const Row row = slot->row;
  const int capacity = buffer.capacity - kEdgeScores;
  std::uint32_t floor = slot->boundary.primary;
  Admission admission = Admission::from(floor, slot->boundary.limit);
  scan_edge(group, row, 0, row.head, admission.floor_at(row.offset), buffer.candidates, &slot->count);
  ScanProgress progress{0, passed};
  while (true) {
    progress = scan_stages(group, ring, progress, row.quads, row.offset + row.head, admission, buffer.candidates,
                           &slot->count, capacity);
    if (!group.sync_or(progress.begin < row.quads)) break;
    if (group.thread < TightenGroup::kSize) {
      const std::uint64_t kth = keep_k_best(tighten_group, k, floor, row.length, digits, buffer, capacity);
      if (group.thread == 0) {
        slot->count = k;
        slot->kth = kth;
        if (statistics != nullptr) atomicAdd(atomic_word(&statistics->tightened), 1ULL);
      }
    }
    group.sync();
    floor = composite_key(slot->kth);
    admission = Admission::after(slot->kth);
  }
  const int tail = row.length - row.tail();
  if (!admission.closed || admission.before(tail)) {
    scan_edge(group, row, tail, row.length, admission.floor_at(tail), buffer.candidates, &slot->count);
  }
  return progress.passed;
}

}  // namespace hpctopk::detail
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_PIPELINE_CUH_
