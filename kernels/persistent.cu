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

// The rows of this CTA that have more than k scores, in turn. Rows that have not are nobody's work but `visit_short`'s.
class LongRows {
 public:
  __device__ explicit LongRows(const detail::Operands& operands)
      : operands_(operands), rows_(detail::live_rows(operands)), next_(blockIdx.x) {}

  template <class VisitShort>
  __device__ bool advance(detail::Row* row, const VisitShort& visit_short) {
    while (next_ < rows_) {
      *row = detail::load_row(operands_, next_);
      index_ = next_;
      next_ += gridDim.x;
      if (row->length > operands_.k) return true;
      visit_short(*row, index_);
    }
    return false;
  }
  __device__ bool advance(detail::Row* row) {
    return advance(row, [](const detail::Row&, std::int64_t) {});
  }
  __device__ std::int64_t index() const { return index_; }

 private:
  const detail::Operands& operands_;
  std::int64_t rows_;
  std::int64_t next_;
  std::int64_t index_ = 0;
};

// The jobs are out of line, so that each has the registers to itself.
__device__ __noinline__ void produce(RingCta cta, const detail::Operands& operands) {
  LongRows rows(operands);
  detail::Row row;
  unsigned passed = 0;
  while (rows.advance(&row)) passed = detail::produce_row(cta.ring(), row, passed);
}

__device__ __noinline__ void scan(RingCta cta, const detail::Operands& operands, const Policy& policy, int thread) {
  const ScanGroup group{thread};
  const TightenGroup tighten_group{thread};
  LongRows rows(operands);
  detail::Row row;
  unsigned passed = 0;
  for (int turn = 0; rows.advance(&row); turn ^= 1) {
    HandOver{kProposedBarrier + turn}.wait();
    passed = detail::scan_ring(group, tighten_group, cta.ring(), row, passed, operands.k, policy.digits, cta.slot(turn),
                               cta.scanner(turn), operands.statistics);
    HandOver{kScannedBarrier + turn}.arrive();
  }
}

template <View kView>
__device__ __noinline__ void select(RingCta cta, const detail::Operands& operands, const Policy& policy, int thread) {
  const SelectGroup group{thread};
  const int k = operands.k;
  LongRows rows(operands);
  const auto out_of = [&](std::int64_t index) { return operands.out + index * operands.out_row_stride; };
  const auto propose_next = [&](detail::Row* row, int turn) {
    const auto write_short = [&](const detail::Row& short_row, std::int64_t index) {
      detail::write_whole_row(group, short_row, k, out_of(index));
    };
    if (!rows.advance(row, write_short)) return false;
    detail::Boundary boundary;  // admits every score: right where the row fits or has no usable view
    if (row->length > cta.capacity - detail::kEdgeScores) {
      boundary = detail::propose<kView>(group, *row, policy.sample, k, cta.selector(turn));
    }
    if (group.thread == 0) {
      cta.slot(turn)->boundary = boundary.primary;
      cta.slot(turn)->count = 0;
    }
    HandOver{kProposedBarrier + turn}.arrive();
    return true;
  };

  detail::Row row;
  bool more = propose_next(&row, 0);
  for (int turn = 0; more; turn ^= 1) {
    const std::int64_t index = rows.index();
    detail::Row next;
    more = propose_next(&next, turn ^ 1);
    HandOver{kScannedBarrier + turn}.wait();
    const int count = cta.slot(turn)->count;
    if (count < k) {  // underfilled: this group completes the row alone
      detail::Solo solo;
      detail::select_row<kView>(group, solo, row, policy, k, true, cta.selector(turn), out_of(index),
                                operands.statistics);
    } else {
      detail::finish_row(group, row, policy, k, cta.slot(turn)->boundary, count, cta.selector(turn), out_of(index));
      if (operands.statistics != nullptr && group.thread == 0) {
        detail::count_row(operands.statistics, row, count, detail::RowWork{});
      }
    }
    row = next;
  }
}
#endif

template <View kView>
__global__ void __launch_bounds__(kRingBlock, 1)
    ring_kernel(const detail::Operands operands, const Policy policy, const int capacity) {
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
