// SPDX-License-Identifier: Apache-2.0
//
// The ring's third role: the proposal for a row before its scan, and the refinement after it.

#ifndef HPCTOPK_KERNELS_DETAIL_RING_SELECT_CUH_
#define HPCTOPK_KERNELS_DETAIL_RING_SELECT_CUH_

#include <cstdint>

#include "kernels/detail/ring.cuh"
#include "kernels/detail/staged_rows.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace hpctopk::detail {

// Rows of the hashed view.
class RingSelection {
 public:
  using Group = detail::Group<kernels::kRingSelectThreads>;

  __device__ RingSelection(const Operands& operands, const Policy& policy, int capacity)
      : operands_(operands), policy_(policy), capacity_(capacity) {}

  __device__ __forceinline__ void select_rows() const {
    for (int turn = 0; propose(turn); ++turn) {
      if (turn > 0) refine(turn - 1);
    }
  }

 private:
  // As the phases know them: what follows of these is computed anew each time, and not once and spilled.
  __device__ __forceinline__ Group group() const { return {read_thread_index()}; }
  __device__ __forceinline__ Ring ring() const {
    int capacity = capacity_;
    keep_in_register(&capacity);
    return Ring(shared_memory(), capacity);
  }

  // Starts the scan of a turn's row. False: it is the end.
  __device__ __forceinline__ bool propose(int turn) const {
    const Group group = this->group();
    const Ring ring = this->ring();
    if (turn == 0) {  // nobody has anything else to do
      ring.wait_known(turn);
      const RingRow& first = ring.row(turn);
      if (first.sampled) ring.bring_sample(first, operands_.k, group.thread, Group::kSize);
      barrier_arrive_behind_copies(&ring.state->first_sampled);
      barrier_wait(&ring.state->first_sampled, 0);
    }
    if (group.warp() == 0) {  // and the others for it: a warp that tries again and again takes issue slots
      ring.wait_known(turn);
      barrier_wait(&ring.state->sampled, turn & 1);
    }
    group.sync();  // the row before has been refined
    const RingRow& next = ring.row(turn);
    const CandidateBuffer buffer = buffer_at(ring.rest, 0);
    Boundary boundary;  // admits every score: right where the row fits or has no usable view
    if (next.again()) {
      boundary = Boundary::at(next.floor);
      boundary.highest = next.highest;
    } else if (next.sampled) {
      const GroupView view{next.view, 0, 0, next.log_threads, next.log_run, next.by_runs, next.enough};
      boundary = propose_staged(group, view, ring.sample(operands_.k), buffer.histogram, buffer.scratch);
      if (boundary.crowded) {
        boundary =
            limit_plateau(group, operands_, policy_.sample, next.index, boundary, buffer.histogram, buffer.scratch);
      }
    }
    if (this->group().warp() == 0) start_scan(turn, boundary);
    return !this->ring().row(turn).end;
  }

  // By one warp, which admits the row's edges.
  __device__ __forceinline__ void start_scan(int turn, const Boundary& boundary) const {
    const int lane = group().lane();
    const Ring ring = this->ring();
    const RingRow& next = ring.row(turn);
    const Row row = next.row;
    const Admission admission = Admission::from(boundary.primary, boundary.limit);
    int count = 0;
    if (row.head + row.tail() > 0) {
      const int index = next.edge(lane);
      const bool inside = index >= 0;
      const float score = next.edges[inside ? lane : 0];
      const bool open = admission.before(index) || !admission.closed;
      const bool admitted = inside && open && !(score <= admission.floor_at(index));
      const unsigned all = __ballot_sync(kFullWarp, admitted);
      if (admitted) {
        const int place = __popc(all & lanes_below(lane));
        *ring.candidates(turn, place, place + 1) = composite(ordered_key(score), static_cast<std::uint32_t>(index));
      }
      count = __popc(all);
      __syncwarp();
    }
    if (lane != 0) return;
    RingTask& task = ring.task(turn);
    task.pieces = next.end ? -1 : Ring::pieces_of(row.quads);
    task.quads = admission.closed ? min(row.quads, max(0, admission.index - row.head + 3) / 4) : row.quads;
    task.first = row.head;
    task.limit = admission.index;
    task.floor_before = admission.floor_before;
    task.floor = admission.floor;
    task.count = count;
    task.boundary = boundary;
    barrier_arrive(&ring.state->proposed[turn % Ring::kPlaces]);
  }

  __device__ __forceinline__ void refine(int turn) const {
    const Group group = this->group();
    const Ring ring = this->ring();
    if (group.warp() == 0) ring.wait_scanned(turn);
    group.sync();
    const RingRow& done = ring.row(turn);
    const RingTask& task = ring.task(turn);
    const CandidateBuffer buffer = ring.buffer(turn);
    const int count = task.count;
    const int k = operands_.k;
    if (done.row.length == 0) {
      // A turn without a row.
    } else if (count < k || count > ring.room()) {
      if (!repeat(turn)) {
        select_again<View::kHashed>(group, done.index, count < k, operands_, policy_, buffer);
      }
    } else {
      std::int32_t* const out = operands_.out + done.index * operands_.out_row_stride;
      select_by_bins(group, {nullptr, count, k, done.row.length, done.row.start, out},
                     CandidatesOnChip{ring.candidates(turn, 0, count)}, task.boundary.primary, task.boundary.highest,
                     task.boundary.limit, buffer.histogram, buffer.scratch, ring.best_stage());
      if (operands_.statistics != nullptr && this->group().thread == 0) {
        count_row(operands_.statistics, done.row.length, count,
                  RowWork{1 + done.had_few + done.had_many, done.had_few, false});
      }
    }
    __syncwarp();
    if (this->group().lane() == 0) barrier_arrive(&this->ring().state->refined[turn % Ring::kKnown]);
  }

  // Has a row scanned once more: one of too few candidates from the secondary boundary, one of too many from the k-th
  // of those that have found room. False: that has been done, or would not help.
  __device__ __forceinline__ bool repeat(int turn) const {
    const Group group = this->group();
    const Ring ring = this->ring();
    const RingTask& task = ring.task(turn);
    const RingRow& row = ring.row(turn);
    const bool few = task.count < operands_.k;
    if (row.had_many || (few && row.had_few)) return false;
    const std::uint32_t primary = task.boundary.primary;
    std::uint32_t floor = task.boundary.secondary;
    if (few && floor >= primary) return false;
    if (!few) {
      const CandidateBuffer buffer = ring.buffer(turn);
      const int count = ring.room() - kWarpSize;  // the lane that has found no room may have left as many out
      floor = composite_key(kth_best(group, ring.candidates(turn, 0, count), count, operands_.k, primary,
                                     row.row.length, policy_.digits, buffer.histogram, buffer.scratch));
      if (floor <= primary) return false;
    }
    if (group.thread == 0) {
      RingRow& to = ring.state->to_repeat[ring.state->asked % Ring::kKnown];
      to = row;
      to.sampled = false;
      (few ? to.had_few : to.had_many) = true;
      to.floor = floor;
      to.highest = task.boundary.highest;
      ++ring.state->asked;
    }
    return true;
  }

  const Operands& operands_;
  const Policy& policy_;
  int capacity_;
};

}  // namespace hpctopk::detail
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_RING_SELECT_CUH_
