// SPDX-License-Identifier: Apache-2.0
//
// Rows that pass through a CTA whose warps have two roles: some scan one row after the other, the others meanwhile
// refine the row before and propose for the row after. This is what both share, and the scan. Scanning warps wait for
// data and for nobody else: whoever is the last to leave a stage fills it again.

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

// A row on its way through the ring. None has length 0: it stands for the end.
struct RingRow {
  Row row;
  std::int64_t index;
};

// What is to be scanned of a row, and what has been found.
struct RingTask {
  int batches;  // stages that the row takes; negative: there are no more rows
  int quads;    // that can hold candidates
  int first;    // the index of the first quad's first score
  int limit;    // equals of the floor come in before this index, in whole steps of a warp: see Admission
  float floor_before, floor;
  int count;  // candidates; more than the capacity: some have found no room
  Boundary boundary;
};

struct Ring {
  static constexpr int kWarps = kernels::kRingScanThreads / kWarpSize;
  static constexpr int kStages = kernels::kStagedStages;
  static constexpr int kQuads = 4;                       // of a lane in a stage
  static constexpr int kWarpQuads = kQuads * kWarpSize;  // of a warp in a stage: neighbours
  static constexpr int kStageQuads = kWarps * kWarpQuads;
  static constexpr int kPlaces = 2;  // of rows that have candidates
  static constexpr int kKnown = 4;   // rows that are known: one refined, one scanned, one proposed for, one to come
  static constexpr std::int64_t kStageBytes = kernels::staged_stage_bytes(kernels::kRingScanThreads);
  static_assert(kStageQuads * static_cast<std::int64_t>(sizeof(float4)) == kStageBytes);

  struct State {
    Barrier full[kStages];
    Barrier known[kKnown];
    Barrier proposed[kPlaces];  // and nobody needs the candidates of the row before
    Barrier scanned[kPlaces];
    RingRow rows[kKnown];
    std::int64_t live_rows;
    RingTask tasks[kPlaces];
    unsigned left[kStages];   // warps that are done with a stage
    unsigned begun[kPlaces];  // warps that have come to a row; the first may come to the next before the last does
    // What is copied next, and the stages that are free. Whoever is the last to leave a stage, or to come to a row, has
    // this: the last of one such event comes before the last of the next.
    int free;
    int turn;  // of the row
    int batch;
    unsigned sequence;
  };
  static_assert(sizeof(State) <= kernels::kRingStateBytes);

  float4* stages;
  State* state;
  unsigned char* rest;  // histogram and scratch, the places' candidates, and what the selection needs
  int capacity;         // candidates of a place: an even number, so that each place begins at a multiple of 16 bytes

  __device__ Ring(unsigned char* shared, int capacity)
      : stages(reinterpret_cast<float4*>(shared)),
        state(reinterpret_cast<State*>(shared + kStages * kStageBytes)),
        rest(shared + kStages * kStageBytes + kernels::kRingStateBytes),
        capacity(capacity) {}

  // By one thread.
  __device__ void init() const {
    for (int i = 0; i < kStages; ++i) {
      barrier_init(&state->full[i], 1);
      state->left[i] = 0;
    }
    for (int i = 0; i < kKnown; ++i) barrier_init(&state->known[i], 1);
    for (int i = 0; i < kPlaces; ++i) {
      barrier_init(&state->proposed[i], 1);
      barrier_init(&state->scanned[i], kWarps);
      state->begun[i] = 0;
    }
    state->free = kStages;
    state->turn = 0;
    state->batch = 0;
    state->sequence = 0;
    barrier_init_fence();
  }

  __device__ std::uint64_t* candidates(int place) const {
    return reinterpret_cast<std::uint64_t*>(rest + kernels::shared_bytes(0)) + place * capacity;
  }
  __device__ CandidateBuffer buffer(int place) const {
    CandidateBuffer buffer = buffer_at(rest, capacity);
    buffer.candidates = candidates(place);
    return buffer;
  }
  __device__ BestStage best_stage() const {
    std::uint64_t* const tied = candidates(kPlaces);
    return {tied, nullptr, reinterpret_cast<std::int32_t*>(tied + kDirectRank)};
  }

  // Waits until the turn's row is known. Turns of the end are known too.
  __device__ __forceinline__ const RingRow& wait_for_row(int turn) const {
    barrier_wait(&state->known[turn % kKnown], static_cast<unsigned>(turn / kKnown) & 1);
    return state->rows[turn % kKnown];
  }

  // Fills the free stages, `freed` more than before, with what comes next up to the row of turn `last`. That row is
  // known, or will be without the caller: it has been looked for before the scan of the second before it had to end.
  __device__ __forceinline__ void copy_next(int freed, int last) const {
    int free = state->free + freed;
    int turn = state->turn;
    int batch = state->batch;
    unsigned sequence = state->sequence;
    while (free > 0 && turn <= last) {
      const Row& row = wait_for_row(turn).row;
      if (row.length == 0) break;
      const int begin = batch * kStageQuads;
      if (begin < row.quads) {
        const unsigned stage = sequence % kStages;
        const auto bytes = static_cast<std::uint32_t>(min(kStageQuads, row.quads - begin) * sizeof(float4));
        barrier_arrive_expect(&state->full[stage], bytes);
        bulk_copy(stages + stage * kStageQuads, row.quad(begin), bytes, &state->full[stage]);
        ++sequence;
        ++batch;
        --free;
      }
      if (batch * kStageQuads >= row.quads) {
        batch = 0;
        ++turn;
      }
    }
    state->free = free;
    state->turn = turn;
    state->batch = batch;
    state->sequence = sequence;
  }
};

// The role of the scanning warps.
class RingScan {
 public:
  __device__ RingScan(const Ring& ring, int thread)
      : ring_(ring), lane_(thread % kWarpSize), warp_(static_cast<int>(static_cast<unsigned>(thread) / kWarpSize)) {}

  __device__ __forceinline__ void scan_rows() const {
    Ring::State& state = *ring_.state;
    int stage = 0;
    unsigned parity = 0;
    for (int turn = 0;; ++turn) {
      const int place = turn % Ring::kPlaces;
      if (lane_ == 0 && arrive_last(&state.begun[place], Ring::kWarps)) ring_.copy_next(0, turn + 1);
      __syncwarp();
      barrier_wait(&state.proposed[place], static_cast<unsigned>(turn / Ring::kPlaces) & 1);
      RingTask& task = state.tasks[place];
      const int batches = task.batches;
      if (batches < 0) return;
      std::uint64_t* const candidates = ring_.candidates(place);
      const int limit = task.limit;
      const float floor = task.floor;
      const float floor_before = task.floor_before;
      int left = task.quads - warp_ * Ring::kWarpQuads;
      int first = task.first + 4 * warp_ * Ring::kWarpQuads;
      for (int batch = 0; batch < batches; ++batch) {
        barrier_wait(&state.full[stage], parity);
        scan_step(ring_.stages + stage * Ring::kStageQuads + warp_ * Ring::kWarpQuads, left, first,
                  first < limit ? floor_before : floor, candidates, &task.count);
        left -= Ring::kStageQuads;
        first += 4 * Ring::kStageQuads;
        __syncwarp();
        if (lane_ == 0 && arrive_last(&state.left[stage], Ring::kWarps)) ring_.copy_next(1, turn + 1);
        __syncwarp();
        if (++stage == Ring::kStages) {
          stage = 0;
          parity ^= 1;
        }
      }
      if (lane_ == 0) barrier_arrive(&state.scanned[place]);
    }
  }

 private:
  // A lane's quads lie at different places in their groups of 32: see StagedScan.
  __device__ int quad_of(int j) const { return j * kWarpSize + (lane_ ^ (4 * j)); }
  // The place of the score that bit i of a lane's mask stands for: (i & 3) in quad_of(i / 4).
  __device__ int score_of(int i) const {
    const int in_quad = i & 3;
    return (4 * lane_) ^ ((kWarpSize + 4) * (i - in_quad) + in_quad);
  }

  // Appends what a warp's `quads`, of which `left` hold scores, has to offer. Where there is not room for all of it,
  // none is appended, then or later: `count` tells.
  __device__ __forceinline__ void scan_step(const float4* quads, int left, int first, float floor,
                                            std::uint64_t* candidates, int* count) const {
    float4 scores[Ring::kQuads];
#pragma unroll
    for (int j = 0; j < Ring::kQuads; ++j) scores[j] = quads[quad_of(j)];
    unsigned mask = 0;
    admit_all<Ring::kQuads>(scores, floor, &mask);
    if (left < Ring::kWarpQuads) {  // what the stage held before lies beyond
#pragma unroll
      for (int j = 0; j < Ring::kQuads; ++j) {
        if (quad_of(j) >= left) mask &= ~(0xFU << (4 * j));
      }
    }
    const int total = __reduce_add_sync(kFullWarp, __popc(mask));
    if (total == 0) return;
    int slot = 0;
    if (lane_ == 0) slot = atomicAdd(count, total);
    slot = __shfl_sync(kFullWarp, slot, 0);
    if (slot + total > ring_.capacity) return;
    // One score of each lane at a time. A lane that has no more does as the others, so that none waits for another, and
    // stores nothing.
    const auto* const row = reinterpret_cast<const float*>(quads);
    SharedComposites to(candidates + slot);
    unsigned having = __ballot_sync(kFullWarp, mask != 0);
#pragma unroll 1
    do {
      const int i = highest_bit(mask | 1);
      const int at = score_of(i);
      const std::uint64_t found = composite(ordered_key(row[at]), static_cast<std::uint32_t>(first + at));
      to.store_if(mask, __popc(having & lanes_below(lane_)), found);
      to.advance(__popc(having));
      mask &= ~(1U << i);
      having = __ballot_sync(kFullWarp, mask != 0);
    } while (having != 0);
  }

  const Ring& ring_;
  int lane_;
  int warp_;
};

}  // namespace hpctopk::detail
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_RING_CUH_
