// SPDX-License-Identifier: Apache-2.0
//
// A kernel launch as a plan describes it.

#ifndef HPCTOPK_KERNELS_DETAIL_LAUNCH_CUH_
#define HPCTOPK_KERNELS_DETAIL_LAUNCH_CUH_

#include <cuda_runtime_api.h>

#include <cstddef>

#include "hpctopk/topk.h"

namespace hpctopk::detail {

class LaunchConfig {
 public:
  // `programmatic_dependent`: the kernel may begin before the one in front of it on the stream has ended, where the
  // device can do that. It waits for that one itself: wait_for_kernel_in_front().
  LaunchConfig(const Plan& plan, Stream stream, bool programmatic_dependent)
      : shared_limit_(static_cast<int>(plan.shared_limit)) {
    config_.gridDim = dim3(static_cast<unsigned>(plan.grid));
    config_.blockDim = dim3(static_cast<unsigned>(plan.block));
    config_.dynamicSmemBytes = static_cast<std::size_t>(plan.shared_bytes);
    config_.stream = stream;
    config_.attrs = attributes_;
    if (programmatic_dependent && plan.programmatic_dependence) {
      cudaLaunchAttribute& attribute = attributes_[config_.numAttrs++];
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
    }
  }
  LaunchConfig(const LaunchConfig&) = delete;
  LaunchConfig& operator=(const LaunchConfig&) = delete;

  void set_shared_bytes(std::int64_t bytes) { config_.dynamicSmemBytes = static_cast<std::size_t>(bytes); }
  void set_grid(std::int64_t ctas) { config_.gridDim = dim3(static_cast<unsigned>(ctas)); }

  void set_block(std::int32_t threads) { config_.blockDim = dim3(static_cast<unsigned>(threads)); }

  void set_cluster(int ctas) {
    cudaLaunchAttribute& attribute = attributes_[config_.numAttrs++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(ctas), 1, 1};
  }

  template <class... Parameters, class... Values>
  int launch(void (*kernel)(Parameters...), const Values&... values) {
    // The device's limit and not what this launch asks for: plans that ask for less may be launched by other threads.
    cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_limit_);
    if (error == cudaSuccess) error = cudaLaunchKernelEx(&config_, kernel, values...);
    return error;
  }

 private:
  int shared_limit_;
  cudaLaunchConfig_t config_{};
  cudaLaunchAttribute attributes_[2]{};
};

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_LAUNCH_CUH_
