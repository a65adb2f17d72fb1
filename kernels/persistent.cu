// SPDX-License-Identifier: Apache-2.0
//
// Persistent sampled mapping (paper, sections 4.5 and 5.5): a CTA owns a row from the proposal to the output and takes
// rows in turn. Two CTAs share an SM, so that one scans while the other proposes or refines.

#include "kernels/detail/select_row.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {

int launch_persistent(const Plan& plan, const Arguments& arguments, Stream stream) {
  const auto run = plan.policy.sample.view == View::kStrided
                       ? detail::launch_select_rows<View::kStrided, kPersistentBlock, 2>
                       : detail::launch_select_rows<View::kHashed, kPersistentBlock, 2>;
  return run(plan, arguments, stream);
}

}  // namespace hpctopk::kernels
