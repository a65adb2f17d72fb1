// SPDX-License-Identifier: Apache-2.0
//
// A short row in the registers of a CTA. It is read once, by the allocated width and masked by its window afterwards,
// so that the scores and the window are on their way together.

#ifndef HPCTOPK_KERNELS_DETAIL_SHORT_ROW_CUH_
#define HPCTOPK_KERNELS_DETAIL_SHORT_ROW_CUH_

#include <cstdint>

#include "kernels/detail/ordered_key.h"
#include "kernels/detail/ptx.cuh"
#include "kernels/detail/row.cuh"

namespace hpctopk::detail {

__device__ __forceinline__ float infinity() { return bits_float(0x7F800000U); }

// The window of a row as it is in memory, and the rows there are. Nothing waits for the loads yet.
struct RawWindow {
  std::int32_t start, length, num_rows;

  __device__ __forceinline__ RawWindow(const Operands& operands, std::int64_t index)
      : start(0), length(kMaxLength), num_rows(kMaxLength) {
    if (operands.row_starts != nullptr) start = operands.row_starts[index];
    if (operands.lengths != nullptr) length = operands.lengths[index];
    if (operands.num_rows != nullptr) num_rows = *operands.num_rows;
  }
  // A term that is known later than the window keeps the compiler from waiting for that before.
  __device__ __forceinline__ void add(int zero) {
    start += zero;
    length -= zero;
    num_rows -= zero;
  }
  __device__ __forceinline__ void clamp(int width) {
    start = min(max(start, 0), width);
    length = min(max(length, 0), width - start);
  }

 private:
  static constexpr std::int32_t kMaxLength = 0x7FFFFFFF;
};

// Up to 4 * kQuads * Group::kSize scores, beginning at the row's first quad boundary or up to three columns before it.
template <class Group, int kQuads>
struct ShortRow {
  static constexpr int kEntries = 4 * kQuads;
  static_assert(kEntries <= 32);

  float score[kEntries];  // -infinity outside of the window
  unsigned valid;         // a bit for each
  int first;              // the column of the first

  __device__ int column(int i) const { return first + i / 4 * 4 * Group::kSize + i % 4; }
  __device__ bool has(int i) const { return (valid & 1U << i) != 0; }
  __device__ unsigned entries() const { return valid; }

  struct Quad {
    static constexpr int kEntries = 4;
    float score[kEntries];
  };
  __device__ Quad quad(int i) const { return {{score[4 * i], score[4 * i + 1], score[4 * i + 2], score[4 * i + 3]}}; }

  __device__ static int skipped(const float* row) {
    return static_cast<int>(reinterpret_cast<std::uintptr_t>(row) / sizeof(float) % 4);
  }
  __device__ static bool fits(const float* row, int width) { return skipped(row) + width <= kEntries * Group::kSize; }

  // Reads all columns: 0..width - 1.
  __device__ __forceinline__ void load(const Group& group, const float* row, int width) {
    first = 4 * group.thread - skipped(row);
    keep_in_register(&first);
    const float* const mine = row + first;
    if (__builtin_expect(static_cast<long>(first >= 0 && is_whole(kQuads - 1, width)), 1) != 0) {
#pragma unroll
      for (int i = 0; i < kQuads; ++i) set(i, load_streaming(quad_of(mine, i)));
      return;
    }
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const int c = column(4 * i);
      const bool whole = is_whole(i, width);
      float4 quad = make_float4(-infinity(), -infinity(), -infinity(), -infinity());
      if (whole) quad = load_streaming(quad_of(mine, i));
      set(i, quad);
      if (whole || c >= width) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) {  // a quad that reaches over the row's edge
        if (c + j >= 0 && c + j < width) score[4 * i + j] = load_streaming(mine + i * 4 * Group::kSize + j);
      }
    }
  }
  __device__ static const float4* quad_of(const float* mine, int i) {
    return reinterpret_cast<const float4*>(mine) + i * Group::kSize;
  }
  __device__ void set(int i, const float4& quad) {
    score[4 * i] = quad.x;
    score[4 * i + 1] = quad.y;
    score[4 * i + 2] = quad.z;
    score[4 * i + 3] = quad.w;
  }
  __device__ bool is_whole(int i, int width) const {
    return (i > 0 || first >= 0) && first <= width - 4 - i * 4 * Group::kSize;
  }

  // Leaves columns [begin, end).
  __device__ __forceinline__ void mask(int begin, int end) {
    valid = 0xFFFFFFFFU >> (32 - kEntries);
    if (__builtin_expect(static_cast<long>(first >= begin && column(kEntries - 1) < end), 1) != 0) return;
    valid = 0;
#pragma unroll
    for (int i = 0; i < kEntries; ++i) {
      if (column(i) >= begin && column(i) < end) {
        valid |= 1U << i;
      } else {
        score[i] = -infinity();
      }
    }
  }
};

// Sets the bits of `mask` for the scores that are admitted.
template <int kFirst = 0, int kEntries>
__device__ __forceinline__ void admit_scores(const float (&score)[kEntries], float floor, unsigned* mask) {
  if constexpr (kFirst < kEntries) {
    admit<kFirst>(make_float4(score[kFirst], score[kFirst + 1], score[kFirst + 2], score[kFirst + 3]), floor, mask);
    admit_scores<kFirst + 4>(score, floor, mask);
  }
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SHORT_ROW_CUH_
