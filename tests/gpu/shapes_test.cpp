// SPDX-License-Identifier: Apache-2.0
//
// Sizes: every M, N and K, each dense and once more ragged at an odd base and stride.

#include <random>

#include "tests/gpu/harness.h"

namespace hpctopk::gpu_test {
namespace {

constexpr std::int64_t kRows[] = {1, 3, 64, 513};
constexpr std::int64_t kColumns[] = {1, 2, 31, 2047, 2048, 2049, 4097, 16384, 65537, 131072, 262145, 1048576};
constexpr std::int32_t kKs[] = {1, 512, 705, 1024, 2048, 4096};
constexpr Fill kFills[] = {Fill::kNormal, Fill::kSinkRecency, Fill::kQuads, Fill::kBits};

class Random {
 public:
  std::int64_t below(std::int64_t bound) { return std::uniform_int_distribution<std::int64_t>(0, bound - 1)(engine_); }
  template <std::size_t size>
  std::int64_t any_of(const std::int64_t (&values)[size]) {
    return values[below(static_cast<std::int64_t>(size))];
  }

 private:
  std::mt19937_64 engine_{20240917};
};

void make_ragged(Call& call, const Shape& shape, Random& random) {
  std::vector<std::int32_t> lengths;
  std::vector<std::int32_t> starts;
  for (std::int64_t row = 0; row < shape.m; ++row) {
    const std::int64_t length =
        random.below(3) > 0
            ? random.below(shape.n + 1)
            : random.any_of({0, -3, 1, shape.k - 1, shape.k, shape.k + 1, shape.n - 1, shape.n, shape.n + 5});
    const std::int64_t start =
        random.below(3) > 0 ? random.below(shape.n / 4 + 1) : random.any_of({0, -2, 1, shape.n, shape.n + 4});
    lengths.push_back(static_cast<std::int32_t>(length));
    starts.push_back(static_cast<std::int32_t>(start));
  }
  call.set_lengths(lengths);
  if (random.below(2) == 0) call.set_row_starts(starts);
  if (random.below(3) == 0) call.set_num_rows(static_cast<std::int32_t>(random.below(shape.m + 1)));
}

class ShapesTest : public MappingTest {};
HPCTOPK_FOR_EACH_MAPPING(ShapesTest);

TEST_P(ShapesTest, SelectsExactly) {
  Random random;
  std::uint64_t seed = 0;
  for (const std::int64_t m : kRows) {
    for (const std::int64_t n : kColumns) {
      for (const std::int32_t k : kKs) {
        const Shape shape{m, n, k};
        const Pattern pattern{kFills[++seed % std::size(kFills)]};
        if (const auto dense = make_call(shape)) expect_right(dense->run(pattern, seed));
        const Layout odd{random.below(4), random.below(9), random.below(3) * 19};
        if (const auto ragged = make_call(shape, odd)) {
          make_ragged(*ragged, shape, random);
          expect_right(ragged->run(pattern, seed));
        }
      }
    }
  }
}

TEST_P(ShapesTest, TakesEveryK) {
  for (const std::int32_t k : {1, 2, 7, 31, 32, 33, 511, 1000, 1023, 1025, 2047, 2049, 3000, 4095, 4096}) {
    for (const std::int64_t n : {std::int64_t{k} - 1, std::int64_t{k}, std::int64_t{k} + 1, std::int64_t{9001}}) {
      if (const auto call = make_call({5, n, k})) expect_right(call->run({}, static_cast<std::uint64_t>(k)));
    }
  }
}

TEST_P(ShapesTest, TakesEmptyProblems) {
  for (const Shape& shape : {Shape{0, 5000, 512}, Shape{3, 0, 512}, Shape{0, 0, 1}}) {
    if (const auto call = make_call(shape)) expect_right(call->run({}, 1));
  }
}

// Elements past 2^31 and bytes past 2^32.
TEST_P(ShapesTest, ReachesFarRows) {
  for (const Layout& layout : {Layout{}, Layout{1, (std::int64_t{1} << 30) + 1 - 262209, 0}}) {
    const Shape shape{layout.row_padding > 0 ? 3 : 4096, 262209, 2048};
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes));
    const auto elements = static_cast<std::size_t>((shape.m - 1) * (shape.n + layout.row_padding) + shape.n);
    const std::size_t bytes = elements * sizeof(float) + (std::size_t{1} << 30);
    if (bytes > free_bytes) GTEST_SKIP() << "needs " << bytes << " bytes of GPU memory, " << free_bytes << " are free";
    if (const auto call = make_call(shape, layout)) expect_right(call->run({}, 27));
  }
}

class AutoTest : public GpuTest {};

TEST_F(AutoTest, ServesEveryShape) {
  std::uint64_t seed = 0;
  for (const std::int64_t m : kRows) {
    for (const std::int64_t n : kColumns) {
      for (const std::int32_t k : kKs) {
        const Layout layout{static_cast<std::int64_t>(++seed % 2), static_cast<std::int64_t>(seed % 5), 0};
        const auto call = call_for({}, {m, n, k}, layout);
        ASSERT_NE(call, nullptr) << refusal();
        EXPECT_NE(call->plan().kernel, Kernel::kAuto);
        expect_right(call->run({}, seed));
      }
    }
  }
}

}  // namespace
}  // namespace hpctopk::gpu_test
