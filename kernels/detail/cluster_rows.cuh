// SPDX-License-Identifier: Apache-2.0
//
// Rows that the CTAs of a cluster share, on bulk copies. A row's scores, its sample and its window are on their way at
// once: where only the length of a row is not known, nothing waits for it.

#ifndef HPCTOPK_KERNELS_DETAIL_CLUSTER_ROWS_CUH_
#define HPCTOPK_KERNELS_DETAIL_CLUSTER_ROWS_CUH_

#include <cstdint>

#include "kernels/detail/dealt_part.cuh"
#include "kernels/detail/part.cuh"
#include "kernels/detail/quad_sample.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/detail/shared_refinement.cuh"
#include "kernels/kernels.h"

namespace hpctopk::detail {

// A row as long as the matrix leaves room for, and how much of it is valid, which is not waited for where it is loaded.
struct OpenRow {
  Row row;
  std::int32_t raw_length, num_rows;

  __device__ __forceinline__ OpenRow(const Operands& operands, std::int64_t index) {
    constexpr std::int32_t kMost = 0x7FFFFFFF;
    raw_length = operands.lengths != nullptr ? __ldcg(operands.lengths + index) : kMost;
    num_rows = operands.num_rows != nullptr ? __ldcg(operands.num_rows) : kMost;
    Operands all = operands;
    all.lengths = nullptr;
    row = load_row(all, index);
  }
  __device__ int length() const { return min(max(raw_length, 0), row.length); }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// What a member has of a row that cannot be refined where it is.
struct ClusterPart {
  std::int64_t index;  // of the row
  std::uint32_t boundary;
  std::uint32_t highest;  // of the sample
  int limit;              // of the boundary
  int count;
};

// The rest of such a row. Out of line, and so by value: few come here.
template <View kView, class Group>
__device__ __noinline__ void finish_generally(Group group, Cluster owner, ClusterPart part, const Operands& operands,
                                              const Policy& policy, CandidateBuffer buffer, BestStage best) {
  constexpr int kTooMany = 1 << 24;
  const Row row = load_row(operands, part.index);
  std::int32_t* const out = operands.out + part.index * operands.out_row_stride;
  const int k = operands.k;
  const int total = owner.total(group, buffer.scratch, part.count > buffer.capacity ? kTooMany : part.count);
  if (total < k || total >= kTooMany) {
    select_row<kView>(group, owner, row, policy, k, total < k, buffer, out, operands.statistics);
    return;
  }
  const int count =
      owner.gather(group, row, total, part.count, k, part.boundary, policy.digits, buffer, operands.statistics);
  if (!owner.finishes()) return;
  if (fits_registers<Group>(count, k, policy)) {
    group.sync();
    select_from_registers(group, {nullptr, count, k, row.length, row.start, out}, Solo::Candidates{buffer.candidates},
                          part.boundary, part.highest, part.limit, buffer.histogram, buffer.scratch, best);
  } else {
    finish_row(group, row.start, row.length, policy.digits, k, part.boundary, part.highest, count, buffer, out);
  }
  if (operands.statistics != nullptr && group.thread == 0) count_row(operands.statistics, row.length, total, RowWork{});
}

// In the place of candidates.
template <class Group>
struct alignas(16) ClusterStage {
  typename SharedRefinement<Group>::Stage refinement;
  QuadSampleStage<Group> sample;
};

// Shared memory: the stages, their barriers, then as in shared_bytes(), with a ClusterStage behind the candidates.
// `capacity` counts both.
template <View kView, class Group>
__device__ __forceinline__ void select_cluster_rows(const Group& group, unsigned char* shared, int log_size,
                                                    const Operands& operands, const Policy& policy,
                                                    const QuadView& view, int capacity) {
  static_assert(sizeof(ClusterStage<Group>) <= kernels::kRefinementEntries * kernels::kCandidateBytes);
  const int rank = static_cast<int>(blockIdx.x) & ((1 << log_size) - 1);
  const int k = operands.k;
  CandidateBuffer buffer = part_buffer<Group>(shared, capacity);
  buffer.capacity = (capacity - kernels::kRefinementEntries) & ~1;  // keeps what is behind aligned
  auto* const stage = reinterpret_cast<ClusterStage<Group>*>(buffer.candidates + buffer.capacity);
  DealtPart<Group> part(shared, reinterpret_cast<Barrier*>(shared + DealtPart<Group>::kBytes), rank, log_size);
  SharedRefinement<Group> refinement(&stage->refinement, rank, log_size);
  refinement.init(group);
  if (group.thread == 0) {
    part.init();
    barrier_init_fence();
  }
  cluster_arrive_relaxed();  // all members run, and their barriers are there
  wait_for_kernel_in_front();

  const std::int64_t step = gridDim.x >> log_size;
  for (std::int64_t index = blockIdx.x >> log_size; index < operands.max_rows; index += step) {
    if (index >= step) {  // all are done with the last row
      async_proxy_fence();
      group.sync();
      cluster_arrive();
    }
    const OpenRow open(operands, index);
    const Row& row = open.row;
    const QuadSample sample(group, row, view);
    if (group.thread == 0) {
      part.start(row);
      buffer.scratch->count = 0;
    }
    if (group.thread < kFewBins) {
      refinement.histogram()[group.thread] = 0;
      stage->sample.histogram[group.thread] = 0;
    }
    const int length = open.length();
    if (index >= open.num_rows || length <= k) {
      group.sync();
      part.drain(row);
      cluster_wait();
      if (index >= open.num_rows) return;
      Row whole = row;
      whole.length = length;
      if (rank == 0) write_whole_row(group, whole, k, operands.out + index * operands.out_row_stride);
      continue;
    }
    Boundary boundary;
    FewBins bins{};
    if constexpr (kView == View::kHashed) {
      const int quads = min(row.quads, (length - row.head) >> 2);
      const QuadProposal proposal = propose_by_quads(group, view, sample, length, quads, &stage->sample);
      boundary = proposal.boundary;
      bins = proposal.bins;
      if (boundary.crowded) {
        boundary = limit_plateau(group, operands, policy.sample, index, boundary, proposal.low,
                                 (1U << proposal.shift) - 1, buffer.histogram, buffer.scratch);
      }
    } else {
      Row valid = row;
      valid.length = length;
      boundary = propose_strided(group, valid, policy.sample, k, buffer.histogram, buffer.scratch);
      if (!boundary.usable) group.sync();
    }
    const int count = part.scan(group, row, length, boundary, buffer);
    cluster_wait();
    std::int32_t* const out = operands.out + index * operands.out_row_stride;
    const bool counted = operands.statistics != nullptr;
    int total = 0;
    if (kView == View::kHashed && policy.digits == Digits::kNormalised && boundary.limit == Boundary::kNoLimit &&
        refinement.select(group, buffer, count, reinterpret_cast<std::uint32_t*>(shared), bins, k, row.start, out,
                          counted ? &total : nullptr)) {
      if (counted && rank == 0 && group.thread == 0) count_row(operands.statistics, length, total, RowWork{});
      continue;
    }
    finish_generally<kView>(group, Cluster(log_size),
                            ClusterPart{index, boundary.primary, boundary.highest, boundary.limit, count}, operands,
                            policy, buffer, best_stage<Group>(shared, k));
  }
}
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_CLUSTER_ROWS_CUH_
