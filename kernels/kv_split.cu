// SPDX-License-Identifier: Apache-2.0
//
// KV-split mapping (paper, sections 4.5 and 5.5): the unit of work is a part of a row, so that a few long rows fill the
// device. A CTA samples the row, scans its part and publishes a bounded list of candidates; a second kernel, one CTA a
// row, merges the lists and refines.
//
// The paper elects the last part to arrive by a counter in memory. A counter has to be zero before the first arrival,
// which no workspace of arbitrary contents promises, so the order comes from the stream here: the second kernel is
// launched early, as a programmatic dependent, and waits for the first where it begins.

#include "kernels/detail/select_row.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {
namespace {

using Group = detail::Group<kSplitBlock>;

// The lists of all parts. A part may always be cut to its own k best. What equals the boundary comes last in a list: on
// a plateau every part has up to k of those, and the row needs them of its first parts alone.
struct Lists {
  struct Size {
    int above;               // candidates above the boundary
    int equal;               // and equal to it
    std::uint32_t boundary;  // no candidate is below
  };

  std::uint64_t* candidates;  // [max_rows * parts, k]
  Size* sizes;                // [max_rows * parts]
  int parts;                  // of a row

  static_assert(sizeof(Size) == kListSizeBytes);

  __host__ __device__ static Lists in(void* workspace, std::int64_t max_rows, int parts, int k) {
    auto* const candidates = static_cast<std::uint64_t*>(workspace);
    return {candidates, reinterpret_cast<Size*>(candidates + max_rows * parts * k), parts};
  }
};

// Writes the buffer's `count` candidates to `list`, those above the boundary first.
__device__ void publish(const Group& group, const detail::CandidateBuffer& buffer, int count, std::uint32_t boundary,
                        std::uint64_t* list, Lists::Size* size) {
  detail::Scratch* const scratch = buffer.scratch;
  group.sync();
  if (group.thread == 0) scratch->count = scratch->listed = 0;
  group.sync();
  int mine = 0;
  for (int i = group.thread; i < count; i += Group::kSize) {
    mine += detail::composite_key(buffer.candidates[i]) != boundary;
  }
  mine = __reduce_add_sync(detail::kFullWarp, mine);
  if (group.lane() == 0) atomicAdd(&scratch->count, mine);
  group.sync();
  const int above = scratch->count;
  if (group.thread == 0) *size = {above, count - above, boundary};
  group.sync();
  if (group.thread == 0) scratch->count = 0;
  group.sync();
  for (int base = 0; base < count; base += Group::kSize) {
    const int i = base + group.thread;
    const std::uint64_t c = i < count ? buffer.candidates[i] : 0;
    const bool equal = i < count && detail::composite_key(c) == boundary;
    const bool better = i < count && !equal;
    const int front = detail::append_slot(better, &scratch->count, group.lane());
    const int back = detail::append_slot(equal, &scratch->listed, group.lane());
    if (better) list[front] = c;
    if (equal) list[above + back] = c;
  }
}

// Sets scratch->ends to what the row needs of its lists: everything above the boundary and, where that is less than k,
// what equals it in as many of the first parts as it takes. Returns the candidates of all lists, needed or not.
__device__ int end_needed_lists(const Group& group, detail::Scratch* scratch, const Lists::Size* sizes, int parts,
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
    mine_above[i] = part < parts ? __ldcg(&sizes[part].above) : 0;
    mine_equal[i] = part < parts ? __ldcg(&sizes[part].equal) : 0;
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
      const int equal_end = equal_before + detail::inclusive_scan(mine_equal[i], group.lane());
      const bool needs_equal = above + equal_end - mine_equal[i] < k;
      const int end =
          end_before + detail::inclusive_scan(mine_above[i] + (needs_equal ? mine_equal[i] : 0), group.lane());
      if (part < parts) scratch->ends[part] = end;
      equal_before = __shfl_sync(detail::kFullWarp, equal_end, detail::kWarpSize - 1);
      end_before = __shfl_sync(detail::kFullWarp, end, detail::kWarpSize - 1);
    }
  }
  group.sync();
  return above + equal;
}

template <View kView>
__global__ void __launch_bounds__(kSplitBlock, 1)
    split_scan_kernel(const detail::Operands operands, const Policy policy, const int capacity, const Lists lists) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  const Group group{static_cast<int>(threadIdx.x)};
  const detail::CandidateBuffer buffer = detail::shared_buffer(capacity);
  const int k = operands.k;
  const std::int64_t units = detail::live_rows(operands) * lists.parts;
  for (std::int64_t unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const detail::Row row = detail::load_row(operands, unit / lists.parts);
    if (row.length <= k) continue;
    const detail::Row part = row.part(static_cast<int>(unit % lists.parts), lists.parts);
    detail::Boundary boundary;  // without a usable view every part keeps its own k best
    if (row.length > capacity - detail::kEdgeScores) {
      boundary = detail::propose<kView>(group, row, policy.sample, k, buffer);
    }
    int count = detail::scan_row(group, part, boundary.primary, k, policy.digits, buffer, operands.statistics);
    if (count > k) {
      const std::uint64_t kth = detail::kth_best(group, buffer.candidates, count, k, boundary.primary, row.length,
                                                 policy.digits, buffer.histogram, buffer.scratch);
      detail::keep_best(group, buffer.candidates, count, kth, buffer.scratch);
      count = k;
    }
    publish(group, buffer, count, boundary.primary, lists.candidates + unit * k, lists.sizes + unit);
  }
}

template <View kView>
__global__ void __launch_bounds__(kSplitBlock, 1)
    split_merge_kernel(const detail::Operands operands, const Policy policy, const int capacity, const Lists lists) {
  const Group group{static_cast<int>(threadIdx.x)};
  const detail::CandidateBuffer buffer = detail::shared_buffer(capacity);
  const int k = operands.k;
  const std::int64_t rows = detail::live_rows(operands);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
  for (std::int64_t index = blockIdx.x; index < rows; index += gridDim.x) {
    const detail::Row row = detail::load_row(operands, index);
    std::int32_t* const out = operands.out + index * operands.out_row_stride;
    if (row.length <= k) {
      detail::write_whole_row(group, row, k, out);
      continue;
    }
    const std::int64_t first = index * lists.parts;
    const int total = end_needed_lists(group, buffer.scratch, lists.sizes + first, lists.parts, k);
    if (total < k) {  // underfilled: this CTA completes the row alone
      detail::Solo solo;
      detail::select_row<kView>(group, solo, row, policy, k, true, buffer, out, operands.statistics);
      continue;
    }
    const std::uint32_t boundary = __ldcg(&lists.sizes[first].boundary);
    const auto load = [&](int i) {
      const detail::ListEntry entry = detail::find_entry(buffer.scratch, lists.parts, i);
      return static_cast<std::uint64_t>(__ldcg(reinterpret_cast<const unsigned long long*>(lists.candidates) +
                                               (first + entry.list) * k + entry.index));
    };
    const int count = detail::merge_candidates(group, load, buffer.scratch->ends[lists.parts - 1], 0, k, boundary,
                                               row.length, policy.digits, buffer, operands.statistics);
    detail::finish_row(group, row.start, row.length, policy.digits, k, boundary, count, buffer, out);
    if (operands.statistics != nullptr && group.thread == 0) {
      detail::count_row(operands.statistics, row.length, total, detail::RowWork{});
    }
  }
}

template <View kView>
int launch(const Plan& plan, const Arguments& arguments, Stream stream) {
  const detail::Operands operands = detail::make_operands(plan, arguments);
  const Lists lists = Lists::in(arguments.workspace, plan.problem.num_rows, plan.ctas_per_row, plan.problem.k);
  detail::LaunchConfig scan(plan, stream);
  const int error = scan.launch(split_scan_kernel<kView>, operands, plan.policy, plan.candidate_capacity, lists);
  if (error != cudaSuccess) return error;
  detail::LaunchConfig merge(plan, stream);
  merge.set_grid(plan.problem.num_rows);
  if (plan.programmatic_dependence) merge.set_programmatic_dependence();
  return merge.launch(split_merge_kernel<kView>, operands, plan.policy, plan.candidate_capacity, lists);
}

}  // namespace

int launch_kv_split(const Plan& plan, const Arguments& arguments, Stream stream) {
  return plan.policy.sample.view == View::kStrided ? launch<View::kStrided>(plan, arguments, stream)
                                                   : launch<View::kHashed>(plan, arguments, stream);
}

}  // namespace hpctopk::kernels
