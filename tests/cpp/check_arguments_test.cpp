// SPDX-License-Identifier: Apache-2.0
//
// What the host refuses before anything is launched or written. Pointers here are addresses that nobody follows.

#include "src/check_arguments.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "hpctopk/topk.h"

namespace hpctopk {
namespace {

template <class T>
T* at(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

Problem problem(std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t k) {
  Problem p;
  p.num_rows = rows;
  p.num_columns = columns;
  p.row_stride = stride;
  p.k = k;
  return p;
}

Plan plan_of(const Problem& p) {
  DeviceInfo device;
  EXPECT_TRUE(named_device("h200", &device).ok());
  Plan plan;
  EXPECT_TRUE(make_plan(p, device, {}, &plan).ok());
  return plan;
}

// 10 rows of 100 scores, 112 apart: scores span 0x10000..0x11150, the output of k = 16 spans 640 bytes.
class CheckArguments : public testing::Test {
 protected:
  CheckArguments() {
    arguments_.scores = at<float>(0x10000);
    arguments_.lengths = at<std::int32_t>(0x20000);
    arguments_.row_starts = at<std::int32_t>(0x30000);
    arguments_.num_rows = at<std::int32_t>(0x40000);
    arguments_.out = at<std::int32_t>(0x50000);
    arguments_.statistics = at<Statistics>(0x60000);
  }

  void expect_ok() {
    const Status status = check_arguments(plan_, arguments_);
    EXPECT_TRUE(status.ok()) << status.message();
  }

  void expect_refused(const char* message) {
    const Status status = check_arguments(plan_, arguments_);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_STREQ(status.message(), message);
  }

  Plan plan_ = plan_of(problem(10, 100, 112, 16));
  Arguments arguments_;
};

TEST_F(CheckArguments, RefusesAPlanThatWasEdited) {
  const Plan sound = plan_;
  plan_.problem.num_rows = -1;
  expect_refused("num_rows = -1: must be at least 0");
  plan_ = sound;
  plan_.problem.row_stride = -112;
  expect_refused("row_stride = -112: must be at least num_columns = 100, or 0 for just that");
  plan_ = sound;
  plan_.problem.k = 0;
  expect_refused("k = 0: must be between 1 and 4096");
  plan_ = sound;
  plan_.policy.sample.view = View::kStrided;
  plan_.policy.sample.stride = 0;
  expect_refused("policy.sample.stride = 0: must be at least 1");
  plan_ = sound;
  expect_ok();
}

TEST_F(CheckArguments, TakesWhatTheContractAllows) {
  expect_ok();
  arguments_.lengths = nullptr;
  arguments_.row_starts = nullptr;
  arguments_.num_rows = nullptr;
  arguments_.statistics = nullptr;
  expect_ok();
  arguments_.scores = at<float>(0x10004);
  arguments_.out = at<std::int32_t>(0x50004);
  arguments_.out_row_stride = 17;
  expect_ok();
}

TEST_F(CheckArguments, RefusesNull) {
  arguments_.scores = nullptr;
  expect_refused("scores = null: must point to 4432 bytes");
  arguments_.scores = at<float>(0x10000);
  arguments_.out = nullptr;
  expect_refused("out = null: must point to 640 bytes");
  arguments_.out_row_stride = 20;
  expect_refused("out = null: must point to 784 bytes");
}

TEST_F(CheckArguments, RefusesMisalignment) {
  arguments_.scores = at<float>(0x10002);
  expect_refused("scores = 0x10002: must be aligned to 4 bytes");
  arguments_.scores = at<float>(0x10000);
  arguments_.lengths = at<std::int32_t>(0x20001);
  expect_refused("lengths = 0x20001: must be aligned to 4 bytes");
  arguments_.lengths = nullptr;
  arguments_.row_starts = at<std::int32_t>(0x30003);
  expect_refused("row_starts = 0x30003: must be aligned to 4 bytes");
  arguments_.row_starts = nullptr;
  arguments_.num_rows = at<std::int32_t>(0x40002);
  expect_refused("num_rows = 0x40002: must be aligned to 4 bytes");
  arguments_.num_rows = nullptr;
  arguments_.out = at<std::int32_t>(0x50002);
  expect_refused("out = 0x50002: must be aligned to 4 bytes");
  arguments_.out = at<std::int32_t>(0x50000);
  arguments_.statistics = at<Statistics>(0x60004);
  expect_refused("statistics = 0x60004: must be aligned to 8 bytes");
}

TEST_F(CheckArguments, RefusesAnOutputStrideBelowK) {
  arguments_.out_row_stride = 15;
  expect_refused("out_row_stride = 15: must be at least k = 16, or 0 for just that");
  arguments_.out_row_stride = -16;
  expect_refused("out_row_stride = -16: must be at least k = 16, or 0 for just that");
  arguments_.out_row_stride = std::numeric_limits<std::int64_t>::max();
  expect_refused("out_row_stride = 9223372036854775807: 10 rows of out would exceed 9223372036854775804 bytes");
}

TEST_F(CheckArguments, RefusesAPoorWorkspace) {
  plan_.workspace_bytes = 4096;
  expect_refused("workspace_bytes = 0: this plan needs at least 4096");
  arguments_.workspace_bytes = 4095;
  expect_refused("workspace_bytes = 4095: this plan needs at least 4096");
  arguments_.workspace_bytes = 4096;
  expect_refused("workspace = null: must point to 4096 bytes");
  arguments_.workspace = at<void>(0x70008);
  expect_refused("workspace = 0x70008: must be aligned to 16 bytes");
  arguments_.workspace = at<void>(0x70010);
  expect_ok();
}

TEST_F(CheckArguments, RefusesOverlap) {
  arguments_.out = at<std::int32_t>(0x11000);
  expect_refused("out = 0x11000: its 640 bytes must not overlap the 4432 bytes of scores at 0x10000");
  arguments_.out = at<std::int32_t>(0x11150);
  expect_ok();
  arguments_.out = at<std::int32_t>(0x10000 - 640);
  expect_ok();
  arguments_.out = at<std::int32_t>(0x10000 - 636);
  expect_refused("out = 0xfd84: its 640 bytes must not overlap the 4432 bytes of scores at 0x10000");
  arguments_.out = at<std::int32_t>(0x20024);
  expect_refused("out = 0x20024: its 640 bytes must not overlap the 40 bytes of lengths at 0x20000");
  arguments_.out = at<std::int32_t>(0x30000);
  expect_refused("out = 0x30000: its 640 bytes must not overlap the 40 bytes of row_starts at 0x30000");
  arguments_.out = at<std::int32_t>(0x40000);
  expect_refused("out = 0x40000: its 640 bytes must not overlap the 4 bytes of num_rows at 0x40000");
  arguments_.out = at<std::int32_t>(0x60000);
  expect_refused("out = 0x60000: its 640 bytes must not overlap the 48 bytes of statistics at 0x60000");

  arguments_.out = at<std::int32_t>(0x50000);
  plan_.workspace_bytes = 4096;
  arguments_.workspace_bytes = 1 << 20;  // what is past the plan's 4096 bytes is not touched
  arguments_.workspace = at<void>(0x50270);
  expect_refused("out = 0x50000: its 640 bytes must not overlap the 4096 bytes of workspace at 0x50270");
  arguments_.workspace = at<void>(0x10000 - 4096);
  expect_ok();
  arguments_.workspace = at<void>(0x11140);
  expect_refused("workspace = 0x11140: its 4096 bytes must not overlap the 4432 bytes of scores at 0x10000");
}

TEST_F(CheckArguments, NoRowsNeedNoOperands) {
  plan_ = plan_of(problem(0, 100, 0, 16));
  expect_ok();
  arguments_ = {};
  expect_ok();
}

TEST_F(CheckArguments, NoColumnsNeedNoScores) {
  plan_ = plan_of(problem(10, 0, 0, 16));
  arguments_.scores = nullptr;
  expect_ok();
  arguments_.out = nullptr;
  expect_refused("out = null: must point to 640 bytes");
}

TEST_F(CheckArguments, RefusesAPlanThatNobodyMade) {
  plan_ = Plan{};
  expect_refused("plan.kernel = auto: must be a plan of make_plan()");
}

TEST_F(CheckArguments, ACpuPlanHasNoKernelInFront) {
  arguments_.programmatic_dependent = true;
  expect_ok();
  ASSERT_TRUE(make_plan(problem(10, 100, 112, 16), cpu_device(), {}, &plan_).ok());
  expect_refused("programmatic_dependent = true: must be false for a CPU plan");
  EXPECT_STREQ(run_cpu(plan_, arguments_).message(), "programmatic_dependent = true: must be false for a CPU plan");
  arguments_.programmatic_dependent = false;
  expect_ok();
}

TEST(Launch, RefusesWhatItCannotRun) {
  Plan plan = plan_of(problem(10, 100, 112, 16));
  EXPECT_STREQ(launch(plan, {}, nullptr).message(), "scores = null: must point to 4432 bytes");

  plan.kernel = static_cast<Kernel>(kNumKernels);  // no build has it
  Arguments arguments;
  arguments.scores = at<float>(0x10000);
  arguments.out = at<std::int32_t>(0x50000);
  Status status = launch(plan, arguments, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_STREQ(status.message(), "plan.kernel = unknown: this build has no such kernel");

  ASSERT_TRUE(make_plan(problem(1, 1, 1, 1), cpu_device(), {}, &plan).ok());
  status = launch(plan, {}, nullptr);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_STREQ(status.message(), "plan.kernel = cpu: launch() takes GPU plans, run_cpu() this one");
}

TEST(CheckProblem, NamesTheArgumentItsValueAndTheRule) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  const struct {
    Problem problem;
    const char* message;
  } cases[] = {
      {problem(-1, 10, 0, 1), "num_rows = -1: must be at least 0"},
      {problem(1, -1, 0, 1), "num_columns = -1: must be between 0 and 2147483647"},
      {problem(1, kMaxColumns + 1, 0, 1), "num_columns = 2147483648: must be between 0 and 2147483647"},
      {problem(1, 10, 9, 1), "row_stride = 9: must be at least num_columns = 10, or 0 for just that"},
      {problem(1, 10, -10, 1), "row_stride = -10: must be at least num_columns = 10, or 0 for just that"},
      {problem(1, 10, 0, 0), "k = 0: must be between 1 and 4096"},
      {problem(1, 10, 0, -5), "k = -5: must be between 1 and 4096"},
      {problem(1, 10, 0, 4097), "k = 4097: must be between 1 and 4096"},
      {problem(2, 10, kHuge, 1),
       "num_rows = 2: scores with row_stride = 9223372036854775807 or the output would exceed 9223372036854775804 "
       "bytes"},
      {problem(kHuge, 10, 0, 1),
       "num_rows = 9223372036854775807: scores with row_stride = 10 or the output would exceed 9223372036854775804 "
       "bytes"},
      {problem(kHuge / 8, 0, 0, 4096),
       "num_rows = 1152921504606846975: scores with row_stride = 0 or the output would exceed 9223372036854775804 "
       "bytes"},
  };
  for (const auto& c : cases) {
    const Status status = check_problem(c.problem);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_STREQ(status.message(), c.message);
  }
  EXPECT_TRUE(check_problem(problem(0, 0, 0, 1)).ok());
  EXPECT_TRUE(check_problem(problem(1, kMaxColumns, kHuge / 4, kMaxK)).ok());
}

}  // namespace
}  // namespace hpctopk
