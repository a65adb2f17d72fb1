// SPDX-License-Identifier: Apache-2.0
//
// Rows of a CTA whose threads have two roles: the scanners admit candidates of one row after the other, and meanwhile
// the selectors refine the row before and propose for the one after. So memory is never idle between a CTA's first
// proposal and its last scan.

#ifndef HPCTOPK_KERNELS_DETAIL_OVERLAPPED_ROWS_CUH_
#define HPCTOPK_KERNELS_DETAIL_OVERLAPPED_ROWS_CUH_

#include <cstdint>

#include "kernels/detail/sample.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/detail/staged_rows.cuh"
#include "kernels/detail/staged_scan.cuh"
#include "kernels/kernels.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace hpctopk::detail {

using Scanners = Group<kernels::kScanners, true>;
using Selectors = Group<kernels::kSelectors, true>;

// A row on its way between the two roles: the selectors propose its boundary, the scanners fill its candidates.
struct RowInFlight {
  Row row;  // without scores: there are no more
  Boundary boundary;
  int count;  // candidates
};

// The shared memory of a CTA. Rows use the two places in turn.
struct OverlappedMemory {
  static constexpr int kRows = 2;
  static constexpr std::int64_t kStageBytes = kernels::kStagedStages * kernels::staged_stage_bytes(kernels::kScanners);

  Stages<Scanners> stages;
  Barrier* known;       // [kRows] the row
  Barrier* proposed;    // [kRows] its boundary, and that the place's candidates are free
  Barrier* scanned;     // [kRows]
  RowInFlight* rows;    // [kRows]
  unsigned char* rest;  // a histogram and a scratch for either role, then the candidates
  int capacity;         // of a row's candidates

  __device__ OverlappedMemory(unsigned char* shared, int capacity) : capacity(capacity) {
    static_assert((kernels::kStagedStages + 3 * kRows) * sizeof(Barrier) + kRows * sizeof(RowInFlight) <=
                  kernels::kOverlappedStateBytes);
    stages = {reinterpret_cast<float4*>(shared), reinterpret_cast<Barrier*>(shared + kStageBytes)};
    known = stages.full + kernels::kStagedStages;
    proposed = known + kRows;
    scanned = proposed + kRows;
    rows = reinterpret_cast<RowInFlight*>(scanned + kRows);
    rest = shared + kStageBytes + kernels::kOverlappedStateBytes;
  }
  // By one thread.
  __device__ void init() const {
    for (int i = 0; i < kRows; ++i) {
      barrier_init(&known[i], 1);
      barrier_init(&proposed[i], 1);
      barrier_init(&scanned[i], 1);
    }
    buffer(0, 0).scratch->count = 0;
    stages.init();
  }
  // What a role works with on the row at `place`.
  __device__ __forceinline__ CandidateBuffer buffer(int role, int place) const {
    CandidateBuffer buffer = buffer_at(rest + role * kernels::shared_bytes(0), capacity);
    buffer.candidates = reinterpret_cast<std::uint64_t*>(rest + 2 * kernels::shared_bytes(0)) + place * capacity;
    return buffer;
  }
};

// The rows of a share that are longer than k, one after the other.
class LongRows {
 public:
  __device__ LongRows(const Operands& operands, Share share)
      : operands_(operands), index_(share.first), step_(share.step), rows_(live_rows(operands)) {}

  // Whether there is another, which row() then is. `short_row` visits those before it.
  template <class Visit>
  __device__ __forceinline__ bool next(const Visit& short_row) {
    while (index_ < rows_) {
      row_ = load_row(operands_, index_);
      current_ = index_;
      index_ += step_;
      if (row_.length > operands_.k) return true;
      short_row(current_, row_);
    }
    row_ = {};
    return false;
  }
  __device__ const Row& row() const { return row_; }
  __device__ std::int64_t index() const { return current_; }

 private:
  const Operands& operands_;
  std::int64_t index_, step_, rows_;
  std::int64_t current_ = 0;
  Row row_{};
};

// Brings row after row to the stages, as far ahead of the scan as there is room and rows are known. One thread's.
class Copies {
 public:
  __device__ explicit Copies(const OverlappedMemory& memory) : memory_(memory) {}

  // Starts what is known of the first `end` batches.
  __device__ __forceinline__ void start(unsigned end) {
    while (started_ < end) {
      const int place = static_cast<int>(turn_ % OverlappedMemory::kRows);
      if (!barrier_try_wait(&memory_.known[place], turn_ / OverlappedMemory::kRows & 1)) return;
      const Row& row = memory_.rows[place].row;
      if (row.length == 0) return;
      const int num_batches = memory_.stages.batches_of(row);
      if (batch_ < num_batches) memory_.stages.copy(row, batch_++, started_++);
      if (batch_ < num_batches) continue;
      batch_ = 0;
      ++turn_;
    }
  }

 private:
  const OverlappedMemory& memory_;
  unsigned started_ = 0;
  unsigned turn_ = 0;
  int batch_ = 0;
};

__device__ __forceinline__ void scan_overlapped(const Scanners& group, const OverlappedMemory& memory, int k,
                                                Digits digits, Statistics* statistics) {
  StagedScan<Scanners> scan(memory.stages);
  Copies copies(memory);
  unsigned free_batches = Stages<Scanners>::kBatches;  // how many may have been started; known to thread 0
  for (unsigned turn = 0;; ++turn) {
    const int place = static_cast<int>(turn % OverlappedMemory::kRows);
    RowInFlight& in_flight = memory.rows[place];
    if (group.thread == 0) {
      barrier_wait(&memory.known[place], turn / OverlappedMemory::kRows & 1);
      copies.start(free_batches);
    }
    barrier_wait(&memory.proposed[place], turn / OverlappedMemory::kRows & 1);
    if (in_flight.row.length == 0) return;
    group.sync();  // the last row's count has been reset
    const CandidateBuffer buffer = memory.buffer(0, place);
    scan.scan(group, in_flight.row, in_flight.boundary, k, digits, buffer, statistics,
              [&](int) { copies.start(++free_batches); });
    if (group.thread == 0) {
      in_flight.count = buffer.scratch->count;
      buffer.scratch->count = 0;
      barrier_arrive(&memory.scanned[place]);
    }
  }
}

// The selectors' proposal. Ends with a barrier.
template <View kView>
__device__ __forceinline__ Boundary propose_overlapped(const Selectors& group, std::int64_t index, const Row& row,
                                                       const GroupView& full, const Policy& policy,
                                                       const Operands& operands, const CandidateBuffer& buffer) {
  constexpr int kQuads = 4;  // of the sample, in the registers of a thread
  const int k = operands.k;
  Boundary boundary;  // admits every score: right where the row fits or has no usable view
  if (row.length > buffer.capacity - kEdgeScores) {
    if constexpr (kView == View::kStrided) {
      boundary = propose_strided(group, row, policy.sample, k, buffer.histogram, buffer.scratch);
    } else {
      const GroupView view = row.length == full.length && row.quads == full.quads
                                 ? full
                                 : group_view(policy.sample, row.length, row.quads, k, Selectors::kSize);
      if (view.hashed.usable() && view.hashed.samples <= 4 * kQuads * Selectors::kSize) {
        boundary = propose_hashed_in_registers<kQuads>(group, row, view, buffer.histogram, buffer.scratch, [] {});
      } else if (view.hashed.usable()) {
        boundary = propose_hashed_reloading(group, row, view, buffer.histogram, buffer.scratch);
      }
    }
    if (boundary.crowded) {
      boundary = limit_plateau(group, operands, policy.sample, index, boundary, buffer.histogram, buffer.scratch);
    }
  }
  group.sync();
  return boundary;
}

template <View kView>
__device__ __forceinline__ void select_overlapped(const Selectors& group, const OverlappedMemory& memory,
                                                  const Operands& operands, const Policy& policy, const GroupView& full,
                                                  Share share) {
  const int k = operands.k;
  const auto write_short = [&](std::int64_t index, const Row& row) {
    write_whole_row(group, row, k, operands.out + index * operands.out_row_stride);
  };
  LongRows rows(operands, share);
  bool more = rows.next(write_short);
  const auto propose_next = [&](unsigned turn) {
    const int place = static_cast<int>(turn % OverlappedMemory::kRows);
    if (group.thread == 0) {
      memory.rows[place].row = rows.row();
      barrier_arrive(&memory.known[place]);
    }
    Boundary boundary;
    if (more) {
      boundary =
          propose_overlapped<kView>(group, rows.index(), rows.row(), full, policy, operands, memory.buffer(1, place));
    }
    if (group.thread != 0) return;
    memory.rows[place].boundary = boundary;
    barrier_arrive(&memory.proposed[place]);
  };
  propose_next(0);
  for (unsigned turn = 0; more; ++turn) {
    const int place = static_cast<int>(turn % OverlappedMemory::kRows);
    const std::int64_t index = rows.index();
    const Row row = rows.row();
    more = rows.next(write_short);
    propose_next(turn + 1);
    barrier_wait(&memory.scanned[place], turn / OverlappedMemory::kRows & 1);
    const Boundary boundary = memory.rows[place].boundary;
    const int count = memory.rows[place].count;
    const CandidateBuffer buffer = memory.buffer(1, place);
    if (count < k || policy.digits != Digits::kNormalised) {
      finish_generally<kView>(group, Solo{}, {index, boundary.primary, boundary.highest, count, count}, operands,
                              policy, buffer);
    } else {
      select_best(group,
                  {buffer.candidates, count, k, row.length, row.start, operands.out + index * operands.out_row_stride},
                  boundary.primary, boundary.highest, buffer.histogram, buffer.scratch);
      if (operands.statistics != nullptr && group.thread == 0) {
        count_row(operands.statistics, row.length, count, RowWork{});
      }
    }
    group.sync();
  }
}

}  // namespace hpctopk::detail
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_OVERLAPPED_ROWS_CUH_
