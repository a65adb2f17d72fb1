// SPDX-License-Identifier: Apache-2.0
//
// The tests' own check: it accepts the answer of a plain sort and catches every kind of planted fault.

#include <cmath>
#include <limits>

#include "tests/gpu/harness.h"

namespace hpctopk::gpu_test {
namespace {

TEST(ReferenceTest, OrdersScoresAsTheContract) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kTiny = std::numeric_limits<float>::denorm_min();
  const std::vector<float> row = {-kInf, 0.0F, 1.0F, -kNan, kInf, -0.0F, kNan, -1.0F, kTiny, -kTiny, 1.0F};
  const std::vector<std::int32_t> best_first = {3, 6, 4, 2, 10, 8, 1, 5, 9, 7, 0};
  for (std::int32_t k = 1; k <= 11; ++k) {
    std::vector<std::int32_t> wanted(best_first.begin(), best_first.begin() + k);
    std::sort(wanted.begin(), wanted.end());
    EXPECT_EQ(sorted_reference(row, {0, 11}, k), wanted) << "k " << k;
  }
  EXPECT_EQ(sorted_reference(row, {7, 2}, 3), (std::vector<std::int32_t>{7, 8, -1}));
}

TEST(ReferenceTest, ClampsWindows) {
  const std::int32_t lengths[] = {-1, 0, 5, 11, std::numeric_limits<std::int32_t>::max(), 4};
  const std::int32_t starts[] = {0, 3, 7, -2, std::numeric_limits<std::int32_t>::max(), 10};
  const Window wanted[] = {{0, 0}, {3, 0}, {7, 3}, {0, 10}, {10, 0}, {10, 0}};
  for (int row = 0; row < 6; ++row) {
    const Window window = window_of(10, lengths, starts, row);
    EXPECT_EQ(window.start, wanted[row].start) << row;
    EXPECT_EQ(window.length, wanted[row].length) << row;
  }
  EXPECT_EQ(window_of(10, nullptr, nullptr, 2).length, 10);
}

class CheckTest : public GpuTest {
 protected:
  static constexpr std::int64_t kRows = 5;
  static constexpr std::int32_t kK = 40;
  static constexpr std::int64_t kOutStride = kK + 3;

  // A call with the right answer of `pattern` in `out`; row 3 is shorter than k and row 4 not live.
  std::unique_ptr<Call> answered(const Pattern& pattern) {
    std::unique_ptr<Call> call = call_for({Kernel::kAuto}, {kRows, 1000, kK}, {1, 3, kOutStride - kK});
    call->set_lengths(std::vector<std::int32_t>{1000, 700, kK + 1, kK - 5, 1000});
    call->set_row_starts(std::vector<std::int32_t>{0, 300, 17, 4, 0});
    call->set_num_rows(kRows - 1);
    call->fill(pattern, 1);
    for (std::int64_t row = 0; row < kRows - 1; ++row) {
      const std::vector<std::int32_t> answer = sorted_reference(call->scores_row(row), call->window(row), kK);
      for (std::int32_t slot = 0; slot < kK; ++slot) {
        call->plant_out(row * kOutStride + slot, answer[static_cast<std::size_t>(slot)]);
      }
    }
    return call;
  }

  // The report on the right answer with `value` planted at an element of `out`.
  std::string planted(std::int64_t element, std::int32_t value) {
    std::unique_ptr<Call> call = answered({});
    call->plant_out(element, value);
    return call->check();
  }
};

TEST_F(CheckTest, AcceptsTheSortedAnswerOfEveryFill) {
  for (std::int32_t fill = 0; fill < static_cast<std::int32_t>(Fill::kCount); ++fill) {
    expect_right(answered({static_cast<Fill>(fill)})->check());
  }
  for (std::int32_t place = 0; place < static_cast<std::int32_t>(Place::kCount); ++place) {
    expect_right(answered({Fill::kLow, {Fill::kHigh, 30}, {Fill::kOne, 20}, static_cast<Place>(place)})->check());
  }
}

TEST_F(CheckTest, DrawsTheCountsOfAPattern) {
  for (std::int32_t place = 0; place < static_cast<std::int32_t>(Place::kCount); ++place) {
    std::unique_ptr<Call> call = call_for({Kernel::kAuto}, {2, 1000, kK});
    call->fill({Fill::kZero, {Fill::kInfinity, 123}, {Fill::kOne, 45}, static_cast<Place>(place)}, 7);
    for (std::int64_t row = 0; row < 2; ++row) {
      const std::vector<float> scores = call->scores_row(row);
      EXPECT_EQ(std::count_if(scores.begin(), scores.end(), [](float x) { return std::isinf(x); }), 123);
      EXPECT_EQ(std::count(scores.begin(), scores.end(), 1.0F), 45);
      EXPECT_EQ(std::count(scores.begin(), scores.end(), 0.0F), 1000 - 123 - 45);
    }
  }
}

TEST_F(CheckTest, CatchesAValueThatIsNotAmongTheLargest) {
  std::unique_ptr<Call> call = answered({});
  const std::vector<std::int32_t> answer = call->out_row(1);
  std::int32_t left_out = 300;  // the window of row 1 starts there
  while (std::find(answer.begin(), answer.end(), left_out) != answer.end()) ++left_out;
  call->plant_out(kOutStride + 9, left_out);
  EXPECT_NE(call->check().find("row 1 slot 9 holds column " + std::to_string(left_out)), std::string::npos);
}

TEST_F(CheckTest, CatchesATieTakenFromAHigherColumn) {
  std::unique_ptr<Call> call = answered({Fill::kOne});
  call->plant_out(kK - 1, kK);  // the lowest columns are 0 to k - 1
  EXPECT_NE(call->check().find("row 0 slot 39 holds column 40, but column 39 comes before it"), std::string::npos);
}

TEST_F(CheckTest, CatchesADuplicate) {
  std::unique_ptr<Call> call = answered({});
  call->plant_out(2 * kOutStride + 5, call->out_row(2)[6]);
  EXPECT_NE(call->check().find("repeats column"), std::string::npos);
}

TEST_F(CheckTest, CatchesUnwrittenSlotsAndColumnsOutsideTheWindow) {
  EXPECT_NE(planted(7, kPoison).find("row 0 slot 7 is unwritten"), std::string::npos);
  EXPECT_NE(planted(7, -1).find("row 0 slot 7 holds -1, outside the window"), std::string::npos);
  EXPECT_NE(planted(7, 1000).find("holds 1000, outside the window"), std::string::npos);
  EXPECT_NE(planted(kOutStride, 299).find("row 1 slot 0 holds 299, outside the window"), std::string::npos);
}

TEST_F(CheckTest, CatchesFaultsInShortRows) {
  EXPECT_NE(planted(3 * kOutStride, 5).find("row 3 (length <= k) slot 0 holds 5, wanted 4"), std::string::npos);
  EXPECT_NE(planted(3 * kOutStride + kK - 1, kPoison).find("slot 39 holds -559038737, wanted -1"), std::string::npos);
}

TEST_F(CheckTest, CatchesWritesOutside) {
  for (const std::int64_t element :
       {std::int64_t{-1}, std::int64_t{kK}, kOutStride - 1, 4 * kOutStride, 5 * kOutStride - 1, 5 * kOutStride}) {
    EXPECT_NE(planted(element, 0).find("element " + std::to_string(element) + " of out, outside the result"),
              std::string::npos);
  }
  std::unique_ptr<Call> call = answered({});
  call->plant_before_workspace(0);
  EXPECT_NE(call->check().find("word -1 beside the workspace"), std::string::npos);
  EXPECT_NE(call->check(), "") << "the planted word is still there";
}

}  // namespace
}  // namespace hpctopk::gpu_test
