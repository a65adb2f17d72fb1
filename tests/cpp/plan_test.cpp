// SPDX-License-Identifier: Apache-2.0
//
// The planner over shapes and devices: its plans are sound, the cheapest of what it lists, and a pure function.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "hpctopk/topk.h"
#include "kernels/detail/view.h"
#include "kernels/kernels.h"

namespace hpctopk {
namespace {

constexpr Kernel kAllKernels[] = {Kernel::kPersistent, Kernel::kKvSplit,  Kernel::kRowLocal,
                                  Kernel::kCluster,    Kernel::kFallback, Kernel::kCpu};

DeviceInfo named(const char* name) {
  DeviceInfo device;
  EXPECT_TRUE(named_device(name, &device).ok()) << name;
  return device;
}

DeviceInfo small_device() {
  DeviceInfo device = named("h200");
  std::strcpy(device.name, "10 SMs");
  device.num_sms = 10;
  device.memory_bandwidth_gbps = 300;
  return device;
}

DeviceInfo lean_device() {
  DeviceInfo device = named("rtx5090");
  std::strcpy(device.name, "99 KB");
  device.max_cluster_size = 1;
  return device;
}

std::vector<DeviceInfo> gpus() {
  return {named("a100"), named("h20"), named("h200"), named("b200"), small_device(), lean_device()};
}

Problem problem(std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int32_t k) {
  Problem p;
  p.num_rows = rows;
  p.num_columns = columns;
  p.row_stride = stride;
  p.k = k;
  return p;
}

std::vector<Problem> problems() {
  std::vector<Problem> all;
  for (std::int64_t rows : {0, 1, 3, 10, 64, 132, 133, 513, 8192, 1'000'000}) {
    for (std::int64_t columns :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{51}, std::int64_t{2048}, std::int64_t{2049},
          std::int64_t{8191}, std::int64_t{16384}, std::int64_t{131072}, std::int64_t{1048577}, kMaxColumns}) {
      for (std::int64_t pad : {0, 1, 96}) {
        for (std::int32_t k : {1, 7, 512, 705, 1024, 2048, 2049, 4096}) {
          all.push_back(problem(rows, columns, columns + pad, k));
        }
      }
    }
  }
  return all;
}

const Candidate* find(const Plan& plan, Kernel kernel) {
  const Candidate* end = plan.candidates + plan.num_candidates;
  const Candidate* found =
      std::find_if(plan.candidates, end, [&](const Candidate& candidate) { return candidate.kernel == kernel; });
  return found == end ? nullptr : found;
}

void expect_sound_gpu_plan(const Plan& plan, const Problem& p, const DeviceInfo& device) {
  ASSERT_EQ(plan.problem.num_rows, p.num_rows);
  ASSERT_EQ(plan.problem.num_columns, p.num_columns);
  ASSERT_EQ(plan.problem.row_stride, p.row_stride);
  ASSERT_EQ(plan.problem.k, p.k);
  ASSERT_EQ(plan.grid > 0, p.num_rows > 0);
  ASSERT_LE(plan.grid, p.num_rows * plan.ctas_per_row);
  ASSERT_GE(plan.block, 32);
  ASSERT_LE(plan.block, 1024);
  ASSERT_EQ(plan.block % 32, 0);
  const bool shares_rows = plan.kernel == Kernel::kKvSplit || plan.kernel == Kernel::kCluster;
  ASSERT_EQ(plan.ctas_per_row > 1, shares_rows);
  ASSERT_LE(plan.ctas_per_row, kernels::kMaxParts);
  ASSERT_EQ(plan.cluster_size, plan.kernel == Kernel::kCluster ? plan.ctas_per_row : 1);
  ASSERT_EQ(plan.grid % plan.cluster_size, 0);
  ASSERT_GE(plan.cluster_size, 1);
  ASSERT_LE(plan.cluster_size, device.max_cluster_size);
  if (plan.stages > 0) {
    const std::int32_t beside = plan.kernel == Kernel::kCluster ? kernels::gathered_capacity(p.k) : 0;
    ASSERT_TRUE(plan.kernel == Kernel::kPersistent || shares_rows);
    ASSERT_GE(device.compute_capability, 90);
    ASSERT_GE(plan.candidate_capacity, p.k + kernels::kMinStagedRoom + beside);
    if (plan.block == kernels::kRingBlock) {
      const std::int32_t samples = detail::full_view(plan, kernels::kRingSelectThreads).hashed.samples;
      ASSERT_EQ(plan.shared_bytes, kernels::ring_shared_bytes(samples, plan.candidate_capacity, p.k));
    } else {
      ASSERT_EQ(plan.shared_bytes, kernels::staged_shared_bytes(plan.candidate_capacity, plan.block));
    }
  } else {
    ASSERT_GE(plan.candidate_capacity, p.k + kernels::kMinRound);
    ASSERT_LE(plan.candidate_capacity, p.k + kernels::kFullRound);
    ASSERT_EQ(plan.shared_bytes, kernels::shared_bytes(plan.candidate_capacity));
  }
  ASSERT_LE(plan.shared_bytes, device.shared_memory_per_block);
  ASSERT_LE(workspace_size(plan), kMaxWorkspaceBytes);
  if (plan.kernel == Kernel::kPersistent) {  // the whole grid is resident at once
    const std::int64_t ctas_per_sm = (plan.grid + device.num_sms - 1) / device.num_sms;
    ASSERT_LE(ctas_per_sm, 2);
    ASSERT_LE(ctas_per_sm * (plan.shared_bytes + 1024), device.shared_memory_per_sm);
  }
  const bool samples = shares_rows || plan.kernel == Kernel::kPersistent;
  ASSERT_EQ(plan.policy.sample.view != View::kNone, samples);
  if (plan.kernel == Kernel::kKvSplit) {
    ASSERT_LE(plan.grid, device.num_sms);
    ASSERT_EQ(plan.workspace_bytes, kernels::split_workspace_bytes(p.num_rows, plan.ctas_per_row, p.k));
  } else {
    const bool claims = plan.kernel == Kernel::kPersistent && plan.stages != 0 && p.num_rows > plan.grid;
    ASSERT_EQ(plan.workspace_bytes, claims ? kernels::kClaimsBytes : 0);
  }
}

TEST(MakePlan, IsSoundOnEveryShapeAndGpu) {
  for (const DeviceInfo& device : gpus()) {
    for (const Problem& p : problems()) {
      SCOPED_TRACE(testing::Message() << device.name << ' ' << p.num_rows << 'x' << p.num_columns << " k " << p.k);
      Plan plan;
      const Status status = make_plan(p, device, {}, &plan);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_NO_FATAL_FAILURE(expect_sound_gpu_plan(plan, p, device));

      ASSERT_EQ(plan.num_candidates, static_cast<int>(std::size(kAllKernels)));
      const Candidate* chosen = find(plan, plan.kernel);
      ASSERT_NE(chosen, nullptr);
      ASSERT_TRUE(chosen->feasible);
      for (int i = 0; i < plan.num_candidates; ++i) {
        const Candidate& candidate = plan.candidates[i];
        ASSERT_STRNE(candidate.note, "");
        if (!candidate.feasible) continue;
        ASSERT_TRUE(std::isfinite(candidate.cost_us) && candidate.cost_us > 0) << candidate.cost_us;
        ASSERT_LE(chosen->cost_us, candidate.cost_us);
      }
    }
  }
}

TEST(MakePlan, ForcesAKernelOrSaysWhyNot) {
  for (const DeviceInfo& device : gpus()) {
    for (const Problem& p : problems()) {
      Plan automatic;
      ASSERT_TRUE(make_plan(p, device, {}, &automatic).ok());
      for (Kernel kernel : kAllKernels) {
        SCOPED_TRACE(testing::Message() << device.name << ' ' << to_string(kernel));
        PlanOptions options;
        options.kernel = kernel;
        Plan plan;
        const Status status = make_plan(p, device, options, &plan);
        const Candidate* candidate = find(automatic, kernel);
        ASSERT_NE(candidate, nullptr);
        ASSERT_EQ(status.ok(), candidate->feasible);
        if (status.ok()) {
          ASSERT_EQ(plan.kernel, kernel);
          ASSERT_NO_FATAL_FAILURE(expect_sound_gpu_plan(plan, p, device));
        } else {
          ASSERT_EQ(status.code(), StatusCode::kUnsupported);
          ASSERT_EQ(status.message(), std::string("kernel = ") + to_string(kernel) + ": " + candidate->note);
        }
      }
    }
  }
}

TEST(MakePlan, SharesARowAmongAsManyCtasAsAsked) {
  PlanOptions options;
  Plan plan;
  for (const auto& [kernel, most] : {std::pair{Kernel::kCluster, 16}, std::pair{Kernel::kKvSplit, 128}}) {
    options.kernel = kernel;
    for (int parts = 2; parts <= most; parts *= 2) {
      options.ctas_per_row = parts;
      ASSERT_TRUE(make_plan(problem(2, 131072, 0, 2048), named("h200"), options, &plan).ok());
      EXPECT_EQ(plan.ctas_per_row, parts);
    }
    for (int parts : {-1, 1, 3, 256}) {
      options.ctas_per_row = parts;
      const Status status = make_plan(problem(4, 131072, 0, 2048), named("h200"), options, &plan);
      EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
      EXPECT_EQ(status.message(),
                std::string("ctas_per_row = ") + std::to_string(parts) + ": must be 0 or a power of two from 2 to 128");
    }
  }
  options.kernel = Kernel::kCluster;
  options.ctas_per_row = 32;
  const Status status = make_plan(problem(4, 131072, 0, 2048), named("h200"), options, &plan);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_STREQ(status.message(), "kernel = cluster: ctas_per_row = 32: must be at most 16 here");
}

TEST(MakePlan, ServesEveryGpuWithOneCtaARow) {
  for (const DeviceInfo& device : gpus()) {
    Plan plan;
    ASSERT_TRUE(make_plan(problem(64, 131072, 0, kMaxK), device, {}, &plan).ok());
    for (Kernel kernel : {Kernel::kPersistent, Kernel::kRowLocal, Kernel::kFallback}) {
      EXPECT_TRUE(find(plan, kernel)->feasible) << device.name << ' ' << to_string(kernel);
    }
    EXPECT_FALSE(find(plan, Kernel::kCpu)->feasible);
  }
}

TEST(MakePlan, IsPureToTheByte) {
  const Policy paper = paper_policy();
  for (const DeviceInfo& device : {named("h200"), named("cpu")}) {
    for (const Policy* policy : {static_cast<const Policy*>(nullptr), &paper}) {
      PlanOptions options;
      options.policy = policy;
      for (const Problem& p : problems()) {
        Plan a;
        Plan b;
        std::memset(static_cast<void*>(&a), 0x00, sizeof a);
        std::memset(static_cast<void*>(&b), 0xFF, sizeof b);
        ASSERT_TRUE(make_plan(p, device, options, &a).ok());
        ASSERT_TRUE(make_plan(p, device, options, &b).ok());
        ASSERT_EQ(std::memcmp(&a, &b, sizeof a), 0);
      }
    }
  }
}

TEST(MakePlan, KernelsBeginEarlyFromComputeCapability90On) {
  for (const DeviceInfo& device : gpus()) {
    Plan plan;
    ASSERT_TRUE(make_plan(problem(4, 100000, 0, 512), device, {}, &plan).ok());
    EXPECT_EQ(plan.programmatic_dependence, device.compute_capability >= 90) << device.name;
  }
}

TEST(MakePlan, ACpuRunsTheCpuKernelAlone) {
  DeviceInfo device = cpu_device();
  device.num_sms = 6;
  for (const Problem& p : problems()) {
    Plan plan;
    ASSERT_TRUE(make_plan(p, device, {}, &plan).ok());
    ASSERT_EQ(plan.kernel, Kernel::kCpu);
    ASSERT_EQ(plan.grid, p.num_rows > 0 ? 6 : 0);
    ASSERT_EQ(workspace_size(plan), 0U);
    for (int i = 0; i < plan.num_candidates; ++i) {
      ASSERT_EQ(plan.candidates[i].feasible, plan.candidates[i].kernel == Kernel::kCpu);
    }
  }
  PlanOptions options;
  options.kernel = Kernel::kPersistent;
  Plan plan;
  const Status status = make_plan(problem(1, 100, 0, 10), device, options, &plan);
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_STREQ(status.message(), "kernel = persistent: the device is a CPU");
}

TEST(MakePlan, PrefersRowLocalForShortRowsAndPersistentForLong) {
  const DeviceInfo device = named("h200");
  Plan plan;
  ASSERT_TRUE(make_plan(problem(64, 4096, 0, 2048), device, {}, &plan).ok());
  EXPECT_EQ(plan.kernel, Kernel::kRowLocal);
  for (std::int64_t rows : {512, 1024, 2048, 4096, 8192}) {
    for (std::int64_t columns : {1 << 17, 1 << 18, 1 << 19, 1 << 20}) {
      ASSERT_TRUE(make_plan(problem(rows, columns, 0, 2048), device, {}, &plan).ok());
      EXPECT_EQ(plan.kernel, Kernel::kPersistent);
    }
  }
}

TEST(MakePlan, PersistentOnBulkCopiesHasOneCtaAnSm) {
  PlanOptions options;
  options.kernel = Kernel::kPersistent;
  Plan plan;
  ASSERT_TRUE(make_plan(problem(8192, 1048576, 0, 2048), named("h200"), options, &plan).ok());
  EXPECT_EQ(plan.grid, 132);
  EXPECT_EQ(plan.stages, kernels::kStagedStages);
  EXPECT_EQ(plan.block, kernels::kPersistentBlock) << "more candidates than two rows at once have room for";
  ASSERT_TRUE(make_plan(problem(132, 131072, 0, 2048), named("h200"), options, &plan).ok());
  EXPECT_EQ(plan.block, kernels::kPersistentBlock);
  ASSERT_TRUE(make_plan(problem(133, 131072, 0, 2048), named("h200"), options, &plan).ok());
  EXPECT_EQ(plan.block, kernels::kRingBlock) << "a CTA has a second row to scan while it refines the first";
  for (const char* device : {"a100", "rtx5090"}) {  // no bulk copies; no room for the stages
    ASSERT_TRUE(make_plan(problem(8192, 1048576, 0, 2048), named(device), options, &plan).ok());
    EXPECT_EQ(plan.stages, 0) << device;
  }
}

TEST(MakePlan, PersistentOnLoadsFillsTheDeviceTwice) {
  Policy loads = default_policy();
  loads.pipeline = Pipeline::kLoads;
  PlanOptions options;
  options.policy = &loads;
  options.kernel = Kernel::kPersistent;
  Plan plan;
  ASSERT_TRUE(make_plan(problem(8192, 131072, 0, 2048), named("h200"), options, &plan).ok());
  EXPECT_EQ(plan.grid, 264);
  EXPECT_EQ(plan.block, 512);
  EXPECT_EQ(plan.candidate_capacity, 2048 + 8192);
  ASSERT_TRUE(make_plan(problem(8192, 131072, 0, 2048), named("a100"), options, &plan).ok());
  EXPECT_EQ(plan.grid, 216);
  EXPECT_EQ(plan.candidate_capacity, 2048 + 6144);
  ASSERT_TRUE(make_plan(problem(8192, 131072, 0, 4096), named("rtx5090"), options, &plan).ok());
  EXPECT_EQ(plan.grid, 170) << "k = 4096 leaves room for one CTA on an SM of 100 KB";
}

TEST(MakePlan, CarriesThePolicy) {
  const Policy paper = paper_policy();
  PlanOptions options;
  options.policy = &paper;
  Plan plan;
  ASSERT_TRUE(make_plan(problem(8192, 131072, 0, 2048), named("h20"), options, &plan).ok());
  EXPECT_EQ(plan.kernel, Kernel::kPersistent);
  EXPECT_EQ(std::memcmp(&plan.policy, &paper, sizeof paper), 0);
  EXPECT_EQ(plan.policy.sample.stride, 128);
  EXPECT_EQ(plan.policy.digits, Digits::kFixed);

  Policy none = default_policy();
  none.sample.view = View::kNone;
  options.policy = &none;
  ASSERT_TRUE(make_plan(problem(8192, 131072, 0, 2048), named("h20"), options, &plan).ok());
  EXPECT_EQ(plan.kernel, Kernel::kRowLocal);
}

TEST(MakePlan, RowStrideZeroMeansTheWidth) {
  Plan plan;
  ASSERT_TRUE(make_plan(problem(3, 77, 0, 5), named("h200"), {}, &plan).ok());
  EXPECT_EQ(plan.problem.row_stride, 77);
}

// A refused call leaves the plan alone and says what is wrong.
void expect_refused(const Problem& p, const DeviceInfo& device, const PlanOptions& options, StatusCode code,
                    const char* message) {
  Plan plan;
  plan.grid = 12345;
  const Status status = make_plan(p, device, options, &plan);
  EXPECT_EQ(status.code(), code);
  EXPECT_STREQ(status.message(), message);
  EXPECT_EQ(plan.grid, 12345);
}

TEST(MakePlan, RefusesABadProblem) {
  expect_refused(problem(1, 10, 0, 0), named("h200"), {}, StatusCode::kInvalidArgument,
                 "k = 0: must be between 1 and 4096");
  expect_refused(problem(-2, 10, 0, 1), cpu_device(), {}, StatusCode::kInvalidArgument,
                 "num_rows = -2: must be at least 0");
}

TEST(MakePlan, RefusesADeviceItCannotUse) {
  const Problem p = problem(64, 131072, 0, 2048);
  DeviceInfo device = named("h200");
  device.compute_capability = 75;
  expect_refused(p, device, {}, StatusCode::kUnsupported,
                 "device.compute_capability = 75: must be 80 or higher, or 0 for a CPU");
  device.compute_capability = -1;
  expect_refused(p, device, {}, StatusCode::kUnsupported,
                 "device.compute_capability = -1: must be 80 or higher, or 0 for a CPU");
  device = named("h200");
  device.num_sms = 0;
  expect_refused(p, device, {}, StatusCode::kInvalidArgument, "device.num_sms = 0: must be at least 1");
  device = named("h200");
  device.shared_memory_per_sm = 1024;
  expect_refused(p, device, {}, StatusCode::kInvalidArgument,
                 "device.shared_memory_per_block = 232448: must be positive and at most shared_memory_per_sm = 1024");
  device = named("h200");
  device.memory_bandwidth_gbps = std::nan("");
  expect_refused(p, device, {}, StatusCode::kInvalidArgument, "device.memory_bandwidth_gbps = nan: must be positive");
  device = named("h200");
  device.shared_memory_per_block = 40 * 1024;
  expect_refused(p, device, {}, StatusCode::kUnsupported,
                 "kernel = auto: k = 2048 needs 42496 bytes of shared memory a block, the device has 40960");
  expect_refused(p, DeviceInfo{}, {}, StatusCode::kInvalidArgument, "device.num_sms = 0: must be at least 1");
}

TEST(MakePlan, RefusesBadOptions) {
  const Problem p = problem(64, 131072, 0, 2048);
  PlanOptions wrong_kernel;
  wrong_kernel.kernel = static_cast<Kernel>(kNumKernels);
  expect_refused(p, named("h200"), wrong_kernel, StatusCode::kInvalidArgument, "kernel = 7: must be between 0 and 6");
  EXPECT_FALSE(make_plan(p, named("h200"), {}, nullptr).ok());

  const auto refused = [&](auto change, const char* message) {
    Policy policy = default_policy();
    change(&policy);
    PlanOptions options;
    options.policy = &policy;
    expect_refused(p, named("h200"), options, StatusCode::kInvalidArgument, message);
  };
  refused([](Policy* q) { q->sample.view = static_cast<View>(3); }, "policy.sample.view = 3: must be 0, 1 or 2");
  refused([](Policy* q) { q->digits = static_cast<Digits>(-1); }, "policy.digits = -1: must be 0 or 1");
  refused([](Policy* q) { q->sample.stride = 0; }, "policy.sample.stride = 0: must be at least 1");
  refused([](Policy* q) { q->sample.min_samples = -1; }, "policy.sample.min_samples = -1: must be at least 0");
  refused([](Policy* q) { q->sample.max_samples = 0; }, "policy.sample.max_samples = 0: must be at least 1");
  refused([](Policy* q) { q->sample.chunk = 12; }, "policy.sample.chunk = 12: must be a power of two from 4 to 256");
  refused([](Policy* q) { q->sample.sigmas = -1; }, "policy.sample.sigmas = -1: must be between 0 and 1000");
  refused(
      [](Policy* q) {
        *q = paper_policy();
        q->sample.rank_margin = 0.5F;
      },
      "policy.sample.rank_margin = 0.5: must be between 1 and 1000");
  refused(
      [](Policy* q) {
        *q = paper_policy();
        q->sample.rescue_margin = std::numeric_limits<float>::infinity();
      },
      "policy.sample.rescue_margin = inf: must be between rank_margin = 1.5 and 1000");
}

TEST(Describe, SaysWhatWasChosenAndWhatWasNot) {
  Plan plan;
  ASSERT_TRUE(make_plan(problem(512, 131072, 131080, 2048), named("h200"), {}, &plan).ok());
  char buffer[4096];
  const std::size_t length = describe(plan, buffer, sizeof buffer);
  const std::string text = buffer;
  EXPECT_EQ(length, text.size());
  const std::string launch = "grid " + std::to_string(plan.grid) + ", block " + std::to_string(plan.block);
  for (const std::string& part :
       {std::string("rows 512, columns 131072, row stride 131080, k 2048"), launch, std::string("* persistent"),
        std::string("row_local"), std::string("the device is not a CPU"), std::string("workspace     8 bytes"),
        std::string("hashed")}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << '\n' << text;
  }
}

TEST(Describe, SaysWhy) {
  const auto text_of = [](const PlanOptions& options) {
    Plan plan;
    EXPECT_TRUE(make_plan(problem(64, 131072, 0, 2048), named("h200"), options, &plan).ok());
    std::string text(describe(plan, nullptr, 9), '\0');  // no buffer: the length alone
    describe(plan, text.data(), text.size() + 1);
    return text;
  };
  PlanOptions options;
  EXPECT_NE(text_of(options).find("why           the least time by the model"), std::string::npos);
  options.kernel = Kernel::kFallback;
  EXPECT_NE(text_of(options).find("why           asked for; the planner would take"), std::string::npos);
}

TEST(Describe, NeverWritesPastTheBuffer) {
  Plan plan;
  ASSERT_TRUE(make_plan(problem(512, 131072, 0, 2048), named("h200"), {}, &plan).ok());
  char whole[4096];
  const std::size_t length = describe(plan, whole, sizeof whole);
  EXPECT_EQ(describe(plan, nullptr, 0), length);
  for (std::size_t size : {std::size_t{1}, std::size_t{2}, std::size_t{50}, length, length + 1}) {
    std::vector<char> part(size + 1, '#');
    EXPECT_EQ(describe(plan, part.data(), size), length);
    EXPECT_EQ(part[size], '#');
    EXPECT_EQ(std::string(part.data()), std::string(whole).substr(0, size - 1));
  }
}

}  // namespace
}  // namespace hpctopk
