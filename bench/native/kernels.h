// SPDX-License-Identifier: Apache-2.0
//
// The GPU code that only the benchmarks run: a plain read, which sets the ceiling, and a peer that sorts whole rows.

#ifndef HPCTOPK_BENCH_NATIVE_KERNELS_H_
#define HPCTOPK_BENCH_NATIVE_KERNELS_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace hpctopk::bench {

// Reads `bytes` at `data`, a multiple of 16 and aligned to 16, once on `blocks` blocks. `sink` is a device word.
cudaError_t launch_read(const void* data, std::int64_t bytes, int blocks, std::uint32_t* sink, cudaStream_t stream);

// Rows sorted whole by CUB's segmented radix sort, of which the first k columns are kept.
struct SortRows {
  const float* scores = nullptr;           // [num_rows, row_stride]
  const std::int32_t* begins = nullptr;    // [num_rows], first element of each row
  const std::int32_t* ends = nullptr;      // [num_rows], element past its last valid one
  float* sorted_scores = nullptr;          // as scores
  const std::int32_t* columns = nullptr;   // as scores: the column of each element
  std::int32_t* sorted_columns = nullptr;  // as scores
  std::int32_t* out = nullptr;             // [num_rows, k]
  std::int32_t num_rows = 0;
  std::int32_t row_stride = 0;
  std::int32_t k = 0;
};

// As CUB counts it: 300001 is 3.0.1.
int cub_version();

// Sorts; with `temporary` null, only sets `temporary_bytes`. num_rows * row_stride is below 2^31.
cudaError_t sort_rows(const SortRows& rows, void* temporary, std::size_t* temporary_bytes, cudaStream_t stream);

}  // namespace hpctopk::bench

#endif  // HPCTOPK_BENCH_NATIVE_KERNELS_H_
