// SPDX-License-Identifier: Apache-2.0
//
// What a mapping costs, in microseconds: the planner's knobs. Every constant names the measurement it comes from, so
// that a new measurement has one line to change. Times in SM cycles were taken at 1.98 GHz on an H200 (132 SMs).

#ifndef HPCTOPK_SRC_COST_MODEL_H_
#define HPCTOPK_SRC_COST_MODEL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hpctopk/topk.h"

namespace hpctopk::cost {

inline constexpr double kCyclesPerUs = 1980;
inline constexpr double kScoreBytes = 4;

// A kernel as a node of a CUDA graph: 0.7 to 0.9 us.
inline constexpr double kLaunchUs = 0.8;

// One CTA's scan against a boundary: 16,384 scores in 2,890 cycles, when memory is not the limit. GB/s.
inline constexpr double kScanGbps = 16384 * kScoreBytes / (2890 / kCyclesPerUs) * 1e-3;

// The sampled row before its scan: length read 790 cycles, addresses 690, arrival of the sample 120, boundary 1,030,
// first scores 340; and 380 cycles for a histogram of 1,024 samples.
inline constexpr double kSampleUs = (790 + 690 + 120 + 1030 + 340) / kCyclesPerUs;
inline constexpr double kUsPerSample = 380 / kCyclesPerUs / 1024;

// Bytes that memory moves for one sample of 4: a strided sample costs 12.5% more traffic at stride 128.
inline constexpr double kAccessBytes = 64;

// Refinement of the admitted: boundary 740 cycles and ranking of its bin 790; 1,440 + 1,310 for the histogram of 3,700
// candidates and the placing of the winners.
inline constexpr double kRefineUs = (740 + 790) / kCyclesPerUs;
inline constexpr double kUsPerCandidate = (1440 + 1310) / kCyclesPerUs / 3700;

// A row that is read into an exact histogram by one CTA of 1,024 threads: 2.8, 4.4, 7.6 and 12.4 us for 4K, 8K, 16K and
// 32K scores, launch included.
inline constexpr double kDirectRowUs = 1.2 - kLaunchUs;
inline constexpr double kDirectUsPerScore = 1.6 / 4096;

// The CPU: one thread reads 33.5 MB of scores in 1.2 ms; setting a row up and refining it stays below 10 us.
inline constexpr double kCpuThreadGbps = 28;
inline constexpr double kCpuRowUs = 10;

inline double us_of(double bytes, double gbps) { return bytes / gbps * 1e-3; }

// Rows over CTAs that stay resident: how many each takes in turn, and the bandwidth that is left for each.
struct Waves {
  double resident = 0;
  double rows_per_cta = 0;
  double cta_gbps = 0;
};

inline Waves waves(const Problem& problem, const DeviceInfo& device, std::int64_t resident_ctas) {
  Waves w;
  w.resident = static_cast<double>(std::min(problem.num_rows, resident_ctas));
  if (w.resident == 0) return w;
  w.rows_per_cta = std::ceil(static_cast<double>(problem.num_rows) / w.resident);
  w.cta_gbps = std::min(kScanGbps, device.memory_bandwidth_gbps / w.resident);
  return w;
}

// What a row's sample reads and lets through.
struct SampleWork {
  double samples = 0;
  double bytes = 0;
  double admitted = 0;
};

inline SampleWork sample_work(const Problem& problem, const SamplePolicy& policy) {
  const double columns = static_cast<double>(problem.num_columns);
  SampleWork work;
  work.samples = columns / policy.stride;
  work.bytes = work.samples / policy.chunk * std::max(kAccessBytes, policy.chunk * kScoreBytes);
  double margin = policy.rank_margin;
  if (policy.view == View::kHashed) {
    const double expected = std::max(1.0, static_cast<double>(problem.k) / policy.stride);
    margin = 1 + policy.sigmas / std::sqrt(expected);
  }
  work.admitted = std::min(columns, margin * problem.k);
  return work;
}

// A row of the direct-exact body (paper, section 5.5): an exact histogram, and a second pass that admits where the row
// does not stay in the candidate buffer.
inline double direct_row_us(const Problem& problem, double cta_gbps, std::int32_t candidate_capacity) {
  const double columns = static_cast<double>(problem.num_columns);
  const double read_us = us_of(columns * kScoreBytes, cta_gbps);
  const double first = std::max(read_us, columns * kDirectUsPerScore);
  const double second = problem.num_columns > candidate_capacity ? read_us : 0;
  return kDirectRowUs + first + second;
}

// A row of the sampled body (section 4).
inline double sampled_row_us(const Problem& problem, double cta_gbps, const SamplePolicy& policy) {
  const SampleWork work = sample_work(problem, policy);
  const double bytes = static_cast<double>(problem.num_columns) * kScoreBytes + work.bytes;
  return kSampleUs + work.samples * kUsPerSample + us_of(bytes, cta_gbps) + kRefineUs + work.admitted * kUsPerCandidate;
}

inline double cpu_us(const Problem& problem, const DeviceInfo& device) {
  const double row_us = kCpuRowUs + us_of(static_cast<double>(problem.num_columns) * kScoreBytes, kCpuThreadGbps);
  return static_cast<double>(problem.num_rows) * row_us / device.num_sms;
}

}  // namespace hpctopk::cost

#endif  // HPCTOPK_SRC_COST_MODEL_H_
