// SPDX-License-Identifier: Apache-2.0
//
// Rows that pass through a CTA whose warps have three roles: one feeds (ring_feed.cuh), which is to take a row and
// bring its sample; some scan (ring_scan.cuh), which copy rows to shared memory piece by piece and admit candidates;
// the others select (ring_select.cuh), which refine the row before and propose for the row after. This is what they
// share. Rows are known by their turn.

#ifndef HPCTOPK_KERNELS_DETAIL_RING_CUH_
#define HPCTOPK_KERNELS_DETAIL_RING_CUH_

#include <cstdint>

#include "kernels/detail/ptx.cuh"
#include "kernels/detail/scan.cuh"
#include "kernels/detail/select_best.cuh"
#include "kernels/detail/select_row.cuh"
#include "kernels/kernels.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace hpctopk::detail {

// A row on its way through the ring. A turn without one has length 0.
struct RingRow {
  Row row;
  std::int64_t index;
  HashedView view;
  std::int32_t log_threads, log_run;  // see GroupView
  bool by_runs, enough;
  bool sampled;              // its sample is brought
  float edges[kEdgeScores];  // with the sample
  bool end;                  // there are no more rows
  bool had_few, had_many;    // candidates: it is scanned again, from `floor`
  std::uint32_t floor;
  std::uint32_t highest;

  __device__ bool again() const { return had_few || had_many; }
  // The index of a row's i-th score that is in no whole quad; negative: there is none.
  __device__ int edge(int i) const {
    if (i < row.head) return i;
    return i < row.head + row.tail() ? row.length - row.tail() + i - row.head : -1;
  }
};

// What is to be scanned of a row, and what has been found.
struct RingTask {
  int pieces;  // that the row takes; negative: there are no more rows
  int quads;   // that can hold candidates
  int first;   // the index of the first quad's first score
  int limit;   // equals of the floor come in before this index, in whole pieces: see Admission
  float floor_before, floor;
  int count;  // candidates; more than there is room for: some have found none
  Boundary boundary;
};

struct Ring {
  static constexpr int kWarps = kernels::kRingScanThreads / kWarpSize;
  static constexpr int kSelectWarps = kernels::kRingSelectThreads / kWarpSize;
  static constexpr int kSlots = kernels::kRingSlots;      // of a warp
  static constexpr int kQuads = 8;                        // of a lane in a piece
  static constexpr int kPieceQuads = kQuads * kWarpSize;  // which one warp scans
  static constexpr int kPieceScores = 4 * kPieceQuads;
  static constexpr int kPlaces = 2;  // of rows that have candidates: the two ends of one buffer
  static constexpr int kKnown = 4;   // rows that are known: one refined, one scanned, one proposed for, one to come
  static_assert(kPieceQuads * static_cast<std::int64_t>(sizeof(float4)) == kernels::kRingPieceBytes);

  // Barriers that pass a phase a turn, each of them one of several turns.
  struct State {
    Barrier full[kWarps * kSlots];  // a warp's are neighbours, as its slots are
    Barrier known[kKnown];
    Barrier sampled;            // the sample is there, or none is needed
    Barrier first_sampled;      // that of the first turn is there: passes no other phase, so one may come to it late
    Barrier proposed[kPlaces];  // nobody needs the sample any more, nor the candidates of the row before
    Barrier scanned[kPlaces];
    Barrier refined[kKnown];  // nobody needs the row any more
    RingRow rows[kKnown];
    RingRow to_repeat[kKnown];  // in turns; as many as can be asked for while none is taken
    int asked;                  // how often rows have been put there
    RingTask tasks[kPlaces];
  };
  static_assert(sizeof(State) <= kernels::kRingStateBytes);

  float4* pieces;
  State* state;
  unsigned char* rest;  // histogram and scratch, candidates, and what the selection needs
  int capacity;         // candidates: an even number

  __device__ Ring(unsigned char* shared, int capacity)
      : pieces(reinterpret_cast<float4*>(shared)),
        state(reinterpret_cast<State*>(shared + kWarps * kSlots * kernels::kRingPieceBytes)),
        rest(shared + kWarps * kSlots * kernels::kRingPieceBytes + kernels::kRingStateBytes),
        capacity(capacity) {}

  // By one thread.
  __device__ void init() const {
#pragma unroll 1
    for (int i = 0; i < kWarps * kSlots; ++i) barrier_init(&state->full[i], 1);
    for (int i = 0; i < kKnown; ++i) {
      barrier_init(&state->known[i], 1);
      barrier_init(&state->refined[i], kSelectWarps);
    }
    barrier_init(&state->sampled, kWarpSize);
    barrier_init(&state->first_sampled, kernels::kRingSelectThreads);
    for (int i = 0; i < kPlaces; ++i) {
      barrier_init(&state->proposed[i], 1);
      barrier_init(&state->scanned[i], kWarps);
    }
    state->asked = 0;
    barrier_init_fence();
  }

  // Of a barrier that `count` turns share.
  __device__ static unsigned parity(int turn, int count) { return static_cast<unsigned>(turn / count) & 1; }
  __device__ void wait_known(int turn) const { barrier_wait(&state->known[turn % kKnown], parity(turn, kKnown)); }
  __device__ void wait_proposed(int turn) const {
    barrier_wait(&state->proposed[turn % kPlaces], parity(turn, kPlaces));
  }
  __device__ void wait_scanned(int turn) const { barrier_wait(&state->scanned[turn % kPlaces], parity(turn, kPlaces)); }
  __device__ void wait_refined(int turn) const { barrier_wait(&state->refined[turn % kKnown], parity(turn, kKnown)); }

  __device__ RingRow& row(int turn) const { return state->rows[turn % kKnown]; }
  __device__ RingTask& task(int turn) const { return state->tasks[turn % kPlaces]; }

  __device__ static int pieces_of(int quads) { return (quads + kPieceQuads - 1) / kPieceQuads; }
  __device__ float4* piece(int slot) const { return pieces + slot * kPieceQuads; }

  // A turn's candidates [begin, end), counted from its end of the buffer.
  __device__ std::uint64_t* candidates(int turn, int begin, int end) const {
    return all_candidates() + (turn % kPlaces == 0 ? begin : capacity - end);
  }
  // What a row has room for, and until the row before has been refined. By then a quarter of it has been scanned.
  __device__ int room() const { return kernels::ring_room(capacity); }
  __device__ int early_room() const { return capacity - room(); }
  __device__ CandidateBuffer buffer(int turn) const {
    CandidateBuffer buffer = buffer_at(rest, room());
    buffer.candidates = candidates(turn, 0, buffer.capacity);
    return buffer;
  }
  __device__ BestStage best_stage() const {
    std::uint64_t* const tied = all_candidates() + capacity;
    return {tied, nullptr, reinterpret_cast<std::int32_t*>(tied + kDirectRank)};
  }
  // Behind the best k.
  __device__ float4* sample(int k) const { return reinterpret_cast<float4*>(best_stage().best) + (k + 3) / 4; }
  // Starts to copy a row's sample there, as one of `threads` threads.
  __device__ __forceinline__ void bring_sample(const RingRow& row, int k, int thread, int threads) const {
    const HashedView view = row.view;
    const float4* const quads = row.row.quad(0);
    const std::uint32_t seed = row.row.seed;
    float4* const to = sample(k);
    for (int i = thread; i < view.samples / 4; i += threads) copy_quad(to + i, quads + view.quad(i, seed));
  }

 private:
  __device__ std::uint64_t* all_candidates() const {
    return reinterpret_cast<std::uint64_t*>(rest + kernels::shared_bytes(0));
  }
};

}  // namespace hpctopk::detail
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_RING_CUH_
