// SPDX-License-Identifier: Apache-2.0
//
// What src/ calls: one launcher a mapping. Each takes a checked plan and checked arguments, enqueues its kernels
// and returns the CUDA runtime's error code (0: success). No CUDA header, so that host code can include it.

#ifndef HPCTOPK_KERNELS_KERNELS_H_
#define HPCTOPK_KERNELS_KERNELS_H_

#include "hpctopk/topk.h"

namespace hpctopk::kernels {

// Dynamic shared memory of a CTA that holds `candidate_capacity` (key, index) pairs: the pairs, one 2,048-bin histogram
// and the block's scratch. The planner and the kernels both take it from here.
inline constexpr std::int64_t kHistogramBytes = 2048 * 4;
inline constexpr std::int64_t kScratchBytes = 1536;
inline constexpr std::int64_t kCandidateBytes = 8;
constexpr std::int64_t shared_bytes(std::int64_t candidate_capacity) {
  return kHistogramBytes + kScratchBytes + kCandidateBytes * candidate_capacity;
}

// A scan never reads more scores between two looks at the candidate count than there is room for, so a capacity of k
// plus one such round loses no candidate whatever the row holds. Larger rounds mean fewer block barriers.
inline constexpr std::int32_t kMinRound = 2048;
inline constexpr std::int32_t kFullRound = 8192;

inline constexpr std::int32_t kPersistentBlock = 512;  // threads; two CTAs an SM where shared memory allows
inline constexpr std::int32_t kRowLocalBlock = 1024;   // threads; one CTA an SM; a row that streams

// Rows of the row-local mapping that stay in registers, and the threads that hold one. What all warps do alike costs
// the more the more they are; with few a thread holds many scores, and little hides the latencies.
inline constexpr std::int64_t kMaxRegisterColumns = 16384;
inline constexpr std::int32_t kBlockTo4K = 512;
inline constexpr std::int32_t kBlockTo8K = 512;
inline constexpr std::int32_t kBlockTo16K = 512;
static_assert(kBlockTo4K >= 128 && kBlockTo8K >= 256 && kBlockTo16K >= 512);  // up to 8 quads (float4) a thread
constexpr std::int32_t register_block(std::int64_t num_columns) {
  return num_columns <= 4096 ? kBlockTo4K : num_columns <= 8192 ? kBlockTo8K : kBlockTo16K;
}
// Rows of up to this many scores have all of them counted in one histogram; of longer ones a sample first proposes a
// floor, and what reaches it is counted.
inline constexpr std::int64_t kCountedWhole = 8192;

inline constexpr std::int32_t kSplitBlock = 512;    // threads; one CTA an SM
inline constexpr std::int32_t kClusterBlock = 512;  // threads; one CTA an SM
inline constexpr std::int32_t kMaxParts = 128;      // of a row
inline constexpr std::int32_t kMaxClusterSize = 16;
// Scores of a member of a cluster from which its threads sample four quads in the place of one.
inline constexpr std::int64_t kWidePart = 393216;
constexpr std::int32_t sampled_quads(std::int64_t num_columns, std::int32_t cluster_size) {
  return num_columns >= cluster_size * kWidePart ? 4 : 1;
}

// A CTA that scans one row, or a part of one, out of bulk copies: the stages, the barriers, then as in shared_bytes().
inline constexpr std::int32_t kStagedStages = 4;
inline constexpr std::int64_t kStagedStateBytes = 128;  // barriers
constexpr std::int64_t staged_stage_bytes(std::int32_t threads) { return std::int64_t{64} * threads; }
// Room beyond k that a buffer needs: what warps that find no room leave blank, and the row's edges.
inline constexpr std::int32_t kMinStagedRoom = 1100;
inline constexpr std::int32_t kMaxStagedRoom = 2048;
// Candidates of the other members of a cluster, and of all parts of a row, that the CTA that finishes takes at once.
inline constexpr std::int32_t kMaxGathered = 7168;
constexpr std::int32_t gathered_capacity(std::int32_t k) { return k <= 2048 ? kMaxGathered : 6144; }
// What the members of a cluster refine a row's candidates with, in that place, in candidates.
inline constexpr std::int32_t kRefinementEntries = 1536;
constexpr std::int64_t staged_shared_bytes(std::int64_t candidate_capacity, std::int32_t threads) {
  return kStagedStages * staged_stage_bytes(threads) + kStagedStateBytes + shared_bytes(candidate_capacity);
}
// A CTA that scans a row while it refines the one before and proposes for the one after: the pieces, the state, the
// histogram and scratch, the candidates of two rows, the tied and the best of one, the sample of one. 20 warps
// leave a thread 96 registers, which is enough: what is spilled goes to memory and back once a row.
inline constexpr std::int32_t kRingSelectThreads = 256;
inline constexpr std::int32_t kRingScanThreads = 352;
inline constexpr std::int32_t kRingFeedThreads = 32;
inline constexpr std::int32_t kRingBlock = kRingSelectThreads + kRingScanThreads + kRingFeedThreads;
inline constexpr std::int32_t kRingSlots = 2;  // of pieces, for each scanning warp
inline constexpr std::int64_t kRingPieceBytes = 4096;
inline constexpr std::int64_t kRingStateBytes = 1536;
inline constexpr std::int32_t kMaxRingCandidates = 14336;  // of two rows
constexpr std::int64_t ring_shared_bytes(std::int64_t samples, std::int64_t candidate_capacity, std::int32_t k) {
  return kRingScanThreads / 32 * kRingSlots * kRingPieceBytes + kRingStateBytes + shared_bytes(0) +
         (candidate_capacity + 256) * kCandidateBytes + 4 * ((std::int64_t{k} + 3) / 4 * 4 + samples);
}
// Candidates of one row that there is room for, of all.
constexpr std::int32_t ring_room(std::int32_t candidate_capacity) { return candidate_capacity / 4 * 3 & ~1; }
// Workspace of the persistent mapping on bulk copies where CTAs have more rows than one: how many have been taken.
inline constexpr std::int64_t kClaimsBytes = 8;

// The CTA that merges a row's lists: a buffer as shared_bytes() has it, or the lists at once.
constexpr std::int64_t merge_shared_bytes(std::int64_t candidate_capacity, std::int32_t k) {
  const std::int64_t at_once = 256 + gathered_capacity(k) + (k + 1) / 2;
  return shared_bytes(candidate_capacity > at_once ? candidate_capacity : at_once);
}

inline constexpr std::int64_t kListSizeBytes = 32;
// Entries of a part's list. k would do, but then a part that holds most of its row's candidates would have to select.
constexpr std::int32_t list_capacity(std::int32_t k) { return 2 * k; }
// Workspace of the KV-split mapping: a list of candidates and what is known of it for every part of every row.
constexpr std::int64_t split_workspace_bytes(std::int64_t num_rows, std::int32_t parts, std::int32_t k) {
  return num_rows * parts * (kCandidateBytes * list_capacity(k) + kListSizeBytes);
}

int launch_persistent(const Plan& plan, const Arguments& arguments, Stream stream);
int launch_row_local(const Plan& plan, const Arguments& arguments, Stream stream);
int launch_kv_split(const Plan& plan, const Arguments& arguments, Stream stream);
int launch_cluster(const Plan& plan, const Arguments& arguments, Stream stream);

}  // namespace hpctopk::kernels

#endif  // HPCTOPK_KERNELS_KERNELS_H_
