// SPDX-License-Identifier: Apache-2.0

#include "tests/gpu/harness.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#if CUDART_VERSION < 13000
#define cudaGraphGetEdges cudaGraphGetEdges_v2  // the form of CUDA 13
#endif

namespace hpctopk::gpu_test {

void check_cuda(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

// ---------------------------------------------------------------------------------------------------------------------
// Call

namespace {

std::int64_t out_stride(const Plan& plan, const Layout& layout) { return plan.problem.k + layout.out_padding; }

std::int64_t score_stride(const Plan& plan, const Layout& layout) {
  return plan.problem.num_columns + layout.row_padding;
}

// Up to the end of the last row's scores, and a few more.
std::int64_t scores_size(const Plan& plan, const Layout& layout) {
  const std::int64_t before_last = std::max<std::int64_t>(plan.problem.num_rows - 1, 0) * score_stride(plan, layout);
  return layout.base_shift + before_last + plan.problem.num_columns + 64;
}

std::int64_t workspace_words(const Plan& plan) { return static_cast<std::int64_t>((workspace_size(plan) + 3) / 4); }

}  // namespace

Call::Call(const Plan& plan, const Layout& layout, cudaStream_t stream)
    : plan_(plan),
      layout_(layout),
      stream_(stream),
      scores_(scores_size(plan, layout), stream),
      lengths_(plan.problem.num_rows + 1, stream),
      row_starts_(plan.problem.num_rows + 1, stream),
      num_rows_(1, stream),
      out_(plan.problem.num_rows * out_stride(plan, layout) + 2 * kGuardElements, stream),
      workspace_(workspace_words(plan) + 2 * kGuardElements, stream),
      statistics_(1, stream),
      scratch_(check_words(rows()), stream),
      report_(1, stream) {
  arguments_.scores = rows().scores;
  arguments_.out = out_.data() + kGuardElements;
  arguments_.out_row_stride = out_stride(plan, layout);
  arguments_.workspace_bytes = workspace_size(plan);
  arguments_.workspace = arguments_.workspace_bytes > 0 ? workspace_.data() + kGuardElements : nullptr;
  workspace_.fill_byte(kGuardWord & 0xFF);
  scratch_.fill_byte(0);
  report_.fill_byte(0);
  clear_statistics();
  poison();
}

void Call::set_lengths(const std::optional<std::vector<std::int32_t>>& lengths) {
  host_lengths_ = lengths.value_or(std::vector<std::int32_t>{});
  lengths_.upload(host_lengths_);
  arguments_.lengths = lengths ? lengths_.data() : nullptr;
}

void Call::set_row_starts(const std::optional<std::vector<std::int32_t>>& row_starts) {
  host_row_starts_ = row_starts.value_or(std::vector<std::int32_t>{});
  row_starts_.upload(host_row_starts_);
  arguments_.row_starts = row_starts ? row_starts_.data() : nullptr;
}

void Call::set_num_rows(std::optional<std::int32_t> num_rows) {
  host_num_rows_ = num_rows;
  if (num_rows) num_rows_.upload({*num_rows});
  arguments_.num_rows = num_rows ? num_rows_.data() : nullptr;
}

Rows Call::rows() const {
  return {scores_.data() + layout_.base_shift, plan_.problem.num_rows, plan_.problem.num_columns,
          score_stride(plan_, layout_),        arguments_.lengths,     arguments_.row_starts};
}

std::int64_t Call::live_rows() const {
  return std::clamp<std::int64_t>(host_num_rows_.value_or(plan_.problem.num_rows), 0, plan_.problem.num_rows);
}

Window Call::window(std::int64_t row) const {
  return window_of(plan_.problem.num_columns, arguments_.lengths != nullptr ? host_lengths_.data() : nullptr,
                   arguments_.row_starts != nullptr ? host_row_starts_.data() : nullptr, row);
}

void Call::fill(const Pattern& pattern, std::uint64_t seed, std::int32_t probe_period) {
  pattern_ = to_string(pattern) + ", seed " + std::to_string(seed);
  Rows live = rows();
  live.num_rows = live_rows();
  fill_outside(scores_.data(), scores_.count(), live.row_stride, seed, stream_);
  fill_rows(live, pattern, seed, probe_period, stream_);
  check_cuda(cudaGetLastError());
}

void Call::take_late(const Call& from, std::int32_t microseconds) {
  pattern_ = "taken late, " + from.pattern_;
  scores_.fill_byte(0xFF);
  lengths_.fill_byte(0);
  row_starts_.fill_byte(0);
  num_rows_.fill_byte(0);
  const auto copy = [](auto* to, const auto* source, std::int64_t count) {
    return WordCopy{reinterpret_cast<std::uint32_t*>(to), reinterpret_cast<const std::uint32_t*>(source),
                    source != nullptr ? count : 0};
  };
  const std::int64_t rows = plan_.problem.num_rows;
  copy_late({{copy(num_rows_.data(), from.arguments_.num_rows, 1), copy(lengths_.data(), from.arguments_.lengths, rows),
              copy(row_starts_.data(), from.arguments_.row_starts, rows),
              copy(scores_.data(), from.scores_.data(), scores_.count())}},
            microseconds, stream_);
  check_cuda(cudaGetLastError());
}

void Call::poison() {
  static_assert(sizeof(kPoison) == sizeof(std::uint32_t));
  fill_words(reinterpret_cast<std::uint32_t*>(out_.data()), out_.count(), static_cast<std::uint32_t>(kPoison), stream_);
  check_cuda(cudaGetLastError());
}

void Call::scramble(Scramble how) {
  if (arguments_.workspace == nullptr) return;
  if (how == Scramble::kRandom) {
    fill_bits(workspace_.data() + kGuardElements, workspace_words(plan_), static_cast<std::uint64_t>(scrambled_),
              stream_);
    check_cuda(cudaGetLastError());
  } else {
    check_cuda(
        cudaMemsetAsync(arguments_.workspace, how == Scramble::kZeros ? 0 : 0xFF, arguments_.workspace_bytes, stream_));
  }
}

Status Call::launch() { return hpctopk::launch(plan_, arguments_, stream_); }

void Call::require_launch() {
  const Status status = launch();
  if (!status.ok()) throw std::runtime_error(describe() + ": launch() refused: " + status.message());
}

void Call::enqueue_check() {
  const Output output{out_.data(), out_.count(),   kGuardElements, arguments_.out_row_stride,
                      live_rows(), plan_.problem.k};
  check_rows(rows(), output, scratch_.data(), report_.data(), stream_);
  check_guards(workspace_.data(), workspace_.count(), kGuardElements, report_.data(), stream_);
  check_cuda(cudaGetLastError());
}

std::string Call::check() {
  enqueue_check();
  const Report report = report_.download(0, 1).front();
  if (report.count == 0) return "";
  report_.fill_byte(0);
  return describe() + ": " + to_string(report);
}

void Call::prepare(const Pattern& pattern, std::uint64_t seed) {
  fill(pattern, seed);
  poison();
  scramble(static_cast<Scramble>(++scrambled_ % 3));
}

std::string Call::run(const Pattern& pattern, std::uint64_t seed) {
  prepare(pattern, seed);
  const Status status = launch();
  return status.ok() ? check() : describe() + ": launch() refused: " + status.message();
}

std::string Call::replay(cudaGraphExec_t graph, const Pattern& pattern, std::uint64_t seed) {
  prepare(pattern, seed);
  check_cuda(cudaGraphLaunch(graph, stream_));
  const std::string report = check();
  return report.empty() ? report : "replayed " + report;
}

std::vector<float> Call::scores_row(std::int64_t row) const {
  return scores_.download(layout_.base_shift + row * score_stride(plan_, layout_), plan_.problem.num_columns);
}

std::vector<std::int32_t> Call::out_row(std::int64_t row) const {
  return out_.download(kGuardElements + row * arguments_.out_row_stride, plan_.problem.k);
}

Statistics Call::statistics() const { return statistics_.download(0, 1).front(); }

void Call::clear_statistics() { statistics_.fill_byte(0); }

std::string Call::describe() const {
  std::ostringstream text;
  text << hpctopk::to_string(plan_.kernel) << " " << plan_.problem.num_rows << " x " << plan_.problem.num_columns
       << ", k " << plan_.problem.k << ", base + " << layout_.base_shift << ", row padding " << layout_.row_padding
       << ", out padding " << layout_.out_padding << (arguments_.lengths != nullptr ? ", lengths" : "")
       << (arguments_.row_starts != nullptr ? ", row_starts" : "");
  if (host_num_rows_) text << ", num_rows " << *host_num_rows_;
  text << " (" << pattern_ << ")";
  return text.str();
}

// ---------------------------------------------------------------------------------------------------------------------
// Graph

Graph::Graph(cudaStream_t stream, const std::function<void()>& enqueue) {
  check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  try {
    enqueue();
  } catch (...) {
    if (cudaStreamEndCapture(stream, &graph_) == cudaSuccess) cudaGraphDestroy(graph_);
    throw;
  }
  check_cuda(cudaStreamEndCapture(stream, &graph_));
  check_cuda(cudaGraphInstantiate(&executable_, graph_, 0));
}

Graph::Graph(Call& call, int launches)
    : Graph(call.stream(), [&] {
        for (int i = 0; i < launches; ++i) call.require_launch();
      }) {}

Graph::~Graph() {
  cudaGraphExecDestroy(executable_);
  cudaGraphDestroy(graph_);
}

std::vector<cudaGraphNodeType> Graph::node_types() const {
  std::size_t count = 0;
  check_cuda(cudaGraphGetNodes(graph_, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  check_cuda(cudaGraphGetNodes(graph_, nodes.data(), &count));
  std::vector<cudaGraphNodeType> types(count);
  for (std::size_t i = 0; i < count; ++i) check_cuda(cudaGraphNodeGetType(nodes[i], &types[i]));
  return types;
}

std::int64_t Graph::programmatic_edges() const {
  std::size_t count = 0;
  check_cuda(cudaGraphGetEdges(graph_, nullptr, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> from(count);
  std::vector<cudaGraphNode_t> to(count);
  std::vector<cudaGraphEdgeData> edges(count);
  check_cuda(cudaGraphGetEdges(graph_, from.data(), to.data(), edges.data(), &count));
  return std::count_if(edges.begin(), edges.end(),
                       [](const auto& edge) { return edge.type == cudaGraphDependencyTypeProgrammatic; });
}

// ---------------------------------------------------------------------------------------------------------------------
// Fixtures

std::ostream& operator<<(std::ostream& stream, const Mapping& mapping) {
  return stream << hpctopk::to_string(mapping.kernel) << '_' << mapping.policy;
}

void GpuTest::SetUp() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    GTEST_SKIP() << "needs an NVIDIA GPU: " << (error != cudaSuccess ? cudaGetErrorString(error) : "none found");
  }
  check_cuda(cudaSetDevice(0));
  cudaMemPool_t pool = nullptr;  // keeps what is freed, so that the many allocations of the tests are cheap
  check_cuda(cudaDeviceGetDefaultMemPool(&pool, 0));
  std::uint64_t keep = std::uint64_t{3} << 30;
  check_cuda(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep));
  const Status status = query_device(0, &device_);
  ASSERT_TRUE(status.ok()) << status.message();
}

std::optional<Plan> GpuTest::plan_for(const Mapping& mapping, const Shape& shape, const Layout& layout) {
  const std::string name = mapping.policy;
  Policy policy = name == "paper" ? paper_policy() : default_policy();
  if (name == "loads") policy.pipeline = Pipeline::kLoads;
  if (name == "bulk") policy.pipeline = Pipeline::kBulk;
  PlanOptions options;
  options.kernel = mapping.kernel;
  options.policy = &policy;
  Problem problem;
  problem.num_rows = shape.m;
  problem.num_columns = shape.n;
  problem.row_stride = shape.n + layout.row_padding;
  problem.k = shape.k;
  Plan plan;
  const Status status = make_plan(problem, device_, options, &plan);
  if (status.ok()) return plan;
  if (status.code() != StatusCode::kUnsupported) throw std::runtime_error(status.message());
  refusal_ = status.message();
  return std::nullopt;
}

std::unique_ptr<Call> GpuTest::call_for(const Mapping& mapping, const Shape& shape, const Layout& layout) {
  const std::optional<Plan> plan = plan_for(mapping, shape, layout);
  return plan ? std::make_unique<Call>(*plan, layout, stream()) : nullptr;
}

cudaStream_t GpuTest::stream() {
  if (!stream_) stream_ = std::make_unique<OwnStream>();
  return stream_->get();
}

void GpuTest::expect_right(const std::string& report) {
  if (report.empty()) return;
  ADD_FAILURE() << report;
  if (++failures_ == 8) throw std::runtime_error("eight failures: the rest of this test is not run");
}

std::vector<Mapping> mappings() {
  const char* const other_pipeline = default_policy().pipeline == Pipeline::kBulk ? "loads" : "bulk";
  std::vector<Mapping> all;
  for (int i = 0; i < kNumKernels; ++i) {
    const auto kernel = static_cast<Kernel>(i);
    if (kernel == Kernel::kAuto || kernel == Kernel::kCpu) continue;
    all.push_back({kernel, "default"});
    all.push_back({kernel, "paper"});
    if (kernel != Kernel::kRowLocal && kernel != Kernel::kFallback) all.push_back({kernel, other_pipeline});
  }
  return all;
}

std::unique_ptr<Call> MappingTest::make_call(const Shape& shape, const Layout& layout) {
  std::unique_ptr<Call> call = call_for(GetParam(), shape, layout);
  if (call) ++served_;
  return call;
}

void MappingTest::TearDown() {
  if (served_ == 0 && !IsSkipped() && !HasFailure()) GTEST_SKIP() << refusal();
}

}  // namespace hpctopk::gpu_test
