// SPDX-License-Identifier: Apache-2.0
//
// Where a row's valid scores lie. A window may begin at any element: up to three scores come before the first 16-byte
// boundary and up to three after the last, and everything between is read as whole quads (float4).

#ifndef HPCTOPK_KERNELS_DETAIL_ROW_CUH_
#define HPCTOPK_KERNELS_DETAIL_ROW_CUH_

#include <cstdint>

#include "hpctopk/topk.h"

namespace hpctopk::detail {

// The operands of a launch as the kernels take them, by value.
struct Operands {
  const float* scores;
  const std::int32_t* lengths;
  const std::int32_t* row_starts;
  const std::int32_t* num_rows;
  std::int32_t* out;
  Statistics* statistics;
  std::int64_t row_stride;
  std::int64_t out_row_stride;
  std::int64_t max_rows;
  std::int32_t num_columns;
  std::int32_t k;
};

inline Operands make_operands(const Plan& plan, const Arguments& arguments) {
  const Problem& problem = plan.problem;
  Operands operands{};
  operands.scores = arguments.scores;
  operands.lengths = arguments.lengths;
  operands.row_starts = arguments.row_starts;
  operands.num_rows = arguments.num_rows;
  operands.out = arguments.out;
  operands.statistics = arguments.statistics;
  operands.row_stride = problem.row_stride != 0 ? problem.row_stride : problem.num_columns;
  operands.out_row_stride = arguments.out_row_stride != 0 ? arguments.out_row_stride : problem.k;
  operands.max_rows = problem.num_rows;
  operands.num_columns = static_cast<std::int32_t>(problem.num_columns);
  operands.k = problem.k;
  return operands;
}

// A row, or a part of one.
struct Row {
  const float* scores;  // the first score
  std::int32_t start;   // the column of index 0
  std::int32_t offset;  // the index of the first score: 0 for a whole row
  std::int32_t length;  // valid scores
  std::int32_t head;    // scores before the first quad
  std::int32_t quads;   // whole quads
  std::uint32_t seed;   // tells rows apart where samples are placed

  __device__ const float4* quad(int q) const { return reinterpret_cast<const float4*>(scores + head) + q; }
  __device__ int tail() const { return length - head - 4 * quads; }

  // Part `rank` of 2^log_size: whole quads in index order; the edges go to the first part and the last.
  __device__ Row part(int rank, int log_size) const {
    const int size = 1 << log_size;
    const int share = (quads + size - 1) >> log_size;
    const int begin = min(quads, rank * share);
    const int end = min(quads, begin + share);
    const int first = rank == 0 ? 0 : head + 4 * begin;
    const int last = rank == size - 1 ? length : head + 4 * end;
    Row result = *this;
    result.scores += first;
    result.offset += first;
    result.length = last - first;
    result.head = rank == 0 ? head : 0;
    result.quads = end - begin;
    return result;
  }
};

// Counts and windows come past the L1 cache: kv_split's merge reads them before wait_for_kernel_in_front(), when it may
// still hold what they were.
__device__ __forceinline__ std::int64_t live_rows(const Operands& operands) {
  if (operands.num_rows == nullptr) return operands.max_rows;
  const std::int64_t rows = __ldcg(operands.num_rows);
  return rows < 0 ? 0 : min(rows, operands.max_rows);
}

__device__ __forceinline__ Row load_row(const Operands& operands, std::int64_t index) {
  Row row;
  row.start =
      operands.row_starts == nullptr ? 0 : min(max(__ldcg(operands.row_starts + index), 0), operands.num_columns);
  const std::int32_t width = operands.num_columns - row.start;
  row.length = operands.lengths == nullptr ? width : min(max(__ldcg(operands.lengths + index), 0), width);
  row.scores = operands.scores + index * operands.row_stride + row.start;
  row.offset = 0;
  const auto misaligned = static_cast<std::int32_t>(reinterpret_cast<std::uintptr_t>(row.scores) / sizeof(float) % 4);
  row.head = min((4 - misaligned) % 4, row.length);
  row.quads = (row.length - row.head) / 4;
  row.seed = static_cast<std::uint32_t>(index);
  return row;
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_ROW_CUH_
