// SPDX-License-Identifier: Apache-2.0
//
// Every mapping, on every policy that changes its path, against a sort: random shapes, windows, alignments and scores
// in random schedules. HPCTOPK_EMULATED_SEED=N runs N alone, as a failure names it; HPCTOPK_EMULATED_CASES=N runs N
// cases.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hpctopk/topk.h"
#include "kernels/detail/ordered_key.h"
#include "kernels/kernels.h"

namespace emulated {
extern std::function<void()> kernel_in_front;  // emulator.h, which is for kernels alone
}

namespace hpctopk::test {
namespace {

using Rng = std::mt19937;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::int64_t uniform(Rng& rng, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
}
float fraction(Rng& rng) { return std::uniform_real_distribution<float>()(rng); }
float normal(Rng& rng) { return std::normal_distribution<float>()(rng); }

// A score by its family, for column i of n.
using Family = float (*)(Rng& rng, std::int64_t i, std::int64_t n);
constexpr Family kFamilies[] = {
    [](Rng& rng, std::int64_t, std::int64_t) { return normal(rng); },
    [](Rng& rng, std::int64_t, std::int64_t) { return std::max(0.0F, normal(rng) - 2.6F); },    // a plateau of zeros
    [](Rng& rng, std::int64_t, std::int64_t) { return std::round(4 * normal(rng)) / 4; },       // plateaus
    [](Rng& rng, std::int64_t, std::int64_t) { return 100 + fraction(rng) * 1e-3F; },           // a narrow range
    [](Rng& rng, std::int64_t i, std::int64_t) { return i < 900 ? normal(rng) : -kInfinity; },  // few finite
    [](Rng&, std::int64_t, std::int64_t) { return 1.0F; },                                      // all equal
    [](Rng&, std::int64_t i, std::int64_t) { return static_cast<float>(i); },                   // ascending
    [](Rng&, std::int64_t i, std::int64_t n) { return static_cast<float>(n - i); },             // descending
    [](Rng& rng, std::int64_t, std::int64_t) { return fraction(rng) < 0.5F ? kNan : normal(rng); },
    [](Rng& rng, std::int64_t, std::int64_t) { return fraction(rng) < 0.1F ? kInfinity : normal(rng); },
    [](Rng& rng, std::int64_t i, std::int64_t) { return i % 128 == 5 ? 10 + fraction(rng) : 0.1F * normal(rng); },
    [](Rng& rng, std::int64_t i, std::int64_t n) { return i > n - 3000 ? 5 + fraction(rng) : normal(rng); },
    [](Rng& rng, std::int64_t, std::int64_t) {
      return fraction(rng) < 0.01F ? normal(rng) : fraction(rng) < 0.5F ? 0.0F : -0.0F;
    },
    [](Rng& rng, std::int64_t i, std::int64_t n) { return i < n / 2 ? normal(rng) : 0.0F; },
    [](Rng&, std::int64_t, std::int64_t) { return kNan; },
    [](Rng& rng, std::int64_t i, std::int64_t n) { return i < n / 2 ? normal(rng) - 5 : -1.0F; },
    [](Rng& rng, std::int64_t, std::int64_t) { return std::exp(10 * normal(rng)); },  // a long tail
    [](Rng& rng, std::int64_t i, std::int64_t) {  // zeros between others, and outliers at two phases of a period
      return i % 256 == 0 || i % 256 == 255 ? 20 + normal(rng) : fraction(rng) < 0.5F ? 0.0F : normal(rng);
    },
    [](Rng& rng, std::int64_t, std::int64_t) {  // a crowd of different scores about zero
      return fraction(rng) < 0.1F ? 100 * normal(rng) : 1e-4F * normal(rng);
    },
};

DeviceInfo hopper(int num_sms) {
  DeviceInfo device;
  std::strcpy(device.name, "emulated");
  device.compute_capability = 90;
  device.num_sms = num_sms;
  device.shared_memory_per_block = 232448;
  device.shared_memory_per_sm = 233472;
  device.max_cluster_size = 16;
  device.l2_bytes = 50 << 20;
  device.memory_bandwidth_gbps = 4530;
  return device;
}

std::vector<std::int32_t> sorted_selection(const float* scores, std::int32_t start, std::int32_t length, int k) {
  std::vector<std::int32_t> result;
  if (length <= k) {
    for (int i = 0; i < k; ++i) result.push_back(i < length ? start + i : -1);
    return result;
  }
  std::vector<std::uint64_t> composites;
  for (std::int32_t i = 0; i < length; ++i) {
    composites.push_back(detail::composite(detail::ordered_key(scores[start + i]), static_cast<std::uint32_t>(i)));
  }
  std::nth_element(composites.begin(), composites.begin() + k - 1, composites.end(), std::greater<>());
  for (int i = 0; i < k; ++i) {
    result.push_back(start +
                     static_cast<std::int32_t>(detail::composite_index(composites[static_cast<std::size_t>(i)])));
  }
  std::sort(result.begin(), result.end());
  return result;
}

struct Mapping {
  Kernel kernel;
  const char* policy;  // "default", "loads", "paper" or "mixed"
};

std::string name_of(const testing::TestParamInfo<Mapping>& info) {
  return std::string(to_string(info.param.kernel)) + "_" + info.param.policy;
}

int launch(const Plan& plan, const Arguments& arguments) {
  switch (plan.kernel) {
    case Kernel::kPersistent:
      return kernels::launch_persistent(plan, arguments, nullptr);
    case Kernel::kKvSplit:
      return kernels::launch_kv_split(plan, arguments, nullptr);
    case Kernel::kCluster:
      return kernels::launch_cluster(plan, arguments, nullptr);
    default:
      return kernels::launch_row_local(plan, arguments, nullptr);
  }
}

class EmulatedTest : public testing::TestWithParam<Mapping> {};

void expect_right(const Mapping& mapping, unsigned seed) {
  SCOPED_TRACE("HPCTOPK_EMULATED_SEED=" + std::to_string(seed));
  Rng rng(seed);
  constexpr std::int32_t kKs[] = {1, 64, 512, 705, 1024, 2048, 4096};
  constexpr std::int64_t kWidths[] = {3001, 9000, 16384, 24000, 40001, 70000, 131072};
  Problem problem;
  problem.k = kKs[uniform(rng, 0, 6)];
  problem.num_columns = kWidths[uniform(rng, 0, 6)] + uniform(rng, 0, 3);
  if (mapping.kernel == Kernel::kRowLocal && uniform(rng, 0, 3) > 0) {  // rows that stay in registers
    problem.num_columns = uniform(rng, 0, 3) == 0 ? std::int64_t{1024} << uniform(rng, 0, 4) : uniform(rng, 1, 16384);
  }
  const std::string name = mapping.policy;
  problem.num_rows = uniform(rng, 1, 3);
  // A CTA that has many rows to take, of any length.
  const bool queue = mapping.kernel == Kernel::kPersistent && uniform(rng, 0, 1) == 0;
  if (queue) problem.num_rows = uniform(rng, 2, 9);
  problem.row_stride = problem.num_columns + (uniform(rng, 0, 1) == 0 ? 0 : uniform(rng, 1, 7));
  Policy policy = name == "paper" ? paper_policy() : default_policy();
  if (name == "loads") policy.pipeline = Pipeline::kLoads;
  if (name == "mixed") {
    if (uniform(rng, 0, 3) == 0) policy = paper_policy();
    if (uniform(rng, 0, 3) == 0) policy.digits = Digits::kFixed;
    policy.pipeline = Pipeline::kBulk;
    policy.sample.chunk = 4 << uniform(rng, 0, 6);
    if (uniform(rng, 0, 2) == 0) policy.sample.max_samples = 256 << uniform(rng, 0, 6);
    policy.sample.min_samples = std::min(policy.sample.min_samples, policy.sample.max_samples);
  }
  // Boundaries that admit too few, and many more than are needed.
  if (const std::int64_t kind = uniform(rng, 0, 7); kind < 2) policy.sample.sigmas = kind == 0 ? 0.0F : 30.0F;
  PlanOptions options;
  options.kernel = mapping.kernel;
  options.policy = &policy;
  if (mapping.kernel == Kernel::kCluster || mapping.kernel == Kernel::kKvSplit) {
    options.ctas_per_row = uniform(rng, 0, 1) == 0 ? 0 : 2 << uniform(rng, 0, 3);
  }
  Plan plan;
  // With few multiprocessors CTAs take rows in turn.
  if (!make_plan(problem, hopper(queue ? 1 : uniform(rng, 0, 1) == 0 ? 132 : 4), options, &plan).ok()) return;
  if (plan.block == kernels::kRingBlock && uniform(rng, 0, 1) == 0) {  // rows whose candidates find no room
    plan.candidate_capacity = 2 * (plan.problem.k + kernels::kMinStagedRoom);
  }

  std::vector<float> memory(static_cast<std::size_t>(problem.num_rows * problem.row_stride + 32));
  const auto misaligned = reinterpret_cast<std::uintptr_t>(memory.data()) / sizeof(float) % 16;
  float* const scores = memory.data() + (16 - misaligned) + uniform(rng, 0, 3);
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> starts;
  const bool windows = uniform(rng, 0, 2) == 0;
  for (std::int64_t row = 0; row < problem.num_rows; ++row) {
    const Family family = kFamilies[uniform(rng, 0, std::size(kFamilies) - 1)];
    starts.push_back(windows ? static_cast<std::int32_t>(uniform(rng, 0, problem.num_columns / 2)) : 0);
    const std::int64_t most = problem.num_columns - starts.back();
    const std::int64_t kind = uniform(rng, 0, 7);
    lengths.push_back(
        static_cast<std::int32_t>(kind < 4 ? most : std::min(most, uniform(rng, 0, kind < 7 ? most : problem.k + 1))));
    for (std::int64_t i = 0; i < problem.num_columns; ++i) {
      scores[row * problem.row_stride + i] = family(rng, i, problem.num_columns);
    }
  }
  constexpr std::int32_t kUntouched = -77;
  std::vector<std::int32_t> out(static_cast<std::size_t>(problem.num_rows * problem.k + 8), kUntouched);
  std::vector<std::uint64_t> workspace(workspace_size(plan) / 8 + 1);
  for (std::uint64_t& word : workspace) word = rng() * std::uint64_t{0x9E3779B97F4A7C15};
  Arguments arguments;
  arguments.scores = scores;
  arguments.lengths = lengths.data();
  arguments.row_starts = windows ? starts.data() : nullptr;
  arguments.out = out.data();
  arguments.workspace = workspace.data();
  arguments.workspace_bytes = workspace.size() * 8;

  // The kernel in front writes the inputs when it ends. Until then there is nothing to read, and all memory is its own.
  std::int32_t num_rows = 0;
  arguments.num_rows = uniform(rng, 0, 1) == 0 ? &num_rows : nullptr;
  const std::int64_t live_rows = problem.num_rows - (arguments.num_rows != nullptr ? uniform(rng, 0, 1) : 0);
  const std::vector<float> last_memory = memory;
  const std::vector<std::int32_t> last_lengths = lengths;
  const std::vector<std::int32_t> last_starts = starts;
  const std::vector<std::uint64_t> first_workspace = workspace;
  std::fill(memory.begin(), memory.end(), kNan);
  std::fill(lengths.begin(), lengths.end(), 0);
  std::fill(starts.begin(), starts.end(), 1);
  emulated::kernel_in_front = [&] {
    EXPECT_EQ(std::count(out.begin(), out.end(), kUntouched), static_cast<std::ptrdiff_t>(out.size()));
    EXPECT_EQ(workspace, first_workspace);
    std::copy(last_memory.begin(), last_memory.end(), memory.begin());
    std::copy(last_lengths.begin(), last_lengths.end(), lengths.begin());
    std::copy(last_starts.begin(), last_starts.end(), starts.begin());
    num_rows = static_cast<std::int32_t>(live_rows);
  };
  ASSERT_EQ(launch(plan, arguments), 0);
  ASSERT_FALSE(emulated::kernel_in_front) << "nobody waited for the kernel in front";

  for (std::int64_t row = 0; row < live_rows; ++row) {
    const auto r = static_cast<std::size_t>(row);
    std::vector<std::int32_t> got(out.begin() + row * problem.k, out.begin() + (row + 1) * problem.k);
    if (lengths[r] > problem.k) std::sort(got.begin(), got.end());
    ASSERT_EQ(got, sorted_selection(scores + row * problem.row_stride, starts[r], lengths[r], problem.k))
        << "row " << row << " of " << problem.num_rows << " x " << problem.num_columns << ", k " << problem.k
        << ", window " << starts[r] << " + " << lengths[r] << ", " << plan.ctas_per_row << " CTAs a row";
  }
  for (auto i = static_cast<std::size_t>(live_rows * problem.k); i < out.size(); ++i) {
    ASSERT_EQ(out[i], kUntouched) << "behind the output";
  }
}

TEST_P(EmulatedTest, SelectsExactly) {
  if (const char* const seed = std::getenv("HPCTOPK_EMULATED_SEED")) {
    expect_right(GetParam(), static_cast<unsigned>(std::atoi(seed)));
    return;
  }
  const char* const cases = std::getenv("HPCTOPK_EMULATED_CASES");
  const int num_cases = cases != nullptr ? std::atoi(cases) : 120;
  for (int seed = 0; seed < num_cases && !HasFailure(); ++seed) expect_right(GetParam(), static_cast<unsigned>(seed));
}

INSTANTIATE_TEST_SUITE_P(Mappings, EmulatedTest,
                         testing::Values(Mapping{Kernel::kPersistent, "default"}, Mapping{Kernel::kPersistent, "loads"},
                                         Mapping{Kernel::kPersistent, "paper"},

                                         Mapping{Kernel::kKvSplit, "default"}, Mapping{Kernel::kKvSplit, "loads"},
                                         Mapping{Kernel::kKvSplit, "paper"}, Mapping{Kernel::kCluster, "default"},
                                         Mapping{Kernel::kCluster, "loads"}, Mapping{Kernel::kCluster, "paper"},
                                         Mapping{Kernel::kCluster, "mixed"}, Mapping{Kernel::kRowLocal, "default"},
                                         Mapping{Kernel::kRowLocal, "paper"}, Mapping{Kernel::kFallback, "default"}),
                         name_of);

// What a launch of two CTAs a row has counted.
Statistics counted(std::int64_t columns, float sigmas, float (*score)(Rng& rng)) {
  Problem problem;
  problem.num_rows = 8;
  problem.num_columns = columns;
  problem.k = 2048;
  problem.row_stride = (columns + 3) & ~std::int64_t{3};
  Policy policy = default_policy();
  policy.sample.sigmas = sigmas;
  PlanOptions options;
  options.kernel = Kernel::kCluster;
  options.policy = &policy;
  options.ctas_per_row = 2;
  Plan plan;
  EXPECT_TRUE(make_plan(problem, hopper(132), options, &plan).ok());
  Rng rng(static_cast<unsigned>(columns));
  std::vector<float> scores(static_cast<std::size_t>(problem.num_rows * problem.row_stride + 4));
  float* const first = scores.data() + (4 - reinterpret_cast<std::uintptr_t>(scores.data()) / sizeof(float) % 4) % 4;
  for (std::int64_t i = 0; i < problem.num_rows * problem.row_stride; ++i) {
    first[i] = score(rng);
  }
  std::vector<std::int32_t> out(static_cast<std::size_t>(problem.num_rows * problem.k));
  Statistics statistics{};
  Arguments arguments;
  arguments.scores = first;
  arguments.out = out.data();
  arguments.statistics = &statistics;
  EXPECT_EQ(launch(plan, arguments), 0);
  for (std::int64_t row = 0; row < problem.num_rows; ++row) {
    std::vector<std::int32_t> got(out.begin() + row * problem.k, out.begin() + (row + 1) * problem.k);
    std::sort(got.begin(), got.end());
    EXPECT_EQ(got, sorted_selection(first + row * problem.row_stride, 0, static_cast<std::int32_t>(columns), problem.k))
        << "row " << row << " of " << columns;
  }
  EXPECT_EQ(statistics.rows, static_cast<std::uint64_t>(problem.num_rows));
  EXPECT_EQ(statistics.recovered, 0U);
  EXPECT_EQ(statistics.tightened, 0U);
  return statistics;
}

constexpr std::int64_t kOnChip[] = {60001, 65536};  // with two CTAs a row
constexpr std::int64_t kBeyondTheChip[] = {70000, 150003};
constexpr double kEdges = 8 * 6;  // of the rows, which are not counted a second time

// A margin of nothing leaves half of the rows with too few candidates.
TEST(ClusterTest, UnderfilledRowsAreScannedAgain) {
  for (const std::int64_t columns : kOnChip) {
    const Statistics statistics = counted(columns, 0, normal);
    EXPECT_GT(statistics.rescued, 0U);
    EXPECT_EQ(statistics.scores_read, statistics.rows * static_cast<std::uint64_t>(columns)) << "read again";
  }
  for (const std::int64_t columns : kBeyondTheChip) {
    const Statistics statistics = counted(columns, 0, normal);
    EXPECT_GT(statistics.rescued, 0U);
    EXPECT_NEAR(static_cast<double>(statistics.scores_read),
                static_cast<double>(statistics.rows + statistics.rescued) * static_cast<double>(columns), kEdges);
  }
}

// So wide a margin admits a third of a row, for which neither member has room.
TEST(ClusterTest, OverfilledRowsAreScannedAgain) {
  for (const std::int64_t columns : kOnChip) {
    const Statistics statistics = counted(columns, 24, normal);
    EXPECT_LT(statistics.candidates, 3 * 2048 * statistics.rows);
    EXPECT_EQ(statistics.scores_read, statistics.rows * static_cast<std::uint64_t>(columns)) << "read again";
  }
  for (const std::int64_t columns : kBeyondTheChip) {
    const Statistics statistics = counted(columns, 24, normal);
    EXPECT_LT(statistics.candidates, 3 * 2048 * statistics.rows);
    EXPECT_NEAR(static_cast<double>(statistics.scores_read),
                2.0 * static_cast<double>(statistics.rows) * static_cast<double>(columns), kEdges);
  }
}

// Outliers make the sample's bins so wide that zeros share one with the boundary, which lies above them.
TEST(ClusterTest, PlateausBelowTheBoundaryAreNotAdmitted) {
  for (const std::int64_t columns : kOnChip) {
    const Statistics statistics = counted(columns, 5, [](Rng& rng) {
      const float kind = fraction(rng);
      if (kind < 0.5F) return 0.0F;
      return kind < 0.9F ? -fraction(rng) : kind < 0.99F ? 0.01F * fraction(rng) : 100 * fraction(rng);
    });
    EXPECT_LT(statistics.candidates, 3 * 2048 * statistics.rows);
    EXPECT_EQ(statistics.scores_read, statistics.rows * static_cast<std::uint64_t>(columns));
  }
}

}  // namespace
}  // namespace hpctopk::test
