// SPDX-License-Identifier: Apache-2.0
//
// Phase 2 of a member of a cluster. A row is dealt to the members piece by piece, a quad a thread, so that shorter rows
// and rows whose best scores lie together leave none of them idle. Bulk copies bring the pieces to shared memory from
// the row's allocated width, before its length is known; what lies beyond the length is not admitted.

#ifndef HPCTOPK_KERNELS_DETAIL_DEALT_PART_CUH_
#define HPCTOPK_KERNELS_DETAIL_DEALT_PART_CUH_

#include <cstdint>

#include "kernels/detail/ptx.cuh"
#include "kernels/detail/scan.cuh"
#include "kernels/kernels.h"

namespace hpctopk::detail {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <class Group>
class DealtPart {
 public:
  static constexpr int kStages = 8;
  static constexpr int kBytes = kernels::kStagedStages * static_cast<int>(kernels::staged_stage_bytes(Group::kSize));

  // Of member `rank` of 2^log_size. `shared` holds the stages, `full` a barrier for each.
  __device__ DealtPart(void* shared, Barrier* full, int rank, int log_size)
      : stages_(static_cast<float4*>(shared)), full_(full), rank_(rank), log_size_(log_size) {}

  __device__ void init() const {
    for (int i = 0; i < kStages; ++i) barrier_init(&full_[i], 1);
  }

  // Starts the copies of the member's pieces of `row`, which is as long as it may be. Thread 0 calls it, when all are
  // done with the last row.
  __device__ __forceinline__ void start(const Row& row) const {
    const int stages = min(stages_of(pieces_of(row.quads)), kStages);
#pragma unroll 1
    for (int stage = 0; stage < stages; ++stage) copy(row, stage);
  }

  // Waits for what the copies of `row` have brought to stages from `first` on.
  __device__ __forceinline__ void drain(const Row& row, int first = 0) {
    const int stages = min(stages_of(pieces_of(row.quads)), kStages);
#pragma unroll 1
    for (int stage = first; stage < stages; ++stage) wait(stage);
  }

  // Admits what the boundary does of the first `length` scores of the started `row`; returns the number of candidates,
  // which is above the buffer's capacity where not all are there. buffer.scratch->count is 0, and a barrier has been
  // since.
  __device__ __forceinline__ int scan(const Group& group, const Row& row, int length, const Boundary& boundary,
                                      const CandidateBuffer& buffer) {
    const int capacity = buffer.capacity - kEdgeScores;
    int* const count = &buffer.scratch->count;
    const Admission admission = Admission::from(boundary.primary, boundary.limit);
    const auto admit_edge = [&](int begin, int end) {
      if (!(admission.closed && !admission.before(begin))) {
        scan_edge(group, row, begin, min(end, length), admission.floor_at(begin), buffer.candidates, count);
      }
    };
    if (rank_ == 0 && row.head + row.tail() > 0) {
      admit_edge(0, row.head);
      admit_edge(row.length - row.tail(), row.length);
      group.sync();  // they have no way back once the others have filled the buffer
    }
    int end = min(length, row.length - row.tail());
    const int pieces = pieces_of((end - row.head + 3) / 4);
    if (admission.closed) end = min(end, admission.index);
    const int log_stride = kLogPiece + log_size_;
    const int first = row.head + 4 * (rank_ * Group::kSize + group.thread);  // and every 2^log_stride-th
    const int left = end - first;
    const int whole = max(0, ((left - 4) >> log_stride) + 1);
    const int bits = 4 * whole + max(0, min(left - (whole << log_stride), 3));  // of the thread's scores
#pragma unroll 1
    for (int begin = 0; begin < pieces; begin += kBatch) {
      const int base = begin / kStagePieces % kStages;
      unsigned mask = 0;
      scan_stages(group, base, pieces - begin, first + (begin << log_stride), log_stride, admission, &mask);
      mask &= low_bits(bits - 4 * begin);
      const float* const scores = reinterpret_cast<const float*>(stages_) + base * 4 * kStageQuads + 4 * group.thread;
      append(
          group.lane(), mask,
          [&](int i) {
            const int piece = i / 4;
            const int index = first + ((begin + piece) << log_stride) + i % 4;
            return composite(ordered_key(scores[piece * 4 * Group::kSize + i % 4]), static_cast<std::uint32_t>(index));
          },
          buffer.candidates, count, capacity);
      if (pieces > kStages * kStagePieces) {
        group.sync();
        const int next = (begin + kStages * kStagePieces) / kStagePieces;
        if (group.thread == 0) {
#pragma unroll 1
          for (int i = next; i < min(next + kBatch / kStagePieces, stages_of(pieces)); ++i) copy(row, i);
        }
      }
    }
    drain(row, stages_of(pieces));
    group.sync();
    return *count;
  }

 private:
  static constexpr int kLogPiece = 11;  // scores
  static constexpr int kStagePieces = 2;
  static constexpr int kStageQuads = kStagePieces * Group::kSize;
  static constexpr int kBatch = 8;  // pieces scanned at once
  static_assert(4 * Group::kSize == 1 << kLogPiece && kStages * kStageQuads * 16 == kBytes);

  // The member's pieces of a row's first `quads`.
  __device__ int pieces_of(int quads) const {
    const int others = (1 << log_size_) - 1 - rank_;
    return (quads + others * Group::kSize + Group::kSize - 1) >> (kLogPiece - 2 + log_size_);
  }
  __device__ static int stages_of(int pieces) { return (pieces + kStagePieces - 1) / kStagePieces; }

  // The n-th part of the row that fills a stage.
  __device__ __forceinline__ void copy(const Row& row, int n) const {
    const int stage = n % kStages;
    const int step = Group::kSize << log_size_;
    const int begin = n * kStagePieces * step + rank_ * Group::kSize;
    const int first = min(Group::kSize, row.quads - begin);
    const int second = max(0, min(Group::kSize, row.quads - begin - step));
    barrier_arrive_expect(&full_[stage], static_cast<std::uint32_t>((first + second) * 16));
    bulk_copy(stages_ + stage * kStageQuads, row.quad(begin), static_cast<std::uint32_t>(first * 16), &full_[stage]);
    if (second <= 0) return;
    bulk_copy(stages_ + stage * kStageQuads + Group::kSize, row.quad(begin + step),
              static_cast<std::uint32_t>(second * 16), &full_[stage]);
  }

  __device__ __forceinline__ void wait(int stage) {
    barrier_wait(&full_[stage], phases_ >> stage & 1);
    phases_ ^= 1U << stage;
  }

  // Sets the bits of `mask` for the scores that are admitted in a batch of which `left` pieces are there.
  template <int kFirst = 0>
  __device__ __forceinline__ void scan_stages(const Group& group, int base, int left, int index, int log_stride,
                                              const Admission& admission, unsigned* mask) {
    if constexpr (kFirst < kBatch) {
      if (left <= kFirst) return;
      wait(base + kFirst / kStagePieces);
      const float4* const quads = stages_ + base * kStageQuads + kFirst * Group::kSize + group.thread;
      const float4 a = quads[0];
      const float4 b = quads[Group::kSize];
      admit<4 * kFirst>(a, admission.floor_at(index + (kFirst << log_stride)), mask);
      admit<4 * kFirst + 4>(b, admission.floor_at(index + ((kFirst + 1) << log_stride)), mask);
      scan_stages<kFirst + kStagePieces>(group, base, left, index, log_stride, admission, mask);
    }
  }

  __device__ static unsigned low_bits(int count) { return count >= kWarpSize ? kFullWarp : (1U << max(count, 0)) - 1; }

  float4* stages_;
  Barrier* full_;
  int rank_, log_size_;
  unsigned phases_ = 0;  // of each stage, the parity of the phase that comes next
};
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_DEALT_PART_CUH_
