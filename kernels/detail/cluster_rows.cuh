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
    if (operands.statistics != nullptr && owner.finishes() && group.thread == 0) {
      atomicAdd(atomic_word(&operands.statistics->scores_read), static_cast<unsigned long long>(row.length));
    }
    select_row<kView>(group, owner, row, policy, k, total < k, buffer, out, operands.statistics);
    return;
  }
  const int count =
      owner.gather(group, row, total, part.count, k, part.boundary, policy.digits, buffer, operands.statistics);
  if (!owner.finishes()) return;
  if (fits_at_once(count, k, policy)) {
    group.sync();
    select_by_bins(group, {nullptr, count, k, row.length, row.start, out}, CandidatesOnChip{buffer.candidates},
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

// A boundary for a row of which `total`, too few, were admitted.
template <View kView, class Group>
__device__ __forceinline__ Boundary lower_boundary(const Group& group, const QuadView& view,
                                                   const QuadSampleStage<Group>* sample, const Boundary& boundary,
                                                   int total, int k) {
  Boundary lower = Boundary::at(boundary.primary);
  if (boundary.limit != Boundary::kNoLimit) {
    if (boundary.limit < Boundary::kNoLimit / 2) lower.limit = 2 * boundary.limit;
  } else if constexpr (kView == View::kHashed) {  // by what has come of the rank: that of 2 k
    lower.primary = key_of_rank(group, sample, 2 * k / max(total, 1) * view.hashed.rank);
  } else {
    lower.primary = boundary.secondary;
  }
  return lower;
}

// Another scan of a row whose boundary has admitted too few or more than there is room for, out of what is on chip; the
// members agree on its boundary without a word. Then, or where there is none, the rest as in finish_generally(). Out of
// line, and so by value: few come here.
template <View kView, class Places, class Group>
__device__ __noinline__ void select_again(Group group, Cluster owner, DealtPart<Group> part,
                                          SharedRefinement<Group> refinement, Row row, int length, std::int64_t index,
                                          Boundary boundary, Places order, int count, const Operands& operands,
                                          const Policy& policy, const QuadView& view,
                                          const QuadSampleStage<Group>* sample, CandidateBuffer buffer,
                                          BestStage best) {
  const int k = operands.k;
  auto* const spare = reinterpret_cast<std::uint32_t*>(best.tied);  // the stages
  const auto [many, place] = refinement.refusal(group, k);
  const Boundary next =
      many ? order.through(place) : lower_boundary<kView>(group, view, sample, boundary, refinement.total(), k);
  bool helps = many ? next.primary > boundary.primary || next.limit < boundary.limit
                    : next.primary < boundary.primary || next.limit > boundary.limit;
  helps &= boundary.primary != 0;  // where all is admitted, the places have no range
  if (helps) {
    if (group.thread == 0) buffer.scratch->count = 0;
    refinement.clear(group);
    if (!part.holds(row, length) || !refinement.spares(buffer, count)) {
      part.restart(group, row);
      if (operands.statistics != nullptr && group.thread == 0) {
        atomicAdd(atomic_word(&operands.statistics->scores_read),
                  static_cast<unsigned long long>(part.share(row, length)));
      }
    }
    group.sync();
    count = part.template scan<true>(group, row, length, next, buffer);
    const auto again = Places::of(next, many ? order.high() : boundary.primary);
    boundary.primary = next.primary;
    boundary.limit = next.limit;
    if (refinement.select(group, buffer, count, spare, again, k, row.start,
                          operands.out + index * operands.out_row_stride, 1)) {
      if (operands.statistics != nullptr && owner.finishes() && group.thread == 0) {
        count_row(operands.statistics, length, refinement.total(), RowWork{1, !many, false});
      }
      return;
    }
  }
  finish_generally<kView>(group, owner, ClusterPart{index, boundary.primary, boundary.highest, boundary.limit, count},
                          operands, policy, buffer, best);
}

// A row whose boundary may need a limit, or that the paper's view samples: from the proposal to the output. Out of
// line, and so by value.
template <View kView, int kQuads, class Group>
__device__ __noinline__ void select_specially(Group group, Cluster owner, DealtPart<Group> part,
                                              SharedRefinement<Group> refinement, QuadSample<kQuads> sample, Row row,
                                              int length, std::int64_t index, QuadProposal proposal,
                                              const Operands& operands, const Policy& policy, const QuadView& view,
                                              QuadSampleStage<Group>* stage, CandidateBuffer buffer, BestStage best) {
  const int k = operands.k;
  Boundary boundary;
  if constexpr (kView == View::kHashed) {
    if (proposal.boundary.crowded) {
      const int end = min(row.quads, (length - row.head) >> 2);
      proposal = divide_crowd(group, view, sample, length, end, k, policy.sample.sigmas, proposal, stage,
                              buffer.histogram, buffer.scratch);
    }
    boundary = proposal.boundary;
  } else {
    Row valid = row;
    valid.length = length;
    group.sync();
    boundary = propose_strided(group, valid, policy.sample, k, buffer.histogram, buffer.scratch);
    proposal.certain = FewBins::of(boundary.primary, max(boundary.primary, boundary.highest));
  }
  const int count = part.template scan<true>(group, row, length, boundary, buffer);
  cluster_wait();
  if (policy.digits != Digits::kNormalised) {
    finish_generally<kView>(group, owner, ClusterPart{index, boundary.primary, boundary.highest, boundary.limit, count},
                            operands, policy, buffer, best);
    return;
  }
  const auto select = [&](const auto& order) {
    if (!refinement.select(group, buffer, count, reinterpret_cast<std::uint32_t*>(best.tied), order, k, row.start,
                           operands.out + index * operands.out_row_stride)) {
      select_again<kView>(group, owner, part, refinement, row, length, index, boundary, order, count, operands, policy,
                          view, stage, buffer, best);
    } else if (operands.statistics != nullptr && owner.finishes() && group.thread == 0) {
      count_row(operands.statistics, length, refinement.total(), RowWork{});
    }
  };
  if (boundary.limit != Boundary::kNoLimit) {
    select(PlateauPlaces::of(boundary, proposal.certain.low_of(0)));
  } else {
    select(KeyPlaces{proposal.certain});
  }
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
                            policy, view, &stage->sample, buffer, best);
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
  select_again<kView>(group, Cluster(log_size), part, refinement, row, length, index, proposal.boundary,
                      KeyPlaces{proposal.certain}, count, operands, policy, view, &stage->sample, buffer, best);
}
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_CLUSTER_ROWS_CUH_
