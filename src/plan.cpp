// SPDX-License-Identifier: Apache-2.0
//
// The planner (paper, section 5.5): every mapping proposes a launch with its cost, or says why it cannot serve; the
// cheapest is the plan. Pure host arithmetic.

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <type_traits>

#include "hpctopk/topk.h"
#include "kernels/detail/view.h"
#include "kernels/kernels.h"
#include "src/check_arguments.h"
#include "src/cost_model.h"

namespace hpctopk {
namespace {

static_assert(std::is_trivially_copyable_v<Plan>, "a plan is copied as bytes");

constexpr std::int32_t kMinComputeCapability = 80;
constexpr std::int64_t kReservedSharedBytes = 1024;  // the driver's share of every CTA's shared memory
constexpr std::int32_t kPersistentCtasPerSm = 2;
constexpr std::int64_t kMaxGrid = std::numeric_limits<std::int32_t>::max();

struct Request {
  Problem problem;  // row_stride resolved
  DeviceInfo device;
  Policy policy;
  std::int32_t ctas_per_row;  // asked for; 0: the planner's choice
};

// A mapping's answer: the fields of a plan that it decides.
struct Proposal {
  bool feasible = false;
  double cost_us = 0;
  char note[sizeof(Candidate::note)] = {};
  std::int32_t grid = 0;
  std::int32_t block = 0;
  std::int32_t candidate_capacity = 0;
  std::int64_t shared_bytes = 0;
  std::int64_t workspace_bytes = 0;
  std::int32_t stages = 0;
  std::int32_t ctas_per_row = 1;
  std::int32_t cluster_size = 1;
  View view = View::kNone;
};

__attribute__((format(printf, 2, 3))) void set_note(Proposal* proposal, const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(proposal->note, sizeof proposal->note, format, arguments);
  va_end(arguments);
}

Proposal refuse(const char* why) {
  Proposal proposal;
  set_note(&proposal, "%s", why);
  return proposal;
}

bool is_cpu(const Request& request) { return request.device.compute_capability == 0; }

// The largest candidate buffer that `ctas_per_sm` CTAs can each have: room for k and as many of the smallest rounds as
// fit, up to `largest_round` scores. 0 where not even one round fits.
std::int32_t candidate_capacity(const Request& request, std::int32_t ctas_per_sm, std::int32_t largest_round) {
  const std::int64_t share = request.device.shared_memory_per_sm / ctas_per_sm - kReservedSharedBytes;
  const std::int64_t room = std::min<std::int64_t>(request.device.shared_memory_per_block, share);
  for (std::int32_t round = largest_round; round >= kernels::kMinRound; round -= kernels::kMinRound) {
    if (kernels::shared_bytes(request.problem.k + round) <= room) return request.problem.k + round;
  }
  return 0;
}

void set_cost(const cost::LaunchCost& cost, Proposal* proposal, const char* what) {
  proposal->cost_us = cost.total_us;
  set_note(proposal, "%lld %s a CTA in turn, %.1f us each", static_cast<long long>(cost.turns), what, cost.turn_us);
}

// One CTA a row at a time on vector loads, `ctas_per_sm` on each SM.
Proposal one_cta_a_row(const Request& request, View view, std::int32_t block, std::int32_t ctas_per_sm,
                       std::int32_t largest_round, std::int64_t largest_grid, cost::TurnCost turn) {
  if (is_cpu(request)) return refuse("the device is a CPU");
  const Problem& problem = request.problem;
  Proposal proposal;
  proposal.candidate_capacity = candidate_capacity(request, ctas_per_sm, largest_round);
  if (proposal.candidate_capacity == 0) {
    set_note(&proposal, "k = %d needs %lld bytes of shared memory a block, the device has %d", problem.k,
             static_cast<long long>(kernels::shared_bytes(problem.k + kernels::kMinRound)),
             request.device.shared_memory_per_block);
    return proposal;
  }
  proposal.feasible = true;
  proposal.view = view;
  proposal.grid = static_cast<std::int32_t>(std::min({problem.num_rows, largest_grid, kMaxGrid}));
  proposal.block = block;
  proposal.shared_bytes = kernels::shared_bytes(proposal.candidate_capacity);
  set_cost(cost::launch_cost(request.device, turn, problem.num_rows, static_cast<double>(problem.num_columns),
                             std::int64_t{request.device.num_sms} * ctas_per_sm),
           &proposal, "row(s)");
  return proposal;
}

// Fills in a CTA on bulk copies, where the policy wants it and the device has them and room: for k candidates and up to
// `largest_room` more of its own, and for `beside` more, such as those of other CTAs.
bool stage(const Request& request, std::int32_t largest_room, std::int32_t beside, Proposal* proposal) {
  if (request.policy.pipeline != Pipeline::kBulk || request.device.compute_capability < 90) return false;
  const std::int64_t room =
      request.device.shared_memory_per_block - kernels::staged_shared_bytes(0, kernels::kPersistentBlock);
  const std::int64_t fits = room / kernels::kCandidateBytes - beside;
  const std::int32_t k = request.problem.k;
  if (fits < k + kernels::kMinStagedRoom) return false;
  proposal->feasible = true;
  proposal->stages = kernels::kStagedStages;
  proposal->candidate_capacity = static_cast<std::int32_t>(std::min<std::int64_t>(fits, k + largest_room)) + beside;
  proposal->shared_bytes = kernels::staged_shared_bytes(proposal->candidate_capacity, kernels::kPersistentBlock);
  proposal->view = request.policy.sample.view;
  return true;
}

// Has a CTA refine one row while it scans the next, where it has rows to spare, the policy is the ring's, and full rows
// leave room for the candidates of two at once.
bool make_ring(const Request& request, Proposal* proposal) {
  const Problem& problem = request.problem;
  const SamplePolicy& sample = request.policy.sample;
  if (problem.num_rows <= request.device.num_sms || sample.view != View::kHashed ||
      request.policy.digits != Digits::kNormalised) {
    return false;
  }
  const auto columns = static_cast<std::int32_t>(problem.num_columns);
  const detail::HashedView view =
      detail::register_view(sample, columns, columns / 4, problem.k, kernels::kRingSelectThreads).hashed;
  const std::int64_t room =
      request.device.shared_memory_per_block - kernels::ring_shared_bytes(view.samples, 0, problem.k);
  const std::int64_t fits = room / kernels::kCandidateBytes;
  const auto capacity = static_cast<std::int32_t>(std::min<std::int64_t>(fits, kernels::kMaxRingCandidates)) & ~1;
  if (capacity / 2 < problem.k + kernels::kMinStagedRoom) return false;
  const double most = view.usable() ? (view.rank + 3 * std::sqrt(static_cast<double>(view.rank))) / view.samples : 1;
  if (most * columns > capacity / 2) return false;
  proposal->block = kernels::kRingBlock;
  proposal->candidate_capacity = capacity;
  proposal->shared_bytes = kernels::ring_shared_bytes(view.samples, capacity, problem.k);
  return true;
}

// The persistent mapping on bulk copies, one CTA an SM.
Proposal persistent_staged(const Request& request) {
  const DeviceInfo& device = request.device;
  const Problem& problem = request.problem;
  Proposal proposal;
  if (!stage(request, kernels::kFullRound, 0, &proposal)) return proposal;
  proposal.block = kernels::kPersistentBlock;
  cost::TurnCost turn = cost::kStagedRow;
  double fill_us = 0;
  if (make_ring(request, &proposal)) {
    turn = cost::kRingRow;
    fill_us = cost::kRingFillUs;
  }
  proposal.grid = static_cast<std::int32_t>(std::min<std::int64_t>(problem.num_rows, device.num_sms));
  if (problem.num_rows > proposal.grid) proposal.workspace_bytes = kernels::kClaimsBytes;
  set_cost(cost::launch_cost(device, turn, problem.num_rows, static_cast<double>(problem.num_columns), device.num_sms),
           &proposal, "row(s)");
  proposal.cost_us += fill_us;
  return proposal;
}

// The persistent mapping on vector loads. A second CTA on an SM hides the sample and the refinement of the first, which
// is worth more than a larger round.
Proposal persistent_loads(const Request& request) {
  const DeviceInfo& device = request.device;
  std::int32_t ctas_per_sm = request.problem.num_rows > device.num_sms ? kPersistentCtasPerSm : 1;
  while (ctas_per_sm > 1 && candidate_capacity(request, ctas_per_sm, kernels::kFullRound) == 0) --ctas_per_sm;
  return one_cta_a_row(request, request.policy.sample.view, kernels::kPersistentBlock, ctas_per_sm, kernels::kFullRound,
                       std::int64_t{device.num_sms} * ctas_per_sm,
                       ctas_per_sm > 1 ? cost::kLoadsPaired : cost::kLoadsAlone);
}

Proposal persistent(const Request& request) {
  if (request.policy.sample.view == View::kNone) {
    return refuse("this mapping samples, and policy.sample.view is none");
  }
  const Proposal staged = persistent_staged(request);
  return staged.feasible ? staged : persistent_loads(request);
}

// The fields of a mapping in which `parts` CTAs share a row, one CTA an SM. `gathered`: candidates that a CTA takes
// from others at once.
Proposal shared_rows(const Request& request, std::int32_t block, std::int32_t parts, std::int32_t gathered) {
  Proposal proposal;
  proposal.block = block;
  proposal.ctas_per_row = parts;
  const std::int32_t largest_room = gathered > 0 ? kernels::kMaxStagedRoom : kernels::kFullRound;
  if (stage(request, largest_room, gathered, &proposal)) return proposal;
  proposal.candidate_capacity = candidate_capacity(request, 1, kernels::kFullRound);
  proposal.feasible = proposal.candidate_capacity != 0;
  proposal.view = request.policy.sample.view;
  proposal.shared_bytes = kernels::shared_bytes(proposal.candidate_capacity);
  return proposal;
}

// The cheapest of propose(parts) over the powers of two from 2 to `most`, or over the one number that was asked for.
template <class Propose>
Proposal cheapest_split(const Request& request, std::int32_t most, const Propose& propose) {
  Proposal best = refuse("no number of CTAs a row fits");
  for (std::int32_t parts = 2; parts <= most; parts *= 2) {
    if (request.ctas_per_row != 0 && request.ctas_per_row != parts) continue;
    const Proposal proposal = propose(parts);
    if (!proposal.feasible) {
      if (!best.feasible && best.ctas_per_row == 1) best = proposal;  // the reason of the fewest
    } else if (!best.feasible || proposal.cost_us < best.cost_us) {
      best = proposal;
    }
  }
  if (request.ctas_per_row != 0 && !best.feasible && best.ctas_per_row == 1) {
    set_note(&best, "ctas_per_row = %d: must be at most %d here", request.ctas_per_row, most);
  }
  return best;
}

Proposal cluster(const Request& request) {
  const DeviceInfo& device = request.device;
  if (is_cpu(request)) return refuse("the device is a CPU");
  if (request.policy.sample.view == View::kNone) return refuse("this mapping samples, and policy.sample.view is none");
  if (device.compute_capability < 90 || device.max_cluster_size < 2) return refuse("the device has no clusters");
  const std::int32_t most = std::min(device.max_cluster_size, kernels::kMaxClusterSize);
  return cheapest_split(request, most, [&](std::int32_t parts) {
    Proposal proposal =
        shared_rows(request, kernels::kClusterBlock, parts, kernels::gathered_capacity(request.problem.k));
    if (!proposal.feasible) return proposal;
    const std::int64_t resident =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(device.num_sms * cost::cluster_occupancy(parts)) / parts);
    proposal.cluster_size = parts;
    // On bulk copies a cluster has one row; on vector loads it takes rows in turn.
    const std::int64_t clusters = proposal.stages != 0 ? kMaxGrid / parts : resident;
    proposal.grid = static_cast<std::int32_t>(std::min(request.problem.num_rows, clusters) * parts);
    const cost::LaunchCost cost = cost::launch_cost(
        device, proposal.stages != 0 ? cost::kClusterPart : cost::kClusterLoads, request.problem.num_rows,
        static_cast<double>(request.problem.num_columns) / parts, resident, parts, parts * cost::kUsPerMember);
    set_cost(cost, &proposal, "part(s)");
    proposal.cost_us += static_cast<double>(std::max<std::int64_t>(cost.turns - 1, 0)) * cost::kUsPerClusterTurn;
    return proposal;
  });
}

Proposal kv_split(const Request& request) {
  const DeviceInfo& device = request.device;
  const Problem& problem = request.problem;
  if (is_cpu(request)) return refuse("the device is a CPU");
  if (request.policy.sample.view == View::kNone) return refuse("this mapping samples, and policy.sample.view is none");
  return cheapest_split(request, kernels::kMaxParts, [&](std::int32_t parts) {
    Proposal proposal = shared_rows(request, kernels::kSplitBlock, parts, 0);
    if (!proposal.feasible) return proposal;
    // In this order: num_rows may be too large to multiply.
    const auto most =
        static_cast<std::int64_t>(kMaxWorkspaceBytes) / kernels::split_workspace_bytes(1, parts, problem.k);
    if (problem.num_rows > most) {
      proposal.feasible = false;
      set_note(&proposal, "%d CTAs a row: the lists of %lld rows exceed the workspace limit of %zu bytes", parts,
               static_cast<long long>(problem.num_rows), kMaxWorkspaceBytes);
      return proposal;
    }
    proposal.workspace_bytes = kernels::split_workspace_bytes(problem.num_rows, parts, problem.k);
    proposal.grid = static_cast<std::int32_t>(std::min<std::int64_t>(problem.num_rows * parts, device.num_sms));
    const std::int64_t merges = (problem.num_rows + device.num_sms - 1) / device.num_sms;
    const cost::TurnCost turn = proposal.stages != 0 ? cost::kSplitPart : cost::kSplitLoads;
    set_cost(cost::launch_cost(device, turn, problem.num_rows * parts, static_cast<double>(problem.num_columns) / parts,
                               device.num_sms),
             &proposal, "part(s)");
    proposal.cost_us += static_cast<double>(merges) * (cost::kSplitMergeUs + parts * cost::kUsPerPart);
    return proposal;
  });
}

Proposal row_local(const Request& request) {
  const std::int64_t columns = request.problem.num_columns;
  if (columns > kernels::kMaxRegisterColumns) {
    return one_cta_a_row(request, View::kNone, kernels::kRowLocalBlock, 1, kernels::kFullRound, kMaxGrid,
                         cost::kStreamedRow);
  }
  return one_cta_a_row(request, View::kNone, kernels::register_block(columns), 1, kernels::kFullRound, kMaxGrid,
                       cost::kRegisterRow);
}

// As row-local where every row streams, with the smallest buffer. Never cheaper, but never refused for want of room.
Proposal fallback(const Request& request) {
  return one_cta_a_row(request, View::kNone, kernels::kRowLocalBlock, 1, kernels::kMinRound, kMaxGrid,
                       cost::kStreamedRow);
}

// The grid of a CPU plan is its threads: they also share rows, where there are fewer rows than threads.
Proposal cpu(const Request& request) {
  if (!is_cpu(request)) return refuse("the device is not a CPU");
  Proposal proposal;
  proposal.feasible = true;
  proposal.view = request.policy.sample.view;
  proposal.grid = request.problem.num_rows > 0 ? request.device.num_sms : 0;
  proposal.block = 1;
  proposal.cost_us = cost::cpu_us(request.problem, request.device);
  set_note(&proposal, "%d thread(s)", request.device.num_sms);
  return proposal;
}

// The mappings, in the order in which equal costs are decided.
struct Mapping {
  Kernel kernel;
  Proposal (*propose)(const Request& request);
};
constexpr Mapping kMappings[] = {
    {Kernel::kPersistent, persistent}, {Kernel::kKvSplit, kv_split},  {Kernel::kRowLocal, row_local},
    {Kernel::kCluster, cluster},       {Kernel::kFallback, fallback}, {Kernel::kCpu, cpu},
};
static_assert(std::size(kMappings) <= kNumKernels);

Status check_device(const DeviceInfo& device) {
  const auto invalid = StatusCode::kInvalidArgument;
  if (device.num_sms < 1) {
    return Status::error(invalid, "device.num_sms = %d: must be at least 1", device.num_sms);
  }
  if (device.compute_capability == 0) return {};
  if (device.compute_capability < kMinComputeCapability) {
    return Status::error(StatusCode::kUnsupported,
                         "device.compute_capability = %d: must be %d or higher, or 0 for a CPU",
                         device.compute_capability, kMinComputeCapability);
  }
  if (device.shared_memory_per_block < 1 || device.shared_memory_per_sm < device.shared_memory_per_block) {
    return Status::error(invalid,
                         "device.shared_memory_per_block = %d: must be positive and at most shared_memory_per_sm = %d",
                         device.shared_memory_per_block, device.shared_memory_per_sm);
  }
  if (!(device.memory_bandwidth_gbps > 0)) {
    return Status::error(invalid, "device.memory_bandwidth_gbps = %g: must be positive", device.memory_bandwidth_gbps);
  }
  return {};
}

}  // namespace

Policy default_policy() noexcept { return {}; }

Policy paper_policy() noexcept {
  Policy policy;
  policy.sample.view = View::kStrided;
  policy.sample.stride = 128;
  policy.sample.rank_margin = 1.5F;
  policy.sample.rescue_margin = 1.75F;
  policy.digits = Digits::kFixed;
  policy.pipeline = Pipeline::kLoads;
  return policy;
}

Status make_plan(const Problem& problem, const DeviceInfo& device, const PlanOptions& options, Plan* plan) noexcept {
  if (plan == nullptr) return Status::error(StatusCode::kInvalidArgument, "plan = null: must point to a Plan");
  if (const int kernel = static_cast<int>(options.kernel); kernel < 0 || kernel >= kNumKernels) {
    return Status::error(StatusCode::kInvalidArgument, "kernel = %d: must be between 0 and %d", kernel,
                         kNumKernels - 1);
  }
  Request request{problem, device, options.policy != nullptr ? *options.policy : default_policy(),
                  options.ctas_per_row};
  if (request.problem.row_stride == 0) request.problem.row_stride = problem.num_columns;
  for (const Status& status : {check_problem(problem), check_device(device), check_policy(request.policy)}) {
    if (!status.ok()) return status;
  }
  if (const std::int32_t parts = options.ctas_per_row;
      parts != 0 && (parts < 2 || parts > kernels::kMaxParts || (parts & (parts - 1)) != 0)) {
    return Status::error(StatusCode::kInvalidArgument, "ctas_per_row = %d: must be 0 or a power of two from 2 to %d",
                         parts, kernels::kMaxParts);
  }

  Plan result;
  std::memset(static_cast<void*>(&result), 0, sizeof result);  // padding too: equal plans are equal bytes
  const bool forced = options.kernel != Kernel::kAuto;
  Proposal chosen;
  Proposal refused;
  for (const Mapping& mapping : kMappings) {
    const Proposal proposal = mapping.propose(request);
    Candidate& candidate = result.candidates[result.num_candidates++];
    candidate.kernel = mapping.kernel;
    candidate.feasible = proposal.feasible;
    candidate.cost_us = proposal.cost_us;
    std::memcpy(candidate.note, proposal.note, sizeof candidate.note);
    if (mapping.kernel == (forced ? options.kernel : Kernel::kFallback)) refused = proposal;
    if (!proposal.feasible || (forced && mapping.kernel != options.kernel)) continue;
    if (!chosen.feasible || proposal.cost_us < chosen.cost_us) {
      chosen = proposal;
      result.kernel = mapping.kernel;
    }
  }
  if (!chosen.feasible) {
    return Status::error(StatusCode::kUnsupported, "kernel = %s: %s", to_string(options.kernel), refused.note);
  }
  result.problem.num_rows = request.problem.num_rows;
  result.problem.num_columns = request.problem.num_columns;
  result.problem.row_stride = request.problem.row_stride;
  result.problem.k = request.problem.k;
  std::memcpy(result.device_name, device.name, sizeof result.device_name - 1);
  result.policy = request.policy;
  result.policy.sample.view = chosen.view;
  result.grid = chosen.grid;
  result.block = chosen.block;
  result.ctas_per_row = chosen.ctas_per_row;
  result.cluster_size = chosen.cluster_size;
  result.programmatic_dependence = device.compute_capability >= 90;
  result.stages = chosen.stages;
  result.candidate_capacity = chosen.candidate_capacity;
  result.shared_bytes = chosen.shared_bytes;
  result.shared_limit = device.shared_memory_per_block;
  result.workspace_bytes = chosen.workspace_bytes;
  std::memcpy(static_cast<void*>(plan), &result, sizeof result);
  return {};
}

std::size_t workspace_size(const Plan& plan) noexcept { return static_cast<std::size_t>(plan.workspace_bytes); }

}  // namespace hpctopk
