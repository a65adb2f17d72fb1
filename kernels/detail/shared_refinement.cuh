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
// Where candidates go by their keys.
struct KeyPlaces {
  FewBins bins;

  // Of what a boundary admits, whose k-th best is expected up to `high`.
  __device__ __forceinline__ static KeyPlaces of(const Boundary& boundary, std::uint32_t high) {
    return {FewBins::of(boundary.primary, max(boundary.primary, high))};
  }
  __device__ __forceinline__ int of(std::uint64_t c) const { return bins.place(composite_key(c)); }
  __device__ std::uint32_t high() const { return bins.low_of(0); }
  // A boundary that admits all up to a place.
  __device__ Boundary through(int place) const { return Boundary::at(bins.low_of(place + 1)); }
};

// The same where the lowest key is a plateau: what equals it goes to the second half of the places, by its indices.
struct PlateauPlaces {
  static constexpr int kFirst = kFewBins / 2;
  FewBins bins;
  int shift;

  __device__ static PlateauPlaces of(const Boundary& boundary, std::uint32_t high) {
    return {KeyPlaces::of(boundary, high).bins, max(0, kWarpSize - __clz(boundary.limit - 1) - (kLogFewBins - 1))};
  }
  __device__ __forceinline__ int of(std::uint64_t c) const {
    const auto index = static_cast<int>(composite_index(c));
    return composite_key(c) > bins.base ? bins.place(composite_key(c)) >> 1
                                        : kFirst + min(index >> shift, kFewBins - kFirst - 1);
  }
  __device__ std::uint32_t high() const { return bins.low_of(0); }
  __device__ Boundary through(int place) const {
    if (place < kFirst) return Boundary::at(bins.low_of(2 * (place + 1)));
    Boundary boundary = Boundary::at(bins.base);
    if (place < kFewBins - 1) boundary.limit = (place - kFirst + 1) << shift;
    return boundary;
  }
};

template <class Group>
class SharedRefinement {
 public:
  // In shared memory, at the same place in all members.
  struct Stage {
    // What the members tell, in exchanges that take turns. Of counts, by member: zeros, then the entries of all bins
    // through each place.
    std::uint16_t through[2][kernels::kMaxClusterSize][4 + kFewBins];
    std::uint64_t tied[kDirectRank];
    int histogram[kFewBins];
    int total;
    Barrier told[2], tied_arrived;
  };

  // Of member `rank` of 2^log_size.
  __device__ SharedRefinement(Stage* stage, int rank, int log_size) : stage_(stage), rank_(rank), log_size_(log_size) {}

  // All threads call it before a barrier of the cluster.
  __device__ __forceinline__ void init(const Group& group) const {
    if (group.thread < kFewBins) stage_->histogram[group.thread] = 0;
    if (group.thread >= 2 * kernels::kMaxClusterSize) return;
    *reinterpret_cast<std::uint64_t*>(stage_->through[0][group.thread]) = 0;  // and those of the second
    if (group.thread < 2) barrier_init(&stage_->told[group.thread], 1);
    if (group.thread == 2) barrier_init(&stage_->tied_arrived, 1);
    barrier_init_fence();
  }

  // Writes the columns of the k best of all members' candidates, of which this one has `count`. False: it cannot be
  // done so, in any member, and nothing is written. `spare` has room for a word for each candidate, and is taken where
  // they leave none behind them. All members have come to init() before. `exchange`: 0, or 1 after clear().
  template <class Places>
  __device__ __forceinline__ bool select(const Group& group, const CandidateBuffer& buffer, int count,
                                         std::uint32_t* spare, const Places& order, int k, std::int32_t start,
                                         std::int32_t* out, int exchange = 0) const {
    const std::uint64_t* const candidates = buffer.candidates;
    const int most = most_counted(buffer);
    const bool countable = count <= most;
    const auto behind =
        static_cast<int>(reinterpret_cast<std::uint32_t*>(buffer.candidates) - spare) + 2 * with_places(buffer);
    std::uint32_t* const places = spare + (count <= with_places(buffer) ? behind : 0);
    if (countable) {
#pragma unroll 1
      for (int i = group.thread; i < count; i += Group::kSize) places[i] = count_at(order.of(candidates[i]));
    } else {
#pragma unroll 1
      for (int i = group.thread; i < min(most, buffer.capacity - kEdgeScores); i += Group::kSize) {
        if (candidates[i] != 0) count_at(order.of(candidates[i]));  // not blank
      }
    }
    const Found found = find(group, exchange, k, countable, buffer.scratch->warp_totals);
    if (found.place >= kFewBins) return false;
    if (found.inside > k - found.above && found.inside > kDirectRank) {
      select_on(group, *this, exchange, buffer, count, places, found, k, start, out);
    } else {
      write(group, exchange, candidates, count, places, found, k, start, out);
    }
    return true;
  }

  // The candidates of all members, of a row for which select() was true or none of them has had too many.
  __device__ int total() const { return stage_->total; }

  // Whether select() has left alone what is in `spare`.
  __device__ bool spares(const CandidateBuffer& buffer, int count) const {
    return count <= with_places(buffer) || count > most_counted(buffer);
  }
  // Why select() was false in exchange 0. All threads of all members have the same answer.
  struct Refusal {
    bool many;  // a member had more candidates than it could count
    int place;  // of the k-th best of those that were counted; kFewBins: there are fewer
  };
  __device__ __forceinline__ Refusal refusal(const Group& group, int k) const {
    constexpr int kPlaces = kFewBins / kWarpSize;  // of a lane
    unsigned flags = 0;
    int through[kPlaces] = {};
#pragma unroll 1
    for (int member = 0; member < 1 << log_size_; ++member) {
      const std::uint16_t* const told = stage_->through[0][member] + 4;
      flags |= told[0];
#pragma unroll
      for (int i = 0; i < kPlaces; ++i) {
        through[i] += static_cast<int>(told[kPlaces * group.lane() + i] & ~kUncounted);
      }
    }
    int fewer = 0;
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) fewer += through[i] < k;
    return {(flags & kUncounted) != 0, __reduce_add_sync(kFullWarp, fewer)};
  }
  // Before exchange 1. A barrier comes before select().
  __device__ void clear(const Group& group) const {
    if (group.thread < kFewBins) stage_->histogram[group.thread] = 0;
  }

 private:
  static constexpr int kMostCounted = 0x7FF8 << 1;       // of all members, so that no sum leaves its half of a word
  static constexpr std::uint32_t kUncounted = 0x8000;    // beside the count of the first place
  static constexpr std::uint32_t kDecided = 0xFFFF0000;  // the place of an entry that is left no more

  // Candidates of a member that can be counted, and those whose places fit behind them.
  __device__ int most_counted(const CandidateBuffer& buffer) const {
    return min(buffer.capacity, kMostCounted >> log_size_);
  }
  __device__ static int with_places(const CandidateBuffer& buffer) { return buffer.capacity * 5 >> 3; }

  // The bin that holds the boundary: of all members' entries, and of those of the members before this one.
  struct Found {
    int place;
    int above, inside;
    int above_before, inside_before;
  };

  __device__ __forceinline__ std::uint32_t count_at(int place) const {
    return static_cast<std::uint32_t>(place) << 16 |
           static_cast<std::uint32_t>(atomicAdd(&stage_->histogram[place], 1));
  }

  // Waits for what all members tell in an exchange, `bytes` each.
  __device__ __forceinline__ void hear(const Group& group, int exchange, int bytes) const {
    Barrier* const told = &stage_->told[exchange & 1];
    if (group.thread == 0) barrier_arrive_expect(told, static_cast<std::uint32_t>(bytes << log_size_));
    cluster_barrier_wait(told, exchange >> 1 & 1);
  }

  // Exchanges the counts, and finds the rank in those of all. Place kFewBins: a member has not counted all that it has,
  // or there are too few.
  __device__ __forceinline__ Found find(const Group& group, int exchange, int rank, bool countable,
                                        int* fewer_of_warps) const {
    group.sync();
    const int size = 1 << log_size_;
    const auto* const through = stage_->through[exchange & 1];
    if (group.warp() < size) tell(group, exchange, group.warp(), countable);
    hear(group, exchange, kFewBins * 2);
    // Two places a thread.
    if (group.thread < kFewBins / 2) {
      std::uint32_t sums = 0;
      std::uint32_t flags = 0;
#pragma unroll 4
      for (int member = 0; member < size; ++member) {
        const std::uint32_t both = reinterpret_cast<const std::uint32_t*>(through[member] + 4)[group.thread];
        sums += both;
        flags |= both;
      }
      if (exchange < 2 && group.thread == kFewBins / 2 - 1) stage_->total = static_cast<int>(sums >> 16);
      int fewer = (static_cast<int>(sums & 0xFFFFU) < rank) + (static_cast<int>(sums >> 16) < rank);
      if (group.thread == 0 && (flags & kUncounted) != 0) fewer = kFewBins;
      fewer = __reduce_add_sync(kFullWarp, fewer);
      if (group.lane() == 0) fewer_of_warps[group.warp()] = fewer;
    }
    group.sync();
    const int2 fewer = *reinterpret_cast<const int2*>(fewer_of_warps);
    Found found{};
    found.place = min(fewer.x + fewer.y, kFewBins);
    if (found.place == kFewBins) return found;
    std::uint32_t mine = 0;  // above and, in the upper half, inside
    if (group.lane() < size) {
      const std::uint16_t* const at = through[group.lane()] + 4 + found.place;
      mine = at[-1] | static_cast<std::uint32_t>(at[0] - at[-1]) << 16;
    }
    const auto all = static_cast<std::uint32_t>(__reduce_add_sync(kFullWarp, mine));
    const auto before = static_cast<std::uint32_t>(__reduce_add_sync(kFullWarp, group.lane() < rank_ ? mine : 0));
    found.above = static_cast<int>(all & 0xFFFFU);
    found.inside = static_cast<int>(all >> 16);
    found.above_before = static_cast<int>(before & 0xFFFFU);
    found.inside_before = static_cast<int>(before >> 16);
    return found;
  }

  // Writes this member's share of the `need` best that are left: what is above the found bin, and what is inside, all
  // of it or, where it is too much, the best by rank.
  __device__ __forceinline__ void write(const Group& group, int exchange, const std::uint64_t* candidates, int count,
                                        const std::uint32_t* places, const Found& found, int need, std::int32_t start,
                                        std::int32_t* out) const {
    const int size = 1 << log_size_;
    const bool ranked = found.inside > need - found.above;
    if (ranked && group.thread == 0) {
      barrier_arrive_expect(&stage_->tied_arrived, static_cast<std::uint32_t>(found.inside) * 8);
    }
    std::int32_t* const winners = out + found.above_before + (ranked ? 0 : found.inside_before);
    const std::uint16_t* const own = stage_->through[exchange & 1][rank_] + 3;
#pragma unroll 1
    for (int i = group.thread; i < count; i += Group::kSize) {
      const int place = static_cast<int>(places[i] >> 16);
      const int slot = static_cast<int>(places[i] & 0xFFFFU);
      const std::uint64_t c = candidates[i];
      if (ranked && place == found.place) {
#pragma unroll 1
        for (int member = 0; member < size; ++member) {
          remote_store(cluster_address(&stage_->tied[found.inside_before + slot], member), c,
                       cluster_address(&stage_->tied_arrived, member));
        }
      }
      if (place < found.place || (!ranked && place == found.place)) {
        winners[own[place] + slot] = start + static_cast<std::int32_t>(composite_index(c));
      }
    }
    if (!ranked) return;
    cluster_barrier_wait(&stage_->tied_arrived, 0);
    const int tied_end = found.inside_before + own[found.place + 1] - own[found.place];
#pragma unroll 1
    for (int i = found.inside_before + group.warp(); i < tied_end; i += Group::kWarps) {
      const std::uint64_t c = stage_->tied[i];
      int better = 0;
#pragma unroll 1
      for (int j = group.lane(); j < found.inside; j += kWarpSize) better += stage_->tied[j] > c;
      better = __reduce_add_sync(kFullWarp, better);
      if (better < need - found.above && group.lane() == 0)
        out[found.above + better] = start + static_cast<std::int32_t>(composite_index(c));
    }
  }

  // Goes on where the found bin holds too many to be ranked: with bins of what its entries really span, by key and,
  // once they have one key, by index. Out of line, and so by value: few rows come here.
  static __device__ __noinline__ void select_on(Group group, SharedRefinement self, int exchange,
                                                CandidateBuffer buffer, int count, std::uint32_t* places, Found found,
                                                int need, std::int32_t start, std::int32_t* out) {
    bool by_index = false;
    const auto digit_of = [&](std::uint64_t c) {
      return by_index ? static_cast<std::uint32_t>(c) : composite_key(c);  // the complement of the index ranks it
    };
    while (true) {
      const std::uint16_t* const own = self.stage_->through[exchange & 1][self.rank_] + 3;
      for (int i = group.thread; i < count; i += Group::kSize) {
        const int place = static_cast<int>(places[i] >> 16);
        if (place < found.place) {
          out[found.above_before + own[place] + static_cast<int>(places[i] & 0xFFFFU)] =
              start + static_cast<std::int32_t>(composite_index(buffer.candidates[i]));
        }
        if (place != found.place) places[i] = kDecided;
      }
      out += found.above;
      need -= found.above;
      uint2 span = self.widest(group, ++exchange, buffer, count, places, digit_of);
      if (!by_index && span.x == span.y) {
        by_index = true;
        span = self.widest(group, ++exchange, buffer, count, places, digit_of);
      }
      const int shift = max(0, kWarpSize - __clz(static_cast<int>(span.y - span.x)) - kLogFewBins);
      if (group.thread < kFewBins) self.stage_->histogram[group.thread] = 0;
      group.sync();
      for (int i = group.thread; i < count; i += Group::kSize) {
        if (places[i] == kDecided) continue;
        places[i] = self.count_at(static_cast<int>((span.y - digit_of(buffer.candidates[i])) >> shift));
      }
      found = self.find(group, ++exchange, need, true, buffer.scratch->warp_totals);
      if (found.inside == need - found.above || found.inside <= kDirectRank) break;
    }
    self.write(group, exchange, buffer.candidates, count, places, found, need, start, out);
  }

  // The lowest and the highest digit of what is left in all members.
  template <class DigitOf>
  __device__ __forceinline__ uint2 widest(const Group& group, int exchange, const CandidateBuffer& buffer, int count,
                                          const std::uint32_t* places, const DigitOf& digit_of) const {
    Scratch* const scratch = buffer.scratch;
    group.sync();
    if (group.thread == 0) {
      scratch->low_key = 0xFFFFFFFFU;
      scratch->high_key = 0;
    }
    group.sync();
    std::uint32_t low = 0xFFFFFFFFU;
    std::uint32_t high = 0;
    for (int i = group.thread; i < count; i += Group::kSize) {
      if (places[i] == kDecided) continue;
      low = min(low, digit_of(buffer.candidates[i]));
      high = max(high, digit_of(buffer.candidates[i]));
    }
    __syncwarp();
    publish_range(group, low, high, scratch);
    const int size = 1 << log_size_;
    if (group.thread < size) {
      remote_store(cluster_address(stage_->through[exchange & 1][rank_] + 4, group.thread),
                   scratch->low_key | static_cast<std::uint64_t>(scratch->high_key) << 32,
                   cluster_address(&stage_->told[exchange & 1], group.thread));
    }
    hear(group, exchange, 8);
    uint2 told = make_uint2(0xFFFFFFFFU, 0);
    if (group.lane() < size) told = *reinterpret_cast<const uint2*>(stage_->through[exchange & 1][group.lane()] + 4);
    return make_uint2(__reduce_min_sync(kFullWarp, told.x), __reduce_max_sync(kFullWarp, told.y));
  }

  // Sends the counts to a member, by a warp.
  __device__ __forceinline__ void tell(const Group& group, int exchange, int member, bool countable) const {
    const SummedBins sums(stage_->histogram, group.lane());
    std::uint32_t low = static_cast<std::uint32_t>(sums.through[0]) | static_cast<std::uint32_t>(sums.through[1]) << 16;
    const std::uint32_t high = static_cast<std::uint32_t>(sums.through[2]) | static_cast<std::uint32_t>(sums.through[3])
                                                                                 << 16;
    if (!countable) low |= kUncounted;
    remote_store(cluster_address(stage_->through[exchange & 1][rank_] + 4 + 4 * group.lane(), member),
                 low | static_cast<std::uint64_t>(high) << 32, cluster_address(&stage_->told[exchange & 1], member));
  }

  Stage* stage_;
  int rank_, log_size_;
};
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SHARED_REFINEMENT_CUH_
