// SPDX-License-Identifier: Apache-2.0
//
// The ring's second role: copies rows to shared memory and scans them. Within a row a warp waits for its own copies
// alone, between rows for the proposal.

#ifndef HPCTOPK_KERNELS_DETAIL_RING_SCAN_CUH_
#define HPCTOPK_KERNELS_DETAIL_RING_SCAN_CUH_

#include <cstdint>

#include "kernels/detail/ring.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
namespace hpctopk::detail {

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
      if (turn_ > turn && !barrier_test(&ring_.state->known[turn_ % Ring::kKnown], Ring::parity(turn_, Ring::kKnown))) {
        return false;
      }
      ring_.wait_known(turn_);
      if (ring_.row(turn_).end) return false;
      const Row& row = ring_.row(turn_).row;
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
    int piece = warp_;                                      // of the row
    if (lane_ == 0) barrier_wait(&state.first_sampled, 0);  // copies under way would hold up the first
    for (int turn = 0;; ++turn) {
      if (lane_ == 0) copies.fill(0, slot, turn);
      __syncwarp();
      ring_.wait_proposed(turn);
      RingTask& task = ring_.task(turn);
      const int pieces = task.pieces;
      if (pieces < 0) return;
      int room = turn == 0 ? ring_.room() : ring_.early_room();  // that the lane knows of
      const int limit = task.limit;
      const float floor = task.floor;
      const float floor_before = task.floor_before;
      int left = task.quads - piece * Ring::kPieceQuads;
      int first = task.first + piece * Ring::kPieceScores;
#pragma unroll 1
      for (; piece < pieces; piece += Ring::kWarps) {
        barrier_wait(&state.full[slot], parity);
        scan_piece(SharedQuads(ring_.piece(slot)), left, first, first < limit ? floor_before : floor, turn, &task.count,
                   &room);
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
      if (lane_ == 0) barrier_arrive(&state.scanned[turn % Ring::kPlaces]);
    }
  }

 private:
  // A lane's quads lie at different places in their groups of 32: see StagedScan.
  __device__ int quad_of(int j) const { return j * kWarpSize + quads_[j]; }
  // The place of the score that bit i of a lane's mask stands for: (i & 3) in quad_of(i / 4).
  __device__ int score_of(int i) const { return (4 * lane_) ^ ((kWarpSize + 4 - 1) * (i & ~3) + i); }

  // Appends what a piece, of whose quads `left` or all hold scores, has to offer. A lane that finds no room for all it
  // has appends nothing: `count` tells.
  __device__ __forceinline__ void scan_piece(const SharedQuads& quads, int left, int first, float floor, int turn,
                                             int* count, int* room) const {
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
    if (through > *room) {
      if (*room != ring_.room()) ring_.wait_refined(turn - 1);
      *room = ring_.room();
      if (through > *room) mask = 0;
    }
    SharedComposites to(ring_.candidates(turn, through - mine, through));
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

#endif  // HPCTOPK_KERNELS_DETAIL_RING_SCAN_CUH_
