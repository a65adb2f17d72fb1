// SPDX-License-Identifier: Apache-2.0
//
// One call of the library on the GPU with everything around it under guard, and the fixture that runs a test once for
// each mapping (kernel) and policy.

#ifndef HPCTOPK_TESTS_GPU_HARNESS_H_
#define HPCTOPK_TESTS_GPU_HARNESS_H_

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "hpctopk/topk.h"
#include "tests/gpu/reference.h"

namespace hpctopk::gpu_test {

// Throws std::runtime_error with CUDA's text where `error` is one.
void check_cuda(cudaError_t error);

// A stream that does not synchronise with the default stream.
class OwnStream {
 public:
  OwnStream() { check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// Device memory, allocated and freed in the order of a stream.
template <typename T>
class Buffer {
 public:
  Buffer(std::int64_t count, cudaStream_t stream) : count_(count), stream_(stream) {
    if (count > 0) check_cuda(cudaMallocAsync(reinterpret_cast<void**>(&data_), bytes(), stream));
  }
  ~Buffer() {
    if (data_ != nullptr) cudaFreeAsync(data_, stream_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  T* data() const { return data_; }
  std::int64_t count() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }

  void fill_byte(int byte) {
    if (count_ > 0) check_cuda(cudaMemsetAsync(data_, byte, bytes(), stream_));
  }
  // Waits for the copy.
  void upload(const std::vector<T>& host, std::int64_t at = 0) {
    copy(data_ + at, host.data(), host.size(), cudaMemcpyHostToDevice);
  }
  std::vector<T> download(std::int64_t at, std::int64_t count) const {
    std::vector<T> host(static_cast<std::size_t>(count));
    copy(host.data(), data_ + at, host.size(), cudaMemcpyDeviceToHost);
    return host;
  }

 private:
  void copy(T* to, const T* from, std::size_t count, cudaMemcpyKind kind) const {
    if (count == 0) return;
    check_cuda(cudaMemcpyAsync(to, from, count * sizeof(T), kind, stream_));
    check_cuda(cudaStreamSynchronize(stream_));
  }

  std::int64_t count_;
  cudaStream_t stream_;
  T* data_ = nullptr;
};

struct Shape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int32_t k = 0;
};

// How the operands lie in memory.
struct Layout {
  std::int64_t base_shift = 0;   // elements past 256-byte alignment where the scores start
  std::int64_t row_padding = 0;  // row_stride - num_columns
  std::int64_t out_padding = 0;  // out_row_stride - k
};

enum class Scramble { kZeros, kOnes, kRandom };

// A plan and its operands. Scores around and between the windows, rows past `num_rows` included, are the highest there
// are (fill_outside): a kernel may read them, and where it uses one, a result is wrong. `out` is poisoned and lies,
// like the workspace, between guard zones. All work goes to one stream.
class Call {
 public:
  Call(const Plan& plan, const Layout& layout, cudaStream_t stream);

  // nullopt: the operand is null.
  void set_lengths(const std::optional<std::vector<std::int32_t>>& lengths);
  void set_row_starts(const std::optional<std::vector<std::int32_t>>& row_starts);
  void set_num_rows(std::optional<std::int32_t> num_rows);

  // Writes the scores of the present windows, and all around them.
  void fill(const Pattern& pattern, std::uint64_t seed, std::int32_t probe_period = 0);
  // Spoils the inputs, then enqueues a kernel that lets the one behind it begin at once and only after about
  // `microseconds` writes the inputs of `from`, a call of the same plan and layout, and with the same operands.
  void take_late(const Call& from, std::int32_t microseconds);
  // Poisons `out`; call before each launch that check() follows.
  void poison();
  // Overwrites the workspace.
  void scramble(Scramble how);

  Status launch();
  // Throws std::runtime_error where the launch is refused.
  void require_launch();
  // Enqueues the check of the output and its surroundings, which a graph may hold; its findings add up until check().
  void enqueue_check();
  // The same, then waits, and returns "" or what was found since the last time.
  std::string check();
  // All of the above in order, with the next way to scramble the workspace.
  std::string run(const Pattern& pattern, std::uint64_t seed);
  // The same, but for the launch of `graph`, which holds a captured launch().
  std::string replay(cudaGraphExec_t graph, const Pattern& pattern, std::uint64_t seed);

  const Plan& plan() const { return plan_; }
  Arguments& arguments() { return arguments_; }
  cudaStream_t stream() const { return stream_; }
  std::vector<float> scores_row(std::int64_t row) const;      // num_columns of them
  std::vector<std::int32_t> out_row(std::int64_t row) const;  // k of them
  Window window(std::int64_t row) const;
  std::int64_t live_rows() const;
  Statistics statistics() const;  // waits
  void clear_statistics();
  void count_statistics(bool wanted) { arguments_.statistics = wanted ? statistics_.data() : nullptr; }
  // Plants a value at an element of `out`, counted from row 0; and a word in front of the workspace.
  void plant_out(std::int64_t element, std::int32_t value) { out_.upload({value}, kGuardElements + element); }
  void plant_before_workspace(std::uint32_t word) { workspace_.upload({word}, kGuardElements - 1); }
  std::string describe() const;

 private:
  static constexpr std::int64_t kGuardElements = 1028;  // 4112 bytes: keeps 16-byte alignment and no more

  Rows rows() const;
  void prepare(const Pattern& pattern, std::uint64_t seed);

  Plan plan_;
  Layout layout_;
  cudaStream_t stream_;
  Arguments arguments_;
  Buffer<float> scores_;
  Buffer<std::int32_t> lengths_;
  Buffer<std::int32_t> row_starts_;
  Buffer<std::int32_t> num_rows_;
  Buffer<std::int32_t> out_;
  Buffer<std::uint32_t> workspace_;
  Buffer<Statistics> statistics_;
  Buffer<std::uint32_t> scratch_;
  Buffer<Report> report_;
  std::vector<std::int32_t> host_lengths_;
  std::vector<std::int32_t> host_row_starts_;
  std::optional<std::int32_t> host_num_rows_;
  int scrambled_ = 0;
  std::string pattern_ = "not filled";
};

// A captured call, instantiated.
class Graph {
 public:
  // Captures what `enqueue` enqueues on `stream`.
  Graph(cudaStream_t stream, const std::function<void()>& enqueue);
  // Captures one or more launches of `call` and nothing else.
  explicit Graph(Call& call, int launches = 1);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  cudaGraphExec_t get() const { return executable_; }
  std::vector<cudaGraphNodeType> node_types() const;
  // Edges over which a kernel may begin before the one in front of it has ended.
  std::int64_t programmatic_edges() const;

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

// A kernel and a policy by its name: default, paper, or the default with a pipeline of its own, loads or bulk.
struct Mapping {
  Kernel kernel = Kernel::kAuto;
  const char* policy = "default";
};

std::ostream& operator<<(std::ostream& stream, const Mapping& mapping);  // "row_local_paper"

// Skips, naming the reason, where there is no GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override;

  // The plan of a mapping for a shape, or nothing where the planner says that it cannot serve it.
  std::optional<Plan> plan_for(const Mapping& mapping, const Shape& shape, const Layout& layout = {});
  // The same as a call on stream().
  std::unique_ptr<Call> call_for(const Mapping& mapping, const Shape& shape, const Layout& layout = {});

  // Fails the test with the report where it is not empty; ends the test by an exception at the eighth failure.
  void expect_right(const std::string& report);

  cudaStream_t stream();  // the test's own
  const std::string& refusal() const { return refusal_; }

 private:
  DeviceInfo device_;
  std::unique_ptr<OwnStream> stream_;
  int failures_ = 0;
  std::string refusal_;  // the planner's last
};

// Every GPU kernel that the header names, with the default policy and the paper's, and those that sample with the
// pipeline that is not the default's.
std::vector<Mapping> mappings();

// Runs once for each mapping; skips, naming the planner's reason, where it refused every shape of the test.
class MappingTest : public GpuTest, public testing::WithParamInterface<Mapping> {
 protected:
  void TearDown() override;

  std::unique_ptr<Call> make_call(const Shape& shape, const Layout& layout = {});

 private:
  int served_ = 0;
};

#define HPCTOPK_FOR_EACH_MAPPING(suite) \
  INSTANTIATE_TEST_SUITE_P(Mappings, suite, testing::ValuesIn(mappings()), testing::PrintToStringParamName())

}  // namespace hpctopk::gpu_test

#endif  // HPCTOPK_TESTS_GPU_HARNESS_H_
