// SPDX-License-Identifier: Apache-2.0
//
// What a mapping costs, in microseconds: the planner's knobs. A CTA's turn (a row, or its part of one) takes a fixed
// time and a time for each score it reads; turns that do not fit the device at once follow each other. The constants
// are fits to what docs/performance.md says, measured on an H200 (132 SMs, 4.53 TB/s) at k = 2048.

#ifndef HPCTOPK_SRC_COST_MODEL_H_
#define HPCTOPK_SRC_COST_MODEL_H_

#include <algorithm>
#include <cstdint>

#include "hpctopk/topk.h"

namespace hpctopk::cost {

// A kernel as a node of a CUDA graph.
inline constexpr double kLaunchUs = 0.8;

struct TurnCost {
  double fixed_us;       // proposal, refinement and barriers
  double us_per_kscore;  // 1,024 scores, where memory is not the limit
  double reads = 1;      // of each score
};

// Row-local, row in registers: 3.2, 4.4 and 5.7 us at 1 x 4K, 8K and 16K, 11.1 at 256 x 16K.
inline constexpr TurnCost kRegisterRow{1.4, 0.21};
// Row-local and fallback, streaming: 20 us at 1 x 32K, 53 at 1 x 128K. The row is read twice.
inline constexpr TurnCost kStreamedRow{8.5, 0.34, 2};
// Persistent on vector loads: alone on an SM 18 us at 1 x 32K, 40 at 1 x 128K and 236 at 1 x 1M; two CTAs an SM take
// 58 us a row at 8192 x 128K, 104 at 2048 x 256K and 353 at 512 x 1M.
inline constexpr TurnCost kLoadsAlone{11, 0.22};
inline constexpr TurnCost kLoadsPaired{16, 0.325};
// Persistent on bulk copies: 18.1 us at 64 x 128K, 23.6 at 128 x 128K and 126 at 128 x 1M; 484 at 512 x 1M, where
// memory is the limit.
inline constexpr TurnCost kStagedRow{6.8, 0.09};
// The same with one row refined while the next is scanned: 24.8 us at 256 x 32K, 43.2 at 256 x 128K, 73.6 at 512 x 128K
// and 1024 at 8192 x 128K. The first proposal and the last refinement are not hidden.
inline constexpr TurnCost kRingRow{1.2, 0.09};
inline constexpr double kRingFillUs = 10;
// Cluster on bulk copies: 5.3 us at 1 x 32K on 8 CTAs, 6.2 and 10.7 at 1 x 128K and 1 x 1M on 16, 8.6 at 16 x 128K on
// 4, 46 at 32 x 1M on 2.
inline constexpr TurnCost kClusterPart{4, 0.085};
// And on vector loads: 21 us at 1 x 128K on 8 CTAs, 18 at 1 x 16K.
inline constexpr TurnCost kClusterLoads{14, 0.25};
// A cluster takes the place of another later than a CTA takes its next row.
inline constexpr double kUsPerClusterTurn = 3;
// A CTA more in the cluster adds its arrival.
inline constexpr double kUsPerMember = 0.05;
// KV-split on bulk copies: 13.4 us at 8 x 256K on 16 CTAs, 31.7 at 32 x 512K and 56 at 32 x 1M on 4. Both kernels.
inline constexpr TurnCost kSplitPart{5, 0.17};
inline constexpr double kSplitMergeUs = 4.2;
// And on vector loads: 20.8 us at 1 x 128K on 16 CTAs, 19.3 at 1 x 16K.
inline constexpr TurnCost kSplitLoads{12, 0.25};
inline constexpr double kUsPerPart = 0.04;

// Share of the SMs that clusters can occupy at once. GPCs are not all the same size, so that some SMs find no cluster
// of four or more; two are neighbours everywhere.
constexpr double cluster_occupancy(std::int32_t ctas) { return ctas == 2 ? 1.0 : 0.85; }

// A thread of the CPU back end: two take 1.8 ms for 64 x 128K.
inline constexpr double kCpuThreadGbps = 9.3;

// A launch, as the note of a candidate tells it.
struct LaunchCost {
  double total_us = 0;
  double turn_us = 0;
  std::int64_t turns = 0;  // of the busiest CTA
};

// `units` turns over owners of which `resident` run at once, each of `ctas` CTAs that read `scores` scores apiece.
inline LaunchCost launch_cost(const DeviceInfo& device, TurnCost cost, std::int64_t units, double scores,
                              std::int64_t resident, std::int32_t ctas = 1, double extra_us = 0) {
  LaunchCost result;
  result.total_us = kLaunchUs;
  if (units == 0) return result;
  resident = std::max<std::int64_t>(1, std::min(resident, units));
  const double share_gbps = device.memory_bandwidth_gbps / static_cast<double>(resident * ctas);
  const double read_us = std::max(scores / 1024 * cost.us_per_kscore, cost.reads * scores * 4 / share_gbps * 1e-3);
  result.turn_us = cost.fixed_us + read_us + extra_us;
  result.turns = (units + resident - 1) / resident;
  result.total_us += static_cast<double>(result.turns) * result.turn_us;
  return result;
}

inline double cpu_us(const Problem& problem, const DeviceInfo& device) {
  const double bytes = static_cast<double>(problem.num_rows) * static_cast<double>(problem.num_columns) * 4;
  return bytes / (kCpuThreadGbps * device.num_sms) * 1e-3;
}

}  // namespace hpctopk::cost

#endif  // HPCTOPK_SRC_COST_MODEL_H_
