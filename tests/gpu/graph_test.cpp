// SPDX-License-Identifier: Apache-2.0
//
// A captured launch replayed with other scores, lengths and row counts.

#include "tests/gpu/harness.h"

namespace hpctopk::gpu_test {
namespace {

constexpr Shape kShapes[] = {
    {1, 131072, 2048}, {7, 300001, 512}, {64, 20000, 1024}, {600, 9000, 2048}, {5, 1048576, 2048}};

std::vector<std::int32_t> same_length(const Shape& shape, std::int64_t length) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(shape.m), static_cast<std::int32_t>(length));
}

class GraphTest : public MappingTest {};
HPCTOPK_FOR_EACH_MAPPING(GraphTest);

TEST_P(GraphTest, ReplaysWithOtherLengths) {
  for (const Shape& shape : kShapes) {
    for (const bool captured_short : {true, false}) {
      const auto call = make_call(shape, {1, 2, 3});
      if (!call) continue;
      call->set_lengths(same_length(shape, captured_short ? 3 : shape.n));
      const Graph graph(*call);
      for (const std::int64_t length :
           {shape.n, std::int64_t{3}, std::int64_t{shape.k} + 1, shape.n / 2, std::int64_t{0}, shape.n,
            std::int64_t{-1}, std::int64_t{shape.k}, shape.n + 1}) {
        call->set_lengths(same_length(shape, length));
        expect_right(call->replay(graph.get(), {Fill::kSinkRecency}, static_cast<std::uint64_t>(length + 2)));
      }
    }
  }
}

TEST_P(GraphTest, ReplaysWithOtherRowCountsAndStarts) {
  for (const Shape& shape : kShapes) {
    const auto call = make_call(shape);
    if (!call) continue;
    const auto m = static_cast<std::int32_t>(shape.m);
    call->set_num_rows(m);
    call->set_row_starts(same_length(shape, 0));
    const Graph graph(*call);
    for (const std::int32_t num_rows : {m, 0, m, 1, m / 2, m + 1, 0, m - 1, m}) {
      call->set_num_rows(num_rows);
      call->set_row_starts(same_length(shape, num_rows));
      expect_right(call->replay(graph.get(), {Fill::kLevels}, static_cast<std::uint64_t>(num_rows)));
    }
  }
}

// What a launch leaves in the workspace must not reach the next, nor may the next need it.
TEST_P(GraphTest, ReplaysBackToBack) {
  for (const Shape& shape : kShapes) {
    const auto call = make_call(shape);
    if (!call) continue;
    const Graph one(*call);
    const Graph three(*call, 3);
    call->fill({Fill::kNormal}, 1);
    for (int i = 0; i < 20; ++i) check_cuda(cudaGraphLaunch(i % 2 == 0 ? one.get() : three.get(), call->stream()));
    expect_right(call->check());
    for (int i = 0; i < 5; ++i) {
      call->poison();
      check_cuda(cudaGraphLaunch(one.get(), call->stream()));
      expect_right(call->check());
      call->scramble(static_cast<Scramble>(i % 3));
    }
    expect_right(call->replay(three.get(), {Fill::kRelu}, 2));
  }
}

// launch() allocates nothing and asks nothing of the host: kernels, copies and fills are all that a capture may hold.
TEST_P(GraphTest, HoldsDeviceWorkAlone) {
  for (const Shape& shape : kShapes) {
    const auto call = make_call(shape);
    if (!call) continue;
    const std::vector<cudaGraphNodeType> types = Graph(*call).node_types();
    EXPECT_FALSE(types.empty());
    for (const cudaGraphNodeType type : types) {
      EXPECT_TRUE(type == cudaGraphNodeTypeKernel || type == cudaGraphNodeTypeMemset || type == cudaGraphNodeTypeMemcpy)
          << "node type " << static_cast<int>(type);
    }
  }
}

}  // namespace
}  // namespace hpctopk::gpu_test
