// SPDX-License-Identifier: Apache-2.0
//
// Persistent sampled mapping (paper, sections 4.5 and 5.5): a CTA owns a row from the proposal to the output and takes
// rows in turn. Two pipelines: the paper's vector loads, with two CTAs an SM so that one scans while the other proposes
// or refines, and a ring of bulk copies, with the warps of one CTA divided among those jobs.

#include "kernels/detail/pipeline.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/kernels.h"

namespace hpctopk::kernels {
namespace {

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
using ScanGroup = detail::Group<kRingScanThreads, 2>;
using TightenGroup = detail::Group<256, 3>;
using SelectGroup = detail::Group<kRingSelectThreads, 1>;
using HandOver = detail::HandOver<kRingScanThreads + kRingSelectThreads>;
constexpr int kProposedBarrier = 4;  // and 5: the slot's boundary is there
constexpr int kScannedBarrier = 6;   // and 7: the slot's candidates are there

// A CTA's shared memory: the stages, then one of everything for the selector and one for the scan, candidates for each
// of the two slots, and the slots and barriers.
struct RingCta {
  unsigned char* shared;
  int capacity;

  __device__ detail::Ring ring() const {
    auto* const full = reinterpret_cast<detail::Barrier*>(slot(2));
    return {reinterpret_cast<float4*>(shared), full, full + kRingStages};
  }
  __device__ detail::Slot* slot(int turn) const {
    return reinterpret_cast<detail::Slot*>(shared + ring_shared_bytes(capacity) - kRingStateBytes) + turn;
  }
  __device__ detail::CandidateBuffer selector(int turn) const { return buffer(0, turn); }
  __device__ detail::CandidateBuffer scanner(int turn) const { return buffer(1, turn); }

 private:
  __device__ detail::CandidateBuffer buffer(int user, int turn) const {
    unsigned char* const refinement = shared + kRingStages * kStageBytes;
    unsigned char* const mine = refinement + user * (kHistogramBytes + kScratchBytes);
    auto* const candidates = reinterpret_cast<std::uint64_t*>(refinement + 2 * (kHistogramBytes + kScratchBytes));
    return {candidates + turn * capacity, reinterpret_cast<int*>(mine),
            reinterpret_cast<detail::Scratch*>(mine + kHistogramBytes), capacity};
  }
};
static_assert(2 * sizeof(detail::Slot) + 2 * kRingStages * sizeof(detail::Barrier) <= kRingStateBytes);

// Streams the CTA's rows of more than k scores.
__device__ __forceinline__ void produce(const RingCta& cta, const detail::Operands& operands) {
  const std::int64_t rows = detail::live_rows(operands);
  unsigned passed = 0;
  for (std::int64_t index = blockIdx.x; index < rows; index += gridDim.x) {
    const detail::Row row = detail::load_row(operands, index);
    if (row.length > operands.k) passed = detail::produce_row(cta.ring(), row, passed);
  }
}

__device__ __forceinline__ void scan(const RingCta& cta, const detail::Operands& operands, const Policy& policy,
                                     int thread) {
  const ScanGroup group{thread};
  const TightenGroup tighten_group{thread};
  unsigned passed = 0;
  for (int turn = 0;; turn ^= 1) {
    HandOver{kProposedBarrier + turn}.wait();
    if (cta.slot(turn)->index < 0) return;
    passed = detail::scan_ring(group, tighten_group, cta.ring(), passed, operands.k, policy.digits, cta.slot(turn),
                               cta.scanner(turn), operands.statistics);
    HandOver{kScannedBarrier + turn}.arrive();
  }
}

// The row of a slot whose proposal admitted too few: the selecting warps complete it alone. Out of line: few come here.
template <View kView>
__device__ __noinline__ void complete_alone(SelectGroup group, const detail::Slot* slot, Policy policy, int k,
                                            detail::CandidateBuffer buffer, std::int32_t* out, Statistics* statistics) {
  detail::Solo solo;
  const detail::Row row = slot->row;
  detail::select_row<kView>(group, solo, row, policy, k, true, buffer, out, statistics);
}

template <View kView>
__device__ __forceinline__ void select(const RingCta& cta, const detail::Operands& operands, const Policy& policy,
                                       int thread) {
  const SelectGroup group{thread};
  const int k = operands.k;
  const std::int64_t rows = detail::live_rows(operands);
  std::int64_t index = blockIdx.x;

  // Fills slot `turn` with the next row of more than k scores, writing shorter ones on the way; whether there is one.
  const auto propose_next = [&](int turn) {
    detail::Slot* const slot = cta.slot(turn);
    for (; index < rows; index += gridDim.x) {
      const detail::Row row = detail::load_row(operands, index);
      if (row.length <= k) {
        detail::write_whole_row(group, row, k, operands.out + index * operands.out_row_stride);
        continue;
      }
      detail::Boundary boundary;  // admits every score: right where the row fits or has no usable view
      if (row.length > cta.capacity - detail::kEdgeScores) {
        boundary = detail::propose_inline<kView>(group, row, policy.sample, k, cta.selector(turn));
      }
      if (group.thread == 0) *slot = {row, index, 0, boundary.primary, 0};
      break;
    }
    const bool found = index < rows;
    if (!found && group.thread == 0) slot->index = -1;
    HandOver{kProposedBarrier + turn}.arrive();
    index += gridDim.x;
    return found;
  };

  const auto finish = [&](int turn) {
    HandOver{kScannedBarrier + turn}.wait();
    const detail::Slot* const slot = cta.slot(turn);
    std::int32_t* const out = operands.out + slot->index * operands.out_row_stride;
    const int count = slot->count;
    if (count < k) {
      complete_alone<kView>(group, slot, policy, k, cta.selector(turn), out, operands.statistics);
      return;
    }
    detail::finish_row_inline(group, slot->row.start, slot->row.length, policy.digits, k, slot->boundary, count,
                              cta.selector(turn), out);
    if (operands.statistics != nullptr && group.thread == 0) {
      detail::count_row(operands.statistics, slot->row.length, count, detail::RowWork{});
    }
  };

  bool pending = false;  // a row in the other slot
  for (int turn = 0;; turn ^= 1) {
    const bool found = propose_next(turn);
    if (pending) finish(turn ^ 1);
    if (!found) return;
    pending = true;
  }
}
#endif

template <View kView>
__global__ void __launch_bounds__(kRingBlock, 1)
    ring_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                const int capacity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  extern __shared__ __align__(128) unsigned char shared_ring[];
  const RingCta cta{shared_ring, capacity};
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) cta.ring().init(ScanGroup::kWarps);
  __syncthreads();
  if (thread < kRingScanThreads) {
    scan(cta, operands, policy, thread);
  } else if (thread < kRingScanThreads + kRingSelectThreads) {
    select<kView>(cta, operands, policy, thread - kRingScanThreads);
  } else if (thread == kRingScanThreads + kRingSelectThreads) {
    produce(cta, operands);
  }
#else
  __trap();  // the planner gives this kernel to devices with bulk copies alone
#endif
}

template <View kView>
int launch(const Plan& plan, const Arguments& arguments, Stream stream) {
  if (plan.stages == 0) return detail::launch_select_rows<kView, kPersistentBlock, 2>(plan, arguments, stream);
  detail::LaunchConfig config(plan, stream);
  return config.launch(ring_kernel<kView>, detail::make_operands(plan, arguments), plan.policy,
                       plan.candidate_capacity);
}

}  // namespace

int launch_persistent(const Plan& plan, const Arguments& arguments, Stream stream) {
  return plan.policy.sample.view == View::kStrided ? launch<View::kStrided>(plan, arguments, stream)
                                                   : launch<View::kHashed>(plan, arguments, stream);
}

}  // namespace hpctopk::kernels
