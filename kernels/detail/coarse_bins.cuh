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
  static constexpr int kLowest = 31;  // of -infinity

  template <class Batch>
  __device__ void of(const Batch& batch, int (&bin)[Batch::kEntries]) const {
    static_assert(kCoarseBins == 1 << 11 && Batch::kEntries % 2 == 0);
#pragma unroll
    for (int i = 0; i < Batch::kEntries; i += 2) {
      const std::uint32_t halves = ordered_halves(batch.score[i], batch.score[i + 1]);
      bin[i] = static_cast<int>(halves >> 5 & (kCoarseBins - 1));
      bin[i + 1] = static_cast<int>(halves >> 21);
    }
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
