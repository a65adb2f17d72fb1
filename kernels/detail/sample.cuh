// SPDX-License-Identifier: Apache-2.0
//
// Phase 1 (paper, sections 4.2 and 5.2): a view of the row proposes the boundary that the complete scan starts from.

#ifndef HPCTOPK_KERNELS_DETAIL_SAMPLE_CUH_
#define HPCTOPK_KERNELS_DETAIL_SAMPLE_CUH_

#include <cstdint>

#include "kernels/detail/histogram.cuh"
#include "kernels/detail/ordered_key.h"
#include "kernels/detail/ptx.cuh"
#include "kernels/detail/row.cuh"
#include "kernels/detail/view.h"

namespace hpctopk::detail {

// The lowest ordered keys to admit. `secondary` <= `primary` is for rows where `primary` admits fewer than k. What is
// not `usable` admits every score. On a plateau a key is not enough: scores that equal `primary` are admitted at
// indices below `limit` alone.
struct Boundary {
  std::uint32_t primary = 0;
  std::uint32_t secondary = 0;
  std::uint32_t highest = kNanKey;  // of the sample
  bool usable = false;
  bool crowded = false;  // `primary` may be a plateau: see limit_plateau()
  int limit = kNoLimit;
  std::uint32_t width = 0;  // of the bin that begins at `primary`: its last key - its first

  static constexpr int kNoLimit = 0x7FFFFFFF;
  __device__ static Boundary at(std::uint32_t key) { return {key, key}; }
};

// The paper's proposal: every stride-th score from the row's phase, 11-bit fp16 coarse keys, inclusive bin endpoints.
template <class Group>
__device__ __forceinline__ Boundary propose_strided(const Group& group, const Row& row, SamplePolicy policy, int k,
                                                    int* histogram, Scratch* scratch) {
  const StridedView view = strided_view(policy, row.length, k, row.seed);
  if (!view.usable()) return {};
  clear_histogram(group, histogram);
  group.sync();
  for (int i = group.thread; i < view.samples; i += Group::kSize) {
    const float score = load_streaming(row.scores + view.phase + static_cast<std::int64_t>(i) * view.stride);
    atomicAdd(&histogram[coarse_key(ordered_key(score))], 1);
  }
  group.sync();
  find_rank(group, histogram, scratch, view.rank, view.second_rank);
  return {coarse_floor(scratch->found[0].bin), coarse_floor(scratch->found[1].bin), kNanKey, true};
}

__device__ __forceinline__ uint4 ordered_keys(const float4& scores) {
  return make_uint4(ordered_key(scores.x), ordered_key(scores.y), ordered_key(scores.z), ordered_key(scores.w));
}
__device__ __forceinline__ std::uint32_t lowest_of(const uint4& keys) {
  return min(min(keys.x, keys.y), min(keys.z, keys.w));
}
__device__ __forceinline__ std::uint32_t highest_of(const uint4& keys) {
  return max(max(keys.x, keys.y), max(keys.z, keys.w));
}
template <class Visit>
__device__ __forceinline__ void for_each_of(const uint4& keys, int quad, const Visit& visit) {
  visit(keys.x, quad);
  visit(keys.y, quad);
  visit(keys.z, quad);
  visit(keys.w, quad);
}

// What a thread sees of its samples, quad by quad.
struct SampleRange {
  std::uint32_t lowest = kNanKey;
  std::uint32_t highest = 0;
  std::uint32_t lowest_maximum = kNanKey;  // of the runs of 2^log_run quads
  std::uint32_t run_maximum = 0;

  // The thread's n-th quad.
  __device__ __forceinline__ void add(const uint4& keys, int n, int log_run) {
    lowest = min(lowest, lowest_of(keys));
    run_maximum = max(run_maximum, highest_of(keys));
    highest = max(highest, run_maximum);
    if (((n + 1) & ((1 << log_run) - 1)) != 0) return;
    lowest_maximum = min(lowest_maximum, run_maximum);
    run_maximum = 0;
  }
};

// Reads the sample whenever it is visited: few registers, no memory, and the second time it comes from L2.
template <class Group>
struct ReloadedSample {
  const float4* quads;  // the row's
  HashedView view;
  std::uint32_t seed;
  int thread;

  template <class Visit>
  __device__ __forceinline__ void for_each_quad(const Visit& visit) const {
    constexpr int kInFlight = 4;
    const int count = view.samples / 4;
    for (int base = thread; base < count; base += kInFlight * Group::kSize) {
      float4 scores[kInFlight];
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int quad = min(base + i * Group::kSize, count - 1);  // unconditional loads are in flight together
        scores[i] = load_streaming(quads + view.quad(quad, seed));
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        const int quad = base + i * Group::kSize;
        if (quad < count) visit(ordered_keys(scores[i]), quad);
      }
    }
    __syncwarp();
  }
};

// What a warp's chunks hold above a key: see HashedView::ranks().
class ChunkCount {
 public:
  __device__ __forceinline__ explicit ChunkCount(int log_chunk) : width_(1 << min(log_chunk, 5)) {}

  static constexpr int kBatch = 4;

  // A few quads of each lane.
  template <int kQuads>
  __device__ __forceinline__ void add(const uint4 (&batch)[kQuads], std::uint32_t low) {
    static_assert(kQuads <= kBatch);
    unsigned own = 0;  // a byte a quad
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      for_each_of(batch[i], 0, [&](std::uint32_t key, int) { own += key > low ? 1U << (8 * i) : 0; });
    }
    unsigned all = own;
#pragma unroll 1
    for (int i = 1; i < width_; i <<= 1) all += __shfl_xor_sync(kFullWarp, all, i);
    counted_ = __dp4a(own, 0x01010101U, counted_);
    pairs_ = __dp4a(own, all, pairs_);
  }
  // Adds to the sums of all warps.
  __device__ __forceinline__ void publish(int lane, int* counted, int* pairs) const {
    const unsigned warp_counted = __reduce_add_sync(kFullWarp, counted_);
    const unsigned warp_pairs = __reduce_add_sync(kFullWarp, pairs_);
    if (lane != 0) return;
    atomicAdd(counted, static_cast<int>(warp_counted));
    atomicAdd(pairs, static_cast<int>(warp_pairs));
  }

 private:
  int width_;  // of a chunk, in lanes
  unsigned counted_ = 0;
  unsigned pairs_ = 0;
};

// The width of the proposal's bins, as a shift.
__device__ __forceinline__ int bin_shift(std::uint32_t low, std::uint32_t highest) {
  return max(0, kWarpSize - __clz(static_cast<int>(highest - low)) - kDigitBits);
}

// The default proposal (one chunk at a hashed place in each stratum) from its samples, of which each thread has seen
// the range of its own, and sample.for_each_quad visits their keys. The histogram's bins divide the range
// from a key that is certainly below the boundary to the sample's maximum, so that the boundary stays sharp whatever
// range the scores have. That key is the lowest of the maxima of disjoint subsets of the sample: with at least `rank`
// subsets, at least `rank` samples reach it. What is counted tells how alike neighbours are, and so the ranks.
// begin_proposal() came before, and a barrier.
template <class Group, class Sample>
__device__ __forceinline__ Boundary hashed_boundary(const Group& group, const GroupView& group_view,
                                                    const Sample& sample, const SampleRange& range, int* histogram,
                                                    Scratch* scratch) {
  const HashedView& view = group_view.hashed;
  std::uint32_t highest = range.highest;
  std::uint32_t low = range.lowest;
  if (group_view.enough && group_view.by_runs) {
    low = range.lowest_maximum;
  } else if (group_view.enough) {
    low = highest;
    for (int i = 0; i < group_view.log_threads; ++i) low = max(low, __shfl_xor_sync(kFullWarp, low, 1 << i));
    const int subsets = min(Group::kSize, view.samples / 4) >> group_view.log_threads;  // of threads that hold samples
    if (group.thread >= subsets << group_view.log_threads) low = kNanKey;
  }
  publish_range(group, low, highest, scratch);
  low = scratch->low_key;
  highest = scratch->high_key;
  const int shift = bin_shift(low, highest);
  // What equals `low` is not counted, and taken for enough: on a plateau all threads would wait for one bin.
  ChunkCount chunks(view.log_chunk);
  sample.for_each_batch([&](const auto& batch) {
    for (const uint4& keys : batch) {
      for_each_of(keys, 0, [&](std::uint32_t key, int) { count_if(key > low, &histogram[(key - low) >> shift]); });
    }
    chunks.add(batch, low);
  });
  chunks.publish(group.lane(), &scratch->above, &scratch->listed);
  group.sync();
  const SampleRanks ranks = view.ranks(scratch->above, scratch->listed);
  find_rank(group, histogram, scratch, ranks.primary, ranks.secondary);
  RankBin found = scratch->found[0];
  Boundary boundary;
  boundary.primary = low + (static_cast<std::uint32_t>(found.bin) << shift);
  boundary.secondary = low + (static_cast<std::uint32_t>(scratch->found[1].bin) << shift);
  boundary.highest = highest;
  boundary.usable = true;
  boundary.width = (1U << shift) - 1;
  if (found.inside > ranks.primary / 8 && shift > 0) {  // a bin is wide, as where zero is in the range: divides it
    const bool lowest = found.bin == 0;
    const int fine = max(0, shift - kDigitBits);
    group.sync();
    clear_histogram(group, histogram);
    if (group.thread == 0 && lowest) histogram[0] = kMaxHashedSamples;
    group.sync();
    sample.for_each_batch([&](const auto& batch) {
      for (const uint4& keys : batch) {
        for_each_of(keys, 0, [&](std::uint32_t key, int) {
          const std::uint32_t digit = key - boundary.primary;
          if (key > low && digit <= boundary.width) atomicAdd(&histogram[digit >> fine], 1);
        });
      }
    });
    group.sync();
    find_rank(group, histogram, scratch, ranks.primary - found.above);
    found = scratch->found[0];
    boundary.primary += static_cast<std::uint32_t>(found.bin) << fine;
    boundary.width = (1U << fine) - 1;
  }
  boundary.crowded = found.inside > ranks.primary;
  return boundary;
}

template <class Group>
__device__ __forceinline__ void begin_proposal(const Group& group, int* histogram, Scratch* scratch) {
  clear_histogram(group, histogram);
  if (group.thread == 0) {
    histogram[0] = kMaxHashedSamples;  // see hashed_boundary()
    scratch->low_key = kNanKey;
    scratch->high_key = 0;
    scratch->above = 0;
    scratch->listed = 0;
  }
}

// A sample on chip: visit() for each few of a thread's quads, which are neighbours of those of its neighbours. Where a
// thread has none, the keys are those of no score.
template <class Group>
struct StagedSample {
  const uint4* keys;
  int thread, quads;
  template <class Visit>
  __device__ __forceinline__ void for_each_batch(const Visit& visit) const {
#pragma unroll 1
    for (int base = 0; base < quads; base += ChunkCount::kBatch * Group::kSize) {
      uint4 batch[ChunkCount::kBatch];
#pragma unroll
      for (int i = 0; i < ChunkCount::kBatch; ++i) {
        const int quad = base + i * Group::kSize + thread;
        batch[i] = quad < quads ? keys[quad] : make_uint4(0, 0, 0, 0);
      }
      visit(batch);
    }
  }
};

template <class Group, int kQuads>
struct RegisterSample {
  uint4 keys[kQuads];
  int thread, quads;
  template <class Visit>
  __device__ __forceinline__ void for_each_batch(const Visit& visit) const {
    static_assert(kQuads <= ChunkCount::kBatch);
    uint4 batch[kQuads];
#pragma unroll
    for (int i = 0; i < kQuads; ++i) batch[i] = thread + i * Group::kSize < quads ? keys[i] : make_uint4(0, 0, 0, 0);
    visit(batch);
  }
};

// What was proposed where that is crowded: if the lowest key of its bin, which is `width` + 1 keys, is a plateau, equal
// scores are admitted up to the index where the sample has as many of them as are wanted. `plateau`: the lowest key
// that was counted. The sample's quads, as sample.for_each_quad visits them, are numbered in the row's order. Ends with
// a barrier.
template <class Group, class Sample>
__device__ __forceinline__ Boundary limit_plateau(const Group& group, const Sample& sample, int samples, int length,
                                                  int k, float sigmas, Boundary boundary, std::uint32_t plateau,
                                                  std::uint32_t width, int* histogram, Scratch* scratch) {
  const bool known = boundary.primary == plateau;
  group.sync();
  clear_histogram(group, histogram);
  if (group.thread == 0) {
    scratch->low_key = kNanKey;
    scratch->above = 0;
    scratch->listed = 0;
  }
  group.sync();
  if (!known) {
    plateau = kNanKey;
    sample.for_each_quad([&](const uint4& keys, int) {
      for_each_of(keys, 0, [&](std::uint32_t key, int) {
        if (key - boundary.primary <= width) plateau = min(plateau, key);
      });
    });
    plateau = __reduce_min_sync(kFullWarp, plateau);
    if (group.lane() == 0) atomicMin(&scratch->low_key, plateau);
    group.sync();
    plateau = scratch->low_key;
  }
  static_assert(kRegisterSamples / 4 <= kBins);
  int higher = 0;
  int equal = 0;
  sample.for_each_quad([&](const uint4& keys, int quad) {
    int equal_here = 0;
    for_each_of(keys, 0, [&](std::uint32_t key, int) {
      higher += key > plateau;
      equal_here += key == plateau;
    });
    if (equal_here != 0) histogram[kBins - 1 - quad] = equal_here;  // the lowest index in the highest bin
    equal += equal_here;
  });
  higher = __reduce_add_sync(kFullWarp, higher);
  equal = __reduce_add_sync(kFullWarp, equal);
  if (group.lane() == 0) {
    atomicAdd(&scratch->above, higher);
    atomicAdd(&scratch->listed, equal);
  }
  group.sync();
  higher = scratch->above;
  equal = scratch->listed;
  // Of the sample's share of the k best those that equal the plateau, and as many more as sampling errs: by what is
  // higher, and by what is lower and lies between.
  const float expected =
      static_cast<float>(samples) * static_cast<float>(k) / static_cast<float>(length) - static_cast<float>(higher);
  const float lower = 1 - static_cast<float>(equal) / static_cast<float>(samples - higher);
  const float error = sqrtf(static_cast<float>(higher) + fmaxf(expected, 0) * fmaxf(lower, 0));
  const auto wanted = static_cast<int>(ceilf(expected + sigmas * error)) + 1;
  if (wanted > 0 && equal > wanted) {
    find_rank(group, histogram, scratch, wanted);
    const int quads = kBins - scratch->found[0].bin;
    boundary.primary = plateau;
    boundary.limit = static_cast<int>(static_cast<std::int64_t>(length) * quads / (samples / 4)) + 1;
  }
  group.sync();
  return boundary;
}

// The same for what hashed_boundary() proposed. Out of line, and from nothing but the row's index: few rows come here,
// and those that do not should carry nothing for them.
template <class Group>
__device__ HPCTOPK_RARE Boundary limit_plateau(Group group, const Operands& operands, const SamplePolicy& policy,
                                               std::int64_t index, Boundary boundary, int* histogram,
                                               Scratch* scratch) {
  const std::uint32_t low = scratch->low_key;
  const Row row = load_row(operands, index);
  const HashedView view = register_view(policy, row.length, row.quads, operands.k, Group::kSize).hashed;
  if (!view.usable()) return boundary;
  const ReloadedSample<Group> sample{row.quad(0), view, row.seed, group.thread};
  return limit_plateau(group, sample, view.samples, row.length, operands.k, policy.sigmas, boundary, low,
                       boundary.width, histogram, scratch);
}

// The default proposal with the sample waiting in `stage`, shared memory for `room` keys.
template <class Group>
__device__ __forceinline__ Boundary propose_hashed(const Group& group, const Row& row, SamplePolicy policy, int k,
                                                   int* histogram, Scratch* scratch, std::uint32_t* stage, int room) {
  policy.max_samples = min(policy.max_samples, room);
  const GroupView group_view = detail::group_view(policy, row.length, row.quads, k, Group::kSize);
  const HashedView& view = group_view.hashed;
  if (!view.usable()) return {};
  const int quads = view.samples / 4;
  auto* const staged = reinterpret_cast<uint4*>(stage);
  group.sync();  // the last row's candidates have been read
  begin_proposal(group, histogram, scratch);
  constexpr int kInFlight = 2;  // quads
  SampleRange range;
  for (int base = group.thread; base < quads; base += kInFlight * Group::kSize) {
    float4 scores[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int quad = min(base + i * Group::kSize, quads - 1);  // unconditional loads are in flight together
      scores[i] = load_streaming(row.quad(view.quad(quad, row.seed)));
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int quad = base + i * Group::kSize;
      if (quad >= quads) continue;
      const uint4 keys = staged[quad] = ordered_keys(scores[i]);
      range.add(keys, quad / Group::kSize, group_view.log_run);
    }
  }
  group.sync();
  const StagedSample<Group> sample{staged, group.thread, quads};
  return hashed_boundary(group, group_view, sample, range, histogram, scratch);
}

// The default proposal with the sample in shared memory, quad by quad in the view's order; the keys take its place.
// Nobody reads the histogram or the scratch any more where it is called.
template <class Group>
__device__ __forceinline__ Boundary propose_staged(const Group& group, const GroupView& view, float4* scores,
                                                   int* histogram, Scratch* scratch) {
  const int quads = view.hashed.samples / 4;
  auto* const keys = reinterpret_cast<uint4*>(scores);
  begin_proposal(group, histogram, scratch);
  SampleRange range;
  constexpr int kAtOnce = 4;  // so that their latencies overlap
#pragma unroll 1
  for (int base = 0; base < quads; base += kAtOnce * Group::kSize) {
    float4 own[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int quad = base + i * Group::kSize + group.thread;
      own[i] = quad < quads ? scores[quad] : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int quad = base + i * Group::kSize + group.thread;
      if (quad >= quads) continue;
      keys[quad] = ordered_keys(own[i]);
      range.add(keys[quad], quad / Group::kSize, view.log_run);
    }
  }
  group.sync();
  return hashed_boundary(group, view, StagedSample<Group>{keys, group.thread, quads}, range, histogram, scratch);
}

// The default proposal with the sample in registers, kQuads quads a thread; `then` runs once it has arrived.
// Nobody reads the histogram or the scratch any more where it is called.
template <int kQuads, class Group, class Then>
__device__ __forceinline__ Boundary propose_hashed_in_registers(const Group& group, const Row& row,
                                                                const GroupView& view, int* histogram, Scratch* scratch,
                                                                const Then& then) {
  RegisterSample<Group, kQuads> sample;
  sample.thread = group.thread;
  sample.quads = view.hashed.samples / 4;
  float4 scores[kQuads];
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const int quad = min(group.thread + i * Group::kSize, sample.quads - 1);  // unconditional: all in flight together
    scores[i] = load_streaming(row.quad(view.hashed.quad(quad, row.seed)));
  }
  begin_proposal(group, histogram, scratch);
  group.sync();
  SampleRange range;
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    sample.keys[i] = ordered_keys(scores[i]);
    if (group.thread + i * Group::kSize < sample.quads) range.add(sample.keys[i], i, view.log_run);
  }
  then();
  return hashed_boundary(group, view, sample, range, histogram, scratch);
}

// The exact coarse boundary (sections 4.3 and 5.2): the coarse bin that holds rank k of all valid scores. Each of the
// owner's members counts its part. Out of line, and so by value: what a scan keeps in registers stays there.
template <class Group, class Owner>
__device__ HPCTOPK_RARE std::uint32_t exact_coarse_boundary(Group group, Owner owner, Row part, int k, int* histogram,
                                                            Scratch* scratch) {
  group.sync();
  clear_histogram(group, histogram);
  group.sync();
  const auto count = [&](float score) { atomicAdd(&histogram[coarse_key(ordered_key(score))], 1); };
  for (int q = group.thread; q < part.quads; q += Group::kSize) {
    const float4 scores = load_streaming(part.quad(q));
    count(scores.x);
    count(scores.y);
    count(scores.z);
    count(scores.w);
  }
  if (group.thread < part.head) count(part.scores[group.thread]);
  if (group.thread < part.tail()) count(part.scores[part.length - part.tail() + group.thread]);
  group.sync();
  owner.add_histograms(group, histogram);
  find_rank(group, histogram, scratch, k);
  return coarse_floor(scratch->found[0].bin);
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_SAMPLE_CUH_
