// SPDX-License-Identifier: Apache-2.0
//
// The selected set depends on the row alone: one row among different numbers of others gives one set, by every mapping,
// both policies and the CPU back end.

#include "tests/gpu/harness.h"

namespace hpctopk::gpu_test {
namespace {

constexpr std::int64_t kRowCounts[] = {1, 2, 7, 64, 133, 5000};
constexpr std::int64_t kMaxElements = std::int64_t{600} << 20;

std::vector<std::int32_t> sorted(std::vector<std::int32_t> columns) {
  std::sort(columns.begin(), columns.end());
  return columns;
}

std::vector<std::int32_t> cpu_set(const std::vector<float>& row, std::int32_t k) {
  Problem problem;
  problem.num_rows = 1;
  problem.num_columns = static_cast<std::int64_t>(row.size());
  problem.k = k;
  Plan plan;
  Status status = make_plan(problem, cpu_device(), {}, &plan);
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<std::int32_t> out(static_cast<std::size_t>(k), kPoison);
  std::vector<std::uint64_t> workspace(workspace_size(plan) / 8 + 2);
  Arguments arguments;
  arguments.scores = row.data();
  arguments.out = out.data();
  arguments.workspace = workspace.data();
  arguments.workspace_bytes = workspace_size(plan);
  status = run_cpu(plan, arguments);
  EXPECT_TRUE(status.ok()) << status.message();
  return sorted(out);
}

class OneSetTest : public MappingTest {};
HPCTOPK_FOR_EACH_MAPPING(OneSetTest);

TEST_P(OneSetTest, WhateverTheOtherRows) {
  const Pattern patterns[] = {{Fill::kNormal},
                              {Fill::kQuads},
                              {Fill::kRelu},
                              {Fill::kSpecial},
                              {Fill::kLow, {Fill::kHigh, 300}, {Fill::kOne, 4000}}};
  for (const auto& [n, k] : {std::pair{5000, 512}, std::pair{40000, 2048}, std::pair{300001, 2048}}) {
    std::uint64_t seed = 0;
    for (const Pattern& pattern : patterns) {
      ++seed;
      std::vector<std::int32_t> wanted;
      for (const std::int64_t m : kRowCounts) {
        if (m * n > kMaxElements) continue;
        const auto call = make_call({m, n, k});
        if (!call) continue;
        const std::int32_t period = m < 7 ? 1 : 7;
        call->fill(pattern, seed, period);
        if (wanted.empty()) {
          const std::vector<float> row = call->scores_row(period - 1);
          wanted = sorted_reference(row, {0, n}, k);
          ASSERT_EQ(cpu_set(row, k), wanted) << "the CPU back end, n " << n << ", " << to_string(pattern);
        }
        const Status status = call->launch();
        ASSERT_TRUE(status.ok()) << status.message();
        for (std::int64_t row = period - 1; row < m; row += period * (1 + m / 100)) {
          ASSERT_EQ(sorted(call->out_row(row)), wanted) << call->describe() << ", row " << row;
        }
        expect_right(call->check());
      }
    }
  }
}

}  // namespace
}  // namespace hpctopk::gpu_test
