// SPDX-License-Identifier: Apache-2.0
//
// Persistent sampled mapping (paper, sections 4.5 and 5.5): a CTA owns a row from the proposal to the output and takes
// rows in turn. On bulk copies it has the SM to itself, and where there are more rows than SMs, and room for the
// candidates of two at once, some of its warps scan while the others propose and refine; on the paper's vector loads
// two CTAs share an SM to that end.

#define HPCTOPK_RARE __forceinline__

#include "kernels/detail/claims.cuh"
#include "kernels/detail/ring_feed.cuh"
#include "kernels/detail/ring_scan.cuh"
#include "kernels/detail/ring_select.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/detail/staged_rows.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {
namespace {

template <View kView>
__global__ void __launch_bounds__(kPersistentBlock, 1)
    staged_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                  const __grid_constant__ detail::GroupView full, const int capacity, const detail::Claims claims) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const detail::Group<kPersistentBlock> group{static_cast<int>(threadIdx.x)};
  detail::PartCta cta(group, detail::shared_memory(), capacity, operands.k);
  detail::select_staged_rows<kView>(group, cta, operands, policy, full, claims);
#else
  __trap();  // the planner gives this kernel to devices with bulk copies alone
#endif
}

__global__ void __launch_bounds__(kRingBlock, 1)
    ring_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                const __grid_constant__ detail::GroupView full, const int capacity, const detail::Claims claims) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const auto thread = static_cast<int>(threadIdx.x);
  const detail::Ring ring(detail::shared_memory(), capacity);
  const bool feeds = thread >= kRingSelectThreads + kRingScanThreads;
  if (thread == 0) ring.init();
  if (!feeds) detail::barrier_sync<kRingBlock>();  // the others come to it with the first row
  if (thread < kRingSelectThreads) {
    detail::RingSelection(operands, policy, capacity).select_rows();
  } else if (!feeds) {
    detail::RingScan(ring, thread - kRingSelectThreads).scan_rows();
  } else {
    detail::RingFeed(ring, operands, policy.sample, full, claims, thread % detail::kWarpSize).feed_rows();
  }
#else
  __trap();
#endif
}

// The claims are the workspace's, and may be anything before.
__global__ void reset_claims_kernel(const detail::Claims claims) {
  detail::wait_for_kernel_in_front();
  if (threadIdx.x == 0) claims.reset();
}

template <View kView>
int launch(const Plan& plan, const Arguments& arguments, Stream stream) {
  if (plan.stages == 0) return detail::launch_select_rows<kView, kPersistentBlock, 2>(plan, arguments, stream);
  const detail::Claims claims(arguments.workspace);
  if (plan.workspace_bytes != 0) {
    detail::LaunchConfig reset(plan, stream, arguments.programmatic_dependent);
    reset.set_grid(1);
    reset.set_block(detail::kWarpSize);
    reset.set_shared_bytes(0);
    const int error = reset.launch(reset_claims_kernel, claims);
    if (error != cudaSuccess) return error;
  }
  detail::LaunchConfig config(plan, stream, arguments.programmatic_dependent || plan.workspace_bytes != 0);
  if (plan.block == kRingBlock) {
    return config.launch(ring_kernel, detail::make_operands(plan, arguments), plan.policy,
                         detail::full_view(plan, kRingSelectThreads), plan.candidate_capacity, claims);
  }
  return config.launch(staged_kernel<kView>, detail::make_operands(plan, arguments), plan.policy,
                       detail::full_view(plan, kPersistentBlock), plan.candidate_capacity, claims);
}

}  // namespace

int launch_persistent(const Plan& plan, const Arguments& arguments, Stream stream) {
  return plan.policy.sample.view == View::kStrided ? launch<View::kStrided>(plan, arguments, stream)
                                                   : launch<View::kHashed>(plan, arguments, stream);
}

}  // namespace hpctopk::kernels
