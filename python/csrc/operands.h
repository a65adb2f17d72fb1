// SPDX-License-Identifier: Apache-2.0
//
// The arrays of a call as Python hands them over, whatever library they come from, and the rules that they obey. Both
// extension modules check here, so that numpy arrays and torch tensors are refused with the same words. Rules about
// sizes in bytes, alignment and overlap are the library's own: launch() and run_cpu() check them before they write.

#ifndef HPCTOPK_PYTHON_CSRC_OPERANDS_H_
#define HPCTOPK_PYTHON_CSRC_OPERANDS_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

#include "hpctopk/topk.h"

namespace hpctopk::python {

// An argument breaks a rule. The message reads "name = value: must be ...".
class ArgumentError : public std::runtime_error {
 public:
  ArgumentError(const std::string& message, bool is_type) : std::runtime_error(message), is_type_(is_type) {}
  bool is_type() const { return is_type_; }  // a TypeError for Python; else a ValueError

 private:
  bool is_type_;
};

[[noreturn]] inline void refuse(const std::string& argument, const std::string& value, const std::string& rule) {
  throw ArgumentError(argument + " = " + value + ": must be " + rule, false);
}

inline void require(const Status& status) {
  if (status.ok()) return;
  if (status.code() == StatusCode::kInvalidArgument || status.code() == StatusCode::kUnsupported) {
    throw ArgumentError(status.message(), false);
  }
  throw std::runtime_error(status.message());
}

inline Kernel kernel_of(std::string name) {
  // A control character would end the name early or break the line of the message; no kernel's name has a '?'.
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return c < ' '; }, '?');
  Kernel kernel = Kernel::kAuto;
  require(parse_kernel(name.c_str(), &kernel));
  return kernel;
}

inline std::int32_t k_of(std::int64_t k) {
  if (k < 1 || k > kMaxK) refuse("k", std::to_string(k), "between 1 and " + std::to_string(kMaxK));
  return static_cast<std::int32_t>(k);
}

// One array. Strings are borrowed.
struct Operand {
  const char* name = "";
  const char* dtype = "";
  const char* device = "cpu";
  std::int32_t device_index = 0;
  std::int64_t item_bytes = 1;
  std::int64_t rank = 0;
  std::int64_t shape[2] = {1, 1};    // of the first two dimensions
  std::int64_t strides[2] = {0, 0};  // bytes
  void* data = nullptr;
};

struct Operands {
  Operand scores;
  std::optional<Operand> lengths;
  std::optional<Operand> row_starts;
  std::optional<Operand> num_rows;
  std::optional<Operand> out;
  std::optional<Operand> workspace;
};

namespace detail {

inline std::string device_name(const Operand& operand) {
  const std::string type = operand.device;
  return type == "cpu" ? type : type + ":" + std::to_string(operand.device_index);
}

inline std::string shape_text(std::int64_t rows) { return "[" + std::to_string(rows) + "]"; }
inline std::string shape_text(std::int64_t rows, std::int64_t columns) {
  return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

inline void check_kind(const Operand& operand, const char* dtype, std::int64_t rank) {
  const std::string name = operand.name;
  if (std::string(operand.dtype) != dtype) {
    throw ArgumentError(name + ".dtype = " + operand.dtype + ": must be " + dtype, true);
  }
  if (operand.rank != rank) refuse(name + ".ndim", std::to_string(operand.rank), std::to_string(rank));
  if (operand.shape[0] == 0 || operand.shape[1] == 0) return;  // nothing is read, and strides may be anything
  for (std::int64_t d = 0; d < rank; ++d) {
    if (operand.shape[d] > 1 && operand.strides[d] % operand.item_bytes != 0) {
      refuse(name + ".strides[" + std::to_string(d) + "]", std::to_string(operand.strides[d]) + " bytes",
             "a multiple of " + std::to_string(operand.item_bytes));
    }
  }
  const std::int64_t last = rank - 1;
  if (operand.shape[last] > 1 && operand.strides[last] != operand.item_bytes) {
    refuse(name + ".strides[" + std::to_string(last) + "]",
           std::to_string(operand.strides[last] / operand.item_bytes) + " elements",
           "1: the last dimension is contiguous");
  }
}

// Elements between the rows of a matrix, at least its width.
inline std::int64_t row_stride(const Operand& matrix) {
  const std::int64_t width = matrix.shape[1];
  const std::int64_t stride = matrix.strides[0] / matrix.item_bytes;
  if (matrix.shape[0] <= 1 || width == 0) return width;
  if (stride < width) {
    refuse(std::string(matrix.name) + ".strides[0]", std::to_string(stride) + " elements",
           "at least the row's " + std::to_string(width) + ": rows do not overlap");
  }
  return stride;
}

inline void check_beside(const Operand& operand, const Operand& scores) {
  if (std::string(operand.device) != scores.device || operand.device_index != scores.device_index) {
    refuse(std::string(operand.name) + ".device", device_name(operand), device_name(scores) + ", that of scores");
  }
}

inline void check_vector(const std::optional<Operand>& operand, const Operand& scores, const char* dtype,
                         std::int64_t size, const char* meaning) {
  if (!operand) return;
  check_kind(*operand, dtype, 1);
  if (size >= 0 && operand->shape[0] != size) {
    refuse(std::string(operand->name) + ".shape", shape_text(operand->shape[0]), shape_text(size) + ": " + meaning);
  }
  check_beside(*operand, scores);
}

}  // namespace detail

// The problem that `scores` and `k` pose.
inline Problem problem_of(const Operand& scores, std::int64_t k) {
  detail::check_kind(scores, "float32", 2);
  Problem problem;
  problem.num_rows = scores.shape[0];
  problem.num_columns = scores.shape[1];
  problem.row_stride = detail::row_stride(scores);
  problem.k = k_of(k);
  return problem;
}

// The operands of `problem`, checked, as the library takes them.
inline Arguments arguments_of(const Operands& operands, const Problem& problem) {
  const Operand& scores = operands.scores;
  detail::check_vector(operands.lengths, scores, "int32", problem.num_rows, "one for each row of scores");
  detail::check_vector(operands.row_starts, scores, "int32", problem.num_rows, "one for each row of scores");
  detail::check_vector(operands.num_rows, scores, "int32", 1, "one count");
  detail::check_vector(operands.workspace, scores, "uint8", -1, "");

  Arguments arguments;
  if (operands.out) {
    const Operand& out = *operands.out;
    detail::check_kind(out, "int32", 2);
    if (out.shape[0] != problem.num_rows || out.shape[1] != problem.k) {
      refuse("out.shape", detail::shape_text(out.shape[0], out.shape[1]),
             detail::shape_text(problem.num_rows, problem.k) + ": rows of scores by k");
    }
    detail::check_beside(out, scores);
    arguments.out = static_cast<std::int32_t*>(out.data);
    arguments.out_row_stride = detail::row_stride(out);
  }
  const auto indices = [](const std::optional<Operand>& operand) {
    return operand ? static_cast<const std::int32_t*>(operand->data) : nullptr;
  };
  arguments.scores = static_cast<const float*>(scores.data);
  arguments.lengths = indices(operands.lengths);
  arguments.row_starts = indices(operands.row_starts);
  arguments.num_rows = indices(operands.num_rows);
  if (operands.workspace) {
    arguments.workspace = operands.workspace->data;
    arguments.workspace_bytes = static_cast<std::size_t>(operands.workspace->shape[0]);
  }
  return arguments;
}

}  // namespace hpctopk::python

#endif  // HPCTOPK_PYTHON_CSRC_OPERANDS_H_
