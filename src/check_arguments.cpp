// SPDX-License-Identifier: Apache-2.0

#include "src/check_arguments.h"

#include <initializer_list>
#include <limits>

namespace hpctopk {
namespace {

constexpr std::int64_t kMaxElements = std::numeric_limits<std::int64_t>::max() / 4;  // their bytes fit int64
constexpr std::int64_t kElementBytes = 4;

// [rows, columns], rows `stride` apart, ends before element kMaxElements.
bool addressable(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return rows == 0 || stride == 0 || rows - 1 <= (kMaxElements - columns) / stride;
}

std::int64_t matrix_bytes(std::int64_t rows, std::int64_t columns, std::int64_t stride) {
  return rows == 0 || columns == 0 ? 0 : ((rows - 1) * stride + columns) * kElementBytes;
}

// The memory an operand of the call spans.
struct Operand {
  const char* name;
  const void* data;
  std::int64_t bytes;  // 0: not accessed
  std::uintptr_t alignment;
  bool required;  // may not be null where it is accessed
  bool written;
};

bool accessed(const Operand& operand) { return operand.data != nullptr && operand.bytes > 0; }

bool overlap(const Operand& a, const Operand& b) {
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.data);
  return a_begin < b_begin + static_cast<std::uintptr_t>(b.bytes) &&
         b_begin < a_begin + static_cast<std::uintptr_t>(a.bytes);
}

constexpr float kMaxMargin = 1000;  // of a sample policy: its ranks stay within int32

}  // namespace

Status check_problem(const Problem& problem) noexcept {
  const auto invalid = StatusCode::kInvalidArgument;
  if (problem.num_rows < 0) {
    return Status::error(invalid, "num_rows = %lld: must be at least 0", static_cast<long long>(problem.num_rows));
  }
  if (problem.num_columns < 0 || problem.num_columns > kMaxColumns) {
    return Status::error(invalid, "num_columns = %lld: must be between 0 and %lld",
                         static_cast<long long>(problem.num_columns), static_cast<long long>(kMaxColumns));
  }
  if (problem.row_stride != 0 && problem.row_stride < problem.num_columns) {
    return Status::error(invalid, "row_stride = %lld: must be at least num_columns = %lld, or 0 for just that",
                         static_cast<long long>(problem.row_stride), static_cast<long long>(problem.num_columns));
  }
  if (problem.k < 1 || problem.k > kMaxK) {
    return Status::error(invalid, "k = %d: must be between 1 and %d", problem.k, kMaxK);
  }
  const std::int64_t stride = problem.row_stride != 0 ? problem.row_stride : problem.num_columns;
  if (!addressable(problem.num_rows, problem.num_columns, stride) ||
      !addressable(problem.num_rows, problem.k, problem.k)) {
    return Status::error(invalid,
                         "num_rows = %lld: scores with row_stride = %lld or the output would exceed %lld bytes",
                         static_cast<long long>(problem.num_rows), static_cast<long long>(stride),
                         static_cast<long long>(kMaxElements * kElementBytes));
  }
  return {};
}

Status check_policy(const Policy& policy) noexcept {
  const auto invalid = StatusCode::kInvalidArgument;
  const SamplePolicy& sample = policy.sample;
  if (sample.view != View::kNone && sample.view != View::kStrided && sample.view != View::kHashed) {
    return Status::error(invalid, "policy.sample.view = %d: must be 0, 1 or 2", static_cast<int>(sample.view));
  }
  if (policy.pipeline != Pipeline::kLoads && policy.pipeline != Pipeline::kBulk) {
    return Status::error(invalid, "policy.pipeline = %d: must be 0 or 1", static_cast<int>(policy.pipeline));
  }
  if (policy.digits != Digits::kFixed && policy.digits != Digits::kNormalised) {
    return Status::error(invalid, "policy.digits = %d: must be 0 or 1", static_cast<int>(policy.digits));
  }
  if (sample.view == View::kNone) return {};
  if (sample.stride < 1) return Status::error(invalid, "policy.sample.stride = %d: must be at least 1", sample.stride);
  if (sample.view == View::kStrided) {
    if (!(sample.rank_margin >= 1 && sample.rank_margin <= kMaxMargin)) {
      return Status::error(invalid, "policy.sample.rank_margin = %g: must be between 1 and %g",
                           static_cast<double>(sample.rank_margin), static_cast<double>(kMaxMargin));
    }
    if (!(sample.rescue_margin >= sample.rank_margin && sample.rescue_margin <= kMaxMargin)) {
      return Status::error(invalid, "policy.sample.rescue_margin = %g: must be between rank_margin = %g and %g",
                           static_cast<double>(sample.rescue_margin), static_cast<double>(sample.rank_margin),
                           static_cast<double>(kMaxMargin));
    }
    return {};
  }
  if (sample.min_samples < 0) {
    return Status::error(invalid, "policy.sample.min_samples = %d: must be at least 0", sample.min_samples);
  }
  if (sample.max_samples < 1) {
    return Status::error(invalid, "policy.sample.max_samples = %d: must be at least 1", sample.max_samples);
  }
  if (sample.chunk < 4 || sample.chunk > 256 || (sample.chunk & (sample.chunk - 1)) != 0) {
    return Status::error(invalid, "policy.sample.chunk = %d: must be a power of two from 4 to 256", sample.chunk);
  }
  if (!(sample.sigmas >= 0 && sample.sigmas <= kMaxMargin)) {
    return Status::error(invalid, "policy.sample.sigmas = %g: must be between 0 and %g",
                         static_cast<double>(sample.sigmas), static_cast<double>(kMaxMargin));
  }
  return {};
}

Status check_arguments(const Plan& plan, const Arguments& arguments) noexcept {
  const auto invalid = StatusCode::kInvalidArgument;
  if (plan.kernel == Kernel::kAuto) return Status::error(invalid, "plan.kernel = auto: must be a plan of make_plan()");
  for (const Status& status : {check_problem(plan.problem), check_policy(plan.policy)}) {
    if (!status.ok()) return status;
  }
  if (arguments.programmatic_dependent && plan.kernel == Kernel::kCpu) {
    return Status::error(invalid, "programmatic_dependent = true: must be false for a CPU plan");
  }

  const std::int64_t rows = plan.problem.num_rows;
  const std::int64_t k = plan.problem.k;
  const std::int64_t out_stride = arguments.out_row_stride != 0 ? arguments.out_row_stride : k;
  if (out_stride < k) {
    return Status::error(invalid, "out_row_stride = %lld: must be at least k = %lld, or 0 for just that",
                         static_cast<long long>(out_stride), static_cast<long long>(k));
  }
  if (!addressable(rows, k, out_stride)) {
    return Status::error(invalid, "out_row_stride = %lld: %lld rows of out would exceed %lld bytes",
                         static_cast<long long>(out_stride), static_cast<long long>(rows),
                         static_cast<long long>(kMaxElements * kElementBytes));
  }
  const auto needed = static_cast<std::int64_t>(workspace_size(plan));
  if (needed > 0 && arguments.workspace_bytes < static_cast<std::size_t>(needed)) {
    return Status::error(invalid, "workspace_bytes = %zu: this plan needs at least %lld", arguments.workspace_bytes,
                         static_cast<long long>(needed));
  }

  const std::int64_t row_words = rows * kElementBytes;
  const std::int64_t one_word = rows > 0 ? kElementBytes : 0;
  const std::int64_t statistics_bytes = rows > 0 ? std::int64_t{sizeof(Statistics)} : 0;
  const Operand operands[] = {
      {"scores", arguments.scores, matrix_bytes(rows, plan.problem.num_columns, plan.problem.row_stride),
       alignof(float), true, false},
      {"lengths", arguments.lengths, row_words, alignof(std::int32_t), false, false},
      {"row_starts", arguments.row_starts, row_words, alignof(std::int32_t), false, false},
      {"num_rows", arguments.num_rows, one_word, alignof(std::int32_t), false, false},
      {"out", arguments.out, matrix_bytes(rows, k, out_stride), alignof(std::int32_t), true, true},
      {"workspace", arguments.workspace, needed, 16, true, true},
      {"statistics", arguments.statistics, statistics_bytes, alignof(Statistics), false, true},
  };
  for (const Operand& operand : operands) {
    if (operand.required && operand.bytes > 0 && operand.data == nullptr) {
      return Status::error(invalid, "%s = null: must point to %lld bytes", operand.name,
                           static_cast<long long>(operand.bytes));
    }
    if (accessed(operand) && reinterpret_cast<std::uintptr_t>(operand.data) % operand.alignment != 0) {
      return Status::error(invalid, "%s = %p: must be aligned to %zu bytes", operand.name, operand.data,
                           static_cast<std::size_t>(operand.alignment));
    }
  }
  for (const Operand& written : operands) {
    for (const Operand& other : operands) {
      if (!written.written || &written == &other || !accessed(written) || !accessed(other)) continue;
      if (overlap(written, other)) {
        return Status::error(invalid, "%s = %p: its %lld bytes must not overlap the %lld bytes of %s at %p",
                             written.name, written.data, static_cast<long long>(written.bytes),
                             static_cast<long long>(other.bytes), other.name, other.data);
      }
    }
  }
  return {};
}

}  // namespace hpctopk
