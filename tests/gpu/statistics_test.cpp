// SPDX-License-Identifier: Apache-2.0
//
// The counters of a launch.

#include "tests/gpu/harness.h"

namespace hpctopk::gpu_test {
namespace {

class StatisticsTest : public MappingTest {};
HPCTOPK_FOR_EACH_MAPPING(StatisticsTest);

TEST_P(StatisticsTest, CountRowsCandidatesAndReads) {
  for (const Shape& shape :
       {Shape{1, 131072, 2048}, Shape{37, 20000, 512}, Shape{400, 5000, 1024}, Shape{3, 500000, 2048}}) {
    const auto call = make_call(shape);
    if (!call) continue;
    const auto n = static_cast<std::int32_t>(shape.n);
    std::vector<std::int32_t> lengths;
    for (std::int32_t row = 0; row < shape.m; ++row) {
      const std::int32_t choices[] = {n, shape.k, n / 2, 0, shape.k + 1, n - 1};
      lengths.push_back(choices[row % 6]);
    }
    call->set_lengths(lengths);
    call->set_num_rows(static_cast<std::int32_t>(shape.m - shape.m / 3));
    std::uint64_t rows = 0;
    std::uint64_t scores = 0;
    for (std::int64_t row = 0; row < call->live_rows(); ++row) {
      const auto length = static_cast<std::uint64_t>(call->window(row).length);
      if (length <= static_cast<std::uint64_t>(shape.k)) continue;
      ++rows;
      scores += length;
    }
    call->count_statistics(true);
    for (const Pattern& pattern : {Pattern{Fill::kNormal}, Pattern{Fill::kZero}, Pattern{Fill::kCoarseBin},
                                   Pattern{Fill::kLow, {Fill::kHigh, 2000}, {}, Place::kContiguous}}) {
      call->clear_statistics();
      for (std::uint64_t launches = 1; launches <= 2; ++launches) {  // counters are added to
        expect_right(call->run(pattern, 1));
        const Statistics counted = call->statistics();
        EXPECT_EQ(counted.rows, launches * rows) << call->describe();
        EXPECT_GE(counted.candidates, launches * rows * static_cast<std::uint64_t>(shape.k)) << call->describe();
        EXPECT_GE(counted.scores_read, launches * scores) << call->describe();
        EXPECT_LE(counted.rescued + counted.recovered, launches * rows) << call->describe();
      }
    }
  }
}

}  // namespace
}  // namespace hpctopk::gpu_test
