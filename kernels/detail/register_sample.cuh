// SPDX-License-Identifier: Apache-2.0
//
// Phase 1 with the sample in registers: all of it in flight at once, and no memory needed.

#ifndef HPCTOPK_KERNELS_DETAIL_REGISTER_SAMPLE_CUH_
#define HPCTOPK_KERNELS_DETAIL_REGISTER_SAMPLE_CUH_

#include <cstdint>

#include "kernels/detail/sample.cuh"
#include "kernels/detail/scan.cuh"

namespace hpctopk::detail {

// Phase 1 as the view says, with the sample in registers; `full` is the view of a full row. `then` runs once the sample
// has arrived: copies under way would hold it up. Nobody reads the buffer's histogram or scratch any more where it is
// called. Ends with a barrier where the result is usable.
template <View kView, class Group, class Then>
__device__ __forceinline__ Boundary propose_in_registers(const Group& group, const Row& row, const GroupView& full,
                                                         const SamplePolicy& policy, int k,
                                                         const CandidateBuffer& buffer, const Then& then) {
  if constexpr (kView == View::kHashed) {
    constexpr int kQuads = kRegisterSamples / 4 / Group::kSize;
    const GroupView view = row_view(full, policy, row.length, row.quads, k, Group::kSize);
    if (view.hashed.usable()) {
      return view.hashed.samples <= kRegisterSamples / 2
                 ? propose_hashed_in_registers<kQuads / 2>(group, row, view, buffer.histogram, buffer.scratch, then)
                 : propose_hashed_in_registers<kQuads>(group, row, view, buffer.histogram, buffer.scratch, then);
    }
    then();
    return {};
  } else {
    then();
    return propose_strided(group, row, policy, k, buffer.histogram, buffer.scratch);
  }
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_REGISTER_SAMPLE_CUH_
