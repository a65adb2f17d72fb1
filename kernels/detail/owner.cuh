// SPDX-License-Identifier: Apache-2.0
//
// Who owns a row (paper, section 5.5): one CTA, or the CTAs of a cluster. An owner says which part of a row this CTA
// scans, how its members add up what they counted, and who finishes.

#ifndef HPCTOPK_KERNELS_DETAIL_OWNER_CUH_
#define HPCTOPK_KERNELS_DETAIL_OWNER_CUH_

#include <cstdint>
#include <type_traits>

#include "kernels/detail/merge.cuh"
#include "kernels/detail/ptx.cuh"
#include "kernels/detail/row.cuh"
#include "kernels/detail/scan.cuh"

namespace hpctopk::detail {

// One CTA owns the row.
struct Solo {
  __device__ bool finishes() const { return true; }
  __device__ Row part(const Row& row) const { return row; }

  // The row's candidates, over all members.
  template <class Group>
  __device__ int total(const Group&, Scratch*, int count) {
    return count;
  }

  // Makes every member's histogram that of the row.
  template <class Group>
  __device__ void add_histograms(const Group&, int*) const {}

  // Brings the members' candidates to the one that finishes; returns how many it then holds.
  template <class Group>
  __device__ int gather(const Group&, const Row&, int, int count, int, std::uint32_t, Digits, const CandidateBuffer&,
                        Statistics*) const {
    return count;
  }
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
// The CTAs of a cluster own the row, each a part of it; rank 0 finishes. What one member reads of another lies in
// distributed shared memory. All threads of all members call every function.
class Cluster {
 public:
  // Of 2^log_size members.
  __device__ explicit Cluster(int log_size)
      : rank_(static_cast<int>(__clusterRelativeBlockRank())), size_(1 << log_size), log_size_(log_size) {}

  __device__ bool finishes() const { return rank_ == 0; }
  __device__ Row part(const Row& row) const { return row.part(rank_, log_size_); }

  // Every member tells every other its count. Two slots in turns: a member publishes anew only after a barrier that
  // every reader of the old value has passed.
  template <class Group>
  __device__ int total(const Group& group, Scratch* scratch, int count) {
    turn_ ^= 1;
    if (group.thread < size_) *remote(&scratch->published[turn_][rank_], group.thread) = count;
    cluster_sync();
    return __reduce_add_sync(kFullWarp, group.lane() < size_ ? scratch->published[turn_][group.lane()] : 0);
  }

  template <class Group>
  __device__ void add_histograms(const Group& group, int* histogram) const {
    constexpr int kPerThread = kBins / Group::kSize;
    int sums[kPerThread] = {};
    cluster_sync();
    for (int member = 0; member < size_; ++member) {
      const int* other = remote(histogram, member);
#pragma unroll
      for (int i = 0; i < kPerThread; ++i) sums[i] += other[group.thread + i * Group::kSize];
    }
    cluster_sync();
#pragma unroll
    for (int i = 0; i < kPerThread; ++i) histogram[group.thread + i * Group::kSize] = sums[i];
    group.sync();
  }

  template <class Group>
  __device__ int gather(const Group& group, const Row& row, int total, int count, int k, std::uint32_t floor,
                        Digits digits, const CandidateBuffer& buffer, Statistics* statistics) {
    if (total > buffer.capacity) count = cut_to_bound(group, row, count, k, floor, digits, buffer);
    if (rank_ == 0) {
      Scratch* const scratch = buffer.scratch;
      const auto size_of = [&](int member) { return member == 0 ? 0 : scratch->published[turn_][member]; };
      const int listed = end_lists(group, scratch, size_, size_of);
      const auto load = [&](int i) {
        const ListEntry entry = find_entry(scratch, size_, i);
        return remote(buffer.candidates, entry.list)[entry.index];
      };
      count = merge_candidates(group, load, listed, count, k, floor, row.length, digits, buffer, statistics);
    }
    cluster_sync();  // the members' lists are free again
    return count;
  }

 private:
  // Where the members hold more than the one that finishes has room for, as on a plateau: whoever has k candidates has
  // a k-th best, and the row's k-th best is not below the highest of those. Drops what is; returns what is left.
  template <class Group>
  __device__ int cut_to_bound(const Group& group, const Row& row, int count, int k, std::uint32_t floor, Digits digits,
                              const CandidateBuffer& buffer) {
    Scratch* const scratch = buffer.scratch;
    std::uint64_t bound = 0;
    if (count >= k)
      bound = kth_best(group, buffer.candidates, count, k, floor, row.length, digits, buffer.histogram, scratch);
    if (group.thread == 0) scratch->bound = bound;
    cluster_sync();
    for (int member = 0; member < size_; ++member) bound = max(bound, *remote(&scratch->bound, member));
    keep_best(group, buffer.candidates, count, bound, scratch);
    count = scratch->count;
    total(group, scratch, count);
    return count;
  }

  template <class T>
  __device__ static T* remote(T* address, int member) {
    return static_cast<T*>(__cluster_map_shared_rank(const_cast<std::remove_const_t<T>*>(address), member));
  }

  int rank_;
  int size_;
  int log_size_;
  int turn_ = 0;
};
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_OWNER_CUH_
