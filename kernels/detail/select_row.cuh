// SPDX-License-Identifier: Apache-2.0
//
// The three phases for a row that one group of threads owns (paper, section 4.1): propose, certify, refine.

#ifndef HPCTOPK_KERNELS_DETAIL_SELECT_ROW_CUH_
#define HPCTOPK_KERNELS_DETAIL_SELECT_ROW_CUH_

#include <cstdint>

#include "kernels/detail/launch.cuh"
#include "kernels/detail/output.cuh"
#include "kernels/detail/owner.cuh"
#include "kernels/detail/refine.cuh"
#include "kernels/detail/sample.cuh"
#include "kernels/detail/scan.cuh"
#include "kernels/detail/select_best.cuh"
#include "kernels/kernels.h"

namespace hpctopk::detail {

// Phase 1 as the view says.
template <View kView, class Group>
__device__ __forceinline__ Boundary propose_inline(const Group& group, const Row& row, const SamplePolicy& policy,
                                                   int k, const CandidateBuffer& buffer) {
  if constexpr (kView == View::kStrided) {
    return propose_strided(group, row, policy, k, buffer.histogram, buffer.scratch);
  } else if constexpr (kView == View::kHashed) {
    return propose_hashed(group, row, policy, k, buffer.histogram, buffer.scratch,
                          reinterpret_cast<std::uint32_t*>(buffer.candidates), 2 * buffer.capacity);
  } else {
    return {};
  }
}

// The same out of line, and so by value: what a scan keeps in registers stays there.
template <View kView, class Group>
__device__ HPCTOPK_RARE Boundary propose(Group group, Row row, SamplePolicy policy, int k, CandidateBuffer buffer) {
  return propose_inline<kView>(group, row, policy, k, buffer);
}

// What selecting a row took, for the counters.
struct RowWork {
  int passes = 1;  // over the complete row
  bool rescued = false;
  bool recovered = false;
};

__device__ __forceinline__ void count_row(Statistics* statistics, int length, int candidates, const RowWork& work) {
  atomicAdd(atomic_word(&statistics->rows), 1ULL);
  atomicAdd(atomic_word(&statistics->candidates), static_cast<unsigned long long>(candidates));
  atomicAdd(atomic_word(&statistics->rescued), static_cast<unsigned long long>(work.rescued));
  atomicAdd(atomic_word(&statistics->recovered), static_cast<unsigned long long>(work.recovered));
  atomicAdd(atomic_word(&statistics->scores_read), static_cast<unsigned long long>(work.passes) * length);
}

// Phase 3 and the output: the k best of the buffer's candidates, which all have keys >= floor, most of them up to
// `highest`.
template <class Group>
__device__ __forceinline__ void finish_row_inline(const Group& group, int start, int length, Digits digits, int k,
                                                  std::uint32_t floor, std::uint32_t highest, int count,
                                                  const CandidateBuffer& buffer, std::int32_t* out) {
  if (digits == Digits::kNormalised) {
    select_best(group, {buffer.candidates, count, k, length, start, out}, floor, highest, buffer.histogram,
                buffer.scratch);
    return;
  }
  const std::uint64_t kth = count == k ? 0
                                       : kth_best(group, buffer.candidates, count, k, floor, length, digits,
                                                  buffer.histogram, buffer.scratch);
  write_best(group, start, buffer.candidates, count, kth, out, buffer.scratch);
}

// The same out of line.
template <class Group>
__device__ HPCTOPK_RARE void finish_row(Group group, int start, int length, Digits digits, int k, std::uint32_t floor,
                                        std::uint32_t highest, int count, CandidateBuffer buffer, std::int32_t* out) {
  finish_row_inline(group, start, length, digits, k, floor, highest, count, buffer, out);
}

// Selects the k best columns of a row of more than k scores into `out`, starting from the secondary boundary where
// `underfilled` says that the primary is known to admit too few. Every member of the owner calls; one writes.
template <View kView, class Group, class Owner>
__device__ void select_row(const Group& group, Owner& owner, const Row& row, const Policy& policy, int k,
                           bool underfilled, const CandidateBuffer& buffer, std::int32_t* out, Statistics* statistics) {
  const Row part = owner.part(row);
  const auto exact_boundary = [&] {
    return exact_coarse_boundary(group, owner, part, k, buffer.histogram, buffer.scratch);
  };
  Boundary boundary;  // admits every score: right where the whole row fits
  RowWork work;
  if (row.length > buffer.capacity - kEdgeScores) {
    boundary = propose<kView>(group, row, policy.sample, k, buffer);
    if (boundary.usable) {
      work.rescued = underfilled && boundary.secondary < boundary.primary;
      if (work.rescued) boundary = Boundary::at(boundary.secondary);
    } else {
      work.recovered = kView != View::kNone;
      work.passes = 2;
      boundary = Boundary::at(exact_boundary());
    }
  }
  int count;
  int total;
  while (true) {
    count = scan_row(group, part, boundary, k, policy.digits, buffer, statistics);
    total = owner.total(group, buffer.scratch, count);
    if (total >= k) break;
    // Section 4.3, underfilled views: first the secondary boundary, then the exact one.
    work.recovered = work.rescued || boundary.secondary == boundary.primary;
    work.rescued = !work.recovered;
    work.passes += work.recovered ? 2 : 1;
    boundary = Boundary::at(work.recovered ? exact_boundary() : boundary.secondary);
  }
  count = owner.gather(group, row, total, count, k, boundary.primary, policy.digits, buffer, statistics);
  if (!owner.finishes()) return;
  finish_row(group, row.start, row.length, policy.digits, k, boundary.primary, boundary.highest, count, buffer, out);
  if (statistics != nullptr && group.thread == 0) count_row(statistics, row.length, total, work);
}

static_assert(kBins * sizeof(int) == kernels::kHistogramBytes && sizeof(Scratch) <= kernels::kScratchBytes);

// A candidate buffer as kernels::shared_bytes() sizes it.
__device__ __forceinline__ CandidateBuffer buffer_at(unsigned char* shared, int capacity) {
  CandidateBuffer buffer;
  buffer.histogram = reinterpret_cast<int*>(shared);
  buffer.scratch = reinterpret_cast<Scratch*>(shared + kernels::kHistogramBytes);
  buffer.candidates = reinterpret_cast<std::uint64_t*>(shared + kernels::kHistogramBytes + kernels::kScratchBytes);
  buffer.capacity = capacity;
  return buffer;
}

// Rows of a launch, statically strided over their owners: nothing in memory has to be reset between launches. An owner
// is `size` consecutive CTAs.
template <View kView, class Group, class Owner>
__device__ void select_rows(const Group& group, Owner owner, int size, const Operands& operands, const Policy& policy,
                            int capacity) {
  const CandidateBuffer buffer = buffer_at(shared_memory(), capacity);
  wait_for_kernel_in_front();
  const std::int64_t rows = live_rows(operands);
  for (std::int64_t index = blockIdx.x / size; index < rows; index += gridDim.x / size) {
    const Row row = load_row(operands, index);
    std::int32_t* const out = operands.out + index * operands.out_row_stride;
    if (row.length > operands.k) {
      select_row<kView>(group, owner, row, policy, operands.k, false, buffer, out, operands.statistics);
    } else if (owner.finishes()) {
      write_whole_row(group, row, operands.k, out);
    }
  }
}

template <View kView, int kThreads, int kMinCtas>
__global__ void __launch_bounds__(kThreads, kMinCtas)
    select_rows_kernel(const Operands operands, const Policy policy, const int capacity) {
  select_rows<kView>(Group<kThreads>{static_cast<int>(threadIdx.x)}, Solo{}, 1, operands, policy, capacity);
}

// Enqueues select_rows_kernel as the plan says.
template <View kView, int kThreads, int kMinCtas>
int launch_select_rows(const Plan& plan, const Arguments& arguments, Stream stream) {
  LaunchConfig config(plan, stream, arguments.programmatic_dependent);
  return config.launch(select_rows_kernel<kView, kThreads, kMinCtas>, make_operands(plan, arguments), plan.policy,
                       plan.candidate_capacity);
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SELECT_ROW_CUH_
