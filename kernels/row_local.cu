// SPDX-License-Identifier: Apache-2.0
//
// Row-local mapping (paper, section 5.5): one CTA a row. A short row is read once into registers and selected from
// there. A longer one streams through a wide CTA: it is read for its exact coarse histogram and again to admit.
// Streaming needs nothing of the device but shared memory for k candidates and one round, so it is also the fallback.

#include <algorithm>
#include <cstdint>

#include "kernels/detail/register_row.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/detail/select_short_row.cuh"
#include "kernels/detail/short_row.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {
namespace {

// A row in kBlock threads, kQuads quads (float4) in each.
template <int kBlock, int kQuads>
struct Shape {
  static constexpr int kScores = 4 * kQuads * kBlock;
  static constexpr bool kSampled = kScores > kCountedWhole;
  // One score in so many is a sample: 1,024 of a row, but no more than one in eight where every thread still has one.
  static constexpr int kStride = std::max(kScores / 1024, std::min(8, 4 * kQuads));
  static constexpr int kCtas = kBlock <= 512 ? 2 : 1;  // an SM
};

// Out of line: few rows come here.
template <class Group>
__device__ __noinline__ void write_window(Group group, int start, int length, int k, std::int32_t* out) {
  detail::Row row{};
  row.start = start;
  row.length = length;
  detail::write_whole_row(group, row, k, out);
}

template <int kBlock, int kQuads>
__global__ void __launch_bounds__(kBlock, Shape<kBlock, kQuads>::kCtas)
    short_rows_kernel(const detail::Operands operands, const Digits digits, const int rank, const int capacity) {
  using Shape = Shape<kBlock, kQuads>;
  using Group = detail::Group<kBlock>;
  const Group group{static_cast<int>(threadIdx.x)};
  const int k = operands.k;
  const int width = operands.num_columns;
  const detail::CandidateBuffer buffer = detail::buffer_at(detail::shared_memory(), capacity);
  const detail::ShortRowStage stage(buffer);
  const std::int64_t index = blockIdx.x;
  detail::wait_for_kernel_in_front();
  // All loads are on their way before anything waits for one of them.
  detail::RawWindow window(operands, index);
  const float* const scores = operands.scores + index * operands.row_stride;
  detail::ShortRow<Group, kQuads> row;
  row.load(group, scores, width);
  stage.clear(group);
  group.sync();
  window.add(stage.scratch->count);  // 0, and the barrier waits for no load
  window.clamp(width);
  row.mask(window.start, window.start + window.length);
  if constexpr (!Shape::kSampled) detail::count_row(row, stage);
  if (index >= window.num_rows) return;
  std::int32_t* out = operands.out + index * operands.out_row_stride;
  detail::keep_in_register(&out);  // and no sum of three for every store
  if (__builtin_expect(static_cast<long>(window.length <= k), 0) != 0) {
    write_window(group, window.start, window.length, k, out);
    return;
  }
  bool selected = false;
  if (digits == Digits::kNormalised && row.fits(scores, width)) {
    if constexpr (Shape::kSampled) {
      selected = detail::select_by_sample<Shape::kStride>(group, row, rank, window.length, k, width, stage, out);
    } else {
      selected = detail::select_directly(group, row, window.length, k, width, stage, out);
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

// With the fewest quads that hold a row of `columns` scores.
template <int kBlock, int kQuads = 1>
int launch_short_rows(std::int64_t columns, const Plan& plan, const Arguments& arguments, Stream stream) {
  constexpr bool kLargest = kQuads == 8 || 8 * kQuads * kBlock > kMaxRegisterColumns;
  if constexpr (!kLargest) {
    if (4 * kQuads * kBlock < columns) {
      return launch_short_rows<kBlock, 2 * kQuads>(columns, plan, arguments, stream);
    }
  }
  const std::int32_t rank = detail::stratified_rank(plan.policy.sample, plan.problem.num_columns, plan.problem.k,
                                                    Shape<kBlock, kQuads>::kStride);
  detail::LaunchConfig config(plan, stream, arguments.programmatic_dependent);
  return config.launch(short_rows_kernel<kBlock, kQuads>, detail::make_operands(plan, arguments), plan.policy.digits,
                       rank, plan.candidate_capacity);
}

bool begins_at_quads(const Plan& plan, const Arguments& arguments) {
  return reinterpret_cast<std::uintptr_t>(arguments.scores) % 16 == 0 && plan.problem.row_stride % 4 == 0 &&
         (plan.problem.row_stride != 0 || plan.problem.num_columns % 4 == 0);
}

}  // namespace

int launch_row_local(const Plan& plan, const Arguments& arguments, Stream stream) {
  std::int64_t columns = plan.problem.num_columns;
  const bool in_registers =
      plan.kernel == Kernel::kRowLocal && plan.grid == plan.problem.num_rows && columns <= kMaxRegisterColumns;
  if (!in_registers) return detail::launch_select_rows<View::kNone, kRowLocalBlock, 1>(plan, arguments, stream);
  if (!begins_at_quads(plan, arguments)) columns += 3;
  if (plan.block == kBlockTo4K) return launch_short_rows<kBlockTo4K>(columns, plan, arguments, stream);
  if (plan.block == kBlockTo8K) return launch_short_rows<kBlockTo8K>(columns, plan, arguments, stream);
  return launch_short_rows<kBlockTo16K>(columns, plan, arguments, stream);
}

}  // namespace hpctopk::kernels
