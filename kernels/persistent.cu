// SPDX-License-Identifier: Apache-2.0
//
// Persistent sampled mapping (paper, sections 4.5 and 5.5): a CTA owns a row from the proposal to the output and takes
// rows in turn. Where there are more rows than SMs, an SM has two of them under way, so that one is scanned while the
// other is proposed for or refined: each in one half of a CTA on bulk copies, in a CTA each on the paper's vector
// loads.

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
  detail::select_staged_rows<kView>(group, cta, detail::Solo{}, detail::AnyTime{}, detail::Share{blockIdx.x, gridDim.x},
                                    operands, policy, full, capacity);
#else
  __trap();  // the planner gives this kernel to devices with bulk copies alone
#endif
}

// Two rows under way, each in one half of the CTA.
template <View kView>
__global__ void __launch_bounds__(kPersistentBlock, 1)
    paired_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                  const __grid_constant__ detail::GroupView full, const int capacity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const auto thread = static_cast<int>(threadIdx.x);
  const detail::Group<kPairedThreads, true> group{thread % kPairedThreads, thread / kPairedThreads};
  const std::int64_t half = staged_shared_bytes(capacity, kPairedThreads);
  detail::PartCta cta(group, detail::shared_memory() + group.rank * half, capacity, operands.k, 1);
  auto* const turns = reinterpret_cast<detail::Barrier*>(detail::shared_memory() + 2 * half);
  if (thread == 0) detail::Turns::init(turns);
  detail::named_barrier_sync<0, kPersistentBlock>();
  const detail::Share share{blockIdx.x + group.rank * std::int64_t{gridDim.x}, 2 * std::int64_t{gridDim.x}};
  detail::select_staged_rows<kView>(group, cta, detail::Solo{}, detail::Turns(turns, group.rank), share, operands,
                                    policy, full, capacity);
#else
  __trap();
#endif
}

template <View kView>
int launch(const Plan& plan, const Arguments& arguments, Stream stream) {
  if (plan.stages == 0) return detail::launch_select_rows<kView, kPersistentBlock, 2>(plan, arguments, stream);
  const bool paired = plan.rows_under_way == 2;
  detail::LaunchConfig config(plan, stream, arguments.programmatic_dependent);
  return config.launch(paired ? paired_kernel<kView> : staged_kernel<kView>, detail::make_operands(plan, arguments),
                       plan.policy, detail::full_view(plan, paired ? kPairedThreads : kPersistentBlock),
                       plan.candidate_capacity);
}

}  // namespace

int launch_persistent(const Plan& plan, const Arguments& arguments, Stream stream) {
  return plan.policy.sample.view == View::kStrided ? launch<View::kStrided>(plan, arguments, stream)
                                                   : launch<View::kHashed>(plan, arguments, stream);
}

}  // namespace hpctopk::kernels
