// SPDX-License-Identifier: Apache-2.0
//
// Random inputs for the pieces that run on the host. A failure prints the seed of its case, which
//   hpctopk_host_tests --gtest_filter=Fuzz.NAME --gtest_random_seed=SEED
// runs first; without the flag the seeds are the same each time.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "hpctopk/topk.h"
#include "kernels/detail/ordered_key.h"
#include "kernels/detail/view.h"
#include "tests/cpp/cpu_reference.h"

namespace hpctopk::test {
namespace {

// Runs `one` on `count` seeds in turn, up to the first failure.
template <class One>
void fuzz(int count, const One& one) {
  const auto first = static_cast<unsigned>(GTEST_FLAG_GET(random_seed));
  for (unsigned seed = first; seed < first + static_cast<unsigned>(count); ++seed) {
    SCOPED_TRACE("--gtest_random_seed=" + std::to_string(seed));
    Rng rng(seed);
    one(rng);
    if (testing::Test::HasFailure()) return;
  }
}

std::int64_t uniform(Rng& rng, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(rng);
}

bool chance(Rng& rng, double probability) { return std::bernoulli_distribution(probability)(rng); }

// 0..high, each magnitude alike.
std::int64_t any_size(Rng& rng, std::int64_t high) {
  const double magnitude = std::uniform_real_distribution<double>(0, std::log2(static_cast<double>(high) + 1))(rng);
  return std::min(high, static_cast<std::int64_t>(std::exp2(magnitude)) - uniform(rng, 0, 1));
}

template <class T>
T one_of(Rng& rng, const std::vector<T>& values) {
  return values[static_cast<std::size_t>(uniform(rng, 0, static_cast<std::int64_t>(values.size()) - 1))];
}

// Any policy that the planner takes.
Policy any_policy(Rng& rng) {
  if (chance(rng, 0.1)) return paper_policy();
  const auto margin = [&](float low, float high) { return std::uniform_real_distribution<float>(low, high)(rng); };
  Policy policy;
  policy.digits = one_of<Digits>(rng, {Digits::kFixed, Digits::kNormalised});
  policy.pipeline = one_of<Pipeline>(rng, {Pipeline::kLoads, Pipeline::kBulk});
  SamplePolicy& sample = policy.sample;
  sample.view = one_of<View>(rng, {View::kNone, View::kStrided, View::kHashed});
  sample.stride = static_cast<std::int32_t>(1 + any_size(rng, chance(rng, 0.1) ? 2147483646 : 255));
  sample.min_samples = static_cast<std::int32_t>(any_size(rng, chance(rng, 0.1) ? 2147483646 : 32767));
  sample.max_samples = static_cast<std::int32_t>(1 + any_size(rng, chance(rng, 0.1) ? 2147483646 : 32767));
  sample.chunk = 4 << uniform(rng, 0, 6);
  sample.rank_margin = margin(1, chance(rng, 0.1) ? 1000 : 3);
  sample.rescue_margin = std::min(1000.0F, sample.rank_margin + margin(0, chance(rng, 0.1) ? 1000 : 1));
  sample.sigmas = chance(rng, 0.2) ? 0 : margin(0, chance(rng, 0.1) ? 1000 : 6);
  return policy;
}

std::int32_t any_k(Rng& rng) {
  return chance(rng, 0.5) ? static_cast<std::int32_t>(1 + any_size(rng, kMaxK - 1))
                          : one_of<std::int32_t>(rng, {1, 2, 64, 512, 705, 1024, 2047, 2048, 2049, 4096});
}

// ---------------------------------------------------------------------------------------------------------------------

TEST(Fuzz, EverySampleLiesInTheRow) {
  fuzz(20000, [](Rng& rng) {
    const SamplePolicy policy = any_policy(rng).sample;
    const auto length = static_cast<std::int32_t>(any_size(rng, kMaxColumns));
    const std::int32_t k = any_k(rng);
    const auto seed = static_cast<std::uint32_t>(rng());

    const detail::StridedView strided = detail::strided_view(policy, length, k, seed);
    ASSERT_GE(strided.phase, 0);
    ASSERT_LT(strided.phase, policy.stride);
    const std::int64_t end = strided.phase + std::int64_t{strided.samples} * strided.stride;  // of the next sample
    ASSERT_GE(strided.samples, 0);
    ASSERT_GE(end, length) << "the view stops early";
    if (strided.samples > 0) {
      ASSERT_LT(end - strided.stride, length);
    }
    ASSERT_GE(strided.rank, 1);
    ASSERT_LE(strided.rank, strided.second_rank);
    ASSERT_GE(static_cast<double>(strided.rank) * policy.stride, 0.999 * k) << "the rank asks for less than k";

    // A row's first scores, up to three, may lie before its first quad.
    const std::int32_t quads = std::max<std::int32_t>(0, length - static_cast<std::int32_t>(uniform(rng, 0, 3))) / 4;
    const detail::HashedView hashed = detail::hashed_view(policy, length, quads, k);
    const std::int32_t chunk = 1 << hashed.log_chunk;  // quads
    ASSERT_EQ(4 * chunk, policy.chunk);
    ASSERT_GE(hashed.samples, 0);
    ASSERT_EQ(hashed.samples % policy.chunk, 0);
    const std::int32_t wanted = std::max(length / policy.stride, std::min(policy.min_samples, length / 4));
    ASSERT_LE(hashed.samples, std::min({policy.max_samples, detail::kMaxHashedSamples, wanted}));
    if (!hashed.usable()) return;
    ASSERT_GE(hashed.rank, 1);
    ASSERT_LE(hashed.rank, hashed.second_rank);
    ASSERT_LE(hashed.second_rank, hashed.samples);
    ASSERT_GE(static_cast<double>(hashed.rank) * length, 0.999 * hashed.samples * k) << "the rank asks for less than k";
    for (std::int32_t i = 0; i < hashed.samples / 4; ++i) {
      const std::int32_t quad = hashed.quad(i, seed);
      const std::int32_t stratum = i / chunk * hashed.stratum;
      ASSERT_GE(quad, stratum);
      ASSERT_LT(quad, stratum + hashed.stratum);
      ASSERT_LT(quad, quads);
      if (i % chunk != 0) {
        ASSERT_EQ(quad, hashed.quad(i - 1, seed) + 1) << "a chunk is torn";
      }
    }
  });
}

// Scores of all kinds, often the very next to each other.
float any_score(Rng& rng) {
  static const std::vector<float> special = {0.0F,     -0.0F,    1.0F,          std::numeric_limits<float>::infinity(),
                                             65504.0F, 65536.0F, 6.1e-5F,       std::numeric_limits<float>::max(),
                                             1e-45F,   1e-38F,   std::nanf(""), std::numeric_limits<float>::min()};
  auto bits = static_cast<std::uint32_t>(rng());
  if (chance(rng, 0.7)) bits = detail::float_bits(one_of(rng, special)) ^ (bits & 0x80000000U);
  return detail::bits_float(bits + static_cast<std::uint32_t>(uniform(rng, -2, 2)));
}

// The contract's order: -1, 0 or 1.
int compare(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return static_cast<int>(std::isnan(a)) - static_cast<int>(std::isnan(b));
  return static_cast<int>(a > b) - static_cast<int>(a < b);
}

template <class T>
int compare_integers(T a, T b) {
  return static_cast<int>(a > b) - static_cast<int>(a < b);
}

TEST(Fuzz, KeysOrderScoresAsTheContractDoes) {
  fuzz(200000, [](Rng& rng) {
    const float a = any_score(rng);
    const float b = any_score(rng);
    const std::uint32_t key_a = detail::ordered_key(a);
    const std::uint32_t key_b = detail::ordered_key(b);
    ASSERT_EQ(compare_integers(key_a, key_b), compare(a, b)) << a << ' ' << b;
    ASSERT_EQ(compare(detail::key_score(key_a), a), 0) << a;
    ASSERT_EQ(!(a <= detail::admission_floor(key_b)), key_a >= key_b) << a << ' ' << b;

    const std::uint32_t bin = detail::coarse_key(key_a);
    ASSERT_LT(bin, static_cast<std::uint32_t>(detail::kCoarseBins));
    if (key_a <= key_b) {
      ASSERT_LE(bin, detail::coarse_key(key_b)) << a << ' ' << b;
    }
    ASSERT_EQ(key_b >= detail::coarse_floor(bin), detail::coarse_key(key_b) >= bin) << a << ' ' << b;

    const auto column_a = static_cast<std::uint32_t>(any_size(rng, kMaxColumns));
    const auto column_b = static_cast<std::uint32_t>(chance(rng, 0.3) ? column_a : any_size(rng, kMaxColumns));
    const std::uint64_t both = detail::composite(key_a, column_a);
    ASSERT_EQ(detail::composite_key(both), key_a);
    ASSERT_EQ(detail::composite_index(both), column_a);
    const int better = compare(a, b) != 0 ? compare(a, b) : -compare_integers(column_a, column_b);
    ASSERT_EQ(compare_integers(both, detail::composite(key_b, column_b)), better) << a << ' ' << b;
  });
}

DeviceInfo any_device(Rng& rng) {
  if (chance(rng, 0.1)) return cpu_device();
  DeviceInfo device;
  const Status status = named_device(one_of<const char*>(rng, {"a100", "h20", "h200", "b200", "rtx5090"}), &device);
  EXPECT_TRUE(status.ok()) << status.message();
  if (chance(rng, 0.5)) return device;
  device.compute_capability = one_of<std::int32_t>(rng, {80, 86, 89, 90, 100, 120, 130});
  device.num_sms = static_cast<std::int32_t>(1 + any_size(rng, 299));
  device.shared_memory_per_block = static_cast<std::int32_t>(1 + any_size(rng, 262143));
  device.shared_memory_per_sm = device.shared_memory_per_block + static_cast<std::int32_t>(any_size(rng, 65536));
  device.max_cluster_size = one_of<std::int32_t>(rng, {1, 2, 4, 8, 16, 32});
  device.memory_bandwidth_gbps = std::exp2(static_cast<double>(uniform(rng, -3, 14)));
  return device;
}

TEST(Fuzz, PlansAreSoundOrRefused) {
  fuzz(20000, [](Rng& rng) {
    const DeviceInfo device = any_device(rng);
    const Policy policy = any_policy(rng);
    Problem problem;
    problem.num_rows = any_size(rng, chance(rng, 0.1) ? std::numeric_limits<std::int64_t>::max() / 2 : 100000);
    problem.num_columns = any_size(rng, chance(rng, 0.1) ? kMaxColumns : 1 << 20);
    problem.row_stride = chance(rng, 0.3) ? 0 : problem.num_columns + any_size(rng, 1 << 20);
    problem.k = any_k(rng);
    bool legal = true;
    if (chance(rng, 0.05)) {  // one of these is no problem at all
      legal = false;
      const std::int64_t which = uniform(rng, 0, 3);
      if (which == 0) problem.num_rows = -1 - any_size(rng, 100);
      if (which == 1) problem.num_columns = chance(rng, 0.5) ? -1 : kMaxColumns + 1;
      if (which == 2) problem.row_stride = problem.num_columns > 1 ? problem.num_columns - 1 : -1;
      if (which == 3) problem.k = chance(rng, 0.5) ? -static_cast<std::int32_t>(any_size(rng, kMaxK)) : kMaxK + 1;
    }
    PlanOptions options;
    if (chance(rng, 0.6)) options.kernel = static_cast<Kernel>(uniform(rng, 0, kNumKernels - 1));
    if (chance(rng, 0.7)) options.policy = &policy;
    if (chance(rng, 0.3)) options.ctas_per_row = 2 << uniform(rng, 0, 6);
    if (chance(rng, 0.02)) {
      legal = false;
      const std::int32_t bad[] = {-1, 1, 3, 130, 256};
      options.ctas_per_row = bad[uniform(rng, 0, 4)];
    }

    Plan plan;
    Plan again;
    std::memset(static_cast<void*>(&plan), 0xA5, sizeof plan);
    const Plan before = plan;
    const Status status = make_plan(problem, device, options, &plan);
    if (!status.ok()) {
      ASSERT_EQ(std::memcmp(&plan, &before, sizeof plan), 0) << "a refused plan was written";
      const std::string message = status.message();
      ASSERT_NE(message.find(" = "), std::string::npos) << message;
      ASSERT_NE(message.find(": "), std::string::npos) << message;
      ASSERT_EQ(message.find('\n'), std::string::npos) << message;
      ASSERT_TRUE(!legal || status.code() == StatusCode::kUnsupported || problem.num_rows > 100000) << message;
      return;
    }
    ASSERT_TRUE(legal);
    ASSERT_TRUE(make_plan(problem, device, options, &again).ok());
    ASSERT_EQ(std::memcmp(&plan, &again, sizeof plan), 0) << "the same problem gave another plan";

    ASSERT_NE(plan.kernel, Kernel::kAuto);
    if (options.kernel != Kernel::kAuto) {
      ASSERT_EQ(plan.kernel, options.kernel);
    }
    ASSERT_EQ(plan.kernel == Kernel::kCpu, device.compute_capability == 0);
    ASSERT_EQ(plan.problem.num_rows, problem.num_rows);
    ASSERT_EQ(plan.problem.num_columns, problem.num_columns);
    ASSERT_EQ(plan.problem.row_stride, problem.row_stride != 0 ? problem.row_stride : problem.num_columns);
    ASSERT_EQ(plan.problem.k, problem.k);
    ASSERT_EQ(plan.grid > 0, problem.num_rows > 0);
    ASSERT_GE(plan.workspace_bytes, 0);
    ASSERT_LE(workspace_size(plan), kMaxWorkspaceBytes);
    const Candidate* const end = plan.candidates + plan.num_candidates;
    const auto chosen = std::find_if(plan.candidates + 0, plan.candidates + plan.num_candidates,
                                     [&](const Candidate& candidate) { return candidate.kernel == plan.kernel; });
    ASSERT_NE(chosen, end);
    ASSERT_TRUE(chosen->feasible);
    for (const Candidate* candidate = plan.candidates; candidate != end; ++candidate) {
      ASSERT_TRUE(!candidate->feasible || (std::isfinite(candidate->cost_us) && candidate->cost_us >= 0));
      if (options.kernel == Kernel::kAuto && candidate->feasible) {
        ASSERT_LE(chosen->cost_us, candidate->cost_us);
      }
    }
    if (plan.kernel == Kernel::kCpu) return;
    ASSERT_GE(plan.block, 32);
    ASSERT_LE(plan.block, 1024);
    ASSERT_EQ(plan.block % 32, 0);
    ASSERT_GT(plan.candidate_capacity, problem.k);
    ASSERT_GE(plan.shared_bytes, 8 * std::int64_t{plan.candidate_capacity});
    ASSERT_LE(plan.shared_bytes, device.shared_memory_per_block);
    ASSERT_GE(plan.ctas_per_row, 1);
    ASSERT_EQ(plan.grid % plan.cluster_size, 0);
    ASSERT_LE(plan.cluster_size, std::max(1, device.max_cluster_size));
    ASSERT_EQ(plan.cluster_size, plan.kernel == Kernel::kCluster ? plan.ctas_per_row : 1);
    if (plan.ctas_per_row > 1 && options.ctas_per_row != 0) {
      ASSERT_EQ(plan.ctas_per_row, options.ctas_per_row);
    }
  });
}

// Rows of one kind; a matrix mixes them.
void fill_row(float* row, std::int64_t columns, Rng& rng) {
  std::normal_distribution<float> normal;
  const std::int64_t kind = uniform(rng, 0, 9);
  const std::int64_t special = any_size(rng, columns);  // scores of another kind than the rest
  const float level = any_score(rng);
  const float scale = one_of<float>(rng, {0.5F, 3.0F, 50.0F});
  for (std::int64_t i = 0; i < columns; ++i) {
    const float z = normal(rng);
    const bool rare = uniform(rng, 0, std::max<std::int64_t>(columns - 1, 0)) < special;
    const auto low = static_cast<std::uint32_t>(rng());
    switch (kind) {
      case 0:
        row[i] = z;
        break;
      case 1:
        row[i] = std::round(z * scale);
        break;
      case 2:
        row[i] = std::max(z - scale, 0.0F);
        break;
      case 3:
        row[i] = rare ? z : level;
        break;
      case 4:
        row[i] = 1 + 0.03F * std::fabs(z);
        break;
      case 5:
        row[i] = static_cast<float>(i) * scale;
        break;
      case 6:
        row[i] = static_cast<float>(-i) * scale;
        break;
      case 7:
        row[i] = detail::bits_float(0x3F900000U | (low & 0x3FFU));
        break;
      case 8:
        row[i] = any_score(rng);
        break;
      default:
        row[i] = detail::bits_float(low);
        break;
    }
  }
}

TEST(Fuzz, TheCpuSelectsWhatTheContractSays) {
  fuzz(2000, [](Rng& rng) {
    Input input;
    input.k = any_k(rng);
    const std::int64_t around = input.k + uniform(rng, -2, 65);
    input.columns = chance(rng, 0.4) ? std::max<std::int64_t>(around, 0) : any_size(rng, 60000);
    input.rows = any_size(rng, 60000 / std::max<std::int64_t>(input.columns, 500));
    input.row_stride = chance(rng, 0.5) ? 0 : input.columns + uniform(rng, 0, 9);
    input.base_offset = uniform(rng, 0, 5);
    input.out_row_stride = chance(rng, 0.5) ? 0 : input.k + uniform(rng, 0, 5);
    input.policy = any_policy(rng);
    constexpr std::int32_t kLowest = std::numeric_limits<std::int32_t>::min();
    constexpr std::int32_t kHighest = std::numeric_limits<std::int32_t>::max();
    const auto n = static_cast<std::int32_t>(input.columns);
    if (chance(rng, 0.6)) {
      for (std::int64_t r = 0; r < input.rows; ++r) {
        input.lengths.push_back(chance(rng, 0.5) ? static_cast<std::int32_t>(uniform(rng, 0, n))
                                                 : one_of<std::int32_t>(rng, {kLowest, -1, 0, 1, input.k - 1, input.k,
                                                                              input.k + 1, n, n + 1, kHighest}));
      }
    }
    if (chance(rng, 0.5)) {
      for (std::int64_t r = 0; r < input.rows; ++r) {
        input.row_starts.push_back(chance(rng, 0.5) ? static_cast<std::int32_t>(uniform(rng, 0, n))
                                                    : one_of<std::int32_t>(rng, {kLowest, -1, 0, 1, 3, n, kHighest}));
      }
    }
    if (chance(rng, 0.3)) input.num_rows = {static_cast<std::int32_t>(uniform(rng, -1, input.rows + 1))};
    input.fill(fill_row, static_cast<unsigned>(rng()));
    const std::vector<float> scores = input.buffer;
    check(input, {static_cast<int>(uniform(rng, 0, 8))});
    const auto same_bits = [](float a, float b) { return detail::float_bits(a) == detail::float_bits(b); };
    ASSERT_TRUE(std::equal(scores.begin(), scores.end(), input.buffer.begin(), same_bits)) << "scores changed";
  });
}

}  // namespace
}  // namespace hpctopk::test
