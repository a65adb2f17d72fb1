// SPDX-License-Identifier: Apache-2.0
//
// The three phases for a row that one group of threads owns (paper, section 4.1): propose, certify, refine.

#ifndef HPCTOPK_KERNELS_DETAIL_SELECT_ROW_CUH_
#define HPCTOPK_KERNELS_DETAIL_SELECT_ROW_CUH_

#include <cstdint>

#include "kernels/detail/output.cuh"
#include "kernels/detail/refine.cuh"
#include "kernels/detail/sample.cuh"
#include "kernels/detail/scan.cuh"
#include "kernels/kernels.h"

namespace hpctopk::detail {

template <View kView, class Group>
__device__ bool propose(const Group& group, const Row& row, const SamplePolicy& policy, int k,
                        const CandidateBuffer& buffer, Boundary* boundary) {
  if constexpr (kView == View::kStrided) {
    return propose_strided(group, row, policy, k, buffer.histogram, buffer.scratch, boundary);
  } else if constexpr (kView == View::kHashed) {
    return propose_hashed(group, row, policy, k, buffer.histogram, buffer.scratch, boundary);
  } else {
    return false;
  }
}

// Selects the row's k best columns into `out`. The group must not hold unsynchronised shared state of its own.
template <View kView, class Group>
__device__ void select_row(const Group& group, const Row& row, const Policy& policy, int k,
                           const CandidateBuffer& buffer, std::int32_t* out, Statistics* statistics) {
  if (row.length <= k) {
    write_whole_row(group, row, k, out);
    return;
  }
  Boundary boundary{0, 0};  // admits every score: right where the whole row fits
  bool exact = false;
  bool rescued = false;
  int passes = 1;
  if (row.length > buffer.capacity - kEdgeScores) {
    exact = !propose<kView>(group, row, policy.sample, k, buffer, &boundary);
    if (exact) boundary.primary = exact_coarse_boundary(group, row, k, buffer.histogram, buffer.scratch);
    passes += exact;
  }
  int count = scan_row(group, row, boundary.primary, k, policy.digits, buffer, statistics);
  while (count < k) {  // section 4.3, underfilled views: first the secondary boundary, then the exact one
    exact = rescued || boundary.secondary == boundary.primary;
    rescued = !exact;
    boundary.primary =
        exact ? exact_coarse_boundary(group, row, k, buffer.histogram, buffer.scratch) : boundary.secondary;
    passes += 1 + exact;
    count = scan_row(group, row, boundary.primary, k, policy.digits, buffer, statistics);
  }

  const std::uint64_t kth = count == k ? 0
                                       : kth_best(group, buffer.candidates, count, k, row.length, policy.digits,
                                                  buffer.histogram, buffer.scratch);
  write_best(group, row, buffer.candidates, count, kth, out, buffer.scratch);

  if (statistics != nullptr && group.thread == 0) {
    atomicAdd(counter(&statistics->rows), 1ULL);
    atomicAdd(counter(&statistics->candidates), static_cast<unsigned long long>(count));
    atomicAdd(counter(&statistics->rescued), static_cast<unsigned long long>(rescued));
    atomicAdd(counter(&statistics->recovered), static_cast<unsigned long long>(exact && kView != View::kNone));
    atomicAdd(counter(&statistics->scores_read), static_cast<unsigned long long>(passes) * row.length);
  }
}

static_assert(kBins * sizeof(int) == kernels::kHistogramBytes && sizeof(Scratch) <= kernels::kScratchBytes);

// Rows of a launch, one CTA a row at a time, statically strided: nothing in memory has to be reset between launches.
template <View kView, int kThreads, int kMinCtas>
__global__ void __launch_bounds__(kThreads, kMinCtas)
    select_rows_kernel(const Operands operands, const Policy policy, const int capacity) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Group<kThreads> group{static_cast<int>(threadIdx.x)};
  CandidateBuffer buffer;
  buffer.histogram = reinterpret_cast<int*>(shared);
  buffer.scratch = reinterpret_cast<Scratch*>(shared + kernels::kHistogramBytes);
  buffer.candidates = reinterpret_cast<std::uint64_t*>(shared + kernels::kHistogramBytes + kernels::kScratchBytes);
  buffer.capacity = capacity;
  const std::int64_t rows = live_rows(operands);
  for (std::int64_t index = blockIdx.x; index < rows; index += gridDim.x) {
    const Row row = load_row(operands, index);
    select_row<kView>(group, row, policy, operands.k, buffer, operands.out + index * operands.out_row_stride,
                      operands.statistics);
  }
}

// Enqueues select_rows_kernel as the plan says.
template <View kView, int kThreads, int kMinCtas>
int launch_select_rows(const Plan& plan, const Arguments& arguments, Stream stream) {
  if (plan.grid == 0) return cudaSuccess;
  const auto kernel = select_rows_kernel<kView, kThreads, kMinCtas>;
  const auto shared = static_cast<int>(plan.shared_bytes);
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (error != cudaSuccess) return error;
  kernel<<<static_cast<unsigned>(plan.grid), kThreads, static_cast<std::size_t>(shared), stream>>>(
      make_operands(plan, arguments), plan.policy, plan.candidate_capacity);
  return cudaGetLastError();
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SELECT_ROW_CUH_
