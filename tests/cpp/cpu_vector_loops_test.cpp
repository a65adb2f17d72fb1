// SPDX-License-Identifier: Apache-2.0
//
// The loops of each instruction set that this processor has, one by one.

#include "src/cpu/vector_loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "kernels/detail/ordered_key.h"

namespace hpctopk::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<const VectorLoops*> variants() {
  const VectorLoopsList list = available_vector_loops();
  return {list.loops, list.loops + list.count};
}

class CpuVectorLoops : public testing::TestWithParam<const VectorLoops*> {};

std::vector<float> scores(std::size_t count) {
  std::mt19937 rng(static_cast<unsigned>(count));
  std::vector<float> row(count);
  const float special[] = {kNan, -kNan, kInf, -kInf, 0.0F, -0.0F, 1e-45F, -1e-45F, 1.0F};
  for (float& x : row) {
    x = rng() % 3 == 0 ? special[rng() % std::size(special)] : std::normal_distribution<float>()(rng);
  }
  return row;
}

TEST_P(CpuVectorLoops, MakeTheKeysOfTheContract) {
  const std::vector<float> row = scores(1003);
  std::vector<std::uint32_t> keys(row.size());
  std::transform(row.begin(), row.end(), keys.begin(), [](float x) { return detail::float_bits(x); });
  GetParam()->make_keys(keys.data(), 1001);
  for (std::size_t i = 0; i < row.size(); ++i) {
    ASSERT_EQ(keys[i], i < 1001 ? detail::ordered_key(row[i]) : detail::float_bits(row[i])) << row[i];
  }
}

TEST_P(CpuVectorLoops, ScanAdmitsEveryScoreFromTheBoundaryUp) {
  const std::vector<float> row = scores(9001);
  for (const float boundary : {-kInf, -1.0F, -1e-45F, 0.0F, 1e-45F, 1.0F, 2.5F, kInf, kNan}) {
    const std::uint32_t key = detail::ordered_key(boundary);
    for (const std::int64_t begin : {0, 1, 63, 4095}) {
      for (const std::int64_t end : {begin, begin + 1, begin + 64, begin + 4100, std::int64_t{9001}}) {
        std::vector<std::uint32_t> keys(9088, 7);
        std::vector<std::int32_t> columns(9088, -7);
        Candidates candidates{keys.data(), columns.data(), nullptr, 1, 9088};
        ASSERT_EQ(GetParam()->scan(row.data(), begin, end, detail::admission_floor(key), &candidates), end);
        std::int32_t count = 1;
        for (std::int64_t i = begin; i < end; ++i) {
          const std::uint32_t own = detail::ordered_key(row[static_cast<std::size_t>(i)]);
          if (own < key) continue;
          ASSERT_EQ(columns[static_cast<std::size_t>(count)], i);
          ASSERT_EQ(keys[static_cast<std::size_t>(count)], own);
          ++count;
        }
        ASSERT_EQ(candidates.count, count);
        ASSERT_EQ(columns[0], -7);
      }
    }
  }
}

TEST_P(CpuVectorLoops, ScanStopsWhereTheBufferIsFullAndGoesOn) {
  const std::vector<float> row(5000, 1.0F);
  std::vector<std::uint32_t> keys(448 + 8, 7);
  std::vector<std::int32_t> columns(448 + 8, -7);
  std::int64_t next = 3;
  for (std::int64_t begin = 3; next < 5000; begin = next) {
    Candidates candidates{keys.data(), columns.data(), nullptr, 130, 448};
    next = GetParam()->scan(row.data(), begin, 5000, 0.5F, &candidates);
    ASSERT_GT(next, begin);
    ASSERT_EQ(candidates.count - 130, next - begin);
    ASSERT_TRUE(next == 5000 || candidates.count + kScanWord > 448);
    for (std::int64_t i = begin; i < next; ++i) ASSERT_EQ(columns[static_cast<std::size_t>(130 + i - begin)], i);
    ASSERT_EQ(columns[448], -7);
    ASSERT_EQ(keys[448], 7U);
  }
}

// Distributions of keys: spread, crowded, tied, and the ends of the range.
std::vector<std::uint32_t> some_keys(int kind, std::size_t count, std::mt19937& rng) {
  std::vector<std::uint32_t> keys(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto random = static_cast<std::uint32_t>(rng());
    const std::uint32_t of_kind[] = {random,
                                     random % 7 + 99,
                                     0xFFFFFFFFU - random % 3000,
                                     5,
                                     random % 2 == 0 ? detail::kNanKey : random,
                                     i == 0 ? 0 : 0xFFFFFFFFU,
                                     static_cast<std::uint32_t>(i) << 9};
    keys[i] = of_kind[kind];
  }
  return keys;
}

TEST_P(CpuVectorLoops, FindTheKthLargestAndKeepTheFirstOfEquals) {
  std::mt19937 rng(3);
  for (int kind = 0; kind < 7; ++kind) {
    for (const std::size_t count : {1U, 2U, 3U, 63U, 64U, 65U, 777U, 4096U, 12289U}) {
      const std::vector<std::uint32_t> keys = some_keys(kind, count, rng);
      std::vector<std::uint32_t> sorted = keys;
      std::sort(sorted.begin(), sorted.end(), std::greater<>());
      const auto n = static_cast<std::int32_t>(count);
      for (const std::int32_t k : std::set<std::int32_t>{1, (n + 2) / 3, (n + 1) / 2, n - n / 8, n}) {
        std::vector<std::uint32_t> scratch(count + 1, 7);
        const Cut cut = GetParam()->kth_largest(keys.data(), n, k, scratch.data());
        const std::uint32_t kth = sorted[static_cast<std::size_t>(k - 1)];
        ASSERT_EQ(cut.key, kth);
        const auto above = std::count_if(keys.begin(), keys.end(), [&](std::uint32_t x) { return x > kth; });
        ASSERT_EQ(cut.owed, k - above);
        ASSERT_EQ(cut.ties, std::count(keys.begin(), keys.end(), kth));
        ASSERT_EQ(scratch[count], 7U);

        std::vector<std::pair<std::uint32_t, std::int32_t>> expected;
        std::int64_t owed = k - above;
        for (std::int32_t i = 0; i < n; ++i) {
          const std::uint32_t key = keys[static_cast<std::size_t>(i)];
          if (key > kth || (key == kth && owed-- > 0)) expected.emplace_back(key, 10 * i);
        }
        std::vector<std::uint32_t> kept = keys;
        std::vector<std::int32_t> columns(count);
        for (std::int32_t i = 0; i < n; ++i) columns[static_cast<std::size_t>(i)] = 10 * i;
        Candidates candidates{kept.data(), columns.data(), nullptr, n, n};
        GetParam()->keep(&candidates, cut);
        ASSERT_EQ(candidates.count, k);
        for (std::size_t i = 0; i < expected.size(); ++i) {
          ASSERT_EQ(kept[i], expected[i].first);
          ASSERT_EQ(columns[i], expected[i].second);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Variants, CpuVectorLoops, testing::ValuesIn(variants()),
                         [](const auto& test) { return std::string(test.param->name); });

TEST(CpuVectorLoopsList, EndsWithTheOneThatRunsEverywhere) {
  const auto list = variants();
  ASSERT_FALSE(list.empty());
  EXPECT_STREQ(list.back()->name, "portable");
}

}  // namespace
}  // namespace hpctopk::cpu
