// SPDX-License-Identifier: Apache-2.0

#include <cub/device/device_segmented_radix_sort.cuh>
#include <cub/version.cuh>

#include "bench/native/kernels.h"

namespace hpctopk::bench {

int cub_version() { return CUB_VERSION; }

cudaError_t sort_rows(const SortRows& rows, void* temporary, std::size_t* temporary_bytes, cudaStream_t stream) {
  const cudaError_t error = cub::DeviceSegmentedRadixSort::SortPairsDescending(
      temporary, *temporary_bytes, rows.scores, rows.sorted_scores, rows.columns, rows.sorted_columns,
      rows.num_rows * rows.row_stride, rows.num_rows, rows.begins, rows.ends, 0, 32, stream);
  if (error != cudaSuccess || temporary == nullptr) return error;
  const std::size_t width = static_cast<std::size_t>(rows.k) * sizeof(std::int32_t);
  return cudaMemcpy2DAsync(rows.out, width, rows.sorted_columns,
                           static_cast<std::size_t>(rows.row_stride) * sizeof(std::int32_t), width,
                           static_cast<std::size_t>(rows.num_rows), cudaMemcpyDeviceToDevice, stream);
}

}  // namespace hpctopk::bench
