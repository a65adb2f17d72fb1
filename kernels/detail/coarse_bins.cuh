// SPDX-License-Identifier: Apache-2.0
//
// Bins of the coarse key, fp16's sign, exponent and upper mantissa: they need nothing of the row, so scores are counted
// as they arrive.

#ifndef HPCTOPK_KERNELS_DETAIL_COARSE_BINS_CUH_
#define HPCTOPK_KERNELS_DETAIL_COARSE_BINS_CUH_

#include <cstdint>

#include "kernels/detail/linear_bins.cuh"
#include "kernels/detail/ordered_key.h"
#include "kernels/detail/ptx.cuh"

namespace hpctopk::detail {

struct CoarseBins {
  using Place = float;                // a score
  static constexpr int kLowest = 31;  // of -infinity
  static constexpr int kNans = kCoarseBins - 1;
  static constexpr int kShift = 5;
  static_assert(kCoarseBins == 1 << (16 - kShift));

  template <class Batch>
  __device__ void find(const Batch& batch, int (&bin)[Batch::kEntries]) const {
#pragma unroll
    for (int i = 0; i < Batch::kEntries; i += 2) {
      const std::uint32_t halves = ordered_halves(batch.score[i], batch.score[i + 1]);
      bin[i] = static_cast<int>(halves << 16 >> (16 + kShift));
      bin[i + 1] = static_cast<int>(halves >> (16 + kShift));
    }
  }
  // The highest score of a bin and of those below. A half is rounded to zero: of a positive one it is the last before
  // the next half, of a negative one the half's own. What would become -0 becomes 0.
  __device__ static float last_of(int bin) {
    const int half = (bin - (kCoarseBins / 2 - 1)) * (1 << kShift);
    const float bound = half_score(static_cast<std::uint32_t>(max(abs(half), 1)));
    return half > 0 ? bits_float(min(float_bits(bound), float_bits(infinity()) + 1) - 1) : -bound;
  }
  // A mask of the entries in higher bins than that which `last` is the last of, but for kNans, which has no last.
  template <class Batch>
  __device__ __forceinline__ unsigned above(const Batch& batch, float last) const {
    unsigned mask = 0;
    admit_scores(batch.score, last, &mask);
    return mask;
  }
  // About the scores of a bin.
  __device__ ScoreInterval interval(int bin) const {
    const auto at = static_cast<std::uint32_t>(bin);
    return {bin <= kLowest ? -infinity() : key_score(coarse_floor(at)),
            bin + 2 >= kCoarseBins ? infinity() : key_score(coarse_floor(at + 1))};
  }
};

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_COARSE_BINS_CUH_
