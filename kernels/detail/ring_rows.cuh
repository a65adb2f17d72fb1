// SPDX-License-Identifier: Apache-2.0
//
// The ring's other role: the proposal for a row before its scan, and the refinement after it.

#ifndef HPCTOPK_KERNELS_DETAIL_RING_ROWS_CUH_
#define HPCTOPK_KERNELS_DETAIL_RING_ROWS_CUH_

#include <cstdint>

#include "kernels/detail/register_sample.cuh"
#include "kernels/detail/ring.cuh"
#include "kernels/detail/staged_rows.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace hpctopk::detail {

// Rows of the hashed view.
class RingSelection {
 public:
  using Group = detail::Group<kernels::kRingSelectThreads>;

  __device__ RingSelection(const Group& group, const Ring& ring, const Operands& operands, const Policy& policy,
                           const GroupView& full)
      : group_(group),
        ring_(ring),
        operands_(operands),
        policy_(policy),
        full_(full),
        index_(blockIdx.x),
        rows_(live_rows(operands)) {}

  __device__ __forceinline__ void select_rows() {
    publish_row(0);
    publish_row(1);
    propose(0);
    for (int turn = 0; ring_.state->rows[turn % Ring::kKnown].row.length != 0; ++turn) {
      propose(turn + 1);
      publish_row(turn + 2);
      barrier_wait(&ring_.state->scanned[turn % Ring::kPlaces], static_cast<unsigned>(turn / Ring::kPlaces) & 1);
      refine(turn);
    }
  }

 private:
  // Makes the turn's row known, and writes what is selected of the shorter ones before it.
  __device__ __forceinline__ void publish_row(int turn) {
    RingRow next{};
    for (; index_ < rows_; index_ += gridDim.x) {
      next.row = load_row(operands_, index_);
      if (next.row.length > operands_.k) break;
      write_whole_row(group_, next.row, operands_.k, operands_.out + index_ * operands_.out_row_stride);
      next.row.length = 0;
    }
    next.index = index_;
    index_ += gridDim.x;
    if (group_.thread != 0) return;
    ring_.state->rows[turn % Ring::kKnown] = next;
    barrier_arrive(&ring_.state->known[turn % Ring::kKnown]);
  }

  __device__ __forceinline__ void propose(int turn) const {
    const int place = turn % Ring::kPlaces;
    group_.sync();  // the row before has been refined, and this one is known
    const RingRow& next = ring_.state->rows[turn % Ring::kKnown];
    const Row row = next.row;
    const CandidateBuffer buffer = ring_.buffer(place);
    Boundary boundary;  // admits every score: right where the row fits or has no usable view
    if (row.length > ring_.capacity) {
      boundary = propose_in_registers<View::kHashed>(group_, row, full_, policy_.sample, operands_.k, buffer, [] {});
      if (boundary.crowded) {
        boundary =
            limit_plateau(group_, operands_, policy_.sample, next.index, boundary, buffer.histogram, buffer.scratch);
      }
    }
    if (group_.warp() == 0) start_scan(turn, next.row, boundary);
  }

  // By one warp, which admits the row's edges.
  __device__ __forceinline__ void start_scan(int turn, const Row& row, const Boundary& boundary) const {
    const int place = turn % Ring::kPlaces;
    const int lane = group_.lane();
    const Admission admission = Admission::from(boundary.primary, boundary.limit);
    int count = 0;
    if (row.head + row.tail() > 0) {
      const int index = lane < row.head ? lane : row.length - row.tail() + lane - row.head;
      const bool inside = lane < row.head + row.tail();
      const float score = row.scores[inside ? index : 0];
      const bool open = admission.before(index) || !admission.closed;
      const bool admitted = inside && open && !(score <= admission.floor_at(index));
      const unsigned all = __ballot_sync(kFullWarp, admitted);
      if (admitted) {
        ring_.candidates(place)[__popc(all & lanes_below(lane))] =
            composite(ordered_key(score), static_cast<std::uint32_t>(index));
      }
      count = __popc(all);
      __syncwarp();
    }
    if (lane != 0) return;
    RingTask& task = ring_.state->tasks[place];
    task.batches = row.length == 0 ? -1 : (row.quads + Ring::kStageQuads - 1) / Ring::kStageQuads;
    task.quads = admission.closed ? min(row.quads, max(0, admission.index - row.head + 3) / 4) : row.quads;
    task.first = row.head;
    task.limit = admission.index;
    task.floor_before = admission.floor_before;
    task.floor = admission.floor;
    task.count = count;
    task.boundary = boundary;
    barrier_arrive(&ring_.state->proposed[place]);
  }

  __device__ __forceinline__ void refine(int turn) const {
    const int place = turn % Ring::kPlaces;
    const RingRow& done = ring_.state->rows[turn % Ring::kKnown];
    const RingTask& task = ring_.state->tasks[place];
    const CandidateBuffer buffer = ring_.buffer(place);
    const int k = operands_.k;
    const int count = task.count;
    if (count < k || count > ring_.capacity) {
      select_again<View::kHashed>(group_, done.index, count < k, operands_, policy_, buffer);
      return;
    }
    std::int32_t* const out = operands_.out + done.index * operands_.out_row_stride;
    select_from_registers(group_, {nullptr, count, k, done.row.length, done.row.start, out},
                          CandidatesOnChip{buffer.candidates}, task.boundary.primary, task.boundary.highest,
                          task.boundary.limit, buffer.histogram, buffer.scratch, ring_.best_stage());
    if (operands_.statistics != nullptr && group_.thread == 0) {
      count_row(operands_.statistics, done.row.length, count, RowWork{});
    }
  }

  const Group& group_;
  const Ring& ring_;
  const Operands& operands_;
  const Policy& policy_;
  const GroupView& full_;
  std::int64_t index_;  // from where the next row is looked for
  std::int64_t rows_;
};

}  // namespace hpctopk::detail
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_RING_ROWS_CUH_
