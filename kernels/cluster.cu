// SPDX-License-Identifier: Apache-2.0
//
// Cluster mapping (paper, section 5.5): the CTAs of a cluster share a row. Each takes the same sample, so the boundary
// needs no exchange, scans its part once and, on bulk copies, refines its own candidates. On vector loads the first
// member reads those of all through distributed shared memory and refines them alone.

#include "kernels/detail/cluster_rows.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {
namespace {

using Group = detail::Group<kClusterBlock>;

template <View kView, bool kStaged>
__global__ void __launch_bounds__(kClusterBlock, 1)
    cluster_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                   const __grid_constant__ detail::QuadView view, const int capacity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const Group group{static_cast<int>(threadIdx.x)};
  const int log_size = __popc(__clusterSizeInBlocks() - 1);  // of a power of two
  if constexpr (kStaged) {
    detail::select_cluster_row<kView>(group, detail::shared_memory(), log_size, operands, policy, view, capacity);
  } else {
    detail::select_rows<kView>(group, detail::Cluster(log_size), 1 << log_size, operands, policy, capacity);
  }
#else
  __trap();  // the planner gives this kernel to devices with clusters alone
#endif
}

template <View kView>
int launch(const Plan& plan, const Arguments& arguments, Stream stream) {
  auto* const kernel = plan.stages != 0 ? cluster_kernel<kView, true> : cluster_kernel<kView, false>;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error != cudaSuccess) return error;
  detail::LaunchConfig config(plan, stream, arguments.programmatic_dependent);
  config.set_cluster(plan.cluster_size);
  return config.launch(kernel, detail::make_operands(plan, arguments), plan.policy,
                       detail::quad_view(plan, Group::kSize), plan.candidate_capacity);
}

}  // namespace

int launch_cluster(const Plan& plan, const Arguments& arguments, Stream stream) {
  return plan.policy.sample.view == View::kStrided ? launch<View::kStrided>(plan, arguments, stream)
                                                   : launch<View::kHashed>(plan, arguments, stream);
}

}  // namespace hpctopk::kernels
