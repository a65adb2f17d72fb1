// SPDX-License-Identifier: Apache-2.0
//
// Row-local direct-exact mapping (paper, section 5.5): one wide CTA a row and no sample. A row that fits the candidate
// buffer is read once; a longer one is read for its exact coarse histogram and again to admit. Needs nothing of the
// device but shared memory for k candidates and one round, so it also serves as the fallback.

#include "kernels/detail/select_row.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {

int launch_row_local(const Plan& plan, const Arguments& arguments, Stream stream) {
  return detail::launch_select_rows<View::kNone, kRowLocalBlock, 1>(plan, arguments, stream);
}

}  // namespace hpctopk::kernels
