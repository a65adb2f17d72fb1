// SPDX-License-Identifier: Apache-2.0
//
// The phases of a CTA that shares a row with others: the part's copies under way while the sample proposes, the scan of
// what has come, and the candidates of all parts in the buffer of the CTA that finishes.

#ifndef HPCTOPK_KERNELS_DETAIL_PART_CUH_
#define HPCTOPK_KERNELS_DETAIL_PART_CUH_

#include <cstdint>

#include "kernels/detail/select_best.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/detail/staged_scan.cuh"
#include "kernels/kernels.h"

namespace hpctopk::detail {

// Whether a row's candidates are brought together in one buffer and refined there, by digits normalised to the
// proposal's range.
__device__ __forceinline__ bool fits_buffer(int count, const CandidateBuffer& buffer, const Policy& policy) {
  return count <= buffer.capacity && policy.digits == Digits::kNormalised;
}

// Sets candidates [begin, end) to load(begin), ..., load(end - 1). All lanes of a warp call `load` together.
template <class Group, class Load>
__device__ __forceinline__ void gather_candidates(const Group& group, std::uint64_t* candidates, int begin, int end,
                                                  const Load& load) {
  constexpr int kInFlight = 4;
  for (int base = begin + group.thread; base - group.thread < end; base += kInFlight * Group::kSize) {
    std::uint64_t c[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) c[i] = load(min(base + i * Group::kSize, end - 1));
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      if (base + i * Group::kSize < end) candidates[base + i * Group::kSize] = c[i];
    }
  }
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
inline constexpr std::int64_t kStageTotal = kernels::kStagedStages * kernels::kStagedStageBytes;
static_assert(kernels::kStagedStages * sizeof(Barrier) <= kernels::kStagedStateBytes);

// A CTA's shared memory holds the stages, their barriers, and this.
__device__ __forceinline__ CandidateBuffer part_buffer(int capacity) {
  return buffer_at(shared_memory() + kStageTotal + kernels::kStagedStateBytes, capacity);
}

template <class Group>
struct PartCta {
  CandidateBuffer buffer;
  StagedScan<Group> scan;

  __device__ PartCta(const Group& group, int capacity)
      : buffer(part_buffer(capacity)),
        scan(shared_memory(), reinterpret_cast<Barrier*>(shared_memory() + kStageTotal)) {
    if (group.thread == 0) scan.init();  // the others come to the barriers after start()
  }

  // Starts `part` of `row` on its way and proposes the row's boundary meanwhile. Ends with a barrier.
  template <View kView>
  __device__ __forceinline__ Boundary start(const Group& group, const Row& row, const Row& part, const Policy& policy,
                                            int k) const {
    constexpr int kMaxSamples = 8192;
    constexpr int kQuads = kMaxSamples / 4 / Group::kSize;  // in a thread's registers
    Scratch* const scratch = buffer.scratch;
    if (group.thread == 0) {
      scan.start(part);
      scratch->count = 0;
      scratch->front = 0;
      scratch->back = 0;
    }
    Boundary boundary;  // admits every score: right where the row fits or has no usable view
    if (row.length > buffer.capacity - kEdgeScores) {
      if constexpr (kView == View::kHashed) {
        boundary =
            propose_hashed_in_registers<kQuads>(group, row, policy.sample, k, buffer.histogram, buffer.scratch);
      } else {
        boundary = propose_inline<kView>(group, row, policy.sample, k, buffer);
      }
    }
    if (!boundary.usable) group.sync();
    return boundary;
  }
};
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_PART_CUH_
