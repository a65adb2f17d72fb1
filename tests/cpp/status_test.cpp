// SPDX-License-Identifier: Apache-2.0

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <type_traits>

#include "hpctopk/topk.h"

namespace hpctopk {
namespace {

static_assert(std::is_trivially_copyable_v<Status>);

TEST(Status, DefaultIsOkAndSilent) {
  constexpr Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kOk);
  EXPECT_STREQ(status.message(), "");
}

TEST(Status, ErrorCarriesItsCodeAndFormattedMessage) {
  const Status status = Status::error(StatusCode::kUnsupported, "k = %d: must be at most %s", 7, "six");
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_STREQ(status.message(), "k = 7: must be at most six");
}

TEST(Status, LongMessageIsCutAndTerminated) {
  const std::string text(1000, 'x');
  const Status status = Status::error(StatusCode::kInvalidArgument, "%s", text.c_str());
  EXPECT_EQ(std::strlen(status.message()), 251U);
}

TEST(KernelNames, GoBothWays) {
  for (int i = 0; i < kNumKernels; ++i) {
    const auto kernel = static_cast<Kernel>(i);
    Kernel parsed = Kernel::kAuto;
    EXPECT_TRUE(parse_kernel(to_string(kernel), &parsed).ok());
    EXPECT_EQ(parsed, kernel);
  }
  EXPECT_STREQ(to_string(Kernel::kKvSplit), "kv_split");
  EXPECT_STREQ(to_string(static_cast<Kernel>(kNumKernels)), "unknown");
}

TEST(KernelNames, UnknownNamesAreRefused) {
  Kernel kernel = Kernel::kCluster;
  const Status status = parse_kernel("fast", &kernel);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_STREQ(status.message(),
               "kernel = fast: must be one of auto, persistent, kv_split, row_local, cluster, fallback, cpu");
  EXPECT_FALSE(parse_kernel("", &kernel).ok());
  EXPECT_FALSE(parse_kernel(nullptr, &kernel).ok());
  EXPECT_FALSE(parse_kernel("cpu", nullptr).ok());
  EXPECT_EQ(kernel, Kernel::kCluster);
}

TEST(Devices, NamedOnesAreWhole) {
  for (const char* name : {"a100", "h20", "h100", "h200", "b200", "rtx5090"}) {
    DeviceInfo device;
    ASSERT_TRUE(named_device(name, &device).ok()) << name;
    EXPECT_STREQ(device.name, name);
    EXPECT_GE(device.compute_capability, 80);
    EXPECT_GT(device.num_sms, 0);
    EXPECT_GT(device.shared_memory_per_block, 0);
    EXPECT_GT(device.shared_memory_per_sm, device.shared_memory_per_block);
    EXPECT_EQ(device.max_cluster_size > 1, device.compute_capability >= 90);
    EXPECT_GT(device.l2_bytes, 0);
    EXPECT_GT(device.memory_bandwidth_gbps, 0);
  }
}

TEST(Devices, CpuHasThreadsAndNoComputeCapability) {
  DeviceInfo device;
  ASSERT_TRUE(named_device("cpu", &device).ok());
  EXPECT_EQ(device.compute_capability, 0);
  EXPECT_GE(device.num_sms, 1);
  EXPECT_EQ(device.num_sms, cpu_device().num_sms);
}

TEST(Devices, UnknownNamesAreRefused) {
  DeviceInfo device;
  const Status status = named_device("v100", &device);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_STREQ(status.message(), "device = v100: must be one of a100, h20, h100, h200, b200, rtx5090, cpu");
  EXPECT_FALSE(named_device(nullptr, &device).ok());
  EXPECT_FALSE(named_device("h200", nullptr).ok());
}

TEST(Devices, ADeviceThatIsNotThereIsRefused) {
  DeviceInfo device;
  EXPECT_FALSE(query_device(-1, &device).ok());
  EXPECT_FALSE(query_device(1 << 20, &device).ok());
  EXPECT_FALSE(query_device(0, nullptr).ok());
}

}  // namespace
}  // namespace hpctopk
