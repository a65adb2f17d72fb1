// SPDX-License-Identifier: Apache-2.0
//
// Lengths, row starts, row counts, strides and bases.

#include <limits>

#include "tests/gpu/harness.h"

namespace hpctopk::gpu_test {
namespace {

constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();

class WindowsTest : public MappingTest {};
HPCTOPK_FOR_EACH_MAPPING(WindowsTest);

TEST_P(WindowsTest, EveryAlignmentAndEdgeOfAWindow) {
  for (const std::int32_t n : {2047, 4097, 70001}) {
    for (const std::int32_t k : {1, 705, 2048}) {
      std::vector<std::int32_t> lengths;
      std::vector<std::int32_t> starts;
      for (const std::int32_t length : {kMin, -5, 0, 1, k - 1, k, k + 1, n / 2, n - 1, n, n + 7, kMax}) {
        for (const std::int32_t start : {kMin, -3, 0, 1, 2, 3, n / 2, n - 1, n, n + 9, kMax}) {
          lengths.push_back(length);
          starts.push_back(start);
        }
      }
      const Shape shape{static_cast<std::int64_t>(lengths.size()), n, k};
      for (std::int64_t base = 0; base < 4; ++base) {
        for (std::int64_t padding = 0; padding < 4; ++padding) {
          const auto call = make_call(shape, {base, padding, padding * base});
          if (!call) continue;
          call->set_lengths(lengths);
          expect_right(call->run({}, 1));
          call->set_row_starts(starts);
          expect_right(call->run({}, 2));
          call->set_lengths(std::nullopt);
          expect_right(call->run({Fill::kQuads}, 3));
        }
      }
    }
  }
}

TEST_P(WindowsTest, RowCountOnTheDevice) {
  for (const Shape& shape : {Shape{700, 5000, 512}, Shape{5, 200000, 2048}}) {
    const auto call = make_call(shape, {0, 0, 5});
    if (!call) continue;
    const auto m = static_cast<std::int32_t>(shape.m);
    for (const std::int32_t num_rows : {m, 0, 1, m - 1, -4, m + 9, kMin, kMax, 2}) {
      call->set_num_rows(num_rows);
      expect_right(call->run({}, 5));
    }
  }
}

// The state that one row leaves in a persistent block must not reach the next.
TEST_P(WindowsTest, ShortAndLongRowsInTurn) {
  const Shape shape{20011, 6000, 2048};
  const auto call = make_call(shape);
  if (!call) return;
  for (const std::int32_t first : {0, 1}) {
    for (const std::int32_t short_length : {0, 5, 2048, 2049}) {
      std::vector<std::int32_t> lengths;
      for (std::int32_t row = 0; row < 20011; ++row)
        lengths.push_back(row % 2 == first ? short_length : 6000 - row % 7);
      call->set_lengths(lengths);
      expect_right(call->run({Fill::kLevels}, 22));
    }
  }
}

TEST_P(WindowsTest, EveryRowShort) {
  for (const Shape& shape : {Shape{8, 131072, 2048}, Shape{9, 64, 2048}, Shape{200, 131072, 512}}) {
    const auto call = make_call(shape);
    if (!call) continue;
    for (const std::int32_t length : {4096, shape.k + 1, shape.k, shape.k - 1, 1, 0}) {
      call->set_lengths(std::vector<std::int32_t>(static_cast<std::size_t>(shape.m), length));
      expect_right(call->run({}, 23));
    }
  }
}

TEST_P(WindowsTest, ViewOfAWiderBuffer) {
  const Layout layout{0, 900096 - 900000, 0};
  if (const auto call = make_call({6, 900000, 2048}, layout)) expect_right(call->run({}, 24));
}

// -infinity inside the window is a score; a merge of segments must not take its padding for one.
TEST_P(WindowsTest, NegativeInfinityInShortWindowsOfWideRows) {
  const auto call = make_call({12, 131072, 1024});
  if (!call) return;
  call->set_lengths(
      std::vector<std::int32_t>{1025, 1026, 2000, 4096, 16385, 32768, 40000, 65536, 65537, 100000, 131071, 131072});
  for (const std::int64_t finite : {0, 1, 600, 1023, 1024}) {
    expect_right(call->run({Fill::kNegativeInfinity, {Fill::kNormal, finite}}, 20));
  }
}

}  // namespace
}  // namespace hpctopk::gpu_test
