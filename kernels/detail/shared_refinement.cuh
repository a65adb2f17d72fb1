// SPDX-License-Identifier: Apache-2.0
//
// Phase 3 and the output of a cluster (paper, section 5.5), shared by its members: each counts its own candidates in
// the same bins and tells all others its counts, so that each knows the boundary's bin and where its own winners go.
// Only the entries of that bin are sent, to all, and each ranks its own. What is sent is stored by those who have it,
// and a barrier of the receiver counts the bytes: nobody waits for an answer, and nobody reads from another.

#ifndef HPCTOPK_KERNELS_DETAIL_SHARED_REFINEMENT_CUH_
#define HPCTOPK_KERNELS_DETAIL_SHARED_REFINEMENT_CUH_

#include <cstdint>

#include "kernels/detail/quad_sample.cuh"
#include "kernels/detail/scan.cuh"
#include "kernels/kernels.h"

namespace hpctopk::detail {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
template <class Group>
class SharedRefinement {
 public:
  // In shared memory, at the same place in all members.
  struct Stage {
    // By member: zeros, then the entries of all bins through each place.
    std::uint16_t through[kernels::kMaxClusterSize][4 + kFewBins];
    std::uint64_t tied[kDirectRank];
    int histogram[kFewBins];
    Barrier counts_arrived, tied_arrived;
  };

  // Of member `rank` of 2^log_size.
  __device__ SharedRefinement(Stage* stage, int rank, int log_size) : stage_(stage), rank_(rank), log_size_(log_size) {}

  // All threads call it before a barrier of the cluster.
  __device__ __forceinline__ void init(const Group& group) const {
    if (group.thread < kFewBins) stage_->histogram[group.thread] = 0;
    if (group.thread >= kernels::kMaxClusterSize) return;
    *reinterpret_cast<std::uint64_t*>(stage_->through[group.thread]) = 0;
    if (group.thread == 0) barrier_init(&stage_->counts_arrived, 1);
    if (group.thread == 1) barrier_init(&stage_->tied_arrived, 1);
    barrier_init_fence();
  }

  // Writes the columns of the k best of all members' candidates, of which this one has `count`. False: it cannot be
  // done so, in any member, and nothing is written. `places` has room for as many words. All members have
  // come to init() before.
  __device__ __forceinline__ bool select(const Group& group, const CandidateBuffer& buffer, int count,
                                         std::uint32_t* places, const FewBins& bins, int k, std::int32_t start,
                                         std::int32_t* out) const {
    const std::uint64_t* const candidates = buffer.candidates;
    const bool countable = count <= min(buffer.capacity, kMostCounted >> log_size_);
    if (countable) {
#pragma unroll 1
      for (int i = group.thread; i < count; i += Group::kSize) {
        const int place = bins.place(composite_key(candidates[i]));
        places[i] = static_cast<std::uint32_t>(place) << 16 |
                    static_cast<std::uint32_t>(atomicAdd(&stage_->histogram[place], 1));
      }
    }
    group.sync();
    const int size = 1 << log_size_;
    if (group.warp() < size) tell(group, group.warp(), countable);
    if (group.thread == 0) {
      barrier_arrive_expect(&stage_->counts_arrived, static_cast<std::uint32_t>(kCountBytes << log_size_));
    }
    cluster_barrier_wait(&stage_->counts_arrived, 0);

    // Two places a thread.
    int* const fewer_of_warps = buffer.scratch->warp_totals;
    if (group.thread < kFewBins / 2) {
      std::uint32_t sums = 0;
      std::uint32_t flags = 0;
#pragma unroll 4
      for (int member = 0; member < size; ++member) {
        const std::uint32_t both = reinterpret_cast<const std::uint32_t*>(stage_->through[member] + 4)[group.thread];
        sums += both;
        flags |= both;
      }
      int fewer = (static_cast<int>(sums & 0xFFFFU) < k) + (static_cast<int>(sums >> 16) < k);
      if (group.thread == 0 && (flags & kUncounted) != 0) fewer = kFewBins;
      fewer = __reduce_add_sync(kFullWarp, fewer);
      if (group.lane() == 0) fewer_of_warps[group.warp()] = fewer;
    }
    group.sync();
    const int2 fewer = *reinterpret_cast<const int2*>(fewer_of_warps);
    const int boundary = fewer.x + fewer.y;  // its place
    if (boundary >= kFewBins) return false;
    // What is above it and, in the upper half, in it: of the members before this one, and of all.
    std::uint32_t mine = 0;
    if (group.lane() < size) {
      const std::uint16_t* const through = stage_->through[group.lane()] + 4 + boundary;
      mine = through[-1] | static_cast<std::uint32_t>(through[0] - through[-1]) << 16;
    }
    const auto all = static_cast<std::uint32_t>(__reduce_add_sync(kFullWarp, mine));
    const auto before = static_cast<std::uint32_t>(__reduce_add_sync(kFullWarp, group.lane() < rank_ ? mine : 0));
    const int above = static_cast<int>(all & 0xFFFFU);
    const int inside = static_cast<int>(all >> 16);
    const int need = k - above;
    const bool ranked = inside > need;  // otherwise all that are inside win
    if (ranked && inside > kDirectRank) return false;

    if (ranked && group.thread == 0) {
      barrier_arrive_expect(&stage_->tied_arrived, static_cast<std::uint32_t>(inside) * 8);
    }
    std::int32_t* const winners = out + (before & 0xFFFFU) + (ranked ? 0 : before >> 16);
    const int tied_before = static_cast<int>(before >> 16);
    const std::uint16_t* const own = stage_->through[rank_] + 3;
#pragma unroll 1
    for (int i = group.thread; i < count; i += Group::kSize) {
      const int place = static_cast<int>(places[i] >> 16);
      const int slot = static_cast<int>(places[i] & 0xFFFFU);
      const std::uint64_t c = candidates[i];
      if (ranked && place == boundary) {
#pragma unroll 1
        for (int member = 0; member < size; ++member) {
          remote_store(cluster_address(&stage_->tied[tied_before + slot], member), c,
                       cluster_address(&stage_->tied_arrived, member));
        }
      }
      if (place < boundary || (!ranked && place == boundary)) {
        winners[own[place] + slot] = start + static_cast<std::int32_t>(composite_index(c));
      }
    }
    if (!ranked) return true;
    cluster_barrier_wait(&stage_->tied_arrived, 0);
    const int tied_end = tied_before + own[boundary + 1] - own[boundary];
#pragma unroll 1
    for (int i = tied_before + group.warp(); i < tied_end; i += Group::kWarps) {
      const std::uint64_t c = stage_->tied[i];
      int better = 0;
#pragma unroll 1
      for (int j = group.lane(); j < inside; j += kWarpSize) better += stage_->tied[j] > c;
      better = __reduce_add_sync(kFullWarp, better);
      if (better < need && group.lane() == 0)
        out[above + better] = start + static_cast<std::int32_t>(composite_index(c));
    }
    return true;
  }

  // The candidates of all members, of a row for which select() was true.
  __device__ int total() const {
    int total = 0;
    for (int member = 0; member < 1 << log_size_; ++member) total += stage_->through[member][3 + kFewBins];
    return total;
  }

 private:
  static constexpr int kMostCounted = 0x7FF8 << 1;  // of all members, so that no sum leaves its half of a word
  static constexpr std::uint32_t kUncounted = 0x8000;
  static constexpr int kCountBytes = kFewBins * 2;

  // Sends the counts to a member, by a warp.
  __device__ __forceinline__ void tell(const Group& group, int member, bool countable) const {
    const SummedBins sums(stage_->histogram, group.lane());
    std::uint32_t low = static_cast<std::uint32_t>(sums.through[0]) | static_cast<std::uint32_t>(sums.through[1]) << 16;
    const std::uint32_t high = static_cast<std::uint32_t>(sums.through[2]) | static_cast<std::uint32_t>(sums.through[3])
                                                                                 << 16;
    if (!countable) low = kUncounted;
    remote_store(cluster_address(stage_->through[rank_] + 4 + 4 * group.lane(), member),
                 low | static_cast<std::uint64_t>(high) << 32, cluster_address(&stage_->counts_arrived, member));
  }

  Stage* stage_;
  int rank_, log_size_;
};
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SHARED_REFINEMENT_CUH_
