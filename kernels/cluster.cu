// SPDX-License-Identifier: Apache-2.0
//
// Cluster mapping (paper, section 5.5): the CTAs of a cluster share a row. Each takes the same sample, so the boundary
// needs no exchange, scans its part once, and leaves its candidates where the first member reads them through
// distributed shared memory and refines.

#include "kernels/detail/select_row.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {
namespace {

template <View kView>
__global__ void __launch_bounds__(kClusterBlock, 1)
    cluster_kernel(const detail::Operands operands, const Policy policy, const int capacity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  detail::select_rows<kView>(detail::Group<kClusterBlock>{static_cast<int>(threadIdx.x)}, detail::Cluster{},
                             static_cast<int>(__clusterSizeInBlocks()), operands, policy, capacity);
#else
  __trap();  // the planner gives this kernel to devices with clusters alone
#endif
}

}  // namespace

int launch_cluster(const Plan& plan, const Arguments& arguments, Stream stream) {
  const auto kernel =
      plan.policy.sample.view == View::kStrided ? cluster_kernel<View::kStrided> : cluster_kernel<View::kHashed>;
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  if (error != cudaSuccess) return error;
  detail::LaunchConfig config(plan, stream);
  config.set_cluster(plan.cluster_size);
  return config.launch(kernel, detail::make_operands(plan, arguments), plan.policy, plan.candidate_capacity);
}

}  // namespace hpctopk::kernels
