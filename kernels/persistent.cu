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
using ProposeGroup = detail::Group<kRingProposeThreads, 1>;
using ScanGroup = detail::Group<kRingScanThreads, 2>;
using TightenGroup = detail::Group<256, 3>;
using RefineGroup = detail::Group<kRingRefineThreads, 4>;

// A row as it goes from the proposer to the scan.
struct Proposal {
  detail::Row row;
  std::int64_t index;  // of the row; -1 after the last
  detail::Boundary boundary;
};

// A CTA's shared memory: the stages, a histogram and a scratch for each group of warps, candidates for each of two
// slots, and what the groups pass each other. Rows take the two proposals, and the two slots, in turns.
struct RingCta {
  unsigned char* shared;
  int capacity;

  struct State {
    detail::Slot slots[2];
    Proposal proposals[2];
    detail::Barrier full[kRingStages], empty[kRingStages];
    detail::Barrier proposed[2];  // the proposal is there
    detail::Barrier taken[2];     // and may be overwritten
    detail::Barrier scanned[2];   // the slot's candidates are there
    detail::Barrier refined[2];   // and may be overwritten
  };
  static_assert(sizeof(State) <= kRingStateBytes);

  __device__ State& state() const {
    return *reinterpret_cast<State*>(shared + ring_shared_bytes(capacity) - kRingStateBytes);
  }
  __device__ detail::Ring ring() const { return {reinterpret_cast<float4*>(shared), state().full, state().empty}; }
  __device__ detail::CandidateBuffer proposer() const { return buffer(0, 0); }
  __device__ detail::CandidateBuffer scanner(int turn) const { return buffer(1, turn); }
  __device__ detail::CandidateBuffer refiner(int turn) const { return buffer(2, turn); }

  __device__ void init() const {
    ring().init(ScanGroup::kWarps);
    for (int turn = 0; turn < 2; ++turn) {
      detail::barrier_init(&state().proposed[turn], 1);
      detail::barrier_init(&state().taken[turn], 1);
      detail::barrier_init(&state().scanned[turn], kRingScanThreads);
      detail::barrier_init(&state().refined[turn], kRingRefineThreads);
    }
    detail::barrier_init_fence();
  }

 private:
  __device__ detail::CandidateBuffer buffer(int user, int turn) const {
    unsigned char* const histograms = shared + kRingStages * kStageBytes;
    unsigned char* const mine = histograms + user * (kHistogramBytes + kScratchBytes);
    auto* const candidates = reinterpret_cast<std::uint64_t*>(histograms + 3 * (kHistogramBytes + kScratchBytes));
    return {candidates + turn * capacity, reinterpret_cast<int*>(mine),
            reinterpret_cast<detail::Scratch*>(mine + kHistogramBytes), capacity};
  }
};

// Two places that rows take in turns: the place of the `row`-th, the parity of its phase there, and that of the last.
struct Turn {
  unsigned row;
  __device__ int place() const { return static_cast<int>(row % 2); }
  __device__ std::uint32_t parity() const { return row / 2 % 2; }
  __device__ std::uint32_t last_parity() const { return parity() ^ 1; }
};

// Streams the CTA's rows of more than k scores.
__device__ __forceinline__ void produce(const RingCta& cta, const detail::Operands& operands) {
  const std::int64_t rows = detail::live_rows(operands);
  unsigned passed = 0;
  for (std::int64_t index = blockIdx.x; index < rows; index += gridDim.x) {
    const detail::Row row = detail::load_row(operands, index);
    if (row.length > operands.k) passed = detail::produce_row(cta.ring(), row, passed);
  }
}

template <View kView>
__device__ __forceinline__ detail::Boundary propose_boundary(const ProposeGroup& group, const detail::Row& row,
                                                             const detail::GroupView& full, const SamplePolicy& policy,
                                                             int k, const detail::CandidateBuffer& buffer) {
  if constexpr (kView == View::kStrided) {
    return detail::propose_strided(group, row, policy, k, buffer.histogram, buffer.scratch);
  } else {
    const detail::GroupView view = detail::view_of(row.length, row.quads, full, policy, k, ProposeGroup::kSize);
    if (!view.hashed.usable()) return {};
    return detail::propose_hashed_reloading(group, row, view, buffer.histogram, buffer.scratch);
  }
}

// Proposes the boundaries of those rows, up to two ahead of the scan; writes the shorter rows on the way.
template <View kView>
__device__ __forceinline__ void propose(const RingCta& cta, const detail::Operands& operands, const Policy& policy,
                                        const detail::GroupView& full, int thread) {
  const ProposeGroup group{thread};
  const detail::CandidateBuffer buffer = cta.proposer();
  const int k = operands.k;
  const std::int64_t rows = detail::live_rows(operands);
  Turn turn{0};
  for (std::int64_t index = blockIdx.x;; index += gridDim.x) {
    detail::Row row{};
    detail::Boundary boundary;  // admits every score: right where the row fits or has no usable view
    if (index < rows) {
      row = detail::load_row(operands, index);
      if (row.length <= k) {
        detail::write_whole_row(group, row, k, operands.out + index * operands.out_row_stride);
        continue;
      }
      if (row.length > cta.capacity - detail::kEdgeScores) {
        group.sync();  // the last row's histogram has been read
        boundary = propose_boundary<kView>(group, row, full, policy.sample, k, buffer);
        if (boundary.crowded) {
          boundary = detail::limit_plateau(group, operands, policy.sample, index, buffer.histogram, buffer.scratch);
        }
      }
    }
    if (group.thread == 0) {
      detail::barrier_wait(&cta.state().taken[turn.place()], turn.last_parity());
      cta.state().proposals[turn.place()] = {row, index < rows ? index : -1, boundary};
      detail::barrier_arrive(&cta.state().proposed[turn.place()]);
    }
    if (index >= rows) return;
    ++turn.row;
  }
}

__device__ __forceinline__ void scan(const RingCta& cta, const detail::Operands& operands, const Policy& policy,
                                     int thread) {
  const ScanGroup group{thread};
  const TightenGroup tighten_group{thread};
  unsigned passed = 0;
  for (Turn turn{0};; ++turn.row) {
    detail::Slot* const slot = &cta.state().slots[turn.place()];
    if (group.thread == 0) {
      detail::barrier_wait(&cta.state().proposed[turn.place()], turn.parity());
      detail::barrier_wait(&cta.state().refined[turn.place()], turn.last_parity());
      const Proposal& proposal = cta.state().proposals[turn.place()];
      *slot = {proposal.row, proposal.index, proposal.boundary, 0, 0};
      detail::barrier_arrive(&cta.state().taken[turn.place()]);
    }
    group.sync();
    const bool last = slot->index < 0;
    if (!last) {
      passed = detail::scan_ring(group, tighten_group, cta.ring(), passed, operands.k, policy.digits, slot,
                                 cta.scanner(turn.place()), operands.statistics);
    }
    detail::barrier_arrive(&cta.state().scanned[turn.place()]);
    if (last) return;
  }
}

// The row of a slot whose proposal admitted too few: the refining warps complete it alone. Out of line: few come here.
template <View kView>
__device__ __noinline__ void complete_alone(RefineGroup group, const detail::Slot* slot, Policy policy, int k,
                                            detail::CandidateBuffer buffer, std::int32_t* out, Statistics* statistics) {
  detail::Solo solo;
  const detail::Row row = slot->row;
  detail::select_row<kView>(group, solo, row, policy, k, true, buffer, out, statistics);
}

template <View kView>
__device__ __forceinline__ void refine(const RingCta& cta, const detail::Operands& operands, const Policy& policy,
                                       int thread) {
  const RefineGroup group{thread};
  const int k = operands.k;
  for (Turn turn{0};; ++turn.row) {
    detail::barrier_wait(&cta.state().scanned[turn.place()], turn.parity());
    const detail::Slot* const slot = &cta.state().slots[turn.place()];
    if (slot->index < 0) return;
    const detail::CandidateBuffer buffer = cta.refiner(turn.place());
    std::int32_t* const out = operands.out + slot->index * operands.out_row_stride;
    const int count = slot->count;
    group.sync();  // the last row's scratch has been read
    if (count < k) {
      complete_alone<kView>(group, slot, policy, k, buffer, out, operands.statistics);
    } else {
      detail::finish_row_inline(group, slot->row.start, slot->row.length, policy.digits, k, slot->boundary.primary,
                                slot->boundary.highest, count, buffer, out);
      if (operands.statistics != nullptr && group.thread == 0) {
        detail::count_row(operands.statistics, slot->row.length, count, detail::RowWork{});
      }
    }
    detail::barrier_arrive(&cta.state().refined[turn.place()]);
  }
}
#endif

template <View kView>
__global__ void __launch_bounds__(kRingBlock, 1)
    ring_kernel(const __grid_constant__ detail::Operands operands, const __grid_constant__ Policy policy,
                const __grid_constant__ detail::GroupView full, const int capacity) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  const RingCta cta{detail::shared_memory(), capacity};
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) cta.init();
  __syncthreads();
  constexpr int kFirstScan = kRingProposeThreads;
  constexpr int kFirstRefine = kFirstScan + kRingScanThreads;
  constexpr int kProducer = kFirstRefine + kRingRefineThreads;
  if (thread < kFirstScan) {
    propose<kView>(cta, operands, policy, full, thread);
  } else if (thread < kFirstRefine) {
    scan(cta, operands, policy, thread - kFirstScan);
  } else if (thread < kProducer) {
    refine<kView>(cta, operands, policy, thread - kFirstRefine);
  } else if (thread == kProducer) {
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
                       detail::full_view(plan, kRingProposeThreads), plan.candidate_capacity);
}

}  // namespace

int launch_persistent(const Plan& plan, const Arguments& arguments, Stream stream) {
  return plan.policy.sample.view == View::kStrided ? launch<View::kStrided>(plan, arguments, stream)
                                                   : launch<View::kHashed>(plan, arguments, stream);
}

}  // namespace hpctopk::kernels
