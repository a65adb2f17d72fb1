// SPDX-License-Identifier: Apache-2.0
//
// The general selection from a short row in the registers of a group, whatever its scores and digits are. Most rows
// take the way of select_short_row.cuh.

#ifndef HPCTOPK_KERNELS_DETAIL_REGISTER_ROW_CUH_
#define HPCTOPK_KERNELS_DETAIL_REGISTER_ROW_CUH_

#include <cstdint>

#include "kernels/detail/histogram.cuh"
#include "kernels/detail/ordered_key.h"
#include "kernels/detail/ptx.cuh"
#include "kernels/detail/refine.cuh"
#include "kernels/detail/row.cuh"
#include "kernels/detail/scan.cuh"

namespace hpctopk::detail {

// A source of composites, like CandidateList. Holds rows of up to 4 * kQuads * Group::kSize scores. The scores of the
// row's edges, at most six, are one more for each of the first threads.
template <class Group, int kQuads>
class RegisterRow {
 public:
  __device__ RegisterRow(const Group& group, const Row& row) : thread_(group.thread), quads_(row.quads) {
    head_ = row.head;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      float4 scores = make_float4(0, 0, 0, 0);
      if (has(i)) scores = load_streaming(row.quad(quad(i)));
      keys_[4 * i] = ordered_key(scores.x);
      keys_[4 * i + 1] = ordered_key(scores.y);
      keys_[4 * i + 2] = ordered_key(scores.z);
      keys_[4 * i + 3] = ordered_key(scores.w);
    }
    edge_index_ = thread_ < row.head ? thread_ : row.length - row.tail() + thread_ - row.head;
    if (edge_index_ < row.length) edge_key_ = ordered_key(row.scores[edge_index_]);
    has_edge_ = edge_index_ < row.length;
  }

  template <class Visit>
  __device__ __forceinline__ void for_each(const Visit& visit) const {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      if (!has(i)) continue;
#pragma unroll
      for (int j = 0; j < 4; ++j) visit(composite(keys_[4 * i + j], head_ + 4 * quad(i) + j));
    }
    if (has_edge_) visit(composite(edge_key_, edge_index_));
  }

 private:
  __device__ int quad(int i) const { return thread_ + i * Group::kSize; }
  __device__ bool has(int i) const { return quad(i) < quads_; }

  int thread_;
  int quads_;
  int head_;
  std::uint32_t keys_[4 * kQuads];
  std::uint32_t edge_key_ = 0;
  int edge_index_;
  bool has_edge_;
};

// The columns of the source's k composites >= kth. They meet in `stage`, shared memory for k columns, because stores
// to scattered words of memory leave the SM one sector a cycle.
template <class Group, class Source>
__device__ __forceinline__ void write_best_of(const Group& group, const Source& source, const Row& row, int k,
                                              std::uint64_t kth, std::int32_t* stage, std::int32_t* out,
                                              Scratch* scratch) {
  group.sync();
  if (group.thread == 0) scratch->count = 0;
  int mine = 0;
  source.for_each([&](std::uint64_t c) { mine += c >= kth; });
  const int through = inclusive_scan(mine);
  group.sync();
  int slot = 0;
  if (group.lane() == kWarpSize - 1) slot = atomicAdd(&scratch->count, through);
  slot = __shfl_sync(kFullWarp, slot, kWarpSize - 1) + through - mine;
  source.for_each([&](std::uint64_t c) {
    if (c >= kth) stage[slot++] = row.start + static_cast<std::int32_t>(composite_index(c));
  });
  group.sync();
  for (int i = group.thread; i < k; i += Group::kSize) out[i] = stage[i];
}

// The columns of the k best of a row that is longer than k. Out of line and by value: few rows come here, and those
// that do not should carry nothing for them.
template <int kQuads, class Group>
__device__ __noinline__ void select_general(Group group, Row row, int k, Digits digits, CandidateBuffer buffer,
                                            std::int32_t* out) {
  const RegisterRow<Group, kQuads> scores(group, row);
  group.sync();  // nobody reads the histogram or the scratch any more
  const std::uint64_t kth = kth_best_of(group, scores, k, 0, row.length, digits, buffer.histogram, buffer.scratch);
  write_best_of(group, scores, row, k, kth, reinterpret_cast<std::int32_t*>(buffer.candidates), out, buffer.scratch);
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_REGISTER_ROW_CUH_
