// SPDX-License-Identifier: Apache-2.0
//
// Rows of a CTA whose threads have two roles: the scanners read one row after the other, while the selectors refine the
// row before and propose for the one after. So memory is never idle between a CTA's first proposal and its last scan.

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
  Boundary boundary;
  int count;  // candidates
};

// The shared memory of a CTA. Rows use the two places in turn.
struct OverlappedMemory {
  static constexpr int kRows = 2;
  static constexpr std::int64_t kStages = kernels::kStagedStages * kernels::staged_stage_bytes(kernels::kScanners);

  unsigned char* stages;
  Barrier* full;        // [kStagedStages]
  Barrier* proposed;    // [kRows], and then the place's candidates are free
  Barrier* scanned;     // [kRows]
  RowInFlight* rows;    // [kRows]
  unsigned char* rest;  // a histogram and a scratch for either role, then the candidates
  int capacity;         // of a row's candidates

  __device__ OverlappedMemory(unsigned char* shared, int capacity) : stages(shared), capacity(capacity) {
    static_assert((kernels::kStagedStages + 2 * kRows) * sizeof(Barrier) + kRows * sizeof(RowInFlight) <=
                  kernels::kOverlappedStateBytes);
    full = reinterpret_cast<Barrier*>(shared + kStages);
    proposed = full + kernels::kStagedStages;
    scanned = proposed + kRows;
    rows = reinterpret_cast<RowInFlight*>(scanned + kRows);
    rest = shared + kStages + kernels::kOverlappedStateBytes;
  }
  __device__ void init() const {
    for (int i = 0; i < kRows; ++i) {
      barrier_init(&proposed[i], 1);
      barrier_init(&scanned[i], 1);
    }
  }
  // What a role works with on the row at `place`.
  __device__ CandidateBuffer buffer(int role, int place) const {
    CandidateBuffer buffer = buffer_at(rest + role * kernels::shared_bytes(0), capacity);
    buffer.candidates = reinterpret_cast<std::uint64_t*>(rest + 2 * kernels::shared_bytes(0)) +
                        static_cast<std::int64_t>(place) * capacity;
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

__device__ __forceinline__ void scan_overlapped(const Scanners& group, const OverlappedMemory& memory,
                                                const Operands& operands, const Policy& policy, Share share) {
  StagedScan<Scanners> scan(memory.stages, memory.full);
  CandidateBuffer buffer = memory.buffer(0, 0);
  int* const count = &buffer.scratch->count;
  if (group.thread == 0) {
    scan.init();
    *count = 0;
  }
  const auto skip = [](std::int64_t, const Row&) {};
  LongRows rows(operands, share);
  bool more = rows.next(skip);
  Row row = rows.row();
  if (group.thread == 0) scan.start(row);
  for (unsigned turn = 0; more; ++turn) {
    const int place = static_cast<int>(turn % OverlappedMemory::kRows);
    more = rows.next(skip);
    const Row next = rows.row();
    group.sync();  // the last row's count has been reset, and the stages' barriers initialised
    barrier_wait(&memory.proposed[place], turn / OverlappedMemory::kRows & 1);
    const RowInFlight& in_flight = memory.rows[place];
    buffer = memory.buffer(0, place);
    scan.scan(group, row, next, in_flight.boundary, operands.k, policy.digits, buffer, operands.statistics);
    if (group.thread == 0) {
      memory.rows[place].count = *count;
      *count = 0;
      barrier_arrive(&memory.scanned[place]);
    }
    row = next;
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
    const Boundary boundary =
        propose_overlapped<kView>(group, rows.index(), rows.row(), full, policy, operands, memory.buffer(1, place));
    if (group.thread != 0) return;
    memory.rows[place].boundary = boundary;
    barrier_arrive(&memory.proposed[place]);
  };
  if (more) propose_next(0);
  for (unsigned turn = 0; more; ++turn) {
    const int place = static_cast<int>(turn % OverlappedMemory::kRows);
    const std::int64_t index = rows.index();
    const Row row = rows.row();
    more = rows.next(write_short);
    if (more) propose_next(turn + 1);
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
