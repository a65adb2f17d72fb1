// SPDX-License-Identifier: Apache-2.0
//
// Row-local direct-exact mapping (paper, section 5.5): one wide CTA a row and no sample. A short row is read once into
// registers and refined from there. A longer one streams: it is read for its exact coarse histogram and again to admit.
// Streaming needs nothing of the device but shared memory for k candidates and one round, so it is also the fallback.

#include "kernels/detail/register_row.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {
namespace {

template <int kQuads>
__global__ void __launch_bounds__(kRowLocalBlock, 1)
    short_rows_kernel(const detail::Operands operands, const Policy policy, const int capacity) {
  using Group = detail::Group<kRowLocalBlock>;
  const Group group{static_cast<int>(threadIdx.x)};
  const detail::CandidateBuffer buffer = detail::buffer_at(detail::shared_memory(), capacity);
  const int k = operands.k;
  detail::wait_for_kernel_in_front();
  const std::int64_t rows = detail::live_rows(operands);
  for (std::int64_t index = blockIdx.x; index < rows; index += gridDim.x) {
    const detail::Row row = detail::load_row(operands, index);
    std::int32_t* const out = operands.out + index * operands.out_row_stride;
    if (row.length <= k) {
      detail::write_whole_row(group, row, k, out);
      continue;
    }
    const detail::RegisterRow<Group, kQuads> scores(group, row);
    const std::uint64_t kth =
        detail::kth_best_of(group, scores, k, 0, row.length, policy.digits, buffer.histogram, buffer.scratch);
    detail::write_best_of(group, scores, row, k, kth, reinterpret_cast<std::int32_t*>(buffer.candidates), out,
                          buffer.scratch);
    if (operands.statistics != nullptr && group.thread == 0) {
      detail::count_row(operands.statistics, row.length, row.length, detail::RowWork{});
    }
  }
}

}  // namespace

int launch_row_local(const Plan& plan, const Arguments& arguments, Stream stream) {
  const int quads = plan.kernel == Kernel::kRowLocal ? register_quads(plan.problem.num_columns) : 0;
  if (quads == 0) return detail::launch_select_rows<View::kNone, kRowLocalBlock, 1>(plan, arguments, stream);
  const auto kernel = quads == 1 ? short_rows_kernel<1> : quads == 2 ? short_rows_kernel<2> : short_rows_kernel<4>;
  detail::LaunchConfig config(plan, stream, arguments.programmatic_dependent);
  return config.launch(kernel, detail::make_operands(plan, arguments), plan.policy, plan.candidate_capacity);
}

}  // namespace hpctopk::kernels
