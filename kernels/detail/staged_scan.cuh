// SPDX-License-Identifier: Apache-2.0
//
// Phase 2 of a CTA that has one row, or a part of one, to scan: bulk copies bring it to shared memory while the sample
// proposes the boundary. What fits the stages is under way at once; the rest follows batch by batch.

#ifndef HPCTOPK_KERNELS_DETAIL_STAGED_SCAN_CUH_
#define HPCTOPK_KERNELS_DETAIL_STAGED_SCAN_CUH_

#include <cstdint>

#include "kernels/detail/ptx.cuh"
#include "kernels/detail/scan.cuh"
#include "kernels/kernels.h"

namespace hpctopk::detail {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// When a scan may bring more than fills its stages: at once.
struct AnyTime {
  __device__ void take() {}
  __device__ void pass() {}
};

// Or in turns with the other group of the CTA, so that one scans at the full rate while the other refines and proposes.
// A turn a row, each taken and then passed by thread 0 of the group.
class Turns {
 public:
  // `barriers`: one for either group.
  __device__ Turns(Barrier* barriers, int rank)
      : mine_(barriers + rank), others_(barriers + (rank ^ 1)), taken_(rank == 0 ? 1 : 0) {}
  __device__ static void init(Barrier* barriers) {
    barrier_init(&barriers[0], 1);
    barrier_init(&barriers[1], 1);
    barrier_init_fence();
  }
  __device__ void take() { barrier_wait(mine_, taken_++ & 1); }  // that of rank 0 begins as if it had been passed
  __device__ void pass() { barrier_arrive(others_); }

 private:
  Barrier* mine_;
  Barrier* others_;
  unsigned taken_;
};

template <class Group>
class StagedScan {
 public:
  // `shared` holds the stages, `full` a barrier for each. One thread initialises the barriers.
  __device__ StagedScan(void* shared, Barrier* full) : stages_(static_cast<float4*>(shared)), full_(full) {}
  __device__ void init() const {
    for (int i = 0; i < kStages; ++i) barrier_init(&full_[i], 1);
    barrier_init_fence();
  }

  // Starts the copies of `part`. Thread 0 calls it, when all are done with the last part.
  __device__ void start(const Row& part) const {
    for (int i = 0; i < kStages; ++i) copy(part, i);
  }

  // Admits of the started part what the boundary's primary key and limit do, as long as k scores are not known to beat
  // it; returns the number of candidates. buffer.scratch->count is 0, and a barrier has been since.
  template <class Turn>
  __device__ __forceinline__ int scan(const Group& group, const Row& part, const Boundary& boundary, int k,
                                      Digits digits, const CandidateBuffer& buffer, Statistics* statistics,
                                      Turn& turn) {
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
    const int num_stages = (part.quads + kStageQuads - 1) / kStageQuads;
    for (int batch = 0; batch < num_stages; batch += kBatch) {
      const auto composite_of = [&](unsigned i) {
        const int stage = slot(batch + static_cast<int>(i / kStageBits));
        const int quad = group.thread + static_cast<int>(i % kStageBits / 4) * Group::kSize;
        const float score = reinterpret_cast<const float*>(stages_ + stage * kStageQuads + quad)[i % 4];
        const int stage_quads = (batch + static_cast<int>(i / kStageBits)) * kStageQuads;
        return composite(ordered_key(score), part.offset + part.head + 4 * (stage_quads + quad) + (i & 3));
      };
      unsigned mask = scan_batch(group, part, batch, num_stages, admission);
      while (true) {
        const bool appended = append(group.lane(), mask, composite_of, buffer.candidates, count, capacity);
        if (appended) mask = 0;
        if (!group.sync_or(!appended)) break;
        const std::uint64_t kth = keep_k_best(group, k, lowest, part.offset + part.length, digits, buffer, capacity);
        if (group.thread == 0) {
          *count = k;
          if (statistics != nullptr) atomicAdd(atomic_word(&statistics->tightened), 1ULL);
        }
        group.sync();
        lowest = composite_key(kth);
        admission = Admission::after(kth);
        if (mask != 0) mask &= scan_batch(group, part, batch, num_stages, admission);
      }
      if (group.thread == 0) {
        if (batch == 0) turn.take();
        for (int i = batch; i < batch + kBatch; ++i) copy(part, i + kStages);
        const int under_way = batch + kBatch + kStages;
        if (under_way >= num_stages && (batch == 0 || under_way - kBatch < num_stages)) turn.pass();
      }
    }
    if (num_stages == 0) {
      if (group.thread == 0) skip(turn);
      group.sync();
    }
    passed_ += num_stages;
    return *count;
  }

  // For a row that is not scanned.
  template <class Turn>
  __device__ static void skip(Turn& turn) {
    turn.take();
    turn.pass();
  }

 private:
  static constexpr int kStages = kernels::kStagedStages;
  static constexpr int kStageQuads = static_cast<int>(kernels::staged_stage_bytes(Group::kSize) / sizeof(float4));
  static constexpr int kBatch = 2;                           // stages between two barriers
  static constexpr int kQuads = kStageQuads / Group::kSize;  // of a thread in a stage
  static constexpr int kStageBits = 4 * kQuads;
  static_assert(kQuads * Group::kSize == kStageQuads && kBatch * kStageBits <= 32 && kStages % kBatch == 0);

  __device__ static int first_index(const Row& part, int stage) {
    return part.offset + part.head + 4 * stage * kStageQuads;
  }
  __device__ int slot(int stage) const { return static_cast<int>((passed_ + stage) % kStages); }

  __device__ void copy(const Row& part, int stage) const {
    const int quads = min(kStageQuads, part.quads - stage * kStageQuads);
    if (quads <= 0) return;
    const auto bytes = static_cast<std::uint32_t>(quads * sizeof(float4));
    Barrier* const full = &full_[slot(stage)];
    barrier_arrive_expect(full, bytes);
    bulk_copy(stages_ + slot(stage) * kStageQuads, part.quad(stage * kStageQuads), bytes, full);
  }

  // The bits of a thread's scores that are admitted, in a batch of stages.
  __device__ __forceinline__ unsigned scan_batch(const Group& group, const Row& part, int batch, int num_stages,
                                                 const Admission& admission) const {
    return admission.mixed(first_index(part, batch), first_index(part, batch + kBatch))
               ? scan_batch_as<true>(group, part, batch, num_stages, admission)
               : scan_batch_as<false>(group, part, batch, num_stages, admission);
  }

  // kMixed: the admission may differ from quad to quad.
  template <bool kMixed>
  __device__ __forceinline__ unsigned scan_batch_as(const Group& group, const Row& part, int batch, int num_stages,
                                                    const Admission& admission) const {
    unsigned mask = 0;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      const int stage = batch + i;
      if (stage >= num_stages) break;
      barrier_wait(&full_[slot(stage)], (passed_ + stage) / kStages & 1);
      const float4* const quads = stages_ + slot(stage) * kStageQuads;
      const int left = part.quads - stage * kStageQuads;
      const int first = first_index(part, stage);
      if (admission.closed && !admission.before(first)) continue;
      unsigned admits = 0;
      if constexpr (kMixed) {
#pragma unroll
        for (int j = 0; j < kQuads; ++j) {
          const int quad = group.thread + j * Group::kSize;
          const bool closed = admission.closed && !admission.before(first + 4 * quad);
          if (!closed) admits |= admitted(quads[quad], admission.floor_at(first + 4 * quad)) << (4 * j);
        }
      } else {
        float4 scores[kQuads];
#pragma unroll
        for (int j = 0; j < kQuads; ++j) scores[j] = quads[group.thread + j * Group::kSize];
        admit_all<kQuads>(scores, admission.floor_at(first), &admits);
      }
      if (left < kStageQuads) {  // what a stage held before lies beyond
        const int mine = (left - group.thread + Group::kSize - 1) / Group::kSize;
        if (mine < kQuads) admits &= (1U << (4 * max(0, mine))) - 1;
      }
      mask |= admits << (i * kStageBits);
    }
    return mask;
  }

  float4* stages_;
  Barrier* full_;
  unsigned passed_ = 0;  // stages of all parts before
};

#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_STAGED_SCAN_CUH_
