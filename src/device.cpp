// SPDX-License-Identifier: Apache-2.0

#include "src/device.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <thread>

#include "hpctopk/topk.h"

#ifdef HPCTOPK_HAS_CUDA
#include <cuda_runtime_api.h>
#endif

namespace hpctopk {
namespace {

constexpr std::int32_t kKiB = 1024;
constexpr std::int64_t kMiB = std::int64_t{1} << 20;

// Bandwidths are datasheet values, but for the H200's, which a plain read kernel reached. L2, shared memory and SM
// counts are those the runtime reports.
constexpr DeviceInfo kDevices[] = {
    // name, compute capability, SMs, shared memory a block and an SM, cluster, L2, GB/s
    {"a100", 80, 108, 163 * kKiB, 164 * kKiB, 1, 40 * kMiB, 2039},
    {"h20", 90, 78, 227 * kKiB, 228 * kKiB, 16, 60 * kMiB, 4000},
    {"h100", 90, 132, 227 * kKiB, 228 * kKiB, 16, 50 * kMiB, 3350},
    {"h200", 90, 132, 227 * kKiB, 228 * kKiB, 16, 60 * kMiB, 4530},
    {"b200", 100, 148, 227 * kKiB, 228 * kKiB, 16, 126 * kMiB, 8000},
    {"rtx5090", 120, 170, 99 * kKiB, 100 * kKiB, 8, 96 * kMiB, 1792},
};

#ifdef HPCTOPK_HAS_CUDA
// What a plain read kernel reaches of memory clock x bus width: 4530 of 4916 GB/s on an H200.
constexpr double kReachableFraction = 0.92;
// Bandwidth for each SM where the driver does not tell the memory clock: the H200's.
constexpr double kGbpsPerSm = 4530.0 / 132;
#endif

}  // namespace

DeviceInfo cpu_device() noexcept {
  DeviceInfo device;
  std::snprintf(device.name, sizeof device.name, "cpu");
  device.num_sms = static_cast<std::int32_t>(std::max(1U, std::thread::hardware_concurrency()));
  return device;
}

Status named_device(const char* name, DeviceInfo* device) noexcept {
  if (device == nullptr)
    return Status::error(StatusCode::kInvalidArgument, "device = null: must point to a DeviceInfo");
  if (name != nullptr) {
    for (const DeviceInfo& known : kDevices) {
      if (std::strcmp(name, known.name) == 0) {
        *device = known;
        return {};
      }
    }
    if (std::strcmp(name, "cpu") == 0) {
      *device = cpu_device();
      return {};
    }
  }
  return Status::error(StatusCode::kInvalidArgument,
                       "device = %.64s: must be one of a100, h20, h100, h200, b200, rtx5090, cpu",
                       name != nullptr ? name : "null");
}

#ifdef HPCTOPK_HAS_CUDA

const char* cuda_error_text(int code) noexcept { return cudaGetErrorString(static_cast<cudaError_t>(code)); }

Status query_device(int ordinal, DeviceInfo* device) noexcept {
  if (device == nullptr)
    return Status::error(StatusCode::kInvalidArgument, "device = null: must point to a DeviceInfo");
  int count = 0;
  if (const cudaError_t error = cudaGetDeviceCount(&count); error != cudaSuccess) {
    return Status::error(StatusCode::kCudaError, "cudaGetDeviceCount: %s", cudaGetErrorString(error));
  }
  if (ordinal < 0 || ordinal >= count) {
    return Status::error(StatusCode::kInvalidArgument, "ordinal = %d: must be below the %d CUDA devices here", ordinal,
                         count);
  }
  cudaError_t error = cudaSuccess;
  const auto attribute = [&](cudaDeviceAttr which) {
    int value = 0;
    if (error == cudaSuccess) error = cudaDeviceGetAttribute(&value, which, ordinal);
    return value;
  };
  DeviceInfo info;
  info.compute_capability =
      10 * attribute(cudaDevAttrComputeCapabilityMajor) + attribute(cudaDevAttrComputeCapabilityMinor);
  info.num_sms = attribute(cudaDevAttrMultiProcessorCount);
  info.shared_memory_per_block = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
  info.shared_memory_per_sm = attribute(cudaDevAttrMaxSharedMemoryPerMultiprocessor);
  info.l2_bytes = attribute(cudaDevAttrL2CacheSize);
  if (attribute(cudaDevAttrClusterLaunch) != 0) {
    // 8 is the portable size; the data-centre parts (9.x, 10.x) take 16 where a kernel opts in.
    info.max_cluster_size = info.compute_capability < 110 ? 16 : 8;
  }
  const double clock_khz = attribute(cudaDevAttrMemoryClockRate);
  const double bus_bits = attribute(cudaDevAttrGlobalMemoryBusWidth);
  const double peak_gbps = 2 * clock_khz * 1e3 * bus_bits / 8 * 1e-9;  // double data rate
  info.memory_bandwidth_gbps = peak_gbps > 0 ? kReachableFraction * peak_gbps : kGbpsPerSm * info.num_sms;
  cudaDeviceProp properties;
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, ordinal);
  if (error != cudaSuccess) {
    return Status::error(StatusCode::kCudaError, "ordinal = %d: %s", ordinal, cudaGetErrorString(error));
  }
  std::snprintf(info.name, sizeof info.name, "%.63s", properties.name);
  *device = info;
  return {};
}

#else

const char* cuda_error_text(int) noexcept { return "this build has no CUDA"; }

Status query_device(int ordinal, DeviceInfo*) noexcept {
  return Status::error(StatusCode::kUnsupported, "ordinal = %d: this build has no CUDA (HPCTOPK_CUDA=OFF)", ordinal);
}

#endif

}  // namespace hpctopk
