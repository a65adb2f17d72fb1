// SPDX-License-Identifier: Apache-2.0
//
// Calls of the CPU back end with guard zones around what it may write, and the set it must select, worked out from
// plain values in a way that shares no code with it.

#ifndef HPCTOPK_TESTS_CPP_CPU_REFERENCE_H_
#define HPCTOPK_TESTS_CPP_CPU_REFERENCE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "hpctopk/topk.h"
#include "src/cpu/run_cpu.h"

namespace hpctopk::test {

using Rng = std::mt19937;

inline constexpr std::int32_t kPoison = -77;

// A score matrix in its buffer, and everything else that a call reads.
struct Input {
  std::int64_t rows = 1;
  std::int64_t columns = 0;
  std::int32_t k = 1;
  std::int64_t row_stride = 0;                              // 0: columns
  std::int64_t base_offset = 0;                             // elements before the first row
  std::int64_t out_row_stride = 0;                          // 0: k
  std::vector<std::int32_t> lengths, row_starts, num_rows;  // empty: null
  std::vector<float> buffer;
  Policy policy;

  std::int64_t stride() const { return row_stride != 0 ? row_stride : columns; }
  std::int64_t out_stride() const { return out_row_stride != 0 ? out_row_stride : k; }
  float* row(std::int64_t r) { return buffer.data() + base_offset + r * stride(); }
  const float* row(std::int64_t r) const { return buffer.data() + base_offset + r * stride(); }

  // Gives the buffer its size, and every row its scores; what lies between rows is above all of them.
  Input& fill(const std::function<void(float* row, std::int64_t columns, Rng& rng)>& fill_row, unsigned seed = 1) {
    Rng rng(seed);
    buffer.assign(static_cast<std::size_t>(base_offset + rows * stride()), std::nanf(""));
    for (std::int64_t r = 0; r < rows; ++r) fill_row(row(r), columns, rng);
    return *this;
  }
};

// Higher scores first: NaNs, then by value, equal ones by column.
inline bool better(const float* row, std::int32_t a, std::int32_t b) {
  const float x = row[a];
  const float y = row[b];
  if (std::isnan(x) != std::isnan(y)) return std::isnan(x);
  if (!std::isnan(x) && x != y) return x > y;
  return a < b;
}

// What row r must come out as.
struct Expected {
  std::vector<std::int32_t> columns;  // ascending
  bool in_order = false;              // a short row: written exactly like this
};

inline Expected expected_row(const Input& input, std::int64_t r) {
  const auto at = static_cast<std::size_t>(r);
  const auto within = [](std::int64_t x, std::int64_t high) { return std::min(std::max<std::int64_t>(x, 0), high); };
  const std::int64_t start = input.row_starts.empty() ? 0 : within(input.row_starts[at], input.columns);
  const std::int64_t width = input.columns - start;
  const std::int64_t length = input.lengths.empty() ? width : within(input.lengths[at], width);
  std::vector<std::int32_t> columns(static_cast<std::size_t>(length));
  std::iota(columns.begin(), columns.end(), static_cast<std::int32_t>(start));
  const bool whole = length <= input.k;
  if (!whole) {
    const float* row = input.row(r);
    std::nth_element(columns.begin(), columns.begin() + (input.k - 1), columns.end(),
                     [row](std::int32_t a, std::int32_t b) { return better(row, a, b); });
    columns.resize(static_cast<std::size_t>(input.k));
    std::sort(columns.begin(), columns.end());
  } else {
    columns.resize(static_cast<std::size_t>(input.k), -1);
  }
  return {columns, whole};
}

inline std::vector<const cpu::VectorLoops*> variants() {
  const cpu::VectorLoopsList list = cpu::available_vector_loops();
  return {list.loops, list.loops + list.count};
}

inline Plan cpu_plan(const Input& input, int device_threads = 4) {
  Problem problem;
  problem.num_rows = input.rows;
  problem.num_columns = input.columns;
  problem.row_stride = input.row_stride;
  problem.k = input.k;
  DeviceInfo device = cpu_device();
  device.num_sms = device_threads;
  PlanOptions options;
  options.policy = &input.policy;
  Plan plan;
  const Status status = make_plan(problem, device, options, &plan);
  EXPECT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(plan.kernel, Kernel::kCpu);
  return plan;
}

// The output of a call, a row of guard before it and one after it, all poisoned.
struct Output {
  explicit Output(const Input& input)
      : stride(input.out_stride()), buffer(static_cast<std::size_t>((input.rows + 2) * stride), kPoison) {}
  std::int32_t* row(std::int64_t r) { return buffer.data() + (r + 1) * stride; }

  std::int64_t stride;
  std::vector<std::int32_t> buffer;
};

inline Arguments arguments_of(const Input& input, Output* output) {
  const auto pointer = [](const std::vector<std::int32_t>& v) { return v.empty() ? nullptr : v.data(); };
  Arguments arguments;
  arguments.scores = input.row(0);
  arguments.lengths = pointer(input.lengths);
  arguments.row_starts = pointer(input.row_starts);
  arguments.num_rows = pointer(input.num_rows);
  arguments.out = output->row(0);
  arguments.out_row_stride = input.out_row_stride;
  return arguments;
}

// Runs the input by every variant and number of threads, and checks every element of the output and around it.
inline Statistics check(const Input& input, const std::vector<int>& thread_counts = {1, 2, 5}) {
  std::int64_t live = input.rows;
  if (!input.num_rows.empty()) live = std::min<std::int64_t>(std::max(input.num_rows[0], 0), live);
  std::vector<Expected> expected;
  for (std::int64_t r = 0; r < live; ++r) expected.push_back(expected_row(input, r));

  const Plan plan = cpu_plan(input);
  Statistics statistics{};
  for (const cpu::VectorLoops* loops : variants()) {
    for (const int threads : thread_counts) {
      SCOPED_TRACE(std::string(loops->name) + ", " + std::to_string(threads) + " threads");
      Output output(input);
      Arguments arguments = arguments_of(input, &output);
      statistics = Statistics{};
      arguments.statistics = &statistics;
      const Status status = cpu::run(plan, arguments, threads, *loops);
      EXPECT_TRUE(status.ok()) << status.message();

      std::int64_t touched = 0;
      for (std::int64_t r = -1; r < input.rows + 1; ++r) {
        std::int32_t* const row = output.row(r);
        const std::int64_t written = r >= 0 && r < live ? input.k : 0;
        touched += std::count_if(row + written, row + output.stride, [](std::int32_t x) { return x != kPoison; });
        if (written == 0) continue;
        std::vector<std::int32_t> selected(row, row + input.k);
        const auto& [wanted, in_order] = expected[static_cast<std::size_t>(r)];
        if (!in_order) std::sort(selected.begin(), selected.end());
        if (selected != wanted) {
          const auto differ = std::mismatch(selected.begin(), selected.end(), wanted.begin());
          ADD_FAILURE() << "row " << r << ": column " << *differ.first << ", expected " << *differ.second;
          return statistics;
        }
      }
      EXPECT_EQ(touched, 0) << "elements written outside the output";
    }
  }
  return statistics;
}

}  // namespace hpctopk::test

#endif  // HPCTOPK_TESTS_CPP_CPU_REFERENCE_H_
