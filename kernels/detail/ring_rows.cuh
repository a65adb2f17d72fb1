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

  __device__ RingSelection(const Operands& operands, const Policy& policy, const GroupView& full, int capacity)
      : operands_(operands), policy_(policy), full_(full), capacity_(capacity) {}

  // What a turn needs waits in shared memory for it: registers are few.
  __device__ __forceinline__ void select_rows() const {
    int refined = 0;   // turns
    int repeated = 0;  // rows
    for (int turn = -1;; ++turn) {
      if (turn >= 0) propose(turn);
      if (turn >= 0 && ring().state->rows[turn % Ring::kKnown].row.length == 0) return;
      // The next row is known before the last is refined; but where only rows to repeat can follow, after.
      bool published = false;
      do {
        if (!published) published = publish_row(turn + 1, refined > turn, &repeated);
        if (refined < turn || (!published && refined == turn)) refine(refined++);
      } while (!published || refined < turn);
    }
  }

 private:
  // As a phase sees them: what follows of them is computed anew each time, and not once and spilled.
  __device__ __forceinline__ Group group() const { return {read_thread_index()}; }
  __device__ __forceinline__ Ring ring() const {
    int capacity = capacity_;
    keep_in_register(&capacity);
    return Ring(shared_memory(), capacity);
  }

  // Makes the turn's row known, and writes what is selected of the shorter ones before it. False: there is none, and it
  // is not the `end` yet, because a row that is under way may have to be repeated.
  __device__ __forceinline__ bool publish_row(int turn, bool end, int* repeated) const {
    const Group group = this->group();
    const Ring ring = this->ring();
    Ring::State& state = *ring.state;
    group.sync();  // what is to be repeated is known
    const RingRow& last = state.rows[(turn + Ring::kKnown - 1) % Ring::kKnown];
    const std::int64_t rows = turn == 0 ? live_rows(operands_) : state.live_rows;
    RingRow row{};
    row.next = turn == 0 ? blockIdx.x : last.next;
    if (*repeated < state.asked) {
      const std::int64_t next = row.next;
      row = state.to_repeat[*repeated % Ring::kPlaces];
      row.next = next;
      ++*repeated;
    } else {
      for (; row.next < rows && row.row.length == 0; row.next += gridDim.x) {
        row.index = row.next;
        row.row = load_row(operands_, row.index);
        if (row.row.length > operands_.k) continue;
        write_whole_row(group, row.row, operands_.k, operands_.out + row.index * operands_.out_row_stride);
        row.row.length = 0;
      }
      if (row.row.length == 0 && !end) return false;
    }
    if (group.thread == 0) {
      state.live_rows = rows;
      state.rows[turn % Ring::kKnown] = row;
      barrier_arrive(&state.known[turn % Ring::kKnown]);
    }
    return true;
  }

  __device__ __forceinline__ void propose(int turn) const {
    const Group group = this->group();
    const Ring ring = this->ring();
    const int place = turn % Ring::kPlaces;
    group.sync();  // the row before has been refined, and this one is known
    const RingRow& next = ring.state->rows[turn % Ring::kKnown];
    const Row row = next.row;
    const CandidateBuffer buffer = ring.buffer(place);
    Boundary boundary;  // admits every score: right where the row fits or has no usable view
    if (next.again) {
      boundary = Boundary::at(next.floor);
      boundary.highest = next.highest;
    } else if (row.length > ring.capacity) {
      boundary = propose_in_registers<View::kHashed>(group, row, full_, policy_.sample, operands_.k, buffer, [] {});
      if (boundary.crowded) {
        boundary =
            limit_plateau(group, operands_, policy_.sample, next.index, boundary, buffer.histogram, buffer.scratch);
      }
    }
    if (group.warp() == 0) start_scan(ring, group.lane(), turn, next.row, boundary);
  }

  // By one warp, which admits the row's edges.
  __device__ __forceinline__ void start_scan(const Ring& ring, int lane, int turn, const Row& row,
                                             const Boundary& boundary) const {
    const int place = turn % Ring::kPlaces;
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
        ring.candidates(place)[__popc(all & lanes_below(lane))] =
            composite(ordered_key(score), static_cast<std::uint32_t>(index));
      }
      count = __popc(all);
      __syncwarp();
    }
    if (lane != 0) return;
    RingTask& task = ring.state->tasks[place];
    task.pieces = row.length == 0 ? -1 : Ring::pieces_of(row.quads);
    task.quads = admission.closed ? min(row.quads, max(0, admission.index - row.head + 3) / 4) : row.quads;
    task.first = row.head;
    task.limit = admission.index;
    task.floor_before = admission.floor_before;
    task.floor = admission.floor;
    task.count = count;
    task.boundary = boundary;
    barrier_arrive(&ring.state->proposed[place]);
  }

  __device__ __forceinline__ void refine(int turn) const {
    const Group group = this->group();
    const Ring ring = this->ring();
    const int place = turn % Ring::kPlaces;
    const RingRow& done = ring.state->rows[turn % Ring::kKnown];
    const RingTask& task = ring.state->tasks[place];
    const CandidateBuffer buffer = ring.buffer(place);
    const int k = operands_.k;
    // One warp waits for the scan, and the others for it: a warp that tries again and again takes issue slots.
    if (group.warp() == 0) barrier_wait(&ring.state->scanned[place], static_cast<unsigned>(turn / Ring::kPlaces) & 1);
    group.sync();
    const int count = task.count;
    if (count < k || count > ring.capacity) {
      if (!repeat(group, ring, turn, k, policy_.digits)) {
        select_again<View::kHashed>(group, done.index, count < k, operands_, policy_, buffer);
      }
      return;
    }
    std::int32_t* const out = operands_.out + done.index * operands_.out_row_stride;
    select_from_registers(group, {nullptr, count, k, done.row.length, done.row.start, out},
                          CandidatesOnChip{buffer.candidates}, task.boundary.primary, task.boundary.highest,
                          task.boundary.limit, buffer.histogram, buffer.scratch, ring.best_stage());
    if (operands_.statistics != nullptr && group.thread == 0) {
      count_row(operands_.statistics, done.row.length, count, RowWork{done.again ? 2 : 1, done.had_few, false});
    }
  }

  // Has a row scanned once more: one of too few candidates from the secondary boundary, one of too many from the k-th
  // of those that have found room. False: that has been done, or would not help. Out of line, and so by value: few rows
  // come here.
  static __device__ __noinline__ bool repeat(Group group, Ring ring, int turn, int k, Digits digits) {
    Ring::State& state = *ring.state;
    RingRow row = state.rows[turn % Ring::kKnown];
    const RingTask& task = state.tasks[turn % Ring::kPlaces];
    if (row.again) return false;
    const std::uint32_t primary = task.boundary.primary;
    row.again = true;
    row.had_few = task.count < k;
    row.highest = task.boundary.highest;
    if (row.had_few) {
      row.floor = task.boundary.secondary;
      if (row.floor >= primary) return false;
    } else {
      const CandidateBuffer buffer = ring.buffer(turn % Ring::kPlaces);
      const int count = ring.capacity - kWarpSize;  // the lane that has found no room may have left as many out
      row.floor = composite_key(kth_best(group, buffer.candidates, count, k, primary, row.row.length, digits,
                                         buffer.histogram, buffer.scratch));
      if (row.floor <= primary) return false;
    }
    if (group.thread == 0) state.to_repeat[state.asked++ % Ring::kPlaces] = row;
    return true;
  }

  const Operands& operands_;
  const Policy& policy_;
  const GroupView& full_;
  int capacity_;
};

}  // namespace hpctopk::detail
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_RING_ROWS_CUH_
