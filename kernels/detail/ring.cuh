// SPDX-License-Identifier: Apache-2.0
//
// Rows that pass through a CTA whose warps have two roles: some copy rows to shared memory piece by piece and scan
// them, the others meanwhile refine the row before and propose for the row after. This is what they share, the copies
// and the scan. Within a row a scanning warp waits for its own copies alone, between rows for the proposal.

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
  std::int64_t next;  // where the row after is looked for
  // A row that is scanned again, because it had too few candidates or too many: from here.
  bool again;
  bool had_few;
  std::uint32_t floor;
  std::uint32_t highest;
};

// What is to be scanned of a row, and what has been found.
struct RingTask {
  int pieces;  // that the row takes; negative: there are no more rows
  int quads;   // that can hold candidates
  int first;   // the index of the first quad's first score
  int limit;   // equals of the floor come in before this index, in whole pieces: see Admission
  float floor_before, floor;
  int count;  // candidates; more than the capacity: some have found no room
  Boundary boundary;
};

struct Ring {
  static constexpr int kWarps = kernels::kRingScanThreads / kWarpSize;
  static constexpr int kSlots = kernels::kRingSlots;      // of a warp
  static constexpr int kQuads = 8;                        // of a lane in a piece
  static constexpr int kPieceQuads = kQuads * kWarpSize;  // which one warp scans
  static constexpr int kPieceScores = 4 * kPieceQuads;
  static constexpr int kPlaces = 2;  // of rows that have candidates
  static constexpr int kKnown = 4;   // rows that are known: one refined, one scanned, one proposed for, one to come
  static_assert(kPieceQuads * static_cast<std::int64_t>(sizeof(float4)) == kernels::kRingPieceBytes);

  struct State {
    Barrier full[kWarps * kSlots];  // a warp's are neighbours, as its slots are
    Barrier known[kKnown];
    Barrier proposed[kPlaces];  // and nobody needs the candidates of the row before
    Barrier scanned[kPlaces];
    RingRow rows[kKnown];
    RingRow to_repeat[kPlaces];  // in turns
    int asked;                   // how often rows have been put there
    std::int64_t live_rows;
    RingTask tasks[kPlaces];
  };
  static_assert(sizeof(State) <= kernels::kRingStateBytes);

  float4* pieces;
  State* state;
  unsigned char* rest;  // histogram and scratch, the places' candidates, and what the selection needs
  int capacity;         // candidates of a place: an even number, so that each place begins at a multiple of 16 bytes

  __device__ Ring(unsigned char* shared, int capacity)
      : pieces(reinterpret_cast<float4*>(shared)),
        state(reinterpret_cast<State*>(shared + kWarps * kSlots * kernels::kRingPieceBytes)),
        rest(shared + kWarps * kSlots * kernels::kRingPieceBytes + kernels::kRingStateBytes),
        capacity(capacity) {}

  // By one thread.
  __device__ void init() const {
    for (int i = 0; i < kWarps * kSlots; ++i) barrier_init(&state->full[i], 1);
    for (int i = 0; i < kKnown; ++i) barrier_init(&state->known[i], 1);
    for (int i = 0; i < kPlaces; ++i) {
      barrier_init(&state->proposed[i], 1);
      barrier_init(&state->scanned[i], kWarps);
    }
    state->asked = 0;
    barrier_init_fence();
  }

  __device__ static int pieces_of(int quads) { return (quads + kPieceQuads - 1) / kPieceQuads; }
  __device__ float4* piece(int slot) const { return pieces + slot * kPieceQuads; }

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
};

// The copies of a warp's pieces, begun by one of its lanes. The pieces of all rows go to the warps in turn.
class RingCopies {
 public:
  __device__ RingCopies(const Ring& ring, int warp)
      : ring_(ring), first_slot_(warp * Ring::kSlots), left_(-warp * Ring::kPieceQuads) {}

  // Fills the free slots, `freed` more than before, the last of them in front of slot `next`, with what comes next, up
  // to the row after that of `turn`. That of `turn` will be known without the caller. The row after may not be before
  // the caller has scanned this one, because it may be this one again: then it is left to a later call.
  __device__ __forceinline__ void fill(int freed, int next, int turn) {
    free_ += freed;
#pragma unroll 1
    for (; free_ > 0 && (left_ > 0 || next_row(turn)); --free_) {
      const int slot = next - free_ < first_slot_ ? next - free_ + Ring::kSlots : next - free_;
      Barrier* const full = &ring_.state->full[slot];
      const auto bytes = static_cast<std::uint32_t>(min(left_, Ring::kPieceQuads) * sizeof(float4));
      barrier_arrive_expect(full, bytes);
      bulk_copy(ring_.piece(slot), from_, bytes, full);
      from_ += Ring::kWarps * Ring::kPieceQuads;
      left_ -= Ring::kWarps * Ring::kPieceQuads;
    }
  }

 private:
  // Goes to the next row that has a piece for the warp. Turns of the end are known too.
  __device__ __forceinline__ bool next_row(int turn) {
    while (turn_ <= turn + 1) {
      Barrier* const known = &ring_.state->known[turn_ % Ring::kKnown];
      const unsigned parity = static_cast<unsigned>(turn_ / Ring::kKnown) & 1;
      if (turn_ > turn && !barrier_test(known, parity)) return false;
      barrier_wait(known, parity);
      const Row& row = ring_.state->rows[turn_ % Ring::kKnown].row;
      if (row.length == 0) return false;
      const int begin = -left_ / Ring::kPieceQuads * Ring::kPieceQuads;  // from the first piece behind the row before
      from_ = row.quad(begin);
      left_ = row.quads - begin;
      ++turn_;
      if (left_ > 0) return true;
    }
    return false;
  }

  const Ring& ring_;
  int first_slot_;
  int free_ = Ring::kSlots;
  const float4* from_ = nullptr;  // the warp's next piece
  int left_;                      // quads from there to the row's end; not positive: there is none
  int turn_ = 0;                  // of the row after
};

// The role of the scanning warps.
class RingScan {
 public:
  __device__ RingScan(const Ring& ring, int thread)
      : ring_(ring), lane_(thread % kWarpSize), warp_(static_cast<int>(static_cast<unsigned>(thread) / kWarpSize)) {
    keep_in_register(&lane_);  // or they are computed anew for each piece
    keep_in_register(&warp_);
#pragma unroll
    for (int j = 0; j < Ring::kQuads; ++j) {
      quads_[j] = lane_ ^ (4 * j);
      keep_in_register(&quads_[j]);
    }
  }

  __device__ __forceinline__ void scan_rows() const {
    Ring::State& state = *ring_.state;
    RingCopies copies(ring_, warp_);
    const int end_slot = (warp_ + 1) * Ring::kSlots;
    int slot = end_slot - Ring::kSlots;
    unsigned parity = 0;
    int piece = warp_;  // of the row
    for (int turn = 0;; ++turn) {
      const int place = turn % Ring::kPlaces;
      if (lane_ == 0) copies.fill(0, slot, turn);
      __syncwarp();
      barrier_wait(&state.proposed[place], static_cast<unsigned>(turn / Ring::kPlaces) & 1);
      RingTask& task = state.tasks[place];
      const int pieces = task.pieces;
      if (pieces < 0) return;
      std::uint64_t* const candidates = ring_.candidates(place);
      const int limit = task.limit;
      const float floor = task.floor;
      const float floor_before = task.floor_before;
      int left = task.quads - piece * Ring::kPieceQuads;
      int first = task.first + piece * Ring::kPieceScores;
#pragma unroll 1
      for (; piece < pieces; piece += Ring::kWarps) {
        barrier_wait(&state.full[slot], parity);
        scan_piece(SharedQuads(ring_.piece(slot)), left, first, first < limit ? floor_before : floor, candidates,
                   &task.count);
        if (++slot == end_slot) {
          slot -= Ring::kSlots;
          parity ^= 1;
        }
        __syncwarp();
        if (lane_ == 0) copies.fill(1, slot, turn);
        left -= Ring::kWarps * Ring::kPieceQuads;
        first += Ring::kWarps * Ring::kPieceScores;
      }
      piece -= pieces;
      __syncwarp();  // all lanes have read the task, also where there was no piece for them
      if (lane_ == 0) barrier_arrive(&state.scanned[place]);
    }
  }

 private:
  // A lane's quads lie at different places in their groups of 32: see StagedScan.
  __device__ int quad_of(int j) const { return j * kWarpSize + quads_[j]; }
  // The place of the score that bit i of a lane's mask stands for: (i & 3) in quad_of(i / 4).
  __device__ int score_of(int i) const { return (4 * lane_) ^ ((kWarpSize + 4 - 1) * (i & ~3) + i); }

  // Appends what a piece, of whose quads `left` or all hold scores, has to offer. A lane that finds no room for all it
  // has appends nothing: `count` tells.
  __device__ __forceinline__ void scan_piece(const SharedQuads& quads, int left, int first, float floor,
                                             std::uint64_t* candidates, int* count) const {
    float4 scores[Ring::kQuads];
#pragma unroll
    for (int j = 0; j < Ring::kQuads; ++j) scores[j] = quads[quad_of(j)];
    unsigned masks[4] = {};  // several, because each bit that is set waits for the one before
    admit_all<2, 0>(scores, floor, &masks[0]);
    admit_all<4, 2>(scores, floor, &masks[1]);
    admit_all<6, 4>(scores, floor, &masks[2]);
    admit_all<8, 6>(scores, floor, &masks[3]);
    unsigned mask = masks[0] | masks[1] | masks[2] | masks[3];
    if (left < Ring::kPieceQuads) {  // what the slot held before lies beyond
#pragma unroll
      for (int j = 0; j < Ring::kQuads; ++j) {
        if (quad_of(j) >= left) mask &= ~(0xFU << (4 * j));
      }
    }
    if (!__any_sync(kFullWarp, mask != 0)) return;
    const int mine = __popc(mask);
    int through = inclusive_scan(mine);
    int slot = 0;
    if (lane_ == kWarpSize - 1) slot = atomicAdd(count, through);
    through += __shfl_sync(kFullWarp, slot, kWarpSize - 1);
    if (through > ring_.capacity) mask = 0;
    SharedComposites to(candidates + through - mine);
    const int before_first = ~first;  // indices are stored as their complement
#pragma unroll 1
    while (mask != 0) {
      const int i = highest_bit(mask);
      mask ^= 1U << i;
      const int at = score_of(i);
      to.append(composite(ordered_key(quads.score(at)), static_cast<std::uint32_t>(~(before_first - at))));
    }
  }

  const Ring& ring_;
  int lane_;
  int warp_;
  int quads_[Ring::kQuads];
};

}  // namespace hpctopk::detail
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_RING_CUH_
