// SPDX-License-Identifier: Apache-2.0
//
// Bad arguments: one line that names the argument, and nothing written.

#include <cstring>
#include <functional>

#include "tests/gpu/harness.h"

namespace hpctopk::gpu_test {
namespace {

template <typename T>
T* shifted(T* pointer, std::int64_t bytes) {
  return reinterpret_cast<T*>(reinterpret_cast<std::uintptr_t>(pointer) + static_cast<std::uintptr_t>(bytes));
}

struct BadCase {
  const char* begins;  // of the message
  std::function<void(Arguments&)> spoil;
};

class ArgumentsTest : public MappingTest {};
HPCTOPK_FOR_EACH_MAPPING(ArgumentsTest);

TEST_P(ArgumentsTest, AreRefusedByName) {
  for (const Shape& shape : {Shape{5, 9000, 512}, Shape{300, 131072, 2048}, Shape{1, 1048576, 2048}}) {
    const auto call = make_call(shape, {0, 0, 2});
    if (!call) continue;
    call->fill({}, 1);
    call->set_lengths(std::vector<std::int32_t>(static_cast<std::size_t>(shape.m), 8000));
    std::vector<BadCase> cases = {
        {"scores = ", [](Arguments& a) { a.scores = nullptr; }},
        {"scores = ", [](Arguments& a) { a.scores = shifted(a.scores, 1); }},
        {"lengths = ", [](Arguments& a) { a.lengths = shifted(a.lengths, 2); }},
        {"out = ", [](Arguments& a) { a.out = nullptr; }},
        {"out = ", [](Arguments& a) { a.out = shifted(a.out, 1); }},
        {"out_row_stride = ", [&shape](Arguments& a) { a.out_row_stride = shape.k - 1; }},
        {"out_row_stride = -1", [](Arguments& a) { a.out_row_stride = -1; }},
    };
    if (call->arguments().workspace_bytes > 0) {
      cases.push_back({"workspace = ", [](Arguments& a) { a.workspace = nullptr; }});
      cases.push_back({"workspace = ", [](Arguments& a) { a.workspace = shifted(a.workspace, 8); }});
      cases.push_back({"workspace_bytes = ", [](Arguments& a) { --a.workspace_bytes; }});
    }
    const Arguments good = call->arguments();
    for (const BadCase& bad : cases) {
      call->arguments() = good;
      bad.spoil(call->arguments());
      const Status status = call->launch();
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad.begins;
      EXPECT_EQ(std::strncmp(status.message(), bad.begins, std::strlen(bad.begins)), 0) << status.message();
      EXPECT_EQ(std::strchr(status.message(), '\n'), nullptr) << status.message();
    }
    call->arguments() = good;
    call->set_num_rows(0);  // now check() wants every element of out untouched
    expect_right(call->check());
    call->set_num_rows(static_cast<std::int32_t>(shape.m));
    expect_right(call->run({}, 2));  // the refusals left nothing behind
  }
}

TEST_P(ArgumentsTest, PlanOfTheOtherSideIsRefused) {
  const auto call = make_call({5, 9000, 512});
  if (!call) return;
  Plan plan;
  Status status = make_plan(call->plan().problem, cpu_device(), {}, &plan);
  ASSERT_TRUE(status.ok()) << status.message();
  status = launch(plan, call->arguments(), call->stream());
  EXPECT_FALSE(status.ok());
  EXPECT_NE(std::strstr(status.message(), "plan"), nullptr) << status.message();
  status = run_cpu(call->plan(), call->arguments());
  EXPECT_FALSE(status.ok());
  EXPECT_NE(std::strstr(status.message(), "plan"), nullptr) << status.message();
  call->set_num_rows(0);
  expect_right(call->check());
}

TEST_P(ArgumentsTest, ForcedKernelIsThePlansKernel) {
  const auto call = make_call({64, 20000, 1024});
  if (!call) return;
  EXPECT_EQ(call->plan().kernel, GetParam().kernel);
  EXPECT_LE(workspace_size(call->plan()), kMaxWorkspaceBytes);
}

}  // namespace
}  // namespace hpctopk::gpu_test
