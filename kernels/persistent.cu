// SPDX-License-Identifier: Apache-2.0
//
// Persistent sampled mapping (paper, sections 4.5 and 5.5): a CTA owns a row from the proposal to the output and takes
// rows in turn. Where there are more rows than SMs, an SM has two of them under way, so that one is scanned while the
// other is proposed for or refined: each in one half of a CTA on bulk copies, in a CTA each on the paper's vector
// loads.

#include "kernels/detail/overlapped_rows.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/detail/staged_rows.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {
namespace {

// One row under way in a CTA.
template <View kView>
__global__ void __launch_bounds__(kPersistentBlock, 1)
    staged_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                  const __grid_constant__ detail::GroupView full, const int capacity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const detail::Group<kPersistentBlock> group{static_cast<int>(threadIdx.x)};
  detail::PartCta cta(group, detail::shared_memory(), capacity, operands.k, 1);
  detail::select_staged_rows<kView>(group, cta, detail::Solo{}, detail::Share{blockIdx.x, gridDim.x}, operands, policy,
                                    full, capacity);
#else
  __trap();  // the planner gives this kernel to devices with bulk copies alone
#endif
}

// Two rows under way: one is scanned, the other refined and the next proposed for.
template <View kView>
__global__ void __launch_bounds__(kOverlappedBlock, 1)
    overlapped_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                      const __grid_constant__ detail::GroupView full, const int capacity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const auto thread = static_cast<int>(threadIdx.x);
  const detail::OverlappedMemory memory(detail::shared_memory(), capacity);
  if (thread == 0) memory.init();
  detail::named_barrier_sync<0, kOverlappedBlock>();
  detail::wait_for_kernel_in_front();
  const detail::Share share{blockIdx.x, gridDim.x};
  if (thread < kScanners) {
    detail::scan_overlapped({thread, 0}, memory, operands.k, policy.digits, operands.statistics);
  } else {
    detail::select_overlapped<kView>({thread - kScanners, 1}, memory, operands, policy, full, share);
  }
#else
  __trap();
#endif
}

template <View kView>
int launch(const Plan& plan, const Arguments& arguments, Stream stream) {
  if (plan.stages == 0) return detail::launch_select_rows<kView, kPersistentBlock, 2>(plan, arguments, stream);
  detail::LaunchConfig config(plan, stream, arguments.programmatic_dependent);
  const detail::Operands operands = detail::make_operands(plan, arguments);
  if (plan.rows_under_way == 1) {
    return config.launch(staged_kernel<kView>, operands, plan.policy, detail::full_view(plan, kPersistentBlock),
                         plan.candidate_capacity);
  }
  const Problem& problem = plan.problem;
  const auto columns = static_cast<std::int32_t>(problem.num_columns);
  return config.launch(overlapped_kernel<kView>, operands, plan.policy,
                       detail::group_view(plan.policy.sample, columns, columns / 4, problem.k, kSelectors),
                       plan.candidate_capacity);
}

}  // namespace

int launch_persistent(const Plan& plan, const Arguments& arguments, Stream stream) {
  return plan.policy.sample.view == View::kStrided ? launch<View::kStrided>(plan, arguments, stream)
                                                   : launch<View::kHashed>(plan, arguments, stream);
}

}  // namespace hpctopk::kernels
