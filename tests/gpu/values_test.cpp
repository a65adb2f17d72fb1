// SPDX-License-Identifier: Apache-2.0
//
// Values that broke other top-k operators, each launched and replayed from a graph that was captured before its scores
// were there: many scores in one coarse bin, candidate buffers at and past their capacity, ties and plateaus, monotone
// and periodic rows, infinities, NaN, zeros of both signs, denormals.

#include <set>

#include "tests/gpu/harness.h"

namespace hpctopk::gpu_test {
namespace {

std::vector<Pattern> narrow_ranges() {
  return {{Fill::kOneCoarse}, {Fill::kCoarseBin}, {Fill::kSharedHigh}, {Fill::kSharedMost}, {Fill::kBelowHalf}};
}

std::vector<Pattern> smooth_and_periodic(const Shape& shape) {
  std::vector<Pattern> patterns = {{Fill::kNormal},    {Fill::kUniform},    {Fill::kSinkRecency},
                                   {Fill::kAscending}, {Fill::kDescending}, {Fill::kRelu}};
  for (const Place place : {Place::kContiguous, Place::kEvery32, Place::kEvery64, Place::kEvery128}) {
    for (const std::int64_t count : {shape.k / 2, shape.k, 2 * shape.k}) {
      patterns.push_back({Fill::kLow, {Fill::kHigh, count}, {}, place});
    }
  }
  return patterns;
}

// One coarse bin (unequal scores) or one tie group, with the boundary in it, of as many scores as a buffer holds, one
// less, one more and twice as many.
std::vector<Pattern> capacity_edges(const Shape& shape, std::int32_t candidate_capacity) {
  std::vector<Pattern> patterns;
  for (const std::int64_t capacity : std::set<std::int64_t>{candidate_capacity, 2048, 4096, 8192}) {
    for (const std::int64_t count : {capacity - 1, capacity, capacity + 1, 2 * capacity}) {
      if (count <= 0 || count > shape.n) continue;
      for (const std::int64_t above : {std::int64_t{0}, std::int64_t{shape.k / 2}}) {
        patterns.push_back({Fill::kLow, {Fill::kHigh, above}, {Fill::kCoarseBin, count}, Place::kScattered});
        patterns.push_back({Fill::kLow, {Fill::kHigh, above}, {Fill::kOne, count}, Place::kContiguous});
      }
    }
  }
  return patterns;
}

std::vector<Pattern> ties(const Shape& shape) {
  const std::int64_t k = shape.k;
  std::vector<Pattern> patterns = {{Fill::kOne},
                                   {Fill::kZero},
                                   {Fill::kSignedZero},
                                   {Fill::kQuads},
                                   {Fill::kLevels},
                                   {Fill::kZero, {Fill::kHigh, 3}},
                                   {Fill::kZero, {Fill::kHigh, 100}}};
  patterns.push_back({Fill::kLow, {Fill::kHigh, std::min<std::int64_t>(500, k / 2)}, {Fill::kOne, k + 100}});
  for (const std::int64_t above : {k - 1, k, k + 1}) {
    patterns.push_back({Fill::kZero, {Fill::kHigh, above}});
    patterns.push_back({Fill::kSignedZero, {Fill::kHigh, above}, {}, Place::kContiguous});
    patterns.push_back({Fill::kLow, {Fill::kOne, above}});
  }
  return patterns;
}

std::vector<Pattern> special_values(const Shape& shape) {
  const std::int64_t n = shape.n;
  std::vector<Pattern> patterns = {{Fill::kInfinity}, {Fill::kNegativeInfinity}, {Fill::kNan}, {Fill::kDenormal},
                                   {Fill::kExtreme},  {Fill::kSpecial},          {Fill::kBits}};
  patterns.push_back({Fill::kNormal, {Fill::kInfinity, 1}});
  patterns.push_back({Fill::kNormal, {Fill::kNegativeInfinity, n / 2}});
  for (const std::int64_t finite : {std::int64_t{3}, std::int64_t{600}, std::int64_t{shape.k}}) {
    for (const Place place : {Place::kScattered, Place::kContiguous}) {
      patterns.push_back({Fill::kNegativeInfinity, {Fill::kNormal, finite}, {}, place});
    }
  }
  for (const std::int64_t nans : {std::int64_t{1}, n / 2, n * 83 / 100}) {
    patterns.push_back({Fill::kNormal, {Fill::kNan, nans}});
    patterns.push_back({Fill::kInfinity, {Fill::kNan, nans}});
  }
  patterns.push_back({Fill::kNegativeInfinity, {Fill::kDenormal, n / 3}, {Fill::kSignedZero, n / 3}});
  return patterns;
}

constexpr Shape kShapes[] = {
    {33, 16384, 512}, {33, 16385, 1024}, {33, 16512, 2048}, {7, 8192, 2048},    {5, 32768, 2048},   {3, 131072, 2048},
    {96, 4096, 1024}, {64, 8320, 2048},  {4, 30938, 512},   {4, 65504, 512},    {133, 2045, 1024},  {8, 51, 16},
    {300, 1243, 512}, {9, 2049, 2048},   {140, 70001, 705}, {17, 262144, 2048}, {2, 1048576, 2048}, {5, 16448, 4096},
};

class ValuesTest : public MappingTest {
 protected:
  template <typename Patterns>
  void run_all(Patterns patterns_for) {
    std::uint64_t seed = 0;
    for (const Shape& shape : kShapes) {
      const auto call = make_call(shape);
      if (!call) continue;
      call->fill({}, seed);
      const Graph graph(*call);
      for (const Pattern& pattern : patterns_for(shape, call->plan())) {
        expect_right(call->run(pattern, ++seed));
        expect_right(call->replay(graph.get(), pattern, ++seed));
      }
    }
  }
};
HPCTOPK_FOR_EACH_MAPPING(ValuesTest);

TEST_P(ValuesTest, NarrowRanges) {
  run_all([](const Shape&, const Plan&) { return narrow_ranges(); });
}
TEST_P(ValuesTest, SmoothAndPeriodicRows) {
  run_all([](const Shape& shape, const Plan&) { return smooth_and_periodic(shape); });
}
TEST_P(ValuesTest, CapacityEdges) {
  run_all([](const Shape& shape, const Plan& plan) { return capacity_edges(shape, plan.candidate_capacity); });
}
TEST_P(ValuesTest, TiesAndPlateaus) {
  run_all([](const Shape& shape, const Plan&) { return ties(shape); });
}
TEST_P(ValuesTest, InfinitiesNansAndZeros) {
  run_all([](const Shape& shape, const Plan&) { return special_values(shape); });
}

// Sizes of the public reports that the shapes above do not have.
TEST_P(ValuesTest, ReportedSizes) {
  if (const auto call = make_call({4869, 1243, 512})) {
    for (const std::int64_t nans : {1, 621, 1031, 1243})
      expect_right(call->run({Fill::kNormal, {Fill::kNan, nans}}, 18));
  }
  if (const auto call = make_call({256, 2045, 1024})) {
    expect_right(call->run({Fill::kNegativeInfinity, {Fill::kNormal, 600}}, 14));
  }
  if (const auto call = make_call({96, 131072, 2048})) expect_right(call->run({Fill::kZero, {Fill::kHigh, 3}}, 10));
  if (const auto call = make_call({500, 4999, 2048})) expect_right(call->run({Fill::kBelowHalf}, 17));
  if (const auto call = make_call({4, 30938, 512})) {
    expect_right(call->run({Fill::kLow, {Fill::kHigh, 200}, {Fill::kCoarseBin, 16000}}, 4));
  }
  if (const auto call = make_call({4, 65504, 512})) {
    expect_right(call->run({Fill::kLow, {Fill::kHigh, 200}, {Fill::kCoarseBin, 34000}}, 4));
  }
  for (const std::int64_t n : {65536, 262144, 1048576}) {
    if (const auto call = make_call({64, n, 2048})) {
      expect_right(call->run({Fill::kNormal}, 3));
      expect_right(call->run({Fill::kUniform}, 3));
    }
  }
}

}  // namespace
}  // namespace hpctopk::gpu_test
