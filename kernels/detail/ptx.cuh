// SPDX-License-Identifier: Apache-2.0
//
// Instructions that C++ has no words for.

#ifndef HPCTOPK_KERNELS_DETAIL_PTX_CUH_
#define HPCTOPK_KERNELS_DETAIL_PTX_CUH_

namespace hpctopk::detail {

// Loads of scores that are read once: they pass the L1 cache by.
__device__ __forceinline__ float load_streaming(const float* address) {
  float value;
  asm volatile("ld.global.L1::no_allocate.f32 %0, [%1];" : "=f"(value) : "l"(address));
  return value;
}
__device__ __forceinline__ float4 load_streaming(const float4* address) {
  float4 value;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(address));
  return value;
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// The barrier of a thread-block cluster: what a thread wrote before it, its members read after it.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_PTX_CUH_
