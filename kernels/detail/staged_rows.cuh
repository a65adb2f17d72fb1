// SPDX-License-Identifier: Apache-2.0
//
// Rows that come to shared memory by bulk copies, from the proposal to the output.

#ifndef HPCTOPK_KERNELS_DETAIL_STAGED_ROWS_CUH_
#define HPCTOPK_KERNELS_DETAIL_STAGED_ROWS_CUH_

#include <cstdint>

#include "kernels/detail/claims.cuh"
#include "kernels/detail/part.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/kernels.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace hpctopk::detail {

// A row of which the scan has found too few candidates, as `underfilled` says, or had no room for all. Out of line, and
// so by value: few come here.
template <View kView, class Group>
__device__ HPCTOPK_RARE void select_again(Group group, std::int64_t index, bool underfilled, const Operands& operands,
                                          const Policy& policy, CandidateBuffer buffer) {
  Solo solo;
  select_row<kView>(group, solo, load_row(operands, index), policy, operands.k, underfilled, buffer,
                    operands.out + index * operands.out_row_stride, operands.statistics);
}

// The rest of a row whose candidates are too few, or too many to be refined at once. Likewise.
template <View kView, class Group>
__device__ HPCTOPK_RARE void finish_generally(Group group, std::int64_t index, Boundary boundary, int count,
                                              RowWork work, const Operands& operands, const Policy& policy,
                                              CandidateBuffer buffer) {
  const Row row = load_row(operands, index);
  std::int32_t* const out = operands.out + index * operands.out_row_stride;
  const int k = operands.k;
  if (count < k) {
    select_again<kView>(group, index, true, operands, policy, buffer);
    return;
  }
  finish_row(group, row.start, row.length, policy.digits, k, boundary.primary, boundary.highest, count, buffer, out);
  if (operands.statistics != nullptr && group.thread == 0) count_row(operands.statistics, row.length, count, work);
}

template <View kView, class Group>
__device__ __forceinline__ void select_staged_row(const Group& group, PartCta<Group>& cta, std::int64_t index,
                                                  const Operands& operands, const Policy& policy,
                                                  const GroupView& full) {
  const CandidateBuffer& buffer = cta.buffer;
  const int k = operands.k;
  const Row row = load_row(operands, index);
  std::int32_t* const out = operands.out + index * operands.out_row_stride;
  if (row.length <= k) {
    write_whole_row(group, row, k, out);
    return;
  }
  Boundary boundary = cta.template start<kView>(group, index, row, row, full, policy, operands);
  RowWork work;
  int count;
  while (true) {
    count = cta.scan.scan(group, row, boundary, k, policy.digits, buffer, operands.statistics);
    if (count >= k || work.rescued || boundary.secondary >= boundary.primary) break;
    work = {2, true, false};
    boundary.primary = boundary.secondary;
    boundary.limit = Boundary::kNoLimit;
    cta.restart(group, row);
  }
  if (count < k || !fits_at_once(count, k, policy)) {
    finish_generally<kView>(group, index, boundary, count, work, operands, policy, buffer);
    return;
  }
  select_by_bins(group, {nullptr, count, k, row.length, row.start, out}, CandidatesOnChip{buffer.candidates},
                 boundary.primary, boundary.highest, boundary.limit, buffer.histogram, buffer.scratch, cta.best);
  if (operands.statistics != nullptr && group.thread == 0) count_row(operands.statistics, row.length, count, work);
}

// The rows that a CTA takes in turn. The claims are used where there are more rows than CTAs.
template <View kView, class Group>
__device__ __forceinline__ void select_staged_rows(const Group& group, PartCta<Group>& cta, const Operands& operands,
                                                   const Policy& policy, const GroupView& full, const Claims& claims) {
  wait_for_kernel_in_front();
  const std::int64_t rows = live_rows(operands);
  std::int64_t index = blockIdx.x;
  for (int turn = 0; index < rows; ++turn) {
    unsigned long long taken = 0;  // comes while this row is selected
    const bool last = rows <= gridDim.x;
    if (!last && group.thread == 0) taken = claims.take();
    select_staged_row<kView>(group, cta, index, operands, policy, full);
    if (last) return;
    std::int64_t* const next = &cta.buffer.scratch->next[turn & 1];
    if (group.thread == 0) *next = Claims::index_of(taken);
    async_proxy_fence();
    group.sync();  // this row's scratch and stages have been read, and the stages written
    index = *next;
  }
}

}  // namespace hpctopk::detail
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_STAGED_ROWS_CUH_
