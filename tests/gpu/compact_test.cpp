// SPDX-License-Identifier: Apache-2.0
//
// Every mapping and every path of it in a few small launches: what tests/gpu/sanitize.sh runs under compute-sanitizer,
// whose tools are too slow for the other suites.

#include "tests/gpu/harness.h"

namespace hpctopk::gpu_test {
namespace {

class CompactTest : public MappingTest {};
HPCTOPK_FOR_EACH_MAPPING(CompactTest);

TEST_P(CompactTest, TakesEveryPath) {
  for (const Shape& shape : {Shape{3, 3001, 700}, Shape{4, 24000, 512}, Shape{2, 40001, 2048}}) {
    const auto call = make_call(shape, {1, 3, 2});
    if (!call) continue;
    const auto n = static_cast<std::int32_t>(shape.n);
    const std::int32_t lengths[] = {n, n - 5, shape.k, 3};  // whole rows and short ones on the same CTA
    call->set_lengths(std::vector<std::int32_t>(lengths, lengths + shape.m));
    call->count_statistics(true);
    expect_right(call->run({Fill::kNormal}, 1));                    // certified at once
    expect_right(call->run({Fill::kZero, {Fill::kHigh, 100}}, 2));  // a plateau: tightens
    expect_right(call->run({Fill::kCoarseBin}, 3));                 // one coarse bin
    expect_right(call->run({Fill::kLow, {Fill::kHigh, shape.k / 2}, {}, Place::kContiguous}, 4));  // misleads samples
    expect_right(call->run({Fill::kLow, {Fill::kHigh, shape.k / 2}, {}, Place::kEvery128}, 5));    // and the paper's
  }
}

}  // namespace
}  // namespace hpctopk::gpu_test
