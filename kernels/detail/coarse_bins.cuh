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
  using Place = std::uint32_t;        // whose upper bits are a bin
  static constexpr int kLowest = 31;  // of -infinity
  static constexpr int kShift = 21;
  static_assert(kCoarseBins == 1 << (32 - kShift));

  template <class Batch>
  __device__ void places(const Batch& batch, Place (&place)[Batch::kEntries]) const {
#pragma unroll
    for (int i = 0; i < Batch::kEntries; i += 2) {
      const std::uint32_t halves = ordered_halves(batch.score[i], batch.score[i + 1]);
      place[i] = halves << 16;
      place[i + 1] = halves;
    }
  }
  __device__ static int bin_of(Place place) { return static_cast<int>(place >> kShift); }
  // The highest of a bin.
  __device__ static Place last_of(int bin) { return (static_cast<Place>(bin + 1) << kShift) - 1; }
  // About the scores of a bin.
  __device__ ScoreInterval interval(int bin) const {
    const auto at = static_cast<std::uint32_t>(bin);
    return {bin <= kLowest ? -infinity() : key_score(coarse_floor(at)),
            bin + 2 >= kCoarseBins ? infinity() : key_score(coarse_floor(at + 1))};
  }
};

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_COARSE_BINS_CUH_
