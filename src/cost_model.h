// SPDX-License-Identifier: Apache-2.0
//
// What a mapping costs, in microseconds: the planner's knobs. Every constant names the measurement it comes from, so
// that a better measurement changes one line. They were taken on an H200 (132 SMs, 1.98 GHz), K = 2048.

#ifndef HPCTOPK_SRC_COST_MODEL_H_
#define HPCTOPK_SRC_COST_MODEL_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "hpctopk/topk.h"
#include "kernels/detail/view.h"
#include "kernels/kernels.h"

namespace hpctopk::cost {

inline constexpr double kCyclesPerUs = 1980;
inline constexpr double kScoreBytes = 4;

// A kernel as a node of a CUDA graph: 0.7 to 0.9 us.
inline constexpr double kLaunchUs = 0.8;

// A row before its first score: length read 790 cycles, addresses 690.
inline constexpr double kRowUs = (790 + 690) / kCyclesPerUs;

// A sample: arrival 120 cycles, boundary 1,030, first scores of the scan 340.
inline constexpr double kSampleUs = (120 + 1030 + 340) / kCyclesPerUs;

// Bytes that memory moves for a sample that stands alone: 12.5% more traffic at stride 128.
inline constexpr double kAccessBytes = 64;

// Rates of a CTA of kMeasuredBlock threads, when memory is not the limit; they scale with the threads.
inline constexpr double kMeasuredBlock = 1024;
// Scan against a boundary: 16,384 scores in 2,890 cycles. GB/s.
inline constexpr double kScanGbps = 16384 * kScoreBytes / (2890 / kCyclesPerUs) * 1e-3;
// A histogram of 1,024 samples: 380 cycles.
inline constexpr double kUsPerSample = 380 / kCyclesPerUs / 1024;
// A histogram of every score of a row: 1.6 us for 4,096 scores.
inline constexpr double kUsPerCount = 1.6 / 4096;
// 3,700 candidates: 1,440 cycles for their histogram, 1,310 for the placing of the winners.
inline constexpr double kUsPerCandidate = (1440 + 1310) / kCyclesPerUs / 3700;

// Refinement, whatever the number of candidates: boundary 740 cycles, ranking of its bin 790.
inline constexpr double kRefineUs = (740 + 790) / kCyclesPerUs;

// The end of a round of the scan: two block barriers of 0.04 us, and the next loads' way from memory, 0.4 to 0.6 us.
inline constexpr double kRoundUs = 2 * 0.04 + 0.5;

// Candidates of other CTAs, brought to the one that refines: 3,700 in 1,510 cycles with the barrier.
inline constexpr double kUsPerMerge = 1510 / kCyclesPerUs / 3700;
// The members of a cluster meet three times: 0.33 us each.
inline constexpr double kClusterMeetUs = 3 * 0.33;
// Share of the SMs that clusters of any size can occupy at once: 14 of 16 CTAs or 30 of 8, two CTAs an SM of 132.
inline constexpr double kClusterOccupancy = 14 * 16 / 2 / 132.0;
// A second kernel of the same launch, started early.
inline constexpr double kSplitMeetUs = 2.0;

// A thread of the CPU back end: two read 33.5 MB in 0.6 ms.
inline constexpr double kCpuThreadGbps = 28;

// A row, as one CTA handles it.
struct RowWork {
  double sampled = 0;       // scores in the sample
  double sample_bytes = 0;  // memory traffic of the sample
  double counted = 0;       // scores in the exact coarse histogram
  double admitted = 0;      // candidates
};

inline RowWork row_work(const Problem& problem, const SamplePolicy& policy, std::int32_t candidate_capacity) {
  const auto columns = static_cast<double>(problem.num_columns);
  const auto length = static_cast<std::int32_t>(problem.num_columns);
  RowWork work;
  if (length <= candidate_capacity) {  // no boundary needed: every score is a candidate
    work.admitted = columns;
    return work;
  }
  if (policy.view == View::kStrided) {
    const detail::StridedView view = detail::strided_view(policy, length, problem.k, 0);
    if (view.usable()) {
      work.sampled = view.samples;
      work.sample_bytes = view.samples * std::min(kAccessBytes, kScoreBytes * policy.stride);
      work.admitted = static_cast<double>(view.rank) / view.samples * columns;
    }
  } else if (policy.view == View::kHashed) {
    const detail::HashedView view = detail::hashed_view(policy, length, length / 4, problem.k);
    if (view.usable()) {
      const double chunk = 4 << view.log_chunk;
      work.sampled = view.samples;
      work.sample_bytes = view.samples / chunk * std::max(kAccessBytes, kScoreBytes * chunk);
      work.admitted = static_cast<double>(view.rank) / view.samples * columns;
    }
  }
  if (work.sampled == 0) {
    work.counted = columns;
    work.admitted = problem.k;
  }
  work.admitted = std::min(work.admitted, columns);
  return work;
}

struct LaunchCost {
  double total_us = 0;
  double row_us = 0;
  std::int64_t rows_per_cta = 0;
  bool read_twice = false;
};

// What the phases of a row take in each of the `parts` CTAs that share it, `resident` CTAs being busy at a time.
struct PhaseCost {
  double propose_us = 0;  // up to the boundary: the row's length, and its sample or exact histogram
  double scan_us = 0;
  double refine_us = 0;
  double admitted = 0;
  bool read_twice = false;
};

inline PhaseCost phase_cost(const Problem& problem, const DeviceInfo& device, const SamplePolicy& policy,
                            std::int64_t resident, std::int32_t parts, std::int32_t block,
                            std::int32_t candidate_capacity) {
  const RowWork work = row_work(problem, policy, candidate_capacity);
  const double speed = block / kMeasuredBlock;
  const double memory_gbps = device.memory_bandwidth_gbps / static_cast<double>(resident);
  const double scores = static_cast<double>(problem.num_columns) / parts;
  const double bytes = scores * kScoreBytes;
  const auto read_us = [](double size, double gbps) { return size / gbps * 1e-3; };

  const double rounds = std::floor(scores / (candidate_capacity - problem.k));
  const double count_us =
      work.counted > 0 ? std::max(read_us(bytes, memory_gbps), work.counted / parts * kUsPerCount / speed) : 0;
  const double sample_us =
      work.sampled > 0 ? kSampleUs + read_us(work.sample_bytes, memory_gbps) + work.sampled * kUsPerSample / speed : 0;
  PhaseCost cost;
  cost.propose_us = kRowUs + sample_us + count_us;
  cost.scan_us = std::max(read_us(bytes, memory_gbps), read_us(bytes, kScanGbps * speed) + rounds * kRoundUs);
  cost.refine_us = kRefineUs + work.admitted * kUsPerCandidate / speed;
  cost.admitted = work.admitted;
  cost.read_twice = work.counted > 0;
  return cost;
}

// One CTA a row, `resident` of them at a time.
inline LaunchCost one_cta_a_row(const Problem& problem, const DeviceInfo& device, const SamplePolicy& policy,
                                std::int64_t resident, std::int32_t block, std::int32_t candidate_capacity) {
  LaunchCost cost;
  cost.total_us = kLaunchUs;
  if (problem.num_rows == 0) return cost;
  resident = std::min(resident, problem.num_rows);
  const PhaseCost phases = phase_cost(problem, device, policy, resident, 1, block, candidate_capacity);
  cost.row_us = phases.propose_us + phases.scan_us + phases.refine_us;
  cost.rows_per_cta = (problem.num_rows + resident - 1) / resident;
  cost.total_us += static_cast<double>(cost.rows_per_cta) * cost.row_us;
  cost.read_twice = phases.read_twice;
  return cost;
}

// `parts` CTAs of a cluster a row, `resident` clusters at a time.
inline LaunchCost cluster(const Problem& problem, const DeviceInfo& device, const SamplePolicy& policy,
                          std::int64_t resident, std::int32_t parts, std::int32_t block,
                          std::int32_t candidate_capacity) {
  LaunchCost cost;
  cost.total_us = kLaunchUs;
  if (problem.num_rows == 0) return cost;
  resident = std::min(resident, problem.num_rows);
  const PhaseCost phases = phase_cost(problem, device, policy, resident * parts, parts, block, candidate_capacity);
  cost.row_us = phases.propose_us + phases.scan_us + kClusterMeetUs + phases.admitted * kUsPerMerge + phases.refine_us;
  cost.rows_per_cta = (problem.num_rows + resident - 1) / resident;
  cost.total_us += static_cast<double>(cost.rows_per_cta) * cost.row_us;
  cost.read_twice = phases.read_twice;
  return cost;
}

// `parts` CTAs a row that meet in memory: a kernel of parts, and a kernel of rows.
inline LaunchCost kv_split(const Problem& problem, const DeviceInfo& device, const SamplePolicy& policy,
                           std::int32_t parts, std::int32_t block, std::int32_t candidate_capacity) {
  LaunchCost cost;
  cost.total_us = kLaunchUs + kSplitMeetUs;
  if (problem.num_rows == 0) return cost;
  const std::int64_t units = problem.num_rows * parts;
  const std::int64_t sms = device.num_sms;
  const std::int64_t resident = std::min(units, sms);
  const PhaseCost phases = phase_cost(problem, device, policy, resident, parts, block, candidate_capacity);
  cost.row_us = phases.propose_us + phases.scan_us + phases.admitted * kUsPerMerge + phases.refine_us;
  cost.rows_per_cta = (units + resident - 1) / resident;
  cost.total_us +=
      static_cast<double>(cost.rows_per_cta) * (phases.propose_us + phases.scan_us) +
      static_cast<double>((problem.num_rows + sms - 1) / sms) * (phases.admitted * kUsPerMerge + phases.refine_us);
  return cost;
}

inline double cpu_us(const Problem& problem, const DeviceInfo& device) {
  const double bytes = static_cast<double>(problem.num_rows) * static_cast<double>(problem.num_columns) * kScoreBytes;
  return bytes / (kCpuThreadGbps * device.num_sms) * 1e-3;
}

}  // namespace hpctopk::cost

#endif  // HPCTOPK_SRC_COST_MODEL_H_
