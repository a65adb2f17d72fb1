// SPDX-License-Identifier: Apache-2.0
//
// The CPU back end: propose, certify, refine (paper, section 4), rows or segments of rows claimed by threads.

#include "src/cpu/run_cpu.h"

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cmath>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "kernels/detail/ordered_key.h"
#include "kernels/detail/view.h"
#include "src/check_arguments.h"

namespace hpctopk::cpu {
namespace {

// Shorter rows are admitted as a whole: a sample would cost more than it saves.
constexpr std::int64_t kMinSampledLength = 2048;
// More samples admit fewer scores, but each chunk of them is a cache line from a random place. 512 to 2048 samples cost
// the same within a tenth from 16K to 1M scores a row, k = 512 or 2048.
constexpr std::int32_t kMaxSamples = 2048;
// A thread is worth its start, some 20 us, from this many scores on.
constexpr std::int64_t kMinScoresPerThread = std::int64_t{1} << 18;
constexpr std::int64_t kMinScoresPerSegment = std::int64_t{1} << 16;

// A floor that admits every score.
constexpr float kNoFloor = std::numeric_limits<float>::quiet_NaN();

enum class Boundary { kPrimary, kSecondary, kNone };

// The valid scores of a row: columns [begin, end) of `row`.
struct Window {
  const float* row;
  std::int64_t begin;
  std::int64_t end;
  std::int64_t length() const { return end - begin; }
};

// A call, and the shape of the work it is split into.
struct Call {
  const VectorLoops* loops;
  const Plan* plan;
  const Arguments* arguments;
  SamplePolicy policy;
  std::int64_t rows;
  std::int32_t segments;  // of each row
  std::int32_t capacity;  // candidates of a segment
  std::int32_t max_samples;

  std::int32_t k() const { return plan->problem.k; }

  Window window(std::int64_t index) const {
    const std::int64_t columns = plan->problem.num_columns;
    const std::int64_t stride = plan->problem.row_stride != 0 ? plan->problem.row_stride : columns;
    Window window{arguments->scores + index * stride, 0, columns};
    if (arguments->row_starts != nullptr) {
      window.begin = std::clamp<std::int64_t>(arguments->row_starts[index], 0, columns);
    }
    if (arguments->lengths != nullptr) {
      window.end = window.begin + std::clamp<std::int64_t>(arguments->lengths[index], 0, columns - window.begin);
    }
    return window;
  }

  std::int32_t* out(std::int64_t index) const {
    return arguments->out + index * (arguments->out_row_stride != 0 ? arguments->out_row_stride : k());
  }
};

// The memory of a call, shared by its threads. A slot holds the candidates of a thread's row, or of a segment.
struct Memory {
  std::unique_ptr<std::uint32_t[]> keys, scratch;  // `capacity` for each slot
  std::unique_ptr<std::int32_t[]> columns;         // likewise
  std::unique_ptr<std::int32_t[]> counts;          // candidates of each slot
  std::unique_ptr<std::uint32_t[]> samples;        // for each thread, twice max_samples: what kth_largest() needs too
  std::unique_ptr<std::atomic<int>[]> arrivals;    // segments of each row that have been scanned

  bool allocate(const Call& call, std::int64_t threads) {
    const auto slots = static_cast<std::size_t>(call.segments == 1 ? threads : call.rows * call.segments);
    const std::size_t size = slots * static_cast<std::size_t>(call.capacity);
    const auto split_rows = static_cast<std::size_t>(call.segments == 1 ? 0 : call.rows);
    keys.reset(new (std::nothrow) std::uint32_t[size]);
    scratch.reset(new (std::nothrow) std::uint32_t[size]);
    columns.reset(new (std::nothrow) std::int32_t[size]);
    counts.reset(new (std::nothrow) std::int32_t[slots]);
    samples.reset(new (std::nothrow) std::uint32_t[static_cast<std::size_t>(threads * 2 * call.max_samples)]);
    arrivals.reset(new (std::nothrow) std::atomic<int>[split_rows]);
    if (!keys || !scratch || !columns || !counts || !samples || !arrivals) return false;
    for (std::size_t row = 0; row < split_rows; ++row) arrivals[row].store(0, std::memory_order_relaxed);
    return true;
  }
};

// One thread's part of a call.
class Worker {
 public:
  Worker(const Call& call, const Memory& memory, int thread)
      : call_(call),
        loops_(*call.loops),
        memory_(memory),
        thread_(thread),
        sample_(memory.samples.get() +
                static_cast<std::size_t>(thread) * 2 * static_cast<std::size_t>(call.max_samples)) {}

  void segment(std::int64_t unit) {
    const std::int64_t index = unit / call_.segments;
    const std::int64_t segment = unit % call_.segments;
    const Window window = call_.window(index);
    if (window.length() <= call_.k()) {
      if (segment == 0) write_whole(window, call_.out(index));
      return;
    }
    Candidates candidates = slot(call_.segments == 1 ? thread_ : unit);
    const float floor = propose(window, index, Boundary::kPrimary);
    certify(part(window, segment), floor, &candidates);
    if (call_.segments > 1) {
      memory_.counts[static_cast<std::size_t>(unit)] = candidates.count;
      auto& arrivals = memory_.arrivals[static_cast<std::size_t>(index)];
      if (arrivals.fetch_add(1, std::memory_order_acq_rel) + 1 < call_.segments) return;
      candidates = merge(index);  // the last to arrive owns the row
    }
    finish(window, index, &candidates);
  }

  void add_to(Statistics* total) const {
    const auto add = [](std::uint64_t* to, std::uint64_t n) { __atomic_fetch_add(to, n, __ATOMIC_RELAXED); };
    add(&total->rows, statistics_.rows);
    add(&total->candidates, statistics_.candidates);
    add(&total->rescued, statistics_.rescued);
    add(&total->recovered, statistics_.recovered);
    add(&total->tightened, statistics_.tightened);
    add(&total->scores_read, statistics_.scores_read);
  }

 private:
  void write_whole(const Window& window, std::int32_t* out) const {
    for (std::int32_t i = 0; i < call_.k(); ++i) {
      out[i] = i < window.length() ? static_cast<std::int32_t>(window.begin + i) : -1;
    }
  }

  Candidates slot(std::int64_t index) const {
    const auto at = static_cast<std::size_t>(index) * static_cast<std::size_t>(call_.capacity);
    return {memory_.keys.get() + at, memory_.columns.get() + at, memory_.scratch.get() + at, 0, call_.capacity};
  }

  Window part(const Window& window, std::int64_t segment) const {
    const auto cut = [&](std::int64_t i) {
      if (i == call_.segments) return window.end;
      return window.begin + window.length() * i / call_.segments / kScanWord * kScanWord;
    };
    return {window.row, cut(segment), cut(segment + 1)};
  }

  // Phase 1 (section 4.2): the floor of a boundary that a sample of the row puts below its k best scores.
  float propose(const Window& window, std::int64_t index, Boundary boundary) {
    const SamplePolicy& policy = call_.policy;
    const auto length = static_cast<std::int32_t>(window.length());
    if (boundary == Boundary::kNone || policy.view == View::kNone || length < kMinSampledLength) return kNoFloor;
    std::int32_t samples = 0;
    std::int32_t rank = 0;
    if (policy.view == View::kStrided) {
      const detail::StridedView view =
          detail::strided_view(policy, length, call_.k(), static_cast<std::uint32_t>(index));
      rank = boundary == Boundary::kPrimary ? view.rank : view.second_rank;
      if (2 * rank > view.samples) return kNoFloor;
      const float* const scores = window.row + window.begin;
      for (std::int64_t i = view.phase; samples < view.samples; i += view.stride) {
        sample_[samples++] = detail::float_bits(scores[i]);
      }
    } else {
      const detail::HashedView view = detail::hashed_view(policy, length, length / 4, call_.k());
      rank = boundary == Boundary::kPrimary ? view.rank : view.second_rank;
      if (2 * rank > view.samples || !view.usable()) return kNoFloor;
      const std::int32_t quads = 1 << view.log_chunk;
      const auto chunk = [&](std::int32_t i) {
        return window.row + window.begin + 4 * std::int64_t{view.quad(i * quads, static_cast<std::uint32_t>(index))};
      };
      const std::int32_t chunks = view.samples / (4 * quads);
      for (std::int32_t i = 0; i < chunks; ++i) {  // or each chunk would cost a memory latency
        __builtin_prefetch(chunk(i));
        __builtin_prefetch(chunk(i) + 4 * quads - 1);
      }
      for (std::int32_t i = 0; i < chunks; ++i) {
        const float* const from = chunk(i);
        for (std::int32_t j = 0; j < quads; ++j, samples += 4) {
          std::memcpy(sample_ + samples, from + 4 * j, 4 * sizeof(float));
        }
      }
    }
    loops_.make_keys(sample_, samples);
    statistics_.scores_read += static_cast<std::uint64_t>(samples);
    return detail::admission_floor(loops_.kth_largest(sample_, samples, rank, sample_ + samples).key);
  }

  // Phase 2 (section 4.3): every score of the window meets the boundary once. A full buffer is cut to its k best, and
  // the boundary rises above the k-th: later equal scores have higher columns and lose to it.
  void certify(const Window& window, float floor, Candidates* candidates) {
    statistics_.scores_read += static_cast<std::uint64_t>(window.length());
    std::int64_t next = window.begin;
    for (;;) {
      const std::int32_t before = candidates->count;
      next = loops_.scan(window.row, next, window.end, floor, candidates);
      statistics_.candidates += static_cast<std::uint64_t>(candidates->count - before);
      if (next == window.end) return;
      const Cut cut = keep_best(candidates);
      ++statistics_.tightened;
      if (cut.key == detail::kNanKey) return;
      floor = detail::admission_floor(cut.key + 1);
    }
  }

  // Cuts the candidates to the k best.
  Cut keep_best(Candidates* candidates) const {
    const Cut cut = loops_.kth_largest(candidates->keys, candidates->count, call_.k(), candidates->scratch);
    loops_.keep(candidates, cut);
    return cut;
  }

  // The candidates of all segments of a row, in column order, at the row's first slot.
  Candidates merge(std::int64_t index) const {
    Candidates all = slot(index * call_.segments);
    all.capacity *= call_.segments;
    for (std::int64_t unit = index * call_.segments; unit < (index + 1) * call_.segments; ++unit) {
      const Candidates segment = slot(unit);
      const std::int32_t count = memory_.counts[static_cast<std::size_t>(unit)];
      const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(std::uint32_t);
      std::memmove(all.keys + all.count, segment.keys, bytes);
      std::memmove(all.columns + all.count, segment.columns, bytes);
      all.count += count;
    }
    return all;
  }

  // Completes an underfilled row, then Phase 3 (section 4.4): the k best of the candidates go out.
  void finish(const Window& window, std::int64_t index, Candidates* candidates) {
    Boundary boundary = Boundary::kPrimary;
    while (candidates->count < call_.k()) {
      boundary = boundary == Boundary::kPrimary ? Boundary::kSecondary : Boundary::kNone;
      const float floor = propose(window, index, boundary);
      if (std::isnan(floor)) boundary = Boundary::kNone;
      statistics_.candidates -= static_cast<std::uint64_t>(candidates->count);
      candidates->count = 0;
      certify(window, floor, candidates);
    }
    if (candidates->count > call_.k()) keep_best(candidates);
    std::memcpy(call_.out(index), candidates->columns, static_cast<std::size_t>(call_.k()) * sizeof(std::int32_t));
    ++statistics_.rows;
    statistics_.rescued += boundary == Boundary::kSecondary;
    statistics_.recovered += boundary == Boundary::kNone;
  }

  const Call& call_;
  const VectorLoops& loops_;
  const Memory& memory_;
  const int thread_;
  std::uint32_t* const sample_;
  Statistics statistics_{};
};

// The caller's floating-point environment may flush denormals to zero, which would tie them with zero.
class DefaultFloatEnvironment {
 public:
  DefaultFloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved_); }
  DefaultFloatEnvironment(const DefaultFloatEnvironment&) = delete;
  DefaultFloatEnvironment& operator=(const DefaultFloatEnvironment&) = delete;

 private:
  std::fenv_t saved_;
};

// Runs work(0) here and work(1), ... on other threads. The work must not depend on how many there are: where the system
// refuses a thread, the others do it all.
template <class Work>
void on_threads(int threads, const Work& work) {
  std::vector<std::thread> others;
  try {
    others.reserve(static_cast<std::size_t>(threads - 1));
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(work, thread);
  } catch (const std::exception&) {
  }
  work(0);
  for (std::thread& other : others) other.join();
}

}  // namespace

Status run(const Plan& plan, const Arguments& arguments, int num_threads, const VectorLoops& loops) noexcept {
  if (plan.kernel != Kernel::kCpu) {
    return Status::error(StatusCode::kInvalidArgument, "plan.kernel = %s: run_cpu() takes a plan for the CPU",
                         to_string(plan.kernel));
  }
  if (num_threads < 0) {
    return Status::error(StatusCode::kInvalidArgument, "num_threads = %d: must be at least 0", num_threads);
  }
  if (const Status status = check_arguments(plan, arguments); !status.ok()) return status;

  Call call{&loops, &plan, &arguments, plan.policy.sample, plan.problem.num_rows, 1, 0, 0};
  call.policy.max_samples = std::min(call.policy.max_samples, kMaxSamples);
  if (arguments.num_rows != nullptr) call.rows = std::clamp<std::int64_t>(*arguments.num_rows, 0, call.rows);
  if (call.rows == 0) return {};

  std::int64_t longest = 0;
  std::int64_t total = 0;
  for (std::int64_t row = 0; row < call.rows; ++row) {
    const std::int64_t length = call.window(row).length();
    longest = std::max(longest, length);
    total += length;
  }
  const auto up_to = [](std::int64_t limit, std::int64_t n) { return std::clamp<std::int64_t>(n, 1, limit); };
  const std::int64_t most_threads = num_threads > 0 ? num_threads : std::max(plan.grid, 1);
  std::int64_t threads = up_to(most_threads, total / kMinScoresPerThread);
  if (call.rows < 2 * threads) {
    call.segments =
        static_cast<std::int32_t>(up_to((2 * threads + call.rows - 1) / call.rows, longest / kMinScoresPerSegment));
  }
  const std::int64_t units = call.rows * call.segments;
  threads = up_to(units, threads);

  const std::int64_t admitted_whole = (longest + 2 * kScanWord - 1) / kScanWord * kScanWord;
  call.capacity = static_cast<std::int32_t>(
      std::min<std::int64_t>(6 * std::int64_t{plan.problem.k} + 4096, admitted_whole) / kScanWord * kScanWord);
  call.max_samples = plan.policy.sample.view == View::kStrided
                         ? static_cast<std::int32_t>(longest / plan.policy.sample.stride + 1)
                         : kMaxSamples;
  Memory memory;
  if (!memory.allocate(call, threads)) {
    return Status::error(StatusCode::kOutOfMemory, "k = %d: no memory for the candidates of %lld threads",
                         plan.problem.k, static_cast<long long>(threads));
  }

  std::atomic<std::int64_t> next{0};
  const auto work = [&](int thread) {
    const DefaultFloatEnvironment environment;
    Worker worker(call, memory, thread);
    for (std::int64_t unit; (unit = next.fetch_add(1, std::memory_order_relaxed)) < units;) worker.segment(unit);
    if (arguments.statistics != nullptr) worker.add_to(arguments.statistics);
  };
  on_threads(static_cast<int>(threads), work);
  return {};
}

}  // namespace hpctopk::cpu

namespace hpctopk {

Status run_cpu(const Plan& plan, const Arguments& arguments, int num_threads) noexcept {
  static const cpu::VectorLoops& best = *cpu::available_vector_loops().loops[0];
  return cpu::run(plan, arguments, num_threads, best);
}

}  // namespace hpctopk
