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

// kQuads: that a thread samples; 0 on vector loads.
template <View kView, int kQuads>
__global__ void __launch_bounds__(kClusterBlock, 1)
    cluster_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                   const __grid_constant__ detail::QuadView view, const int capacity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const Group group{static_cast<int>(threadIdx.x)};
  const int log_size = __popc(__clusterSizeInBlocks() - 1);  // of a power of two
  if constexpr (kQuads > 0) {
    detail::select_cluster_row<kView, kQuads>(group, detail::shared_memory(), log_size, operands, policy, view,
                                              capacity);
  } else {
    detail::cluster_sync();  // all members have begun
    detail::select_rows<kView>(group, detail::Cluster(log_size), 1 << log_size, operands, policy, capacity);
    detail::cluster_sync();  // no member ends while another may write to it
  }
#else
  __trap();  // the planner gives this kernel to devices with clusters alone
#endif
}

template <View kView, int kQuads>
int launch_kernel(const Plan& plan, const Arguments& arguments, Stream stream) {
  auto* const kernel = cluster_kernel<kView, kQuads>;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error != cudaSuccess) return error;
  detail::LaunchConfig config(plan, stream, arguments.programmatic_dependent);
  config.set_cluster(plan.cluster_size);
  return config.launch(kernel, detail::make_operands(plan, arguments), plan.policy,
                       detail::quad_view(plan, Group::kSize, kQuads), plan.candidate_capacity);
}

template <View kView>
int launch(const Plan& plan, const Arguments& arguments, Stream stream) {
  if (plan.stages == 0) return launch_kernel<kView, 0>(plan, arguments, stream);
  if constexpr (kView == View::kHashed) {
    // A sample costs every member the same; what its margin admits too much they share. So only long parts take more.
    if (sampled_quads(plan.problem.num_columns, plan.cluster_size) == 4)
      return launch_kernel<kView, 4>(plan, arguments, stream);
  }
  return launch_kernel<kView, 1>(plan, arguments, stream);
}

}  // namespace

int launch_cluster(const Plan& plan, const Arguments& arguments, Stream stream) {
  return plan.policy.sample.view == View::kStrided ? launch<View::kStrided>(plan, arguments, stream)
                                                   : launch<View::kHashed>(plan, arguments, stream);
}

}  // namespace hpctopk::kernels
