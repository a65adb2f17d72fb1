// SPDX-License-Identifier: Apache-2.0
//
// Rows that CTAs take in turn, each when it has room for one. SMs are not equally fast when all of them read: some have
// read their share when others have a quarter of theirs to go.

#ifndef HPCTOPK_KERNELS_DETAIL_CLAIMS_CUH_
#define HPCTOPK_KERNELS_DETAIL_CLAIMS_CUH_

#include <cstdint>

#include "kernels/detail/output.cuh"
#include "kernels/detail/ptx.cuh"
#include "kernels/kernels.h"

namespace hpctopk::detail {

// In workspace: how many rows have been taken beyond each CTA's first, which is the one with its own index.
class Claims {
 public:
  explicit Claims(void* workspace) : taken_(static_cast<std::uint64_t*>(workspace)) {}
  static_assert(sizeof(std::uint64_t) == kernels::kClaimsBytes);

  // The workspace may hold anything before. By one thread.
  __device__ void reset() const { *taken_ = 0; }

  // Takes a row; it is index_of() what is returned. By one thread.
  __device__ unsigned long long take() const { return atomicAdd(atomic_word(taken_), 1ULL); }
  __device__ static std::int64_t index_of(unsigned long long taken) {
    return static_cast<std::int64_t>(gridDim.x + taken);
  }

 private:
  std::uint64_t* taken_;
};

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_CLAIMS_CUH_
