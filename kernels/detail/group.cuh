// SPDX-License-Identifier: Apache-2.0
//
// The threads that carry out a phase: a whole CTA, or its first warps where others have another role.

#ifndef HPCTOPK_KERNELS_DETAIL_GROUP_CUH_
#define HPCTOPK_KERNELS_DETAIL_GROUP_CUH_

#include <cstdint>

#include "kernels/detail/ptx.cuh"
#include "kernels/detail/rare.cuh"

namespace hpctopk::detail {

inline constexpr int kWarpSize = 32;
inline constexpr unsigned kFullWarp = 0xFFFFFFFFU;

template <int kThreads>
struct Group {
  static_assert(kThreads % kWarpSize == 0 && kThreads <= 1024);
  static constexpr int kSize = kThreads;
  static constexpr int kWarps = kThreads / kWarpSize;

  int thread;  // 0..kThreads-1

  // Unsigned division by a power of two is one instruction.
  __device__ int lane() const { return static_cast<int>(static_cast<unsigned>(thread) % kWarpSize); }
  __device__ int warp() const { return static_cast<int>(static_cast<unsigned>(thread) / kWarpSize); }
  __device__ void sync() const { barrier_sync<kThreads>(); }
  // As sync(), and whether any thread's `value` is true.
  __device__ bool sync_or(bool value) const { return barrier_sync_or<kThreads>(value); }
};

// The lanes below this one.
__device__ __forceinline__ unsigned lanes_below(int lane) { return (1U << lane) - 1; }

// Reserves a slot for every lane whose `keep` is set, with one atomic a warp, in lane order. All lanes must call.
__device__ __forceinline__ int append_slot(bool keep, int* count, int lane) {
  const unsigned kept = __ballot_sync(kFullWarp, keep);
  int base = 0;
  if (lane == 0 && kept != 0) base = atomicAdd(count, __popc(kept));
  return __shfl_sync(kFullWarp, base, 0) + __popc(kept & lanes_below(lane));
}

__device__ __forceinline__ int inclusive_scan(int value) {
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    value = plus_lane_below(value, distance);
  }
  return value;
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_GROUP_CUH_
