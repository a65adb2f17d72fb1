// SPDX-License-Identifier: Apache-2.0
//
// Rows whose parts come to shared memory by bulk copies, from the proposal to the output.

#ifndef HPCTOPK_KERNELS_DETAIL_STAGED_ROWS_CUH_
#define HPCTOPK_KERNELS_DETAIL_STAGED_ROWS_CUH_

#include <cstdint>

#include "kernels/detail/part.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/kernels.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace hpctopk::detail {

// What select_staged_rows() found in a row before it came to refine.
struct Scanned {
  std::int64_t index;  // of the row
  std::uint32_t boundary;
  std::uint32_t highest;  // of the sample
  int count;              // candidates of this member
  int total;              // and of all
};

// The rest of a row whose candidates are too few, or too many for registers. Out of line, and so by value: few come
// here.
template <View kView, class Group, class Owner>
__device__ __noinline__ void finish_generally(Group group, Owner owner, Scanned scanned, const Operands& operands,
                                              const Policy& policy, CandidateBuffer buffer) {
  const Row row = load_row(operands, scanned.index);
  std::int32_t* const out = operands.out + scanned.index * operands.out_row_stride;
  const int k = operands.k;
  if (scanned.total < k) {
    select_row<kView>(group, owner, row, policy, k, true, buffer, out, operands.statistics);
    return;
  }
  owner.total(group, buffer.scratch, scanned.count);
  const int count = owner.gather(group, row, scanned.total, scanned.count, k, scanned.boundary, policy.digits, buffer,
                                 operands.statistics);
  if (!owner.finishes()) return;
  finish_row(group, row.start, row.length, policy.digits, k, scanned.boundary, scanned.highest, count, buffer, out);
  if (operands.statistics != nullptr && group.thread == 0) {
    count_row(operands.statistics, row.length, scanned.total, RowWork{});
  }
}

// The rows of a share. `capacity`: of the group's own candidates and those of others.
template <View kView, class Group, class Owner>
__device__ __forceinline__ void select_staged_rows(const Group& group, PartCta<Group>& cta, Owner owner, Share share,
                                                   const Operands& operands, const Policy& policy,
                                                   const GroupView& full, int capacity) {
  const CandidateBuffer& buffer = cta.buffer;
  const int k = operands.k;
  wait_for_kernel_in_front();
  const std::int64_t rows = live_rows(operands);
  const BestStage best = best_stage(cta.shared, k);  // in the stages, once they have been scanned
  for (std::int64_t index = share.first; index < rows; index += share.step) {
    if (index != share.first) {  // the last row's scratch and stages have been read, and the stages written
      async_proxy_fence();
      group.sync();
    }
    const Row row = load_row(operands, index);
    std::int32_t* const out = operands.out + index * operands.out_row_stride;
    if (row.length <= k) {
      if (owner.finishes()) write_whole_row(group, row, k, out);
      continue;
    }
    owner.begin(group, buffer.scratch);
    const Row part = owner.part(row);
    const Boundary boundary = cta.template start<kView>(group, index, row, part, full, policy, operands);
    const int count = cta.scan.scan(group, part, boundary, k, policy.digits, buffer, operands.statistics);
    const int total = owner.meet(group, buffer.scratch, buffer.candidates, count, cta.meeting, k);
    if (total < k || !fits_registers(total, k, policy)) {
      owner.part_company();
      finish_generally<kView>(group, owner, {index, boundary.primary, boundary.highest, count, total}, operands, policy,
                              part_buffer<Group>(cta.shared, capacity));
      continue;
    }
    if (!owner.finishes()) continue;
    select_from_registers(group, {nullptr, total, k, row.length, row.start, out},
                          owner.candidates(buffer.candidates, cta.meeting, count), boundary.primary, boundary.highest,
                          boundary.limit, buffer.histogram, buffer.scratch, best);
    if (operands.statistics != nullptr && group.thread == 0) {
      count_row(operands.statistics, row.length, total, RowWork{});
    }
  }
  owner.part_company();
}

}  // namespace hpctopk::detail
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_STAGED_ROWS_CUH_
