// SPDX-License-Identifier: Apache-2.0
//
// Cluster mapping (paper, section 5.5): the CTAs of a cluster share a row. Each takes the same sample, so the boundary
// needs no exchange, scans its part once, and leaves its candidates where the first member reads them through
// distributed shared memory and refines. A cluster may be of one CTA.

#include "kernels/detail/part.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {
namespace {

using Group = detail::Group<kClusterBlock>;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// The candidates of the member that finishes, and of the others after them.
struct Candidates {
  const std::uint64_t* own;
  const std::uint64_t* gathered;
  int count;  // own
  __device__ std::uint64_t operator()(int i) const { return i < count ? own[i] : gathered[i - count]; }
};

// What select_staged_rows() found in a row before it came to refine.
struct Scanned {
  std::int64_t index;  // of the row
  std::uint32_t boundary;
  std::uint32_t highest;  // of the sample
  int count;  // candidates of this member
  int total;  // and of all
};

// The rest of a row whose candidates are too few, or too many for registers. Out of line, and so by value: few come
// here.
template <View kView, class Owner>
__device__ __noinline__ void finish_generally(Owner owner, Scanned scanned, const detail::Operands& operands,
                                              const Policy& policy, int capacity) {
  const Group group{static_cast<int>(threadIdx.x)};
  const detail::CandidateBuffer buffer = detail::part_buffer(capacity + gathered_capacity(operands.k));
  const detail::Row row = detail::load_row(operands, scanned.index);
  std::int32_t* const out = operands.out + scanned.index * operands.out_row_stride;
  const int k = operands.k;
  if (scanned.total < k) {
    detail::select_row<kView>(group, owner, row, policy, k, true, buffer, out, operands.statistics);
    return;
  }
  owner.total(group, buffer.scratch, scanned.count);
  const int count = owner.gather(group, row, scanned.total, scanned.count, k, scanned.boundary, policy.digits, buffer,
                                 operands.statistics);
  if (!owner.finishes()) return;
  detail::finish_row(group, row.start, row.length, policy.digits, k, scanned.boundary, scanned.highest, count, buffer,
                     out);
  if (operands.statistics != nullptr && group.thread == 0) {
    detail::count_row(operands.statistics, row.length, scanned.total, detail::RowWork{});
  }
}

template <View kView, class Owner>
__device__ __forceinline__ void select_staged_rows(const Group& group, Owner owner, int log_size,
                                                   const detail::Operands& operands, const Policy& policy,
                                                   const detail::GroupView& full, int capacity) {
  detail::PartCta<Group> cta(group, capacity, operands.k, log_size > 0, owner.arrivals());
  const detail::CandidateBuffer& buffer = cta.buffer;
  const int k = operands.k;
  const std::int64_t rows = detail::live_rows(operands);
  const std::int64_t first = blockIdx.x >> log_size;
  for (std::int64_t index = first; index < rows; index += gridDim.x >> log_size) {
    if (index != first) {  // the last row's scratch and stages have been read
      group.sync();
      detail::async_proxy_fence();
    }
    const detail::Row row = detail::load_row(operands, index);
    std::int32_t* const out = operands.out + index * operands.out_row_stride;
    if (row.length <= k) {
      if (owner.finishes()) detail::write_whole_row(group, row, k, out);
      continue;
    }
    owner.begin(group, buffer.scratch);
    const detail::Row part = owner.part(row);
    const detail::Boundary boundary = cta.template start<kView>(group, index, row, part, full, policy, operands);
    const int count = cta.scan.scan(group, part, boundary, k, policy.digits, buffer, operands.statistics);
    const int total = owner.meet(group, buffer.scratch, buffer.candidates, count, cta.meeting, k);
    if (total < k || !detail::fits_registers(total, k, policy)) {
      finish_generally<kView>(owner, {index, boundary.primary, boundary.highest, count, total}, operands, policy,
                              capacity);
      continue;
    }
    if (!owner.finishes()) continue;
    const Candidates load{buffer.candidates, cta.meeting.gathered, count};
    detail::select_from_registers(group, {nullptr, total, k, row.length, row.start, out}, load,
                                  boundary.primary, boundary.highest, boundary.limit != detail::Boundary::kNoLimit,
                                  buffer.histogram, buffer.scratch, cta.best);
    if (operands.statistics != nullptr && group.thread == 0) {
      detail::count_row(operands.statistics, row.length, total, detail::RowWork{});
    }
  }
}
#endif

template <View kView, bool kStaged>
__global__ void __launch_bounds__(kClusterBlock, 1)
    cluster_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                   const __grid_constant__ detail::GroupView full, const int capacity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const Group group{static_cast<int>(threadIdx.x)};
  const int log_size = __popc(__clusterSizeInBlocks() - 1);  // of a power of two
  if constexpr (kStaged) {
    select_staged_rows<kView>(group, detail::Cluster(log_size), log_size, operands, policy, full, capacity);
  } else {
    detail::select_rows<kView>(group, detail::Cluster(log_size), 1 << log_size, operands, policy, capacity);
  }
#else
  __trap();  // the planner gives this kernel to devices with clusters alone
#endif
}

template <View kView>
__global__ void __launch_bounds__(kClusterBlock, 1)
    single_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                  const __grid_constant__ detail::GroupView full, const int capacity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const Group group{static_cast<int>(threadIdx.x)};
  select_staged_rows<kView>(group, detail::Solo{}, 0, operands, policy, full, capacity);
#else
  __trap();
#endif
}

template <View kView>
int launch(const Plan& plan, const Arguments& arguments, Stream stream) {
  detail::LaunchConfig config(plan, stream);
  auto* kernel = plan.cluster_size == 1 ? single_kernel<kView>
                 : plan.stages != 0     ? cluster_kernel<kView, true>
                                        : cluster_kernel<kView, false>;
  if (plan.cluster_size > 1) {
    const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    if (error != cudaSuccess) return error;
    config.set_cluster(plan.cluster_size);
  }
  return config.launch(kernel, detail::make_operands(plan, arguments), plan.policy, detail::full_view(plan, Group::kSize),
                       plan.candidate_capacity);
}

}  // namespace

int launch_cluster(const Plan& plan, const Arguments& arguments, Stream stream) {
  return plan.policy.sample.view == View::kStrided ? launch<View::kStrided>(plan, arguments, stream)
                                                   : launch<View::kHashed>(plan, arguments, stream);
}

}  // namespace hpctopk::kernels
