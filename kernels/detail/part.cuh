// SPDX-License-Identifier: Apache-2.0
//
// The first two phases of a CTA that scans a row or a part of one: the sample, then the copies, under way while the
// boundary is found, then the scan of what has come.

#ifndef HPCTOPK_KERNELS_DETAIL_PART_CUH_
#define HPCTOPK_KERNELS_DETAIL_PART_CUH_

#include <cstdint>

#include "kernels/detail/register_sample.cuh"
#include "kernels/detail/select_best.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/detail/staged_scan.cuh"
#include "kernels/kernels.h"

namespace hpctopk::detail {

// Whether a row's candidates are refined at once, by digits normalised to the proposal's range.
__device__ __forceinline__ bool fits_at_once(int count, int k, const Policy& policy) {
  return count <= kernels::gathered_capacity(k) && policy.digits == Digits::kNormalised;
}

// Carved from shared memory: room for kDirectRank + gathered_capacity(k) composites and k indices.
__device__ __forceinline__ BestStage best_stage(void* shared, int k) {
  auto* const tied = static_cast<std::uint64_t*>(shared);
  std::uint64_t* const list = tied + kDirectRank;
  return {tied, list, reinterpret_cast<std::int32_t*>(list + kernels::gathered_capacity(k))};
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// Shared memory of a CTA: the stages, their barriers, and this.
template <class Group>
__device__ __forceinline__ CandidateBuffer part_buffer(unsigned char* shared, int capacity) {
  return buffer_at(shared + kernels::staged_shared_bytes(capacity, Group::kSize) - kernels::shared_bytes(capacity),
                   capacity);
}

template <class Group>
struct PartCta {
  static constexpr std::int64_t kStages = kernels::kStagedStages * kernels::staged_stage_bytes(Group::kSize);
  static_assert((kDirectRank + kernels::gathered_capacity(0)) * kernels::kCandidateBytes + 2048 * 4 <= kStages);
  static_assert((kDirectRank + kernels::gathered_capacity(kMaxK)) * kernels::kCandidateBytes + kMaxK * 4 <= kStages);

  CandidateBuffer buffer;
  StagedScan<Group> scan;
  BestStage best;  // in the stages, once they have been scanned

  __device__ PartCta(const Group& group, unsigned char* shared, int capacity, int k)
      : buffer(part_buffer<Group>(shared, capacity)), scan(stages_at(shared)), best(best_stage(shared, k)) {
    if (group.thread == 0) stages_at(shared).init();  // the others come to the barriers after start()
  }

  __device__ static Stages<Group> stages_at(unsigned char* shared) {
    return {reinterpret_cast<float4*>(shared), reinterpret_cast<Barrier*>(shared + kStages)};
  }

  // Starts `part` on its way again, for another scan. All threads call it, and have done with what was in the stages.
  __device__ __forceinline__ void restart(const Group& group, const Row& part) const {
    async_proxy_fence();
    group.sync();
    begin(group, part);
    group.sync();
  }

  // Starts `part` of row `index` on its way and proposes the row's boundary meanwhile; `full` is the view of a row that
  // is as long as the matrix is wide. Ends with a barrier.
  template <View kView>
  __device__ __forceinline__ Boundary start(const Group& group, std::int64_t index, const Row& row, const Row& part,
                                            const GroupView& full, const Policy& policy, const Operands& operands) {
    const int k = operands.k;
    const auto start_part = [&] { begin(group, part); };
    Boundary boundary;  // admits every score: right where the row fits or has no usable view
    if (row.length > buffer.capacity - kEdgeScores) {
      boundary = propose_in_registers<kView>(group, row, full, policy.sample, k, buffer, start_part);
      if (boundary.crowded) {
        boundary = limit_plateau(group, operands, policy.sample, index, boundary, buffer.histogram, buffer.scratch);
      }
    } else {
      start_part();
    }
    if (!boundary.usable) group.sync();
    return boundary;
  }

 private:
  __device__ __forceinline__ void begin(const Group& group, const Row& part) const {
    if (group.thread != 0) return;
    scan.start(part);
    buffer.scratch->count = 0;
    buffer.scratch->front = 0;
    buffer.scratch->back = 0;
  }
};
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_PART_CUH_
