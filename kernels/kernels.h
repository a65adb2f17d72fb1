// SPDX-License-Identifier: Apache-2.0
//
// What src/ calls: one launcher a mapping. Each takes a checked plan and checked arguments, enqueues one kernel and
// returns the CUDA runtime's error code (0: success). No CUDA header, so that host code can include it.

#ifndef HPCTOPK_KERNELS_KERNELS_H_
#define HPCTOPK_KERNELS_KERNELS_H_

#include "hpctopk/topk.h"

namespace hpctopk::kernels {

// Dynamic shared memory of a CTA that holds `candidate_capacity` (key, index) pairs: the pairs, one 2,048-bin histogram
// and the block's scratch. The planner and the kernels both take it from here.
inline constexpr std::int64_t kHistogramBytes = 2048 * 4;
inline constexpr std::int64_t kScratchBytes = 1024;
inline constexpr std::int64_t kCandidateBytes = 8;
constexpr std::int64_t shared_bytes(std::int64_t candidate_capacity) {
  return kHistogramBytes + kScratchBytes + kCandidateBytes * candidate_capacity;
}

// A scan never reads more scores between two looks at the candidate count than there is room for, so a capacity of k
// plus one such round loses no candidate whatever the row holds. Larger rounds mean fewer block barriers.
inline constexpr std::int32_t kMinRound = 2048;
inline constexpr std::int32_t kFullRound = 8192;

inline constexpr std::int32_t kPersistentBlock = 512;  // threads; two CTAs an SM where shared memory allows
inline constexpr std::int32_t kRowLocalBlock = 1024;   // threads; one CTA an SM

int launch_persistent(const Plan& plan, const Arguments& arguments, Stream stream);
int launch_row_local(const Plan& plan, const Arguments& arguments, Stream stream);

}  // namespace hpctopk::kernels

#endif  // HPCTOPK_KERNELS_KERNELS_H_
