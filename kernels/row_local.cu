// SPDX-License-Identifier: Apache-2.0
//
// Row-local mapping (paper, section 5.5): one CTA a row. A short row is read once into registers and selected from
// there. A longer one streams through a wide CTA: it is read for its exact coarse histogram and again to admit.
// Streaming needs nothing of the device but shared memory for k candidates and one round, so it is also the fallback.

#include <algorithm>

#include "kernels/detail/register_row.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/detail/short_row.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {
namespace {

constexpr int register_scores(int quads) { return 4 * quads * kRegisterBlock; }

// One score in so many is a sample: 1,024 of a row, but no more than one in eight where every thread still has one.
constexpr int sample_stride(int quads) { return std::max(register_scores(quads) / 1024, std::min(8, 4 * quads)); }

// Scores that have to be compared after the sample, at most, each thread's.
constexpr int kBandEntries = 3072 / kRegisterBlock;

template <int kQuads>
constexpr int kRegisterCtas = register_scores(kQuads) <= 8192 && kRegisterBlock <= 512 ? 2 : 1;  // an SM

template <int kQuads>
__global__ void __launch_bounds__(kRegisterBlock, kRegisterCtas<kQuads>)
    short_rows_kernel(const detail::Operands operands, const Digits digits, const detail::BandRanks ranks,
                      const int capacity) {
  using Group = detail::Group<kRegisterBlock>;
  const Group group{static_cast<int>(threadIdx.x)};
  const int k = operands.k;
  const int width = operands.num_columns;
  const detail::CandidateBuffer buffer = detail::buffer_at(detail::shared_memory(), capacity);
  const detail::ShortRowStage stage(buffer, k, kBandEntries * kRegisterBlock);
  const std::int64_t index = blockIdx.x;
  // All loads are on their way before anything waits for one of them.
  detail::RawWindow window(operands, index);
  const float* const scores = operands.scores + index * operands.row_stride;
  detail::ShortRow<Group, kQuads> row;
  row.load(group, scores, width);
  detail::begin_short_row(group, buffer.histogram, buffer.scratch, stage);
  if (index >= window.num_rows) return;
  window.clamp(width);
  std::int32_t* const out = operands.out + index * operands.out_row_stride;
  if (window.length <= k) {
    detail::write_whole_row(group, detail::load_row(operands, index), k, out);
    return;
  }
  row.mask(window.start, window.start + window.length);
  bool selected = false;
  if (digits == Digits::kNormalised && row.fits(scores, width)) {
    if constexpr (register_scores(kQuads) <= kCountedWhole) {
      selected = detail::select_directly(group, row, k, width, buffer.histogram, buffer.scratch, stage, out);
    } else {
      selected = detail::select_by_sample<sample_stride(kQuads), kBandEntries>(
          group, row, ranks, k, width, buffer.histogram, buffer.scratch, stage, out);
    }
  }
  if (!selected) {
    detail::select_general<kQuads>(group, detail::load_row(operands, index), k, digits, buffer, out);
  }
  if (operands.statistics != nullptr && group.thread == 0) {
    detail::RowWork work;
    work.passes = selected ? 1 : 2;
    work.recovered = !selected;
    detail::count_row(operands.statistics, window.length, window.length, work);
  }
}

template <int kQuads>
int launch_short_rows(const Plan& plan, const Arguments& arguments, Stream stream) {
  const detail::BandRanks ranks =
      detail::band_ranks(plan.policy.sample, plan.problem.num_columns, plan.problem.k, sample_stride(kQuads));
  detail::LaunchConfig config(plan, stream);
  return config.launch(short_rows_kernel<kQuads>, detail::make_operands(plan, arguments), plan.policy.digits, ranks,
                       plan.candidate_capacity);
}

}  // namespace

int launch_row_local(const Plan& plan, const Arguments& arguments, Stream stream) {
  const std::int64_t columns = plan.problem.num_columns;
  const bool cta_a_row = plan.kernel == Kernel::kRowLocal && plan.grid == plan.problem.num_rows;
  if (!cta_a_row || register_quads(columns) == 0) {
    return detail::launch_select_rows<View::kNone, kRowLocalBlock, 1>(plan, arguments, stream);
  }
  // A row that does not begin at a quad takes up to three columns more.
  switch (register_quads(columns + 3 < kMaxRegisterColumns ? columns + 3 : columns)) {
    case 1:
      return launch_short_rows<1>(plan, arguments, stream);
    case 2:
      return launch_short_rows<2>(plan, arguments, stream);
    case 4:
      return launch_short_rows<4>(plan, arguments, stream);
    default:
      return launch_short_rows<8>(plan, arguments, stream);
  }
}

}  // namespace hpctopk::kernels
