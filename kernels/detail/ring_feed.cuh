// SPDX-License-Identifier: Apache-2.0
//
// The ring's first role, by one warp: takes rows and brings their samples, long before they are needed. While all SMs
// read, whatever waits for memory waits for microseconds, and here nobody waits with it.

#ifndef HPCTOPK_KERNELS_DETAIL_RING_FEED_CUH_
#define HPCTOPK_KERNELS_DETAIL_RING_FEED_CUH_

#include <cstdint>

#include "kernels/detail/claims.cuh"
#include "kernels/detail/ring.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace hpctopk::detail {

class RingFeed {
 public:
  // `full` is the view of a row as long as the matrix is wide, for the threads that select.
  __device__ RingFeed(const Ring& ring, const Operands& operands, const SamplePolicy& policy, const GroupView& full,
                      const Claims& claims, int lane)
      : ring_(ring), operands_(operands), policy_(policy), full_(full), claims_(claims), lane_(lane) {}

  // Rows that fit whole are written here. Where no more rows are to be taken, those under way are waited for: one may
  // have to be scanned again. So that they are refined, a turn without a row comes before the end.
  __device__ __forceinline__ void feed_rows() const {
    const std::int64_t rows = live_rows(operands_);
    std::int64_t next = blockIdx.x;
    // The first row's page is looked up while its length comes.
    if (next < rows && lane_ == 0) prefetch(operands_.scores + next * operands_.row_stride);
    int repeated = 0;
    bool paused = true;
    for (int turn = 0;; ++turn) {
      const int done = turn - (paused ? 2 : Ring::kKnown);
      if (done >= 0) ring_.wait_refined(done);
      bool begun = false;
      const bool again = turn > 0 && repeat_row(turn, &repeated);
      while (!again && !begun && next < rows) {
        begun = begin_row(turn, next);
        if (!begun) next = take_row();
      }
      if (turn == 0) barrier_sync<kernels::kRingBlock>();  // the ring's barriers are there
      const bool there = again || begun;
      RingRow& row = ring_.row(turn);
      if (lane_ == 0) {
        if (!there) row = RingRow{};
        row.end = !there && paused;
        barrier_arrive(&ring_.state->known[turn % Ring::kKnown]);
      }
      __syncwarp();
      paused = !there;
      if (turn > 0) ring_.wait_proposed(turn - 1);  // that sample has been read
      if (begun) bring_edges(&row);
      if (row.sampled && turn > 0) ring_.bring_sample(row, operands_.k, lane_, kWarpSize);
      barrier_arrive_behind_copies(&ring_.state->sampled);
      if (row.end) break;
      if (begun) next = take_row();
    }
    wait_for_kernel_in_front();  // also where no row has been taken
  }

 private:
  // The first row is the CTA's own; whether the claims have been reset is not waited for until the next is taken.
  __device__ __forceinline__ std::int64_t take_row() const {
    wait_for_kernel_in_front();
    unsigned long long taken = 0;
    if (lane_ == 0) taken = claims_.take();
    return Claims::index_of(__shfl_sync(kFullWarp, taken, 0));
  }

  // Makes the next row that is to be scanned again that of `turn`, if there is one.
  __device__ __forceinline__ bool repeat_row(int turn, int* repeated) const {
    const Ring::State& state = *ring_.state;
    const int asked = __shfl_sync(kFullWarp, *static_cast<const volatile int*>(&state.asked), 0);
    if (*repeated == asked) return false;
    if (lane_ == 0) ring_.row(turn) = state.to_repeat[*repeated % Ring::kKnown];
    __syncwarp();
    ++*repeated;
    return true;
  }

  // Makes row `index` that of `turn`; a row that fits whole is written, and is none.
  __device__ __forceinline__ bool begin_row(int turn, std::int64_t index) const {
    const Row row = load_row(operands_, index);
    if (row.length <= operands_.k) {
      write_whole_row(Group<kWarpSize>{lane_}, row, operands_.k, operands_.out + index * operands_.out_row_stride);
      return false;
    }
    const GroupView view = row_view(full_, policy_, row.length, row.quads, operands_.k, kernels::kRingSelectThreads);
    if (lane_ == 0) {
      RingRow& to = ring_.row(turn);
      to.row = row;
      to.index = index;
      to.view = view.hashed;
      to.view.most = min(to.view.most, most_rank(view.hashed, row.length));
      to.log_threads = view.log_threads;
      to.log_run = view.log_run;
      to.by_runs = view.by_runs;
      to.enough = view.enough;
      to.sampled = row.length > ring_.capacity / Ring::kPlaces && view.hashed.usable();
      to.had_few = to.had_many = false;
    }
    __syncwarp();
    return true;
  }

  // The rank of so many candidates that as a rule there is room for them, though neighbours may be alike.
  __device__ __forceinline__ int most_rank(const HashedView& view, int length) const {
    const float share = 0.65F * static_cast<float>(ring_.room()) / static_cast<float>(length);
    return max(view.rank, static_cast<int>(share * static_cast<float>(view.samples)));
  }

  __device__ __forceinline__ void bring_edges(RingRow* row) const {
    const int index = row->edge(lane_);
    if (index >= 0) copy_score(&row->edges[lane_], row->row.scores + index);
  }

  const Ring& ring_;
  const Operands& operands_;
  const SamplePolicy& policy_;
  const GroupView& full_;
  const Claims& claims_;
  int lane_;
};

}  // namespace hpctopk::detail
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_RING_FEED_CUH_
