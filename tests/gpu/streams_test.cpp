// SPDX-License-Identifier: Apache-2.0
//
// Streams, and what a workspace holds before a launch.

#include "tests/gpu/harness.h"

namespace hpctopk::gpu_test {
namespace {

class StreamsTest : public MappingTest {};
HPCTOPK_FOR_EACH_MAPPING(StreamsTest);

TEST_P(StreamsTest, TwoAtOnceWithTheirOwnWorkspaces) {
  const OwnStream other_stream;
  for (const Shape& shape : {Shape{40, 131072, 2048}, Shape{2, 700000, 512}, Shape{900, 5000, 1024}}) {
    const auto one = make_call(shape);
    if (!one) continue;
    Call other(one->plan(), {}, other_stream.get());
    one->fill({Fill::kLevels}, 1);
    other.fill({Fill::kSinkRecency}, 2);
    for (int i = 0; i < 50; ++i) {
      for (Call* call : {one.get(), &other}) {
        const Status status = call->launch();
        ASSERT_TRUE(status.ok()) << status.message();
      }
    }
    expect_right(one->check());
    expect_right(other.check());
  }
}

TEST_P(StreamsTest, TieIsCutTheSameWayBesideABusyStream) {
  const OwnStream busy;
  for (const Shape& shape : {Shape{150, 20000, 2048}, Shape{3, 131072, 2048}}) {
    const auto call = make_call(shape);
    if (!call) continue;
    call->fill({Fill::kLow, {Fill::kHigh, 500}, {Fill::kOne, 6000}}, 13);
    for (int i = 0; i < 200; ++i) {
      if (i % 2 == 0) occupy(400, busy.get());
      call->poison();
      const Status status = call->launch();
      ASSERT_TRUE(status.ok()) << status.message();
      expect_right(call->check());
    }
    check_cuda(cudaStreamSynchronize(busy.get()));
  }
}

TEST_P(StreamsTest, DefaultStream) {
  const std::optional<Plan> plan = plan_for(GetParam(), {64, 20000, 1024});
  if (!plan) GTEST_SKIP() << refusal();
  Call call(*plan, {}, nullptr);
  expect_right(call.run({}, 1));
  if (const auto again = make_call({64, 20000, 1024})) expect_right(again->run({}, 1));
}

TEST_P(StreamsTest, WorkspaceOfAnyContents) {
  for (const Shape& shape : {Shape{300, 20000, 2048}, Shape{3, 600000, 2048}, Shape{1, 131072, 512}}) {
    const auto call = make_call(shape);
    if (!call) continue;
    call->fill({Fill::kNormal}, 29);
    for (int i = 0; i < 12; ++i) {
      call->poison();
      call->scramble(static_cast<Scramble>(i % 3));
      const Status status = call->launch();
      ASSERT_TRUE(status.ok()) << status.message();
      expect_right(call->check());
    }
  }
}

// An engine keeps one workspace for all its layers: each launch meets what a launch of another shape left there.
TEST_P(StreamsTest, WorkspaceSharedInTurnByOtherShapes) {
  std::vector<std::unique_ptr<Call>> calls;
  for (const Shape& shape :
       {Shape{300, 20000, 2048}, Shape{3, 600000, 705}, Shape{1, 131072, 512}, Shape{64, 4097, 1}}) {
    if (auto call = make_call(shape)) calls.push_back(std::move(call));
  }
  std::size_t bytes = 16;
  for (const auto& call : calls) bytes = std::max(bytes, call->arguments().workspace_bytes);
  const Buffer<std::uint8_t> shared(static_cast<std::int64_t>(bytes), stream());
  for (const auto& call : calls) {
    call->arguments().workspace = shared.data();
    call->arguments().workspace_bytes = bytes;
    call->fill({Fill::kQuads}, 30);
  }
  for (int i = 0; i < 10; ++i) {
    for (const auto& call : calls) {
      call->poison();
      const Status status = call->launch();
      ASSERT_TRUE(status.ok()) << status.message();
      expect_right(call->check());
    }
  }
}

}  // namespace
}  // namespace hpctopk::gpu_test
