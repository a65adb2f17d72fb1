// SPDX-License-Identifier: Apache-2.0
//
// What the tests hold the library against, written from the contract in topk.h alone: the order of scores as plain
// float comparisons, inputs generated on the device, and a check of a whole output on the device.
//
// The check needs no sort. The order is total (no two columns of a row are equal in it), so k distinct columns of the
// window are the k largest exactly when the worst of them is better than the best of the others. CheckTest holds the
// check itself against a plain sort on the host.

#ifndef HPCTOPK_TESTS_GPU_REFERENCE_H_
#define HPCTOPK_TESTS_GPU_REFERENCE_H_

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#if defined(__CUDACC__)
#define HPCTOPK_TEST_HOST_DEVICE __host__ __device__
#else
#define HPCTOPK_TEST_HOST_DEVICE
#endif

namespace hpctopk::gpu_test {

// Whether score a at column i comes before score b at column j: larger first, then the lower column.
HPCTOPK_TEST_HOST_DEVICE inline bool better(float a, std::int64_t i, float b, std::int64_t j) {
  const bool a_nan = a != a;
  const bool b_nan = b != b;
  if (a_nan != b_nan) return a_nan;
  if (!a_nan && a != b) return a > b;  // -0.0 == +0.0
  return i < j;
}

struct Window {
  std::int64_t start;
  std::int64_t length;
};

HPCTOPK_TEST_HOST_DEVICE inline Window window_of(std::int64_t num_columns, const std::int32_t* lengths,
                                                 const std::int32_t* row_starts, std::int64_t row) {
  const auto clamp = [](std::int64_t x, std::int64_t high) { return x < 0 ? 0 : x > high ? high : x; };
  const std::int64_t start = row_starts != nullptr ? clamp(row_starts[row], num_columns) : 0;
  const std::int64_t rest = num_columns - start;
  return {start, lengths != nullptr ? clamp(lengths[row], rest) : rest};
}

// The contract's answer for one row by a plain sort, in ascending order of columns, -1 last.
std::vector<std::int32_t> sorted_reference(const std::vector<float>& row, Window window, std::int32_t k);

// ---------------------------------------------------------------------------------------------------------------------
// Inputs

// How a group of scores is drawn. u is uniform in [0, 1), z standard normal.
enum class Fill : std::int32_t {
  kNormal,      // z
  kUniform,     // u
  kHigh,        // 2 + u
  kLow,         // -1 - u
  kOneCoarse,   // 1 + 0.245 u: few coarse bins
  kCoarseBin,   // 2^18 values of [1, 1.03125): one 11-bit coarse bin
  kSharedHigh,  // 2^16 values that share their upper 16 bits
  kSharedMost,  // 2^10 values that share their upper 22 bits
  kZero,
  kSignedZero,  // +0.0 or -0.0
  kOne,
  kInfinity,
  kNegativeInfinity,
  kNan,          // any payload, either sign
  kDenormal,     // either sign
  kBelowHalf,    // below -65504, the smallest finite fp16
  kExtreme,      // FLT_MAX or -FLT_MAX
  kSpecial,      // any of +-FLT_MAX, +-infinity, +-0.0, +-smallest denormal, NaN, +-1
  kBits,         // any 32 bits
  kAscending,    // the column
  kDescending,   // minus the column
  kQuads,        // z, each repeated in 4 neighbours
  kLevels,       // z rounded to quarters: long runs of ties
  kRelu,         // max(z - 2, 0): a few positives over a plateau of zeros
  kSinkRecency,  // max(z, 0) and exponential peaks at both ends of the window
  kCount
};

// Where the columns of a layer lie in the window.
enum class Place : std::int32_t {
  kScattered,   // all over it
  kContiguous,  // in one run, wrapping around the end of the window
  kEvery32,     // at one residue of the column modulo 32, then the next
  kEvery64,
  kEvery128,
  kCount
};

struct Layer {
  Fill fill = Fill::kZero;
  std::int64_t count = 0;
};

// A row: `first.count` columns of one fill, `second.count` of another, the others of `rest`.
struct Pattern {
  Fill rest = Fill::kNormal;
  Layer first = {};
  Layer second = {};
  Place place = Place::kScattered;
};

std::string to_string(const Pattern& pattern);

// Operands on the device.
struct Rows {
  float* scores;
  std::int64_t num_rows;
  std::int64_t num_columns;
  std::int64_t row_stride;
  const std::int32_t* lengths;
  const std::int32_t* row_starts;
};

// Enqueues the writing of each row's window. With probe_period p > 0, rows p - 1, 2p - 1, ... all get the same scores.
void fill_rows(const Rows& rows, const Pattern& pattern, std::uint64_t seed, std::int32_t probe_period,
               cudaStream_t stream);

// Enqueues the writing of what fill_rows() leaves around and between the windows: NaN, +infinity or the largest finite
// float, one in a row and another in the next, so that none of them hides the use of another.
void fill_outside(float* scores, std::int64_t count, std::int64_t row_stride, std::uint64_t seed, cudaStream_t stream);

// Enqueues the writing of one word, and of random words.
void fill_words(std::uint32_t* words, std::int64_t count, std::uint32_t word, cudaStream_t stream);
void fill_bits(std::uint32_t* words, std::int64_t count, std::uint64_t seed, cudaStream_t stream);

// Enqueues the writing of other lengths at each turn, which it counts in *turn: short, whole, in between, on both sides
// of k, and some that are clamped.
void draw_lengths(std::int32_t* lengths, std::int64_t count, std::int64_t num_columns, std::int32_t k,
                  std::uint32_t* turn, cudaStream_t stream);

// Enqueues a kernel that keeps some multiprocessors busy for about `microseconds`.
void occupy(std::int32_t microseconds, cudaStream_t stream);

// Words that a kernel copies.
struct WordCopy {
  std::uint32_t* to;
  const std::uint32_t* from;
  std::int64_t count;
};
struct WordCopies {
  WordCopy copies[4];
};

// Enqueues a kernel that lets the one behind it begin at once (programmatic dependent launch), and only after about
// `microseconds` copies.
void copy_late(const WordCopies& copies, std::int32_t microseconds, cudaStream_t stream);

// What a host and the kernel of hold_multiprocessors() tell each other, in memory that both see.
struct Hold {
  std::uint32_t arrived;   // CTAs that run
  std::uint32_t released;  // not 0: they end
};

// Enqueues a kernel that has multiprocessors to itself, all their shared memory in use, until it is released, at most
// for two minutes. It leaves room for one cluster of `cluster_size` CTAs that each need a whole multiprocessor, and for
// no fewer than 8 of them. Returns its CTAs.
unsigned hold_multiprocessors(std::int32_t cluster_size, Hold* hold, cudaStream_t stream);

// ---------------------------------------------------------------------------------------------------------------------
// Check

inline constexpr std::int32_t kPoison = -559038737;  // 0xDEADBEEF: no legal output
inline constexpr std::uint32_t kGuardWord = 0xA5A5A5A5U;

struct Output {
  const std::int32_t* allocation;
  std::int64_t size;    // elements of the allocation
  std::int64_t offset;  // of row 0 in it
  std::int64_t row_stride;
  std::int64_t live_rows;  // rows that the call selects from
  std::int32_t k;
};

enum class Fault : std::int32_t {
  kUnwritten,
  kNotInWindow,
  kDuplicate,
  kNotLargest,
  kShortRow,
  kWrittenOutside,
  kGuard
};

struct Finding {
  Fault fault;
  std::int32_t value;  // in the slot
  std::int64_t row;    // kWrittenOutside, kGuard: the element, relative to the start of the operand
  std::int64_t slot;
  std::int64_t other;  // kNotLargest: the better column that was left out; kShortRow: the value wanted
};

struct Report {
  static constexpr std::uint32_t kKept = 4;
  std::uint32_t count;
  Finding findings[kKept];
};

std::string to_string(const Report& report);

// Words of scratch that check_rows() needs: zeros, and it leaves zeros.
inline std::int64_t check_words(const Rows& rows) { return rows.num_rows * ((rows.num_columns + 31) / 32); }

// Enqueues the check of every slot of every row and of everything around them; adds to *report.
void check_rows(const Rows& rows, const Output& output, std::uint32_t* scratch, Report* report, cudaStream_t stream);

// Enqueues the check that the first and the last `guard` of `size` words all hold kGuardWord. The report counts from
// the word behind the first zone.
void check_guards(const std::uint32_t* words, std::int64_t size, std::int64_t guard, Report* report,
                  cudaStream_t stream);

}  // namespace hpctopk::gpu_test

#endif  // HPCTOPK_TESTS_GPU_REFERENCE_H_
