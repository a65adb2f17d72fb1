// SPDX-License-Identifier: Apache-2.0
//
// The ordered and coarse keys against definitions that share no code with them, over a dense sample of all bit patterns
// and around every value where something changes.

#include "kernels/detail/ordered_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace hpctopk::detail {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();
constexpr float kDenormal = std::numeric_limits<float>::denorm_min();

// Bit patterns: every 1031st, which meets all low bits, and the neighbourhood of every fp16 value's, so of
// every coarse bin's edge.
std::vector<std::uint32_t> patterns() {
  std::vector<std::uint32_t> all;
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += 1031)
    all.push_back(static_cast<std::uint32_t>(bits));
  const auto around = [&](float x) {
    for (std::uint32_t d = 0; d < 7; ++d) all.push_back(float_bits(x) + d - 3);
  };
  for (int sign = -1; sign <= 1; sign += 2) {
    const auto s = static_cast<float>(sign);
    for (int i = 0; i < 1024; ++i) around(s * std::ldexp(static_cast<float>(i), -24));
    for (int e = -14; e <= 16; ++e) {
      for (int i = 0; i < 1024; ++i) around(s * std::ldexp(1.0F + static_cast<float>(i) / 1024.0F, e));
    }
    for (float x : {0.0F, kDenormal, std::numeric_limits<float>::min(), 65504.0F, 65536.0F, kMax, kInf}) around(s * x);
  }
  return all;
}

// The contract's order: NaN on top and equal to itself, then IEEE's.
bool ranks_below(float a, float b) {
  if (std::isnan(a)) return false;
  return std::isnan(b) || a < b;
}

// |x| < 2^16 as fp16 without its sign, rounded toward zero.
std::uint32_t half_magnitude(float x) {
  const double m = std::fabs(static_cast<double>(x));
  if (m < std::ldexp(1.0, -14)) return static_cast<std::uint32_t>(std::floor(std::ldexp(m, 24)));
  const int e = std::ilogb(m);
  return static_cast<std::uint32_t>(e + 15) << 10 |
         static_cast<std::uint32_t>(std::floor((std::ldexp(m, -e) - 1.0) * 1024.0));
}

TEST(OrderedKey, ComparesAsTheContractSays) {
  std::vector<float> scores;
  for (std::uint32_t bits : patterns()) scores.push_back(bits_float(bits));
  std::sort(scores.begin(), scores.end(), ranks_below);
  for (std::size_t i = 1; i < scores.size(); ++i) {
    const std::uint32_t below = ordered_key(scores[i - 1]);
    const std::uint32_t above = ordered_key(scores[i]);
    if (ranks_below(scores[i - 1], scores[i])) {
      ASSERT_LT(below, above) << scores[i - 1] << ' ' << scores[i];
    } else {
      ASSERT_EQ(below, above) << scores[i - 1] << ' ' << scores[i];
    }
  }
}

TEST(OrderedKey, GoesBackToTheScore) {
  for (std::uint32_t bits : patterns()) {
    const float x = bits_float(bits);
    const float back = key_score(ordered_key(x));
    if (std::isnan(x)) {
      ASSERT_TRUE(std::isnan(back));
    } else {
      ASSERT_EQ(back, x);
    }
  }
}

TEST(OrderedKey, SpecialScores) {
  EXPECT_EQ(ordered_key(-0.0F), ordered_key(0.0F));
  EXPECT_LT(ordered_key(-kDenormal), ordered_key(-0.0F));
  EXPECT_LT(ordered_key(0.0F), ordered_key(kDenormal));
  EXPECT_LT(ordered_key(-kInf), ordered_key(-kMax));
  EXPECT_LT(ordered_key(kMax), ordered_key(kInf));
  EXPECT_LT(ordered_key(kInf), kNanKey);
  for (std::uint32_t nan : {0x7FC00000U, 0xFFC00000U, 0x7F800001U, 0xFF800001U, 0x7FFFFFFFU, 0xFFFFFFFFU}) {
    EXPECT_EQ(ordered_key(bits_float(nan)), kNanKey);
  }
}

TEST(Composite, PutsTheBetterScoreThenTheLowerIndexFirst) {
  const std::uint32_t keys[] = {0, 1, 0x7FFFFFFFU, 0x80000000U, kNanKey};
  const std::uint32_t indices[] = {0, 1, 4096, 0x7FFFFFFEU};
  for (std::uint32_t ka : keys) {
    for (std::uint32_t ia : indices) {
      EXPECT_EQ(composite_key(composite(ka, ia)), ka);
      EXPECT_EQ(composite_index(composite(ka, ia)), ia);
      for (std::uint32_t kb : keys) {
        for (std::uint32_t ib : indices) {
          EXPECT_EQ(composite(ka, ia) > composite(kb, ib), ka != kb ? ka > kb : ia < ib);
        }
      }
    }
  }
}

TEST(CoarseKey, IsTheTopOfTheOrderedHalf) {
  for (std::uint32_t bits : patterns()) {
    const float x = bits_float(bits);
    if (!(std::fabs(x) < 65536.0F) || x == 0) continue;
    const std::uint32_t half = half_magnitude(x);
    const std::uint32_t ordered = x < 0 ? 0x7FFFU - half : 0x8000U + half;
    ASSERT_EQ(coarse_key(ordered_key(x)), ordered >> 5) << x;
  }
}

TEST(CoarseKey, SpecialScores) {
  EXPECT_EQ(coarse_key(ordered_key(0.0F)), 1024U);
  EXPECT_EQ(coarse_key(ordered_key(-0.0F)), 1024U);
  EXPECT_EQ(coarse_key(ordered_key(kDenormal)), 1024U);
  EXPECT_EQ(coarse_key(ordered_key(-kDenormal)), 1023U);
  for (float x : {65536.0F, kMax, kInf}) {
    EXPECT_EQ(coarse_key(ordered_key(x)), 1024U + 992U);
    EXPECT_EQ(coarse_key(ordered_key(-x)), 1023U - 992U);
  }
  EXPECT_EQ(coarse_key(kNanKey), 2047U);
}

TEST(CoarseKey, FloorIsExact) {
  const auto check = [](std::uint32_t key) {
    const std::uint32_t bin = coarse_key(key);
    ASSERT_LT(bin, static_cast<std::uint32_t>(kCoarseBins));
    ASSERT_GE(key, coarse_floor(bin)) << key;
    if (bin + 1 < kCoarseBins) {
      ASSERT_LT(key, coarse_floor(bin + 1)) << key;
    }
  };
  for (std::uint32_t key : patterns()) check(key);
  for (std::uint32_t bin = 0; bin < kCoarseBins; ++bin) {
    const std::uint32_t floor = coarse_floor(bin);
    if (bin > 0) {
      ASSERT_GE(floor, coarse_floor(bin - 1)) << bin;
    }
    for (std::uint32_t d = 0; d < 7; ++d) check(floor + d - 3);
  }
}

TEST(CoarseKey, IsMonotone) {
  std::vector<std::uint32_t> keys = patterns();
  std::sort(keys.begin(), keys.end());
  for (std::size_t i = 1; i < keys.size(); ++i) ASSERT_LE(coarse_key(keys[i - 1]), coarse_key(keys[i])) << keys[i];
}

TEST(AdmissionFloor, AdmitsExactlyTheKeysFromTheBoundaryUp) {
  std::vector<float> scores = {0.0F, -0.0F, std::numeric_limits<float>::quiet_NaN()};
  std::vector<std::uint32_t> boundaries = {0, 1, kNanKey - 1, kNanKey, 0x007FFFFFU, 0x7FFFFFFFU, 0x80000000U};
  for (float x : {kDenormal, std::numeric_limits<float>::min(), 1.0F, 65504.0F, kMax, kInf}) {
    for (std::uint32_t d = 0; d < 5; ++d) {
      for (std::uint32_t sign : {0U, 0x80000000U}) scores.push_back(bits_float((float_bits(x) + d - 2) | sign));
    }
  }
  for (float x : scores) {
    for (std::uint32_t d = 0; d < 5; ++d) boundaries.push_back(ordered_key(x) + d - 2);
  }
  for (std::uint32_t boundary : boundaries) {
    const float floor = admission_floor(boundary);
    for (float x : scores) ASSERT_EQ(!(x <= floor), ordered_key(x) >= boundary) << x << ' ' << boundary;
  }
}

}  // namespace
}  // namespace hpctopk::detail
