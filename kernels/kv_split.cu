// SPDX-License-Identifier: Apache-2.0
//
// KV-split mapping (paper, sections 4.5 and 5.5): the unit of work is a part of a row, so that a few long rows fill the
// device. A CTA samples the row, scans its part and publishes a bounded list of candidates; a second kernel, one CTA a
// row, merges the lists and refines.
//
// The paper elects the last part to arrive by a counter in memory. A counter has to be zero before the first arrival,
// which no workspace of arbitrary contents promises, so the order comes from the stream here: the second kernel is
// launched early, as a programmatic dependent, and waits for the first where it begins.

#include "kernels/detail/part.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {
namespace {

using Group = detail::Group<kSplitBlock>;

// The lists of all parts, a capacity of entries each: a part may always be cut to its own k best. What equals the
// boundary stands apart: on a plateau every part has up to k of those, and the row needs them of its first parts alone.
struct Lists {
  struct alignas(32) Size {
    int above;               // candidates above the boundary, from the front of the list
    int equal;               // and equal to it, from the back
    std::uint32_t boundary;  // no candidate is below
    std::uint32_t highest;   // of the sample
    int limit;               // of the boundary
  };

  std::uint64_t* candidates;  // [max_rows * parts, capacity]
  Size* sizes;                // [max_rows * parts]
  int parts;                  // of a row, a power of two
  int log_parts;
  int capacity;

  static_assert(sizeof(Size) == kListSizeBytes);

  __host__ __device__ static Lists in(void* workspace, std::int64_t max_rows, int parts, int k) {
    auto* const sizes = static_cast<Size*>(workspace);
    int log_parts = 0;
    while (1 << log_parts < parts) ++log_parts;
    return {reinterpret_cast<std::uint64_t*>(sizes + max_rows * parts), sizes, parts, log_parts, list_capacity(k)};
  }
};

// Writes the buffer's `count` candidates to `list`. scratch->front and scratch->back are 0, and a barrier has been
// since.
__device__ __forceinline__ void publish(const Group& group, const detail::CandidateBuffer& buffer, int count,
                                        const detail::Boundary& boundary, const Lists& lists, std::int64_t unit) {
  std::uint64_t* const list = lists.candidates + unit * lists.capacity;
  detail::Scratch* const scratch = buffer.scratch;
  for (int base = 0; base < count; base += Group::kSize) {
    const int i = base + group.thread;
    const std::uint64_t c = i < count ? buffer.candidates[i] : 0;
    const bool equal = i < count && detail::composite_key(c) == boundary.primary;
    const bool above = i < count && !equal;
    const int front = detail::append_slot(above, &scratch->front, group.lane());
    const int back = detail::append_slot(equal, &scratch->back, group.lane());
    if (above) list[front] = c;
    if (equal) list[lists.capacity - 1 - back] = c;
  }
  group.sync();
  if (group.thread == 0)
    lists.sizes[unit] = {scratch->front, scratch->back, boundary.primary, boundary.highest, boundary.limit};
}

// Sets scratch->fronts and scratch->ends to what the row needs of its lists: everything above the boundary and, where
// that is less than k, what equals it in as many of the first parts as it takes. Returns the candidates of all lists,
// needed or not, and how many of them are above the boundary.
struct Totals {
  int total, above;
};
__device__ Totals end_needed_lists(const Group& group, detail::Scratch* scratch, const Lists::Size* sizes, int parts,
                                   int k) {
  static_assert(kMaxParts % detail::kWarpSize == 0);
  constexpr int kPerLane = kMaxParts / detail::kWarpSize;
  group.sync();
  int mine_above[kPerLane];
  int mine_equal[kPerLane];
  int above = 0;
  int equal = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    const int part = group.lane() + i * detail::kWarpSize;
    const int2 size = part < parts ? __ldcg(reinterpret_cast<const int2*>(sizes + part)) : make_int2(0, 0);
    mine_above[i] = size.x;
    mine_equal[i] = size.y;
    above += mine_above[i];
    equal += mine_equal[i];
  }
  above = __reduce_add_sync(detail::kFullWarp, above);
  equal = __reduce_add_sync(detail::kFullWarp, equal);
  if (group.warp() == 0) {
    int equal_before = 0;
    int end_before = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int part = group.lane() + i * detail::kWarpSize;
      const int equal_end = equal_before + detail::inclusive_scan(mine_equal[i]);
      const bool needs_equal = above + equal_end - mine_equal[i] < k;
      const int end = end_before + detail::inclusive_scan(mine_above[i] + (needs_equal ? mine_equal[i] : 0));
      if (part < parts) scratch->fronts[part] = mine_above[i];
      if (part < parts) scratch->ends[part] = end;
      equal_before = __shfl_sync(detail::kFullWarp, equal_end, detail::kWarpSize - 1);
      end_before = __shfl_sync(detail::kFullWarp, end, detail::kWarpSize - 1);
    }
  }
  group.sync();
  return {above + equal, above};
}

// Publishes a unit's candidates, of which k suffice.
__device__ __forceinline__ void finish_unit(const Group& group, const detail::CandidateBuffer& buffer, int count,
                                            const detail::Row& row, int k, Digits digits,
                                            const detail::Boundary& boundary, const Lists& lists, std::int64_t unit) {
  if (count > lists.capacity) {
    detail::keep_k_best(group, k, boundary.primary, row.length, digits, buffer, count);
    count = k;
  }
  publish(group, buffer, count, boundary, lists, unit);
}

template <View kView, bool kStaged>
__global__ void __launch_bounds__(kSplitBlock, 1)
    split_scan_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                      const __grid_constant__ detail::GroupView full, const int capacity, const Lists lists) {
  const Group group{static_cast<int>(threadIdx.x)};
  const int k = operands.k;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  if constexpr (kStaged) {
    detail::PartCta<Group> cta(group, detail::shared_memory(), capacity, k);
    detail::wait_for_kernel_in_front();
    const std::int64_t units = detail::live_rows(operands) * lists.parts;
    for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
      if (unit != blockIdx.x) group.sync();  // the last unit's scratch has been read
      const detail::Row row = detail::load_row(operands, unit >> lists.log_parts);
      if (row.length <= k) continue;
      const detail::Row part = row.part(static_cast<int>(unit & (lists.parts - 1)), lists.log_parts);
      const detail::Boundary boundary =
          cta.template start<kView>(group, unit >> lists.log_parts, row, part, full, policy, operands);
      const int count = cta.scan.scan(group, part, boundary, k, policy.digits, cta.buffer, operands.statistics);
      finish_unit(group, cta.buffer, count, row, k, policy.digits, boundary, lists, unit);
    }
    return;
  }
#endif
  const detail::CandidateBuffer buffer = detail::buffer_at(detail::shared_memory(), capacity);
  detail::wait_for_kernel_in_front();
  const std::int64_t units = detail::live_rows(operands) * lists.parts;
  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const detail::Row row = detail::load_row(operands, unit >> lists.log_parts);
    if (row.length <= k) continue;
    const detail::Row part = row.part(static_cast<int>(unit & (lists.parts - 1)), lists.log_parts);
    detail::Boundary boundary;  // without a usable view every part keeps its own k best
    if (row.length > capacity - detail::kEdgeScores) {
      boundary = detail::propose<kView>(group, row, policy.sample, k, buffer);
    }
    const int count = detail::scan_row(group, part, boundary, k, policy.digits, buffer, operands.statistics);
    if (group.thread == 0) buffer.scratch->front = buffer.scratch->back = 0;
    group.sync();
    finish_unit(group, buffer, count, row, k, policy.digits, boundary, lists, unit);
  }
}

// Reads the lists of a row as one.
struct ListReader {
  template <class Group>
  using Entries = detail::KeptEntries<Group, ListReader>;

  const std::uint64_t* candidates;  // [parts, capacity]
  const detail::Scratch* scratch;
  int parts, capacity;

  __device__ std::uint64_t operator()(int i) const {
    const detail::ListEntry entry = detail::find_entry(scratch, parts, i);
    const int front = scratch->fronts[entry.list];
    const int at = entry.index < front ? entry.index : capacity - 1 - (entry.index - front);
    return __ldcg(reinterpret_cast<const unsigned long long*>(candidates) + entry.list * capacity + at);
  }
};

// The rest of a row whose candidates are too few, or too many to be refined at once: one CTA does it alone. Out of
// line: few come here.
template <View kView>
__device__ __noinline__ void merge_generally(const detail::Operands& operands, const Policy& policy, int capacity,
                                             ListReader load, uint2 range, int total) {
  const Group group{static_cast<int>(threadIdx.x)};
  const detail::CandidateBuffer buffer = detail::buffer_at(detail::shared_memory(), capacity);
  const std::int64_t index = blockIdx.x;
  const detail::Row row = detail::load_row(operands, index);
  std::int32_t* const out = operands.out + index * operands.out_row_stride;
  const int k = operands.k;
  if (total < k) {
    detail::Solo solo;
    detail::select_row<kView>(group, solo, row, policy, k, true, buffer, out, operands.statistics);
    return;
  }
  const int count = detail::merge_candidates(group, load, buffer.scratch->ends[load.parts - 1], 0, k, range.x,
                                             row.length, policy.digits, buffer, operands.statistics);
  detail::finish_row(group, row.start, row.length, policy.digits, k, range.x, range.y, count, buffer, out);
  if (operands.statistics != nullptr && group.thread == 0) {
    detail::count_row(operands.statistics, row.length, total, detail::RowWork{});
  }
}

// One CTA a row.
template <View kView>
__global__ void __launch_bounds__(kSplitBlock, 1)
    split_merge_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                       const int capacity, const Lists lists) {
  const Group group{static_cast<int>(threadIdx.x)};
  const detail::CandidateBuffer buffer = detail::buffer_at(detail::shared_memory(), capacity);
  const int k = operands.k;
  const std::int64_t index = blockIdx.x;
  // Who wrote the row ended before the scan kernel let this one begin; the lists are the scan's own work.
  const bool live = index < detail::live_rows(operands);
  const detail::Row row = detail::load_row(operands, index);
  std::int32_t* const out = operands.out + index * operands.out_row_stride;
  detail::wait_for_kernel_in_front();
  if (!live) return;
  if (row.length <= k) {
    detail::write_whole_row(group, row, k, out);
    return;
  }
  const std::int64_t first = index * lists.parts;
  const auto [total, above] = end_needed_lists(group, buffer.scratch, lists.sizes + first, lists.parts, k);
  const uint2 range =  // the boundary and the sample's highest
      __ldcg(reinterpret_cast<const uint2*>(&lists.sizes[first].boundary));
  const ListReader load{lists.candidates + first * lists.capacity, buffer.scratch, lists.parts, lists.capacity};
  const int listed = buffer.scratch->ends[lists.parts - 1];
  if (total < k || !detail::fits_at_once(listed, k, policy)) {
    merge_generally<kView>(operands, policy, capacity, load, range, total);
    return;
  }
  const int limit = above >= k ? detail::Boundary::kNoLimit : min(row.length, __ldcg(&lists.sizes[first].limit));
  detail::select_by_bins(group, {nullptr, listed, k, row.length, row.start, out}, load, range.x, range.y, limit,
                         buffer.histogram, buffer.scratch, detail::best_stage(buffer.candidates, k));
  if (operands.statistics != nullptr && group.thread == 0) {
    detail::count_row(operands.statistics, row.length, total, detail::RowWork{});
  }
}

template <View kView>
int launch(const Plan& plan, const Arguments& arguments, Stream stream) {
  const detail::Operands operands = detail::make_operands(plan, arguments);
  const Lists lists = Lists::in(arguments.workspace, plan.problem.num_rows, plan.ctas_per_row, plan.problem.k);
  detail::LaunchConfig scan(plan, stream, arguments.programmatic_dependent);
  const auto kernel = plan.stages != 0 ? split_scan_kernel<kView, true> : split_scan_kernel<kView, false>;
  const int error =
      scan.launch(kernel, operands, plan.policy, detail::full_view(plan, Group::kSize), plan.candidate_capacity, lists);
  if (error != cudaSuccess) return error;
  detail::LaunchConfig merge(plan, stream, true);
  merge.set_grid(plan.problem.num_rows);
  merge.set_shared_bytes(merge_shared_bytes(plan.candidate_capacity, plan.problem.k));
  return merge.launch(split_merge_kernel<kView>, operands, plan.policy, plan.candidate_capacity, lists);
}

}  // namespace

int launch_kv_split(const Plan& plan, const Arguments& arguments, Stream stream) {
  return plan.policy.sample.view == View::kStrided ? launch<View::kStrided>(plan, arguments, stream)
                                                   : launch<View::kHashed>(plan, arguments, stream);
}

}  // namespace hpctopk::kernels
