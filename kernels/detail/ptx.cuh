// SPDX-License-Identifier: Apache-2.0
//
// Instructions that C++ has no words for.

#ifndef HPCTOPK_KERNELS_DETAIL_PTX_CUH_
#define HPCTOPK_KERNELS_DETAIL_PTX_CUH_

#include <cstdint>

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
__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// An mbarrier: a phase ends when all arrivals have come and all announced bytes have landed.
using Barrier = std::uint64_t;

__device__ __forceinline__ void barrier_init(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barrier_arrive_expect(Barrier* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// Whether the phase of this parity has ended; waits a little for it.
__device__ __forceinline__ bool barrier_try_wait(Barrier* barrier, std::uint32_t parity) {
  std::uint32_t ended;
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "mbarrier.try_wait.parity.shared.b64 ended, [%1], %2;\n"
      "selp.u32 %0, 1, 0, ended;\n"
      "}"
      : "=r"(ended)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return ended != 0;
}
__device__ __forceinline__ void barrier_wait(Barrier* barrier, std::uint32_t parity) {
  while (!barrier_try_wait(barrier, parity)) {
  }
}

// Copies `bytes` (a multiple of 16, both addresses 16-byte aligned) to shared memory, counted by `barrier`.
__device__ __forceinline__ void bulk_copy(void* to, const void* from, std::uint32_t bytes, Barrier* barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(barrier))
               : "memory");
}

// The barrier of a thread-block cluster: what a thread wrote before it, its members read after it.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_PTX_CUH_
