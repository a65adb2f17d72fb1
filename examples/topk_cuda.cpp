// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <vector>

#include "hpctopk/topk.h"

int main() {
  hpctopk::DeviceInfo device;
  hpctopk::Status status = hpctopk::query_device(0, &device);
  if (!status.ok()) {
    std::fprintf(stderr, "device 0: %s\n", status.message());
    return 1;
  }
  hpctopk::Problem problem;
  problem.num_rows = 64;
  problem.num_columns = 131072;
  problem.k = 2048;
  hpctopk::Plan plan;  // decided on the host, once a shape
  status = hpctopk::make_plan(problem, device, {}, &plan);

  std::vector<float> scores(static_cast<std::size_t>(problem.num_rows * problem.num_columns));
  for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = static_cast<float>(i % 131072);  // the last 2048 win
  hpctopk::Arguments arguments;
  float* device_scores = nullptr;
  arguments.workspace_bytes = hpctopk::workspace_size(plan);
  cudaMalloc(reinterpret_cast<void**>(&device_scores), scores.size() * sizeof(float));
  cudaMalloc(reinterpret_cast<void**>(&arguments.out), 64 * 2048 * sizeof(std::int32_t));
  cudaMalloc(&arguments.workspace, arguments.workspace_bytes);
  cudaMemcpy(device_scores, scores.data(), scores.size() * sizeof(float), cudaMemcpyHostToDevice);
  arguments.scores = device_scores;

  cudaStream_t stream = nullptr;
  if (status.ok()) status = hpctopk::launch(plan, arguments, stream);  // never allocates or synchronises: capturable
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.message());
    return 1;
  }
  std::vector<std::int32_t> columns(64 * 2048);
  const cudaError_t error =
      cudaMemcpy(columns.data(), arguments.out, columns.size() * sizeof(std::int32_t), cudaMemcpyDeviceToHost);
  std::printf("%s: smallest selected column %d, %s\n", device.name, *std::min_element(columns.begin(), columns.end()),
              cudaGetErrorString(error));
  cudaFree(device_scores);
  cudaFree(arguments.out);
  cudaFree(arguments.workspace);
}
