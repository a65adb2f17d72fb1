// SPDX-License-Identifier: Apache-2.0
//
// Phase 2 of a CTA that has one row, or a part of one, to scan: bulk copies bring it to shared memory, begun
// when the sample has arrived. What fits the stages is under way at once; the rest follows batch by batch.

#ifndef HPCTOPK_KERNELS_DETAIL_STAGED_SCAN_CUH_
#define HPCTOPK_KERNELS_DETAIL_STAGED_SCAN_CUH_

#include <cstdint>

#include "kernels/detail/ptx.cuh"
#include "kernels/detail/scan.cuh"
#include "kernels/kernels.h"

namespace hpctopk::detail {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The stages that the threads of a group scan. A batch of stages is what they scan between two barriers.
template <class Group>
struct Stages {
  static constexpr int kCount = kernels::kStagedStages;
  static constexpr int kQuads = static_cast<int>(kernels::staged_stage_bytes(Group::kSize) / sizeof(float4));
  static constexpr int kBatch = 2;
  static constexpr int kBatches = kCount / kBatch;
  static constexpr int kBatchQuads = kBatch * kQuads;
  static_assert(kCount % kBatch == 0);

  float4* quads;
  Barrier* full;  // [kCount]

  // By one thread.
  __device__ void init() const {
    for (int i = 0; i < kCount; ++i) barrier_init(&full[i], 1);
    barrier_init_fence();
  }
  __device__ static int batches_of(const Row& part) { return (part.quads + kBatchQuads - 1) / kBatchQuads; }

  // Starts the copies of a batch, which is the `sequence`-th of all parts.
  __device__ __forceinline__ void copy(const Row& part, int batch, unsigned sequence) const {
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {  // all of a batch's barriers pass a phase, whatever there is to copy
      const int begin = batch * kBatchQuads + i * kQuads;
      const int stage = static_cast<int>(sequence % kBatches) * kBatch + i;
      const auto bytes = static_cast<std::uint32_t>(max(0, min(kQuads, part.quads - begin)) * sizeof(float4));
      barrier_arrive_expect(&full[stage], bytes);
      if (bytes > 0) bulk_copy(quads + stage * kQuads, part.quad(begin), bytes, &full[stage]);
    }
  }
};

template <class Group>
class StagedScan {
 public:
  __device__ explicit StagedScan(const Stages<Group>& stages) : stages_(stages) {}

  // Starts the copies of `part`. Thread 0 calls it, when all are done with the last part.
  __device__ void start(const Row& part) const {
    for (int batch = 0; batch < min(kBatches, stages_.batches_of(part)); ++batch) {
      stages_.copy(part, batch, passed_ + batch);
    }
  }
  // Admits of the started part what the boundary's primary key and limit do, as long as k scores are not known to beat
  // it; returns the number of candidates. buffer.scratch->count is 0, and a barrier has been since.
  __device__ __forceinline__ int scan(const Group& group, const Row& part, const Boundary& boundary, int k,
                                      Digits digits, const CandidateBuffer& buffer, Statistics* statistics) {
    const int capacity = buffer.capacity - kEdgeScores;
    int* const count = &buffer.scratch->count;
    std::uint32_t lowest = boundary.primary;
    Admission admission = Admission::from(lowest, boundary.limit);
    const auto admit_edge = [&](int begin, int end) {
      const int index = part.offset + begin;
      if (admission.closed && !admission.before(index)) return;
      scan_edge(group, part, begin, end, admission.floor_at(index), buffer.candidates, count);
    };
    admit_edge(0, part.head);
    admit_edge(part.length - part.tail(), part.length);
    if (part.head + part.tail() > 0) group.sync();  // they have no way back once the others have filled the buffer
    const int num_batches = stages_.batches_of(part);
    for (int batch = 0; batch < num_batches; ++batch) {
      const float4* const quads = stages_.quads + slot(batch) * kBatchQuads;
      const auto* const scores = reinterpret_cast<const float*>(quads);
      const int first = part.offset + part.head + 4 * batch * kBatchQuads;
      const auto composite_of = [&](int i) {
        const int at = score_of(group, i);
        return composite(ordered_key(scores[at]), static_cast<std::uint32_t>(first + at));
      };
      unsigned mask = scan_batch(group, batch, part.quads - batch * kBatchQuads, first, admission);
      while (true) {
        const bool appended = append(group.lane(), mask, composite_of, buffer.candidates, count, capacity);
        if (!group.sync_or(!appended)) break;
        const std::uint64_t kth = keep_k_best(group, k, lowest, part.offset + part.length, digits, buffer, capacity);
        if (group.thread == 0) {
          *count = k;
          if (statistics != nullptr) atomicAdd(atomic_word(&statistics->tightened), 1ULL);
        }
        group.sync();
        lowest = composite_key(kth);
        admission = Admission::after(kth);
        mask = appended ? 0 : better(mask, composite_of, kth);
      }
      if (group.thread == 0 && batch + kBatches < num_batches) {
        stages_.copy(part, batch + kBatches, passed_ + batch + kBatches);
      }
    }
    if (num_batches == 0) group.sync();
    passed_ += num_batches;
    return *count;
  }

 private:
  static constexpr int kBatches = Stages<Group>::kBatches;
  static constexpr int kBatch = Stages<Group>::kBatch;
  static constexpr int kStageQuads = Stages<Group>::kQuads;
  static constexpr int kBatchQuads = Stages<Group>::kBatchQuads;
  static constexpr int kQuads = kStageQuads / Group::kSize;  // of a thread in a stage
  static_assert(kQuads * Group::kSize == kStageQuads && 4 * kQuads * kBatch == 32);

  __device__ int slot(int batch) const { return static_cast<int>((passed_ + batch) % kBatches); }

  // A thread's j-th quad of a batch. Its quads lie at different places in their groups of 32, so that no period of the
  // row gives one lane all that is admitted, and the quads of a warp are still neighbours.
  __device__ static int quad_of(const Group& group, int j) { return j * Group::kSize + (group.thread ^ (4 * j)); }
  // The place in a batch of the score that bit i of a thread's mask stands for.
  __device__ static int score_of(const Group& group, int i) {
    const int j4 = i & ~3;
    return j4 * Group::kSize + 4 * (group.thread ^ j4) + (i & 3);
  }

  // The bits of a thread's scores that are admitted in a batch, which has `left` quads or more and begins at `first`.
  __device__ __forceinline__ unsigned scan_batch(const Group& group, int batch, int left, int first,
                                                 const Admission& admission) const {
    const float4* const quads = stages_.quads + slot(batch) * kBatchQuads;
    const bool mixed = admission.mixed(first, first + 4 * kBatchQuads);
    const bool none = admission.closed && !admission.before(first);
    const float floor = admission.floor_at(first);
    unsigned mask = 0;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      barrier_wait(&stages_.full[slot(batch) * kBatch + i], (passed_ + batch) / kBatches & 1);
      if (left <= i * kStageQuads || mixed || none) continue;
      float4 scores[kQuads];
#pragma unroll
      for (int j = 0; j < kQuads; ++j) scores[j] = quads[quad_of(group, i * kQuads + j)];
      unsigned admits = 0;
      admit_all<kQuads>(scores, floor, &admits);
      mask |= admits << (4 * kQuads * i);
    }
    if (mixed) {
#pragma unroll 1
      for (int j = 0; j < kBatch * kQuads; ++j) {
        const int index = first + 4 * quad_of(group, j);
        if (admission.closed && !admission.before(index)) continue;
        mask |= admitted(quads[quad_of(group, j)], admission.floor_at(index)) << (4 * j);
      }
    }
    if (left < kBatchQuads) {  // what the stages held before lies beyond
      const int whole = left / Group::kSize;
      const bool more = (group.thread ^ (4 * whole)) < left - whole * Group::kSize;
      const int beyond = kBatch * kQuads - whole - (more ? 1 : 0);
      mask &= ~0U >> (2 * beyond) >> (2 * beyond);  // up to all 32
    }
    return mask;
  }

  // The bits of those that are better than the k-th. Rare, and not worth registers.
  template <class CompositeOf>
  __device__ static unsigned better(unsigned mask, const CompositeOf& composite_of, std::uint64_t kth) {
    unsigned kept = 0;
#pragma unroll 1
    while (mask != 0) {
      const int i = kWarpSize - 1 - __clz(static_cast<int>(mask));
      mask ^= 1U << i;
      if (composite_of(i) > kth) kept |= 1U << i;
    }
    return kept;
  }

  Stages<Group> stages_;
  unsigned passed_ = 0;  // batches of all parts before
};

#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_STAGED_SCAN_CUH_
