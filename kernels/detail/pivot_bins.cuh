// SPDX-License-Identifier: Apache-2.0
//
// Bins about one score. Where many entries share a bin they mostly are equal, as the zeros of an indexer's rows are:
// what equals the score is told apart by its column.

#ifndef HPCTOPK_KERNELS_DETAIL_PIVOT_BINS_CUH_
#define HPCTOPK_KERNELS_DETAIL_PIVOT_BINS_CUH_

#include <cstdint>

#include "kernels/detail/histogram.cuh"
#include "kernels/detail/linear_bins.cuh"

namespace hpctopk::detail {

// A score, NaN where there is none, and the range of the scores about it that matter.
struct Pivot {
  float low, score, high;
};

// The lower scores in bins of equal width, then what equals the pivot by its columns, then the higher scores. Like
// LinearBins a monotone map of the contract's order, whatever the range is.
struct PivotBins {
  using Place = int;                 // a bin
  static constexpr int kLowest = 0;  // of -infinity
  static constexpr int kNans = -1;   // any bin but one of NaNs alone has a last place
  static constexpr int kSide = kBins / 4;
  static constexpr int kEqual = kBins - 2 * kSide;

  LinearBins<kSide> lower, higher;
  float pivot;
  int last, shift;

  // For columns below `width`.
  __device__ static PivotBins of(const Pivot& pivot, int width) {
    static_assert(kEqual == 1 << (kDigitBits - 1));
    const int shift = max(0, kWarpSize - __clz(width - 1) - (kDigitBits - 1));
    return {LinearBins<kSide>::of(pivot.low, pivot.score), LinearBins<kSide>::of(pivot.score, pivot.high), pivot.score,
            width - 1, shift};
  }
  __device__ int bin(float x, int column) const {
    const bool is_lower = x < pivot;
    const LinearBins<kSide> side{is_lower ? lower.low : higher.low, 0, is_lower ? lower.scale : higher.scale};
    const int bin = side.bin(x) + (is_lower ? 0 : kBins - kSide);
    return x == pivot ? kSide + ((last - column) >> shift) : bin;
  }
  template <class Batch>
  __device__ void find(const Batch& batch, int (&bin)[Batch::kEntries]) const {
#pragma unroll
    for (int i = 0; i < Batch::kEntries; ++i) bin[i] = this->bin(batch.score[i], batch.column(i));
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
  __device__ ScoreInterval interval(int bin) const {
    if (bin < kSide) return {lower.interval(bin).low, fminf(lower.interval(bin).high, pivot)};
    const ScoreInterval interval = higher.interval(bin - (kBins - kSide));
    return {fmaxf(interval.low, pivot), interval.high};
  }
};

// Finds a pivot among entries. Each warp names the score of one of them; the score that most name is a plateau's.
class Crowd {
 public:
  __device__ __forceinline__ void add(float score) {
    range_.add(score);
    if (is_finite(score)) named_ = score + 0.0F;  // both zeros are one score
  }
  // The same for all threads. `shared` is for 3 * Group::kWarps words.
  template <class Group>
  __device__ __forceinline__ Pivot pivot(const Group& group, std::uint32_t* shared) const {
    const unsigned some = __ballot_sync(kFullWarp, is_finite(named_));
    const float named = __shfl_sync(kFullWarp, named_, max(0, __ffs(static_cast<int>(some)) - 1));
    range_.publish(group, shared);
    if (group.lane() == 0) shared[2 * Group::kWarps + group.warp()] = float_bits(named);
    group.sync();
    const std::uint32_t* const of_warp = shared + group.lane() % Group::kWarps;
    const float name = bits_float(of_warp[2 * Group::kWarps]);
    const auto votes = static_cast<unsigned>(__popc(__match_any_sync(kFullWarp, float_bits(name))));
    const auto lane = static_cast<unsigned>(group.lane());
    const unsigned most = __reduce_max_sync(kFullWarp, is_finite(name) ? votes * kWarpSize + lane : lane);
    return {key_score(__reduce_min_sync(kFullWarp, of_warp[0])),
            __shfl_sync(kFullWarp, name, static_cast<int>(most % kWarpSize)),
            key_score(__reduce_max_sync(kFullWarp, of_warp[Group::kWarps]))};
  }

 private:
  ScoreRange range_;
  float named_ = not_a_number();
};

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_PIVOT_BINS_CUH_
