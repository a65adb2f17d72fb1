// SPDX-License-Identifier: Apache-2.0
//
// The CPU back end over lengths, windows, strides, row counts and threads, and what it must leave alone.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cfenv>
#include <cstring>
#include <thread>

#include "tests/cpp/cpu_reference.h"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace hpctopk::test {
namespace {

void fill_normal(float* row, std::int64_t columns, Rng& rng) {
  std::normal_distribution<float> normal;
  for (std::int64_t i = 0; i < columns; ++i) row[i] = normal(rng);
}

// Many ties, so that a wrong column shows.
void fill_quantised(float* row, std::int64_t columns, Rng& rng) {
  fill_normal(row, columns, rng);
  for (std::int64_t i = 0; i < columns; ++i) row[i] = std::round(row[i] * 4);
}

TEST(CpuLengths, AreClampedWhereTheRowIsRead) {
  Input input;
  input.columns = 5000;
  input.k = 600;
  input.lengths = {0, -1, -2147483647 - 1, 1, 599, 600, 601, 4999, 5000, 5001, 2147483647, 64, 63, 65, 4096};
  input.rows = static_cast<std::int64_t>(input.lengths.size());
  check(input.fill(fill_quantised));
}

TEST(CpuLengths, ShortAndLongRowsAlternateThousandsOfTimes) {
  Input input;
  input.rows = 4001;
  input.columns = 700;
  input.k = 64;
  for (std::int32_t r = 0; r < 4001; ++r) input.lengths.push_back(r % 2 == 0 ? 64 - r % 66 : 700 - r % 300);
  check(input.fill(fill_quantised));
}

TEST(CpuLengths, ShortPrefixesOfWideRows) {
  Input input;
  input.rows = 8;
  input.columns = 131072;
  input.k = 2048;
  input.lengths.assign(8, 4096);
  check(input.fill(fill_normal));
}

TEST(CpuLengths, RaggedRowsOfLongMatrices) {
  Input input;
  input.rows = 40;
  input.columns = 70001;
  input.k = 1024;
  for (std::int32_t r = 0; r < 40; ++r) input.lengths.push_back(r * r * 44);
  check(input.fill(fill_quantised));
}

TEST(CpuWindows, StartAnywhere) {
  Input input;
  input.columns = 9001;
  input.k = 257;
  input.row_starts = {0, 1, 2, 3, 5, 8000, 9000, 9001, 9002, -4, 2147483647, 4500, 4501};
  input.lengths = {9001, 9001, 8999, 100, 0, 900, 1, 1, 5, 3000, 7, 257, 258};
  input.rows = static_cast<std::int64_t>(input.lengths.size());
  input.fill(fill_quantised);
  check(input);
  input.lengths.clear();  // up to the end of the row
  check(input);
}

TEST(CpuStrides, AnyStrideAndAnyBase) {
  for (const std::int64_t columns : {4096, 4097, 4098, 4099, 90000}) {
    for (const std::int64_t extra : {1, 2, 3, 96}) {
      for (const std::int64_t base : {0, 1, 2, 3}) {
        SCOPED_TRACE(std::to_string(columns) + " of " + std::to_string(columns + extra) + " from " +
                     std::to_string(base));
        Input input;
        input.rows = 3;
        input.columns = columns;
        input.row_stride = columns + extra;
        input.base_offset = base;
        input.k = 512;
        input.out_row_stride = 512 + base;
        check(input.fill(fill_quantised), {2});
      }
    }
  }
}

TEST(CpuRowCount, RowsPastItAreLeftAlone) {
  for (const std::int32_t live : {-3, 0, 1, 6, 7, 8, 2147483647}) {
    SCOPED_TRACE("num_rows[0] = " + std::to_string(live));
    Input input;
    input.rows = 7;
    input.columns = 3000;
    input.k = 100;
    input.num_rows = {live};
    check(input.fill(fill_quantised));
  }
}

TEST(CpuShapes, Empty) {
  Input input;
  input.rows = 0;
  input.columns = 10;
  input.k = 4;
  check(input.fill(fill_normal));
  input.rows = 3;
  input.columns = 0;
  check(input.fill(fill_normal));
}

TEST(CpuShapes, KAroundTheWidth) {
  for (const std::int32_t k : {1, 2, 63, 64, 65, 127, 128, 129, 4096}) {
    for (const std::int64_t columns : {k - 1, k, k + 1, k + 63, k + 64, k + 65}) {
      SCOPED_TRACE("k " + std::to_string(k) + " of " + std::to_string(columns));
      Input input;
      input.rows = 3;
      input.columns = columns;
      input.k = k;
      check(input.fill(fill_quantised), {1});
    }
  }
}

// Rows fewer than threads, of unequal lengths: some have fewer scores than the segments they are cut into.
TEST(CpuSegments, OfRaggedRows) {
  Input input;
  input.rows = 3;
  input.columns = 700000;
  input.k = 2048;
  input.lengths = {700000, 2100, 300001};
  input.row_starts = {0, 77, 100003};
  input.fill(fill_quantised);
  check(input, {1, 2, 3, 8, 64});
  input.policy.sample.sigmas = 0;
  check(input, {1, 2, 3, 8, 64});
}

// Every segment fills its buffer, and the winners of each are more than one buffer holds.
TEST(CpuSegments, FullOfCandidates) {
  Input input;
  input.columns = 1 << 20;
  input.k = 4096;
  input.policy.sample.view = View::kNone;
  const Statistics statistics = check(input.fill(fill_normal), {4, 16});
  EXPECT_GT(statistics.tightened, 4U);
}

// Reads stay inside the rows, to the element: the matrix ends where memory that may be read ends.
TEST(CpuMemory, NothingIsReadOutsideTheMatrix) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  for (const std::size_t columns : {1U, 63U, 1000U, 8191U, 50001U}) {
    const std::size_t bytes = columns * sizeof(float);
    const std::size_t room = (bytes + page - 1) / page * page;
    void* const map = mmap(nullptr, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(map, MAP_FAILED);
    char* const begin = static_cast<char*>(map) + page;
    ASSERT_EQ(mprotect(begin, room, PROT_READ | PROT_WRITE), 0);
    for (char* const at : {begin, begin + room - bytes}) {
      Input input;
      input.columns = static_cast<std::int64_t>(columns);
      input.k = 40;
      input.fill(fill_normal);
      std::memcpy(at, input.row(0), bytes);
      for (const cpu::VectorLoops* loops : variants()) {
        Output output(input);
        Arguments arguments = arguments_of(input, &output);
        arguments.scores = reinterpret_cast<const float*>(at);
        ASSERT_TRUE(cpu::run(cpu_plan(input), arguments, 1, *loops).ok());
        std::vector<std::int32_t> selected(output.row(0), output.row(0) + input.k);
        const Expected expected = expected_row(input, 0);
        if (!expected.in_order) std::sort(selected.begin(), selected.end());
        EXPECT_EQ(selected, expected.columns) << loops->name;
      }
    }
    munmap(map, room + 2 * page);
  }
}

// The result does not depend on the caller's floating-point environment, and the environment does not change.
TEST(CpuFloatEnvironment, IsTheDefaultInsideAndTheCallersAfter) {
  Input input;
  input.rows = 2;
  input.columns = 5000;
  input.k = 100;
  input.fill([](float* row, std::int64_t columns, Rng& rng) {
    for (std::int64_t i = 0; i < columns; ++i) {
      const std::uint32_t bits = static_cast<std::uint32_t>(rng() % 50);  // denormals and zero
      std::memcpy(row + i, &bits, sizeof bits);
    }
  });
  const std::vector<std::int32_t> expected = expected_row(input, 1).columns;
  const Plan plan = cpu_plan(input);
  for (const cpu::VectorLoops* loops : variants()) {
    Output output(input);
    std::fesetround(FE_UPWARD);
#if defined(__SSE2__)
    const unsigned flags = _mm_getcsr();
    _mm_setcsr(flags | _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
#endif
    const Status status = cpu::run(plan, arguments_of(input, &output), 2, *loops);
#if defined(__SSE2__)
    EXPECT_EQ(_mm_getcsr() & (_MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON), _MM_FLUSH_ZERO_ON | _MM_DENORMALS_ZERO_ON);
    _mm_setcsr(flags);
#endif
    EXPECT_EQ(std::fegetround(), FE_UPWARD);
    std::fesetround(FE_TONEAREST);
    ASSERT_TRUE(status.ok()) << status.message();
    std::vector<std::int32_t> selected(output.row(1), output.row(1) + input.k);
    std::sort(selected.begin(), selected.end());
    EXPECT_EQ(selected, expected) << loops->name;
  }
}

TEST(CpuThreads, CallsMayOverlap) {
  Input input;
  input.rows = 8;
  input.columns = 100000;
  input.k = 512;
  input.fill(fill_quantised);
  const Plan plan = cpu_plan(input);
  Statistics statistics{};
  std::vector<Output> outputs(4, Output(input));
  std::vector<std::thread> callers;
  for (Output& output : outputs) {
    callers.emplace_back([&] {
      for (int repeat = 0; repeat < 10; ++repeat) {
        Arguments arguments = arguments_of(input, &output);
        arguments.statistics = &statistics;
        EXPECT_TRUE(run_cpu(plan, arguments, 2).ok());
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(statistics.rows, 4U * 10U * 8U);
  for (Output& output : outputs) {
    for (std::int64_t r = 0; r < input.rows; ++r) {
      std::sort(output.row(r), output.row(r) + input.k);
      EXPECT_EQ(std::vector<std::int32_t>(output.row(r), output.row(r) + input.k), expected_row(input, r).columns);
    }
  }
}

TEST(CpuThreads, AsManyAsTheDeviceHasByDefault) {
  Input input;
  input.rows = 5;
  input.columns = 300000;
  input.k = 64;
  check(input.fill(fill_normal), {0});
}

TEST(CpuErrors, AreRefusedBeforeAnythingIsWritten) {
  Input input;
  input.rows = 2;
  input.columns = 100;
  input.k = 10;
  input.fill(fill_normal);
  Output output(input);
  const Plan plan = cpu_plan(input);
  const auto refused = [&](const Plan& with, const Arguments& arguments, int threads, const char* message) {
    const Status status = run_cpu(with, arguments, threads);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(std::string(status.message()).find(message), std::string::npos) << status.message();
    EXPECT_EQ(output.buffer, Output(input).buffer);
  };
  const Arguments good = arguments_of(input, &output);
  Arguments no_scores = good;
  no_scores.scores = nullptr;
  Arguments narrow_out = good;
  narrow_out.out_row_stride = 9;
  Plan gpu = plan;
  gpu.kernel = Kernel::kPersistent;
  refused(plan, no_scores, 1, "scores = null");
  refused(plan, narrow_out, 1, "out_row_stride = 9");
  refused(plan, good, -1, "num_threads = -1");
  refused(gpu, good, 1, "plan.kernel = persistent");
}

}  // namespace
}  // namespace hpctopk::test
