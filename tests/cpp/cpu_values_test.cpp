// SPDX-License-Identifier: Apache-2.0
//
// The CPU back end over values that are hard to select from: ties, plateaus, crowded key ranges, infinities, NaNs.

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <ostream>

#include "kernels/detail/view.h"
#include "tests/cpp/cpu_reference.h"

namespace hpctopk::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float uniform(Rng& rng, float low, float high) { return std::uniform_real_distribution<float>(low, high)(rng); }
float normal(Rng& rng) { return std::normal_distribution<float>()(rng); }

float from_bits(Rng::result_type pattern) {
  const auto bits = static_cast<std::uint32_t>(pattern);
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

// One kind of row.
struct Family {
  const char* name;
  void (*fill)(float* row, std::int64_t columns, Rng& rng);
};
void PrintTo(const Family& family, std::ostream* stream) { *stream << family.name; }

// Calls value(i) for every column.
template <class Value>
void each(float* row, std::int64_t columns, const Value& value) {
  for (std::int64_t i = 0; i < columns; ++i) row[i] = value(i);
}

constexpr Family kFamilies[] = {
    {"normal", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return normal(rng); }); }},
    {"crowded", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return uniform(rng, 1, 1.245F); }); }},
    {"one_bin", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return uniform(rng, 1, 1.03F); }); }},
    {"offset", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return 100 + normal(rng); }); }},
    {"low_bits",
     [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return from_bits(0x3F900000U | rng() % 1024); }); }},
    {"same_high_half",
     [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return from_bits(0xC1230000U | rng() % 65536); }); }},
    {"any_bits",
     [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return from_bits(rng()); }); }},
    {"ascending", [](float* row, std::int64_t n, Rng&) { each(row, n, [](auto i) { return static_cast<float>(i) - 9000; }); }},
    {"descending", [](float* row, std::int64_t n, Rng&) { each(row, n, [](auto i) { return 9000 - static_cast<float>(i); }); }},
    {"periodic", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto i) { return normal(rng) + (i % 256 == 7 ? 9.0F : 0.0F); }); }},
    {"spans",
     [](float* row, std::int64_t n, Rng& rng) {
       each(row, n, [&](auto i) { return normal(rng) + (i / 700 % 16 == 3 ? 20.0F : 0.0F); });
     }},
    {"last_best", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto i) { return normal(rng) + (i > n - 5000 ? 9.0F : 0.0F); }); }},
    // Ties.
    {"equal", [](float* row, std::int64_t n, Rng&) { each(row, n, [](auto) { return -2.5F; }); }},
    {"equal_zero", [](float* row, std::int64_t n, Rng&) { each(row, n, [](auto) { return 0.0F; }); }},
    {"runs_of_4", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto i) { return i % 4 != 0 ? row[i - 1] : normal(rng); }); }},
    {"quantised", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return std::round(normal(rng) * 8) / 8; }); }},
    {"two_values", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return rng() % 3 == 0 ? 1.0F : -1.0F; }); }},
    {"relu_plateau",
     [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return rng() % 80 == 0 ? std::abs(normal(rng)) : 0.0F; }); }},
    {"three_positive", [](float* row, std::int64_t n, Rng&) { each(row, n, [&](auto i) { return i == n / 3 || i == n / 2 || i == n - 1 ? 1.0F : 0.0F; }); }},
    {"500_above",
     [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto i) { return i * 500 / n != (i + 1) * 500 / n ? 3 + normal(rng) / 9 : 0.5F; }); }},
    // Zeros and denormals.
    {"signed_zeros", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return rng() % 2 == 0 ? 0.0F : -0.0F; }); }},
    {"zeros_at_boundary",
     [](float* row, std::int64_t n, Rng& rng) {
       each(row, n, [&](auto) { return rng() % 64 == 0 ? 1.0F : rng() % 2 == 0 ? 0.0F : rng() % 2 == 0 ? -0.0F : -1e-45F; });
     }},
    {"denormals", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return from_bits(rng() % 3000 | (rng() % 2 << 31)); }); }},
    // Infinities and extremes.
    {"mostly_minus_infinity", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto i) { return i % 97 == 5 ? normal(rng) : -kInf; }); }},
    {"all_minus_infinity", [](float* row, std::int64_t n, Rng&) { each(row, n, [](auto) { return -kInf; }); }},
    {"causal_suffix", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto i) { return i > n * 2 / 3 ? -kInf : normal(rng); }); }},
    {"one_infinity", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto i) { return i == n / 2 ? kInf : normal(rng); }); }},
    {"all_infinity", [](float* row, std::int64_t n, Rng&) { each(row, n, [](auto) { return kInf; }); }},
    {"infinities_and_nans",
     [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto i) { return i > n / 2 && rng() % 60 == 0 ? kNan : kInf; }); }},
    {"beyond_fp16", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return -65505 - 1e5F * std::abs(normal(rng)); }); }},
    {"extremes", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return rng() % 2 == 0 ? kMax : -kMax; }); }},
    // NaNs.
    {"one_nan", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto i) { return i == n - 1 ? -kNan : normal(rng); }); }},
    {"half_nan", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return rng() % 2 == 0 ? normal(rng) : rng() % 2 == 0 ? kNan : -kNan; }); }},
    {"mostly_nan", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return rng() % 100 < 83 ? from_bits(0x7FC00000U | rng() % 99) : normal(rng); }); }},
    {"all_nan", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto) { return from_bits(0xFF800001U + rng() % 999); }); }},
    {"nans_at_end", [](float* row, std::int64_t n, Rng& rng) { each(row, n, [&](auto i) { return i >= n - n / 20 ? kNan : normal(rng); }); }},
};

class CpuValues : public testing::TestWithParam<Family> {};

// Every combination of width and k that takes another way: shorter than k, one vector, no sample, sample, full buffer.
TEST_P(CpuValues, SelectsTheReferenceSet) {
  for (const std::int64_t columns : {1, 51, 64, 65, 1243, 2045, 2049, 4099, 8320, 16385, 30938}) {
    for (const std::int32_t k : {1, 16, 512, 705, 1024, 2048, 4096}) {
      if (columns < 4099 && k > columns && k != 4096) continue;
      SCOPED_TRACE("columns " + std::to_string(columns) + ", k " + std::to_string(k));
      Input input;
      input.rows = 2;
      input.columns = columns;
      input.k = k;
      check(input.fill(GetParam().fill, static_cast<unsigned>(k)), {1});
      if (HasFailure()) return;
    }
  }
}

TEST_P(CpuValues, SelectsTheReferenceSetOfLongRows) {
  for (const std::int32_t k : {1, 512, 2048, 4096}) {
    SCOPED_TRACE("k " + std::to_string(k));
    Input input;
    input.rows = 3;
    input.columns = 131072 + 3;
    input.k = k;
    check(input.fill(GetParam().fill, static_cast<unsigned>(k)), {1, 2});
    if (HasFailure()) return;
  }
}

// Few rows: several threads share one and meet. Halves must agree with the whole.
TEST_P(CpuValues, SegmentsOfARowSelectTheReferenceSet) {
  Input input;
  input.columns = 524288 + 1;
  input.k = 2048;
  check(input.fill(GetParam().fill), {2});
}

INSTANTIATE_TEST_SUITE_P(Families, CpuValues, testing::ValuesIn(kFamilies),
                         [](const auto& test) { return std::string(test.param.name); });

// A boundary bin as large as a power of two, one less, one more.
TEST(CpuCrowdedBoundary, EveryPopulation) {
  for (const std::int64_t columns : {8192, 32768, 131072}) {
    for (const std::int64_t size : {2048, 4096, 8192, 12288, 16384}) {
      for (const std::int64_t population : {size - 1, size, size + 1}) {
        if (population > columns) continue;
        SCOPED_TRACE("columns " + std::to_string(columns) + ", population " + std::to_string(population));
        Input input;
        input.columns = columns;
        input.k = 2048;
        input.fill([&](float* row, std::int64_t n, Rng& rng) {
          each(row, n, [&](auto i) { return i < population ? uniform(rng, 1, 1.0001F) : uniform(rng, 0, 0.5F); });
          std::shuffle(row, row + n, rng);
        });
        check(input, {1});
        if (HasFailure()) return;
      }
    }
  }
}

// A row whose sample is not like the row: `sampled` where the default policy looks, `other` elsewhere.
Input misleading(std::int64_t columns, std::int32_t k, float (*sampled)(Rng&), float (*other)(Rng&)) {
  Input input;
  input.columns = columns;
  input.k = k;
  input.policy.sample.max_samples = 2048;
  return input.fill([&](float* row, std::int64_t n, Rng& rng) {
    each(row, n, [&](auto) { return other(rng); });
    const auto length = static_cast<std::int32_t>(n);
    const auto view = detail::hashed_view(input.policy.sample, length, length / 4, k);
    for (std::int32_t i = 0; 4 * i < view.samples; ++i) {
      for (int j = 0; j < 4; ++j) row[4 * view.quad(i, 0) + j] = sampled(rng);
    }
  });
}

TEST(CpuMisleadingSample, TooHighABoundaryIsFoundOutAndRecovered) {
  const Statistics statistics =
      check(misleading(
                131072, 2048, [](Rng& rng) { return 9 + normal(rng) / 99; }, [](Rng& rng) { return normal(rng); }),
            {1});
  EXPECT_EQ(statistics.recovered, 1U);
  EXPECT_EQ(statistics.rescued, 0U);
}

TEST(CpuMisleadingSample, TooLowABoundaryFillsTheBufferAndIsTightened) {
  const Statistics statistics =
      check(misleading(
                131072, 512, [](Rng& rng) { return normal(rng) - 9; }, [](Rng& rng) { return normal(rng); }),
            {1});
  EXPECT_GT(statistics.tightened, 0U);
  EXPECT_EQ(statistics.recovered, 0U);
}

// Whatever proposes the boundary, the set is the same.
TEST(CpuPolicies, EveryViewSelectsTheReferenceSet) {
  Policy none;
  none.sample.view = View::kNone;
  Policy risky;  // no margin: about every other row is underfilled
  risky.sample.sigmas = 0;
  Policy dense;
  dense.sample.stride = 1;
  Policy wide_chunks;
  wide_chunks.sample.chunk = 256;
  for (const Policy& policy : {default_policy(), paper_policy(), none, risky, dense, wide_chunks}) {
    for (const Family& family : kFamilies) {
      SCOPED_TRACE(family.name);
      Input input;
      input.rows = 4;
      input.columns = 20001;
      input.k = 300;
      input.policy = policy;
      check(input.fill(family.fill), {1});
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(CpuStatistics, CountWhatHappened) {
  Input input;
  input.rows = 64;
  input.columns = 40000;
  input.k = 512;
  input.lengths.assign(64, 40000);
  input.lengths[5] = 512;  // not selected from
  input.policy.sample.sigmas = 0;
  input.fill(kFamilies[0].fill);
  const Statistics statistics = check(input);
  EXPECT_EQ(statistics.rows, 63U);
  EXPECT_GT(statistics.rescued + statistics.recovered, 10U);
  EXPECT_LT(statistics.rescued + statistics.recovered, 60U);
  EXPECT_GE(statistics.candidates, 63U * 512);
  EXPECT_GT(statistics.scores_read, 63U * 40000);
  EXPECT_LT(statistics.scores_read, 63U * 40000 * 4);

  input.policy = default_policy();
  const Statistics usual = check(input);
  EXPECT_EQ(usual.rescued + usual.recovered + usual.tightened, 0U);
  EXPECT_LT(usual.scores_read, 63U * 45000);
}

}  // namespace
}  // namespace hpctopk::test
