// SPDX-License-Identifier: Apache-2.0
//
// Launches beside other work: two host threads with all mappings at once, replays while another kernel has most
// multiprocessors, and launches after one that was aborted. A hang is a failure.

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <future>
#include <random>
#include <thread>

#include "tests/gpu/harness.h"

namespace hpctopk::gpu_test {
namespace {

// Ends the process where what follows takes too long: nothing else ends a host that waits for a kernel that hangs.
class Watchdog {
 public:
  ~Watchdog() { ended_.set_value(); }

 private:
  static void watch(const std::future<void>& ended) {
    constexpr std::chrono::seconds kLimit{60};
    if (ended.wait_for(kLimit) != std::future_status::timeout) return;
    std::fprintf(stderr, "[  FAILED  ] the GPU is not done after %lld s: a kernel hangs\n",
                 static_cast<long long>(kLimit.count()));
    std::_Exit(1);
  }

  std::promise<void> ended_;
  std::future<void> watcher_ = std::async(std::launch::async, watch, ended_.get_future());
};

// ---------------------------------------------------------------------------------------------------------------------
// Two host threads

// The calls of a thread, launched in turn from the one at `first` on, all that `rounds` asks for before any is checked.
std::string launch_in_turn(const std::vector<std::unique_ptr<Call>>& calls, std::size_t first, int rounds,
                           const std::shared_future<void>& start) {
  check_cuda(cudaSetDevice(0));
  start.wait();
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
      Call& call = *calls[(first + i) % calls.size()];
      call.poison();
      call.require_launch();
    }
    for (const auto& call : calls) {
      if (std::string report = call->check(); !report.empty()) return report;
    }
  }
  return "";
}

class ThreadStressTest : public GpuTest {};

TEST_F(ThreadStressTest, TwoLaunchEveryMappingAtOnce) {
  const OwnStream streams[2];
  std::vector<std::unique_ptr<Call>> calls[2];
  for (const Mapping& mapping : mappings()) {
    for (const Shape& shape : {Shape{150, 20000, 2048}, Shape{3, 131072, 512}, Shape{64, 4097, 1024}}) {
      const std::optional<Plan> plan = plan_for(mapping, shape);
      if (!plan) continue;
      for (int thread = 0; thread < 2; ++thread) {
        calls[thread].push_back(std::make_unique<Call>(*plan, Layout{}, streams[thread].get()));
        calls[thread].back()->fill({thread == 0 ? Fill::kLevels : Fill::kNormal}, calls[thread].size());
      }
    }
  }
  ASSERT_FALSE(calls[0].empty()) << refusal();
  check_cuda(cudaDeviceSynchronize());
  const Watchdog watchdog;
  std::promise<void> start;
  const std::shared_future<void> started = start.get_future();
  constexpr int kRounds = 100;
  // At different places of the list, so that different mappings meet.
  std::future<std::string> reports[2];
  for (std::size_t thread = 0; thread < 2; ++thread) {
    reports[thread] = std::async(std::launch::async, launch_in_turn, std::cref(calls[thread]),
                                 thread * calls[thread].size() / 2, kRounds, started);
  }
  start.set_value();
  for (std::future<std::string>& report : reports) expect_right(report.get());
}

// ---------------------------------------------------------------------------------------------------------------------
// Most multiprocessors held by another kernel

class HeldMultiprocessors {
 public:
  // Returns when the kernel that holds them runs on all of them.
  explicit HeldMultiprocessors(std::int32_t cluster_size) {
    check_cuda(cudaHostAlloc(reinterpret_cast<void**>(&hold_), sizeof(Hold), cudaHostAllocMapped));
    *hold_ = {};
    check_cuda(cudaDeviceSynchronize());
    count_ = hold_multiprocessors(cluster_size, hold_, stream_.get());
    check_cuda(cudaGetLastError());
    while (shared(hold_->arrived) < count_) std::this_thread::yield();
  }
  ~HeldMultiprocessors() {
    shared(hold_->released) = 1;
    cudaStreamSynchronize(stream_.get());
    cudaFreeHost(hold_);
  }
  HeldMultiprocessors(const HeldMultiprocessors&) = delete;
  HeldMultiprocessors& operator=(const HeldMultiprocessors&) = delete;

  unsigned count() const { return count_; }
  bool still_held() const { return cudaStreamQuery(stream_.get()) == cudaErrorNotReady; }

 private:
  static volatile std::uint32_t& shared(std::uint32_t& word) { return word; }

  OwnStream stream_;
  Hold* hold_ = nullptr;
  unsigned count_ = 0;
};

class StressTest : public MappingTest {};
HPCTOPK_FOR_EACH_MAPPING(StressTest);

// 100,000 replays over all mappings and shapes, every one of them checked on the device.
TEST_P(StressTest, ReplaysWhileAnotherKernelHasMostMultiprocessors) {
  constexpr Shape kShapes[] = {{5, 9000, 1024}, {3, 40001, 2048}};
  const std::size_t parts = mappings().size() * std::size(kShapes);
  const std::size_t replays = (100'000 + parts - 1) / parts;
  for (const Shape& shape : kShapes) {
    const auto call = make_call(shape);
    if (!call) continue;
    call->fill({Fill::kLevels}, 1);
    const Buffer<std::int32_t> lengths(shape.m, stream());
    Buffer<std::uint32_t> turn(1, stream());
    turn.fill_byte(0);
    call->arguments().lengths = lengths.data();
    const Graph graph(stream(), [&] {
      draw_lengths(lengths.data(), shape.m, shape.n, shape.k, turn.data(), stream());
      call->poison();
      call->require_launch();
      call->enqueue_check();
    });
    check_cuda(cudaGraphLaunch(graph.get(), stream()));  // loads the kernels, which may have to wait for all others
    const Watchdog watchdog;
    {
      const HeldMultiprocessors held(call->plan().cluster_size);
      ASSERT_GT(held.count(), 0U);
      for (std::size_t i = 0; i < replays; ++i) check_cuda(cudaGraphLaunch(graph.get(), stream()));
      check_cuda(cudaStreamSynchronize(stream()));
      EXPECT_TRUE(held.still_held());
    }
    expect_right(call->check());
    EXPECT_EQ(turn.download(0, 1).front(), replays + 1);
  }
}

// ---------------------------------------------------------------------------------------------------------------------
// After a launch that was aborted

class AbortedTest : public MappingTest {
 protected:
  static constexpr Shape kShapes[] = {{300, 20000, 2048}, {3, 600000, 705}, {1, 131072, 512}, {64, 4097, 1}};

  // Calls of all shapes that share one workspace, as the layers of an engine do.
  void SetUp() override {
    MappingTest::SetUp();
    if (IsSkipped()) return;
    std::size_t bytes = 16;
    for (const Shape& shape : kShapes) {
      if (auto call = make_call(shape)) calls_.push_back(std::move(call));
    }
    for (const auto& call : calls_) bytes = std::max(bytes, call->arguments().workspace_bytes);
    workspace_ = std::make_unique<Buffer<std::uint32_t>>(static_cast<std::int64_t>((bytes + 3) / 4), stream());
    workspace_->fill_byte(0xFF);
    use_workspace(workspace_->data());
    for (const auto& call : calls_) call->fill({Fill::kQuads}, 30);
  }

  void use_workspace(void* workspace) {
    for (const auto& call : calls_) {
      call->arguments().workspace = workspace;
      call->arguments().workspace_bytes = workspace_->bytes();
    }
  }

  void expect_next_right(Call& call) {
    call.poison();
    call.require_launch();
    expect_right(call.check());
  }

  std::vector<std::unique_ptr<Call>> calls_;
  std::unique_ptr<Buffer<std::uint32_t>> workspace_;
};
HPCTOPK_FOR_EACH_MAPPING(AbortedTest);

// What an aborted launch leaves of the workspace: a copy that was made while the launch ran.
TEST_P(AbortedTest, HalfDoneOnTheWorkspace) {
  const OwnStream beside;
  const Buffer<std::uint32_t> copy(workspace_->count(), beside.get());
  for (int i = 0; i < 12; ++i) {
    for (const auto& aborted : calls_) {
      for (const auto& next : calls_) {
        check_cuda(cudaDeviceSynchronize());
        for (int launches = 0; launches <= i % 3; ++launches) aborted->require_launch();
        check_cuda(cudaMemcpyAsync(copy.data(), workspace_->data(), copy.bytes(), cudaMemcpyDefault, beside.get()));
        check_cuda(cudaDeviceSynchronize());
        check_cuda(cudaMemcpyAsync(workspace_->data(), copy.data(), copy.bytes(), cudaMemcpyDefault, stream()));
        expect_next_right(*next);
      }
    }
  }
}

// Another process that runs one test of this binary. The two talk over its standard input.
class Child {
 public:
  explicit Child(const std::string& test) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw std::runtime_error("no socketpair");
    const std::string filter = "--gtest_filter=" + test;
    const char* const arguments[] = {"hpctopk_gpu_tests", filter.c_str(), "--gtest_also_run_disabled_tests",
                                     "--gtest_brief=1", nullptr};
    std::vector<char*> environment;  // without the shard that this process may be, and its report
    for (char** variable = environ; *variable != nullptr; ++variable) {
      if (std::strncmp(*variable, "GTEST_", 6) != 0) environment.push_back(*variable);
    }
    environment.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
    const int error = posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, const_cast<char* const*>(arguments),
                                  environment.data());
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    socket_ = ends[0];
    if (error != 0) throw std::runtime_error(std::string("posix_spawn: ") + std::strerror(error));
  }
  ~Child() {
    if (pid_ > 0) killed();
    close(socket_);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int socket() const { return socket_; }
  // Kills it and waits for its end; false where it had ended by itself.
  bool killed() {
    int status = 0;
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
    pid_ = 0;
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

 private:
  pid_t pid_ = 0;
  int socket_ = -1;
};

template <typename T>
bool send_to(int socket, const T& message) {
  return send(socket, &message, sizeof(T), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(T));
}
template <typename T>
bool receive_from(int socket, T* message) {  // false where the other end is closed
  return recv(socket, message, sizeof(T), MSG_WAITALL) == static_cast<ssize_t>(sizeof(T));
}

// What KilledInAnotherProcess starts and kills.
TEST_P(AbortedTest, DISABLED_LaunchesUntilKilled) {
  const Watchdog watchdog;
  cudaIpcMemHandle_t handle;
  ASSERT_TRUE(receive_from(STDIN_FILENO, &handle)) << "runs for another test only";
  void* workspace = nullptr;
  const bool shared = cudaIpcOpenMemHandle(&workspace, handle, cudaIpcMemLazyEnablePeerAccess) == cudaSuccess;
  if (shared) use_workspace(workspace);
  cudaGetLastError();
  const auto launch_all = [&] {
    for (const auto& call : calls_) call->require_launch();
  };
  launch_all();
  check_cuda(cudaDeviceSynchronize());
  ASSERT_TRUE(send_to(STDIN_FILENO, shared));
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (std::chrono::steady_clock::now() < end) launch_all();
  FAIL() << "not killed";
}

// Killed in the middle of a queue of launches, on the workspace of this process where the system lets processes share
// memory of the GPU. Launches beside it and after it are right.
TEST_P(AbortedTest, KilledInAnotherProcess) {
  if (calls_.empty()) return;
  const Watchdog watchdog;
  void* memory = nullptr;
  check_cuda(cudaMalloc(&memory, workspace_->bytes()));
  const std::unique_ptr<void, cudaError_t (*)(void*)> workspace(memory, cudaFree);
  cudaIpcMemHandle_t handle{};
  cudaIpcGetMemHandle(&handle, memory);
  cudaGetLastError();
  for (std::size_t first = 0; first < calls_.size(); first += 2) {
    Child child("Mappings/AbortedTest.DISABLED_LaunchesUntilKilled/" + testing::PrintToString(GetParam()));
    bool shared = false;
    ASSERT_TRUE(send_to(child.socket(), handle) && receive_from(child.socket(), &shared)) << "ended by itself";
    RecordProperty("shared_workspace", shared ? "yes" : "no");
    use_workspace(workspace_->data());
    for (const auto& call : calls_) expect_next_right(*call);
    ASSERT_TRUE(child.killed()) << "ended by itself";
    std::this_thread::sleep_for(
        std::chrono::milliseconds(100));  // a container may close its files, the GPU's too, late
    use_workspace(memory);
    for (std::size_t i = 0; i < calls_.size(); ++i) expect_next_right(*calls_[(first + i) % calls_.size()]);
  }
}

TEST_P(AbortedTest, PlacesOfTheWorkspaceOverwritten) {
  std::mt19937_64 random{30};
  const auto below = [&](std::int64_t bound) {
    return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(random);
  };
  for (int i = 0; i < 25; ++i) {
    for (const auto& call : calls_) {
      for (int place = 0; place < 4; ++place) {
        const std::int64_t at = below(workspace_->count());
        const std::int64_t count = below(std::min<std::int64_t>(workspace_->count() - at, 5000)) + 1;
        std::uint32_t* const words = workspace_->data() + at;
        if (const std::int64_t how = below(3); how < 2) {
          fill_words(words, count, how == 0 ? 0U : ~0U, stream());
        } else {
          fill_bits(words, count, random(), stream());
        }
      }
      expect_next_right(*call);
    }
  }
}

TEST_P(AbortedTest, CaptureInvalidatedHalfWay) {
  for (const auto& call : calls_) {
    check_cuda(cudaStreamSynchronize(stream()));
    check_cuda(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal));
    EXPECT_TRUE(call->launch().ok());
    EXPECT_NE(cudaStreamSynchronize(stream()), cudaSuccess);  // a capture allows no waiting, and ends here
    EXPECT_EQ(call->launch().code(), StatusCode::kCudaError);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream(), &graph), cudaErrorStreamCaptureInvalidated);
    cudaGetLastError();
    expect_next_right(*call);
    const Graph captured(*call);
    expect_right(call->replay(captured.get(), {Fill::kQuads}, 31));
  }
}

TEST_P(AbortedTest, RefusedByTheDevice) {
  for (const auto& call : calls_) {
    const Graph captured(*call);
    Plan oversized = call->plan();
    oversized.shared_bytes = 1 << 30;
    EXPECT_EQ(launch(oversized, call->arguments(), stream()).code(), StatusCode::kCudaError);
    cudaGetLastError();
    expect_next_right(*call);
    expect_right(call->replay(captured.get(), {Fill::kQuads}, 32));
  }
}

}  // namespace
}  // namespace hpctopk::gpu_test
