// SPDX-License-Identifier: Apache-2.0
//
// Bins of equal width in the scores' own range, so that on most rows the boundary's bin holds few scores.

#ifndef HPCTOPK_KERNELS_DETAIL_LINEAR_BINS_CUH_
#define HPCTOPK_KERNELS_DETAIL_LINEAR_BINS_CUH_

#include <cstdint>

#include "kernels/detail/group.cuh"
#include "kernels/detail/ordered_key.h"
#include "kernels/detail/ptx.cuh"
#include "kernels/detail/short_row.cuh"

namespace hpctopk::detail {

__device__ __forceinline__ float not_a_number() { return bits_float(0x7FFFFFFFU); }
__device__ __forceinline__ float lowest_finite() { return bits_float(0xFF7FFFFFU); }
__device__ __forceinline__ bool is_finite(float x) { return fabsf(x) < infinity(); }

// Ends included. All numbers, unless it says otherwise.
struct ScoreInterval {
  float low = -infinity();
  float high = infinity();

  __device__ bool has(float x) const { return low <= x && x <= high; }
};

// Bins for scores from `low` to `high`. The first takes what is lower too, the last what is higher, NaNs included: a
// monotone map of the contract's order, whatever low and high are, so that no result depends on them.
template <int kCount>
struct LinearBins {
  using Place = int;                 // a bin
  static constexpr int kLowest = 0;  // of -infinity
  static constexpr int kNans = -1;   // any bin but one of NaNs alone has a last place

  float low, width, scale;

  __device__ static LinearBins of(float low, float high) {
    const float range = fminf(fmaxf(high - low, 1e-30F), 8e37F);  // has a reciprocal
    return {low, range * (1.0F / (kCount - 3)), (kCount - 3) * approximate_reciprocal(range)};
  }
  __device__ int bin(float x) const {
    constexpr float kInteger = 8388608.0F;  // 2^23, from where a float's last bit is 1
    const float place = fmaf(x - low, scale, kInteger + 1);
    return static_cast<int>(float_bits(fmaxf(fminf(place, kInteger + (kCount - 1)), kInteger)) - float_bits(kInteger));
  }
  template <class Batch>
  __device__ void find(const Batch& batch, int (&bin)[Batch::kEntries]) const {
#pragma unroll
    for (int i = 0; i < Batch::kEntries; ++i) bin[i] = this->bin(batch.score[i]);
  }
  __device__ static Place last_of(int bin) { return bin; }
  // A mask of the entries in higher bins.
  template <class Batch>
  __device__ __forceinline__ unsigned above(const Batch& batch, Place last) const {
    int bin[Batch::kEntries];
    find(batch, bin);
    unsigned mask = 0;
#pragma unroll
    for (int i = 0; i < Batch::kEntries; ++i) mask |= bin[i] > last ? 1U << i : 0;
    return mask;
  }
  // About the lowest score of a bin other than the first.
  __device__ float low_of(int bin) const { return low + (static_cast<float>(bin) - 1.5F) * width; }
  // About the scores of a bin.
  __device__ ScoreInterval interval(int bin) const {
    return {bin == 0 ? -infinity() : low_of(bin), bin == kCount - 1 ? infinity() : low_of(bin + 1)};
  }
};

// A range that holds nearly all scores, infinities left out: of those that groups of four warps have, the highest low
// and the lowest high. Outliers of a few groups do not widen it, and four warps have enough scores for their extremes
// to lie beyond the boundary.
struct ScoreRange {
  static constexpr int kWarps = 4;

  float low = infinity();
  float high = -infinity();

  __device__ __forceinline__ void add(float score) {
    if (score > -infinity()) low = fminf(low, score);
    if (score < infinity()) high = fmaxf(high, score);
  }
  // To `ranges`, which holds the lows of all warps and then their highs.
  template <class Group>
  __device__ __forceinline__ void publish(const Group& group, std::uint32_t* ranges) const {
    const std::uint32_t lowest = __reduce_min_sync(kFullWarp, key_of(low));
    const std::uint32_t highest = __reduce_max_sync(kFullWarp, key_of(high));
    if (group.lane() == 0) {
      ranges[group.warp()] = lowest;
      ranges[Group::kWarps + group.warp()] = highest;
    }
  }
  // Whether there is one.
  template <class Group>
  __device__ __forceinline__ bool of_all(const Group& group, const std::uint32_t* ranges) {
    constexpr int kGroups = Group::kWarps / kWarps;
    static_assert(kGroups * kWarps == Group::kWarps);
    const auto* const quads = reinterpret_cast<const uint4*>(ranges) + (group.lane() & (kGroups - 1));
    const uint4 lows = quads[0];
    const uint4 highs = quads[kGroups];
    const std::uint32_t lowest = min(min(lows.x, lows.y), min(lows.z, lows.w));
    const std::uint32_t highest = max(max(highs.x, highs.y), max(highs.z, highs.w));
    const std::uint32_t a = __reduce_max_sync(kFullWarp, lowest == kInfinityKey ? 0 : lowest);
    const std::uint32_t b = __reduce_min_sync(kFullWarp, highest == kLowestKey ? kNanKey : highest);
    low = key_score(min(a, b));
    high = key_score(max(a, b));
    return a != 0 && b != kNanKey && a != b;
  }

 private:
  // ordered_key() of what is no NaN. Either zero will do.
  __device__ static std::uint32_t key_of(float x) {
    const std::uint32_t bits = float_bits(x);
    return bits ^ (static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | 0x80000000U);
  }
};

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_LINEAR_BINS_CUH_
