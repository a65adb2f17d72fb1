// SPDX-License-Identifier: Apache-2.0
//
// Launches that begin while the kernel in front of them on the stream still runs (programmatic dependent launch).

#include "tests/gpu/harness.h"

namespace hpctopk::gpu_test {
namespace {

constexpr Shape kShapes[] = {{1, 131072, 2048}, {7, 300001, 512}, {64, 20000, 1024}, {600, 9000, 2048}};

std::vector<std::int32_t> ramp(const Shape& shape, std::int64_t first, std::int64_t step) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(shape.m));
  for (std::size_t row = 0; row < values.size(); ++row) {
    values[row] = static_cast<std::int32_t>((first + static_cast<std::int64_t>(row) * step) % (shape.n + 1));
  }
  return values;
}

class ProgrammaticTest : public MappingTest {};
HPCTOPK_FOR_EACH_MAPPING(ProgrammaticTest);

// The kernel in front writes the scores, and where `ragged` the lengths, starts and row count, long after it has let
// the launch begin.
TEST_P(ProgrammaticTest, ReadsWhatTheKernelInFrontWritesLast) {
  const Layout layout{1, 2, 3};
  for (const Shape& shape : kShapes) {
    for (const bool ragged : {true, false}) {
      const auto call = make_call(shape, layout);
      if (!call) continue;
      call->arguments().programmatic_dependent = true;
      Call source(call->plan(), layout, stream());
      for (Call* each : {call.get(), &source}) {
        if (!ragged) break;
        each->set_lengths(ramp(shape, shape.n, 0));
        each->set_row_starts(ramp(shape, 3, 1));
        each->set_num_rows(static_cast<std::int32_t>(shape.m));
      }
      const Buffer<std::int32_t> lengths(shape.m, stream());
      Buffer<std::uint32_t> turn(1, stream());
      turn.fill_byte(0);
      source.arguments().lengths = ragged ? lengths.data() : nullptr;
      const auto enqueue = [&] {
        if (ragged) draw_lengths(lengths.data(), shape.m, shape.n, shape.k, turn.data(), stream());
        source.fill({Fill::kLevels}, 1);
        call->poison();
        call->take_late(source, 60);
        call->require_launch();
        call->enqueue_check();
      };
      for (int i = 0; i < 5; ++i) {
        enqueue();
        expect_right(call->check());
      }
      const Graph graph(stream(), enqueue);
      for (int i = 0; i < 50; ++i) check_cuda(cudaGraphLaunch(graph.get(), stream()));
      expect_right(call->check());
    }
  }
}

// A launch may begin early in a graph too, behind a kernel; and where nothing in front of it can let it, it does not.
TEST_P(ProgrammaticTest, IsCaptured) {
  const auto call = make_call({7, 131072, 512});
  if (!call) return;
  Call source(call->plan(), {}, stream());
  source.fill({Fill::kNormal}, 2);
  const auto enqueue = [&] {
    call->take_late(source, 0);
    call->require_launch();
  };
  const std::int64_t without = Graph(stream(), enqueue).programmatic_edges();
  call->arguments().programmatic_dependent = true;
  EXPECT_EQ(Graph(stream(), enqueue).programmatic_edges(), without + (call->plan().programmatic_dependence ? 1 : 0));

  call->fill({Fill::kNormal}, 3);
  const Graph alone(*call);
  const Graph behind_memset(stream(), [&] {
    check_cuda(cudaMemsetAsync(call->arguments().out, 0xEE, sizeof(std::int32_t), stream()));
    call->require_launch();
  });
  for (const Graph* graph : {&alone, &behind_memset}) {
    EXPECT_EQ(graph->programmatic_edges(), without);
    call->poison();
    check_cuda(cudaGraphLaunch(graph->get(), stream()));
    expect_right(call->check());
  }
}

// Launches of all shapes, each behind the next with nothing between, share one workspace. Before each another with
// other inputs writes to the same output, which must be overwritten.
TEST_P(ProgrammaticTest, LaunchesFollowEachOtherOnOneWorkspace) {
  std::vector<std::unique_ptr<Call>> calls;  // in pairs of one plan
  std::size_t bytes = 16;
  for (const Shape& shape : kShapes) {
    for (const int twin : {0, 1}) {
      auto call = make_call(shape);
      if (!call) continue;
      call->set_lengths(twin == 0 ? ramp(shape, shape.n, 0) : ramp(shape, shape.n / 2, 997));
      call->fill({twin == 0 ? Fill::kLevels : Fill::kSinkRecency}, static_cast<std::uint64_t>(twin));
      call->arguments().programmatic_dependent = true;
      bytes = std::max(bytes, call->arguments().workspace_bytes);
      calls.push_back(std::move(call));
    }
  }
  const Buffer<std::uint8_t> shared(static_cast<std::int64_t>(bytes), stream());
  for (const auto& call : calls) {
    call->arguments().workspace = shared.data();
    call->arguments().workspace_bytes = bytes;
  }
  const auto enqueue = [&] {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      Arguments overwritten = calls[i ^ 1]->arguments();
      overwritten.out = calls[i]->arguments().out;
      const Status status = launch(calls[i]->plan(), overwritten, stream());
      ASSERT_TRUE(status.ok()) << status.message();
      calls[i]->require_launch();
    }
  };
  if (calls.empty()) return;
  const Graph graph(stream(), enqueue);
  for (int i = 0; i < 20; ++i) {
    for (const auto& call : calls) call->poison();
    if (i % 2 == 0) {
      enqueue();
    } else {
      check_cuda(cudaGraphLaunch(graph.get(), stream()));
    }
    for (const auto& call : calls) expect_right(call->check());
  }
}

}  // namespace
}  // namespace hpctopk::gpu_test
