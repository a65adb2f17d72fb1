// SPDX-License-Identifier: Apache-2.0
//
// Rows that the CTAs of a cluster share, on bulk copies. A row's first scores, its sample and its length are on their
// way at once, and nothing waits for the length. A row's start, where there is one, is waited for.

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

// The rest of such a row.
template <View kView, class Group>
__device__ __forceinline__ void finish_by_first(const Group& group, Cluster owner, const ClusterPart& part,
                                                const Operands& operands, const Policy& policy,
                                                const CandidateBuffer& buffer, const BestStage& best) {
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
  if (fits_registers(count, k, policy)) {
    group.sync();
    select_from_registers(group, {nullptr, count, k, row.length, row.start, out}, CandidatesOnChip{buffer.candidates},
                          part.boundary, part.highest, part.limit, buffer.histogram, buffer.scratch, best);
  } else {
    finish_row(group, row.start, row.length, policy.digits, k, part.boundary, part.highest, count, buffer, out);
  }
  if (operands.statistics != nullptr && group.thread == 0) count_row(operands.statistics, row.length, total, RowWork{});
}

// The same out of line, and so by value: few come here.
template <View kView, class Group>
__device__ __noinline__ void finish_generally(Group group, Cluster owner, ClusterPart part, const Operands& operands,
                                              const Policy& policy, CandidateBuffer buffer, BestStage best) {
  finish_by_first<kView>(group, owner, part, operands, policy, buffer, best);
  cluster_sync();  // no member ends while another may write to it
}

// In the place of candidates.
template <class Group>
struct alignas(16) ClusterStage {
  typename SharedRefinement<Group>::Stage refinement;
  QuadSampleStage<Group> sample;
};

// A row whose boundary may need a limit, or that the paper's view samples: from the proposal to the output. Out of
// line, and so by value.
template <View kView, int kQuads, class Group>
__device__ __noinline__ void select_specially(Group group, Cluster owner, DealtPart<Group> part,
                                              SharedRefinement<Group> refinement, QuadSample<kQuads> sample, Row row,
                                              int length, std::int64_t index, QuadProposal proposal,
                                              const Operands& operands, const Policy& policy, const QuadView& view,
                                              CandidateBuffer buffer, BestStage best) {
  const int k = operands.k;
  Boundary boundary;
  if constexpr (kView == View::kHashed) {
    boundary = proposal.boundary;
    if (boundary.crowded) {
      const int end = min(row.quads, (length - row.head) >> 2);
      boundary = limit_plateau(group, view, sample, length, end, k, policy.sample.sigmas, proposal, buffer.histogram,
                               buffer.scratch);
    }
  } else {
    Row valid = row;
    valid.length = length;
    group.sync();
    boundary = propose_strided(group, valid, policy.sample, k, buffer.histogram, buffer.scratch);
  }
  const int count = part.template scan<true>(group, row, length, boundary, buffer);
  cluster_wait();
  if (policy.digits == Digits::kNormalised) {
    auto* const places = reinterpret_cast<std::uint32_t*>(best.tied);
    std::int32_t* const out = operands.out + index * operands.out_row_stride;
    bool selected = false;
    if (boundary.limit != Boundary::kNoLimit) {
      selected = refinement.select(group, buffer, count, places, PlateauPlaces::of(boundary.primary, boundary.limit), k,
                                   row.start, out);
    } else if (boundary.primary < boundary.highest) {
      selected = refinement.select(group, buffer, count, places,
                                   KeyPlaces{FewBins::of(boundary.primary, boundary.highest)}, k, row.start, out);
    }
    if (selected) {
      if (operands.statistics != nullptr && owner.finishes() && group.thread == 0) {
        count_row(operands.statistics, length, refinement.total(), RowWork{});
      }
      return;
    }
  }
  finish_generally<kView>(group, owner, ClusterPart{index, boundary.primary, boundary.highest, boundary.limit, count},
                          operands, policy, buffer, best);
}

// A row to a cluster. Shared memory: the stages, their barriers, then as in shared_bytes(), with a ClusterStage behind
// the candidates. `capacity` counts both.
template <View kView, int kQuads, class Group>
__device__ __forceinline__ void select_cluster_row(const Group& group, unsigned char* shared, int log_size,
                                                   const Operands& operands, const Policy& policy, const QuadView& view,
                                                   int capacity) {
  static_assert(sizeof(ClusterStage<Group>) <= kernels::kRefinementEntries * kernels::kCandidateBytes);
  const std::int64_t index = blockIdx.x >> log_size;
  const int rank = static_cast<int>(blockIdx.x) & ((1 << log_size) - 1);
  const int k = operands.k;
  CandidateBuffer buffer = part_buffer<Group>(shared, capacity);
  buffer.capacity = (capacity - kernels::kRefinementEntries) & ~1;  // keeps what is behind aligned
  auto* const stage = reinterpret_cast<ClusterStage<Group>*>(buffer.candidates + buffer.capacity);
  const DealtPart<Group> part(shared, reinterpret_cast<Barrier*>(shared + DealtPart<Group>::kBytes), rank, log_size);
  const SharedRefinement<Group> refinement(&stage->refinement, rank, log_size);
  wait_for_kernel_in_front();
  const OpenRow open(operands, index);
  const Row& row = open.row;
  const QuadSample<kQuads> sample(group, row, view);
  part.start(group, row);
  refinement.init(group);
  cluster_arrive_relaxed();  // this member runs, and its barriers are there
  if (group.thread == 0) buffer.scratch->count = 0;
  if (group.thread < kFewBins) stage->sample.histogram[group.thread] = 0;
  const int length = open.length();
  std::int32_t* const out = operands.out + index * operands.out_row_stride;
  if (index >= open.num_rows || length <= k) {
    group.sync();
    part.drain(row);
    cluster_wait();
    Row whole = row;
    whole.length = length;
    if (rank == 0 && index < open.num_rows) write_whole_row(group, whole, k, out);
    return;
  }
  QuadProposal proposal{};
  bool special = kView != View::kHashed || policy.digits != Digits::kNormalised;
  if constexpr (kView == View::kHashed) {
    const int end = min(row.quads, (length - row.head) >> 2);
    proposal = propose_by_quads(group, view, sample, length, end, &stage->sample);
    special |= proposal.boundary.crowded;
  }
  const BestStage best = best_stage(shared, k);
  if (special) {
    select_specially<kView>(group, Cluster(log_size), part, refinement, sample, row, length, index, proposal, operands,
                            policy, view, buffer, best);
    return;
  }
  const int count = part.template scan<false>(group, row, length, proposal.boundary, buffer);
  cluster_wait();
  if (refinement.select(group, buffer, count, reinterpret_cast<std::uint32_t*>(shared), KeyPlaces{proposal.certain}, k,
                        row.start, out)) {
    if (operands.statistics != nullptr && rank == 0 && group.thread == 0) {
      count_row(operands.statistics, length, refinement.total(), RowWork{});
    }
    return;
  }
  const Boundary& boundary = proposal.boundary;
  finish_generally<kView>(group, Cluster(log_size),
                          ClusterPart{index, boundary.primary, boundary.highest, Boundary::kNoLimit, count}, operands,
                          policy, buffer, best);
}
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_CLUSTER_ROWS_CUH_
