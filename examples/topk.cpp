// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>
#include <vector>

#include "hpctopk/topk.h"

int main() {
  const std::vector<float> scores = {0.1F, 0.9F, 0.3F, 0.2F, 0.8F, 0.0F, 0.7F, 0.4F,   // row 0
                                     0.5F, 0.6F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F, 0.0F};  // row 1: two valid scores
  const std::vector<std::int32_t> lengths = {8, 2};
  hpctopk::Problem problem;
  problem.num_rows = 2;
  problem.num_columns = 8;
  problem.k = 3;
  std::vector<std::int32_t> columns(2 * 3);

  hpctopk::Plan plan;
  hpctopk::Status status = hpctopk::make_plan(problem, hpctopk::cpu_device(), {}, &plan);
  if (status.ok()) {
    std::vector<char> workspace(hpctopk::workspace_size(plan));
    hpctopk::Arguments arguments;
    arguments.scores = scores.data();
    arguments.lengths = lengths.data();
    arguments.out = columns.data();
    arguments.workspace = workspace.data();
    arguments.workspace_bytes = workspace.size();
    status = hpctopk::run_cpu(plan, arguments);
  }
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message());
    return 1;
  }
  for (int row = 0; row < 2; ++row) {
    std::int32_t* selected = &columns[static_cast<std::size_t>(3 * row)];
    std::sort(selected, selected + 3);  // a selection comes in no particular order; -1 fills a short row
    std::printf("row %d: %d %d %d\n", row, selected[0], selected[1], selected[2]);
  }
}
