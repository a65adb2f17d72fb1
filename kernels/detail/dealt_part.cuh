// SPDX-License-Identifier: Apache-2.0
//
// Phase 2 of a member of a cluster. A row is dealt to the members piece by piece, a quad a thread, so that shorter rows
// and rows whose best scores lie together leave none of them idle. What fits the stages is copied by the row's
// allocated width, before its length is known, and not admitted beyond it; the rest is copied by its length.

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
  static constexpr int kBytes = kernels::kStagedStages * static_cast<int>(kernels::staged_stage_bytes(Group::kSize));

  // Of member `rank` of 2^log_size. `shared` holds the stages, `full` a barrier for each.
  __device__ DealtPart(void* shared, Barrier* full, int rank, int log_size)
      : stages_(static_cast<float4*>(shared)), full_(full), rank_(rank), log_size_(log_size) {}

  // Starts the copies of the member's pieces of `row`, which is as long as it may be. All threads call; a barrier comes
  // before anything else.
  __device__ __forceinline__ void start(const Group& group, const Row& row) const {
    if (group.warp() != 0) return;
    if (group.thread < kStages) {
      barrier_init(&full_[group.thread], 1);
      barrier_init_fence();
    }
    __syncwarp();
    if (group.thread < kStages) copy(row, group.thread);
  }

  // Waits for what start() has brought beyond the first `pieces`.
  __device__ __forceinline__ void drain(const Row& row, int pieces = 0) const {
    const int stages = min(stages_of(pieces_of(row.quads)), kStages);
#pragma unroll 1
    for (int stage = stages_of(pieces); stage < stages; ++stage) barrier_wait(&full_[stage], 0);
  }

  // Starts the copies again, for another scan. All threads call it, and have done with what was in the stages.
  __device__ __forceinline__ void restart(const Group& group, const Row& row) const {
    async_proxy_fence();
    group.sync();
    if (group.thread < kStages) barrier_invalidate(&full_[group.thread]);
    start(group, row);
    group.sync();
  }

  // Whether the stages hold all that scan() has seen, and it may be called again without restart().
  __device__ bool holds(const Row& row, int length) const {
    return pieces_of(valid_quads(row, length)) <= kStages * kStagePieces;
  }

  // The member's scores of a row's first `length`, its edges left out.
  __device__ int share(const Row& row, int length) const {
    const int quads = valid_quads(row, length);
    const int before = (pieces_of(quads) - 1) * Group::kSize;  // quads of the pieces before the last
    const int last = quads - (before << log_size_) - rank_ * Group::kSize;
    return before < 0 ? 0 : 4 * (before + min(last, Group::kSize));
  }

  // Admits what the boundary does of the first `length` scores of the started `row`; returns the number of candidates,
  // which is above the buffer's capacity where not all are there. buffer.scratch->count is 0, and a barrier has been
  // since. Not kLimited: the boundary has no limit.
  template <bool kLimited>
  __device__ __forceinline__ int scan(const Group& group, const Row& row, int length, const Boundary& boundary,
                                      const CandidateBuffer& buffer) const {
    const int capacity = buffer.capacity - kEdgeScores;
    int* const count = &buffer.scratch->count;
    const Admission admission = Admission::from(boundary.primary, kLimited ? boundary.limit : Boundary::kNoLimit);
    if (rank_ == 0 && row.head + row.tail() > 0) {
      const auto admit_edge = [&](int begin, int end) {
        if (admission.closed && !admission.before(begin)) return;
        scan_edge(group, row, begin, min(end, length), admission.floor_at(begin), buffer.candidates, count);
      };
      admit_edge(0, row.head);
      admit_edge(row.length - row.tail(), row.length);
      group.sync();  // they have no way back once the others have filled the buffer
    }
    int end = min(length, row.length - row.tail());
    Row valid = row;  // of what is copied from here on all is waited for
    valid.quads = valid_quads(row, length);
    const int pieces = pieces_of(valid.quads);
    if (admission.closed) end = min(end, admission.index);
    const int first = row.head + (rank_ << kLogPiece);  // of piece 0; pieces are 2^log_stride scores apart
    const int log_stride = kLogPiece + log_size_;
    const int whole = max(0, ((end - first - (1 << kLogPiece)) >> log_stride) + 1);  // pieces before `end`
    const int beyond = end - first - (whole << log_stride) - 4 * quad_of(group, whole % kBatch);
    const int bits = 4 * whole + max(0, min(beyond, 4));  // of the thread's scores
#pragma unroll 1
    for (int begin = 0; begin < pieces; begin += kBatch) {
      const int slot = begin / kBatch % 2;
      const float4* const quads = stages_ + slot * kBatch * Group::kSize;
      Barrier* const full = full_ + slot * kBatchStages;
      const int index = first + (begin << log_stride);
      unsigned masks[2] = {0, 0};
      scan_stages<kLimited>(group, quads, full, begin / kBatch / 2 & 1, pieces - begin, index, log_stride, admission,
                            masks);
      const unsigned mask = (masks[0] | masks[1]) & low_bits(bits - 4 * begin);
      append(
          group.lane(), mask,
          [&](int i) {
            const int piece = i >> 2;
            const int at = 4 * quad_of(group, piece) + (i & 3);
            const float score = reinterpret_cast<const float*>(quads)[piece * 4 * Group::kSize + at];
            return composite(ordered_key(score), static_cast<std::uint32_t>(index + (piece << log_stride) + at));
          },
          buffer.candidates, count, capacity);
      if (begin + kStages * kStagePieces < pieces) {
        group.sync();
        if (group.thread < kBatchStages) copy(valid, begin / kStagePieces + kStages + group.thread);
      }
    }
    drain(row, pieces);
    group.sync();
    return *count > capacity ? buffer.capacity + 1 : *count;
  }

 private:
  static constexpr int kLogPiece = 11;  // scores
  static constexpr int kStagePieces = 2;
  static constexpr int kBatch = 8;  // pieces scanned at once; there is room for two batches
  static constexpr int kBatchStages = kBatch / kStagePieces;
  static constexpr int kStages = 2 * kBatchStages;
  static_assert(4 * Group::kSize == 1 << kLogPiece && kStages * kStagePieces * Group::kSize * 16 == kBytes);

  // The thread's quad in a piece, of a batch the `piece`-th. Pieces begin at multiples of 2,048 scores: were it the
  // same in all, a period of the row would give few lanes all that is admitted.
  __device__ static int quad_of(const Group& group, int piece) { return group.thread ^ (4 * piece); }
  // The member's pieces of a row's first `quads`.
  __device__ int pieces_of(int quads) const {
    const int others = (1 << log_size_) - rank_;
    return (quads + others * Group::kSize - 1) >> (kLogPiece - 2 + log_size_);
  }
  // The quads that hold a row's first `length` scores, as far as they are copied.
  __device__ static int valid_quads(const Row& row, int length) {
    return (min(length, row.length - row.tail()) - row.head + 3) >> 2;
  }
  __device__ static int stages_of(int pieces) { return (pieces + kStagePieces - 1) >> 1; }

  // The n-th part of the row that fills a stage, which passes a phase, whatever there is to copy.
  __device__ __forceinline__ void copy(const Row& row, int n) const {
    const int stage = n % kStages;
    const int step = Group::kSize << log_size_;
    const int begin = n * kStagePieces * step + rank_ * Group::kSize;
    const int first = max(0, min(Group::kSize, row.quads - begin));
    const int second = max(0, min(Group::kSize, row.quads - begin - step));
    float4* const to = stages_ + stage * kStagePieces * Group::kSize;
    barrier_arrive_expect(&full_[stage], static_cast<std::uint32_t>((first + second) * 16));
    if (first > 0) bulk_copy(to, row.quad(begin), static_cast<std::uint32_t>(first * 16), &full_[stage]);
    if (second > 0) {
      bulk_copy(to + Group::kSize, row.quad(begin + step), static_cast<std::uint32_t>(second * 16), &full_[stage]);
    }
  }

  // Sets the bits of `masks`, whose union is meant, for the scores that are admitted in a batch of which `left` pieces
  // are there.
  template <bool kLimited, int kFirst = 0>
  __device__ static __forceinline__ void scan_stages(const Group& group, const float4* quads, Barrier* full,
                                                     unsigned parity, int left, int index, int log_stride,
                                                     const Admission& admission, unsigned* masks) {
    if constexpr (kFirst < kBatch) {
      if (left <= kFirst) return;
      barrier_wait(&full[kFirst / kStagePieces], parity);
      const int quad_a = quad_of(group, kFirst);
      const int quad_b = quad_of(group, kFirst + 1);
      const float4 a = quads[kFirst * Group::kSize + quad_a];
      const float4 b = quads[(kFirst + 1) * Group::kSize + quad_b];
      float floor_a = admission.floor;
      float floor_b = floor_a;
      if constexpr (kLimited) {
        floor_a = admission.floor_at(index + (kFirst << log_stride) + 4 * quad_a);
        floor_b = admission.floor_at(index + ((kFirst + 1) << log_stride) + 4 * quad_b);
      }
      admit<4 * kFirst>(a, floor_a, &masks[0]);  // each waits for the one before
      admit<4 * kFirst + 4>(b, floor_b, &masks[1]);
      scan_stages<kLimited, kFirst + kStagePieces>(group, quads, full, parity, left, index, log_stride, admission,
                                                   masks);
    }
  }

  __device__ static unsigned low_bits(int count) { return count >= kWarpSize ? kFullWarp : (1U << max(count, 0)) - 1; }

  float4* stages_;
  Barrier* full_;
  int rank_, log_size_;
};
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_DEALT_PART_CUH_
