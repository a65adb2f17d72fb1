// SPDX-License-Identifier: Apache-2.0
//
// Where the samples of a row lie and which of their ranks is the boundary (paper, section 4.2). Host and device run the
// same code.

#ifndef HPCTOPK_KERNELS_DETAIL_VIEW_H_
#define HPCTOPK_KERNELS_DETAIL_VIEW_H_

#include <cmath>
#include <cstdint>

#include "hpctopk/topk.h"
#include "kernels/detail/ordered_key.h"

namespace hpctopk::detail {

// A well-mixed 32-bit hash of two integers.
HPCTOPK_HOST_DEVICE std::uint32_t mix(std::uint32_t a, std::uint32_t b) {
  std::uint32_t x = a * 0x9E3779B9U + b * 0x85EBCA6BU;
  x = (x ^ (x >> 16)) * 0x7FEB352DU;
  x = (x ^ (x >> 15)) * 0x846CA68BU;
  return x ^ (x >> 16);
}

// floor(x * n / 2^32): maps a hash to 0..n-1.
HPCTOPK_HOST_DEVICE std::uint32_t scale(std::uint32_t x, std::uint32_t n) {
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(x) * n >> 32);
}

// Positions phase, phase + stride, phase + 2 stride, ... (equation 8).
struct StridedView {
  std::int32_t phase, stride, samples;
  std::int32_t rank, second_rank;  // sample ranks of the two boundaries, equation 10
  HPCTOPK_HOST_DEVICE bool usable() const { return samples >= second_rank; }
};

HPCTOPK_HOST_DEVICE StridedView strided_view(const SamplePolicy& policy, std::int32_t length, std::int32_t k,
                                             std::uint32_t seed) {
  StridedView view{};
  view.stride = policy.stride;
  view.phase = static_cast<std::int32_t>(scale(mix(seed, 0), static_cast<std::uint32_t>(policy.stride)));
  view.samples = length > view.phase ? (length - view.phase - 1) / policy.stride + 1 : 0;
  const float per_sample = static_cast<float>(k) / static_cast<float>(policy.stride);
  view.rank = static_cast<std::int32_t>(std::ceil(policy.rank_margin * per_sample));
  view.second_rank = static_cast<std::int32_t>(std::ceil(policy.rescue_margin * per_sample));
  return view;
}

inline constexpr std::int32_t kMaxHashedSamples = 16384;

// The sample ranks of the two boundaries.
struct SampleRanks {
  std::int32_t primary, secondary;
};

// One chunk of neighbouring scores in each stratum, at a place that a hash of row and stratum gives: a chunk costs one
// memory transaction, because it begins at a multiple of its size, and no period of the row can line up with the hash.
struct HashedView {
  std::int32_t samples;
  std::int32_t stratum;            // quads of the row for each chunk
  std::int32_t log_chunk;          // log2 of a chunk's quads
  std::int32_t rank, second_rank;  // see SampleRanks
  std::int32_t most;               // that a row's own rank may become: see ranks()
  float expected;                  // samples among the k best
  float sigmas;                    // the margin of `rank`
  HPCTOPK_HOST_DEVICE bool usable() const { return stratum >= (2 << log_chunk) - 1 && samples >= second_rank; }
  // The ranks for a row whose chunks have `counted` samples above some score, and `pairs` pairs of samples that are
  // above it and in one chunk, each with itself included.
  HPCTOPK_HOST_DEVICE SampleRanks ranks(std::int32_t counted, std::int32_t pairs) const;

  // The row's quad that holds samples 4 i..4 i + 3.
  HPCTOPK_HOST_DEVICE std::int32_t quad(std::int32_t i, std::uint32_t seed) const {
    const std::int32_t chunk = i >> log_chunk;
    const std::int32_t begin = (chunk * stratum + (1 << log_chunk) - 1) >> log_chunk;  // in chunks of the row
    const auto places = static_cast<std::uint32_t>(((chunk + 1) * stratum >> log_chunk) - begin);
    const auto place = static_cast<std::int32_t>(scale(mix(seed, static_cast<std::uint32_t>(chunk)), places));
    return ((begin + place) << log_chunk) + (i & ((1 << log_chunk) - 1));
  }
};

// A sample of n scores holds m = n k / length of the k best on average, with a standard deviation of about sqrt(m).
// The rank whose value has at least k scores above it with the wanted certainty solves q - sigmas sqrt(q) = m.
HPCTOPK_HOST_DEVICE std::int32_t sample_rank(float m, float sigmas) {
  const float root = 0.5F * sigmas + std::sqrt(0.25F * sigmas * sigmas + m);
  return static_cast<std::int32_t>(std::ceil(root * root));
}

// The secondary boundary's margin in the primary's, and the most that a row's own may become in the policy's.
inline constexpr float kSecondMargin = 1.5F;
inline constexpr float kMostMargin = 2.0F;
// The margin in deviations of what the sample's chunks themselves show: of many rows they show about the same, so that
// fewer will do than where nothing is known.
inline constexpr float kShownSigmas = 3.0F;

// Neighbours are alike in rows of text, and a sample of chunks errs as one of fewer scores would: by the design effect,
// the variance of what chunks hold over that of independent scores.
HPCTOPK_HOST_DEVICE SampleRanks HashedView::ranks(std::int32_t counted, std::int32_t pairs) const {
  const auto all = static_cast<float>(counted);
  const auto chunks = static_cast<float>(samples >> (log_chunk + 2));
  const float excess = static_cast<float>(pairs) * chunks - all * all;
  constexpr float kShare = 1.0F / (kShownSigmas * kShownSigmas);
  if (!(excess > kShare * sigmas * sigmas * chunks * all)) return {rank, second_rank};
  const float shown = kShownSigmas * std::sqrt(excess / (chunks * all));
  const float margin = shown < kMostMargin * sigmas ? shown : kMostMargin * sigmas;
  std::int32_t wanted = sample_rank(expected, margin);
  if (wanted > most) wanted = most;
  if (wanted > counted) wanted = counted;  // the others are not told apart
  return {wanted > rank ? wanted : rank, sample_rank(expected, kSecondMargin * margin)};
}

HPCTOPK_HOST_DEVICE HashedView hashed_view(const SamplePolicy& policy, std::int32_t length, std::int32_t quads,
                                           std::int32_t k) {
  HashedView view{};
  std::int32_t log_chunk = 0;
  while ((8 << log_chunk) <= policy.chunk) ++log_chunk;
  view.log_chunk = log_chunk;
  const std::int32_t chunk = 4 << log_chunk;
  std::int32_t samples = length / policy.stride;
  if (samples < policy.min_samples) samples = length / 4 < policy.min_samples ? length / 4 : policy.min_samples;
  if (samples > policy.max_samples) samples = policy.max_samples;
  if (samples > kMaxHashedSamples) samples = kMaxHashedSamples;
  const std::int32_t chunks = samples / chunk;
  if (chunks == 0) return view;
  view.samples = chunks * chunk;
  view.stratum = quads / chunks;
  view.expected = static_cast<float>(view.samples) * static_cast<float>(k) / static_cast<float>(length);
  view.sigmas = policy.sigmas;
  view.rank = sample_rank(view.expected, policy.sigmas);
  view.second_rank = sample_rank(view.expected, kSecondMargin * policy.sigmas);
  view.most = sample_rank(view.expected, kMostMargin * policy.sigmas);
  return view;
}

// The view of rows of `length` scores as a group of `threads` takes it.
struct GroupView {
  HashedView hashed;
  std::int32_t length, quads;  // of the rows
  // Disjoint subsets of the sample, as large as there can be second_rank of them: see hashed_boundary(). Those of
  // 2^log_threads threads or, where by_runs, 2^log_run successive quads of one thread. Not `enough`: there are fewer.
  std::int32_t log_threads, log_run;
  bool by_runs, enough;
};

HPCTOPK_HOST_DEVICE GroupView group_view(const SamplePolicy& policy, std::int32_t length, std::int32_t quads,
                                         std::int32_t k, std::int32_t threads) {
  GroupView view{};
  view.hashed = hashed_view(policy, length, quads, k);
  view.length = length;
  view.quads = quads;
  const std::int32_t sampled = view.hashed.samples / 4;
  const std::int32_t active = sampled < threads ? sampled : threads;  // threads that have samples
  const std::int32_t whole = sampled / threads;                       // quads that all have
  const std::int32_t subsets = view.hashed.second_rank;
  view.by_runs = active < subsets;
  if (view.by_runs) {
    while (threads * (whole >> (view.log_run + 1)) >= subsets) ++view.log_run;
    view.enough = threads * (whole >> view.log_run) >= subsets;
  } else {
    while (view.log_threads < 5 && (active >> (view.log_threads + 1)) >= subsets) ++view.log_threads;
    view.enough = true;
  }
  return view;
}

// Samples that a group takes at most where it keeps them in registers.
inline constexpr std::int32_t kRegisterSamples = 8192;

// The same for a group that keeps its sample in registers.
HPCTOPK_HOST_DEVICE GroupView register_view(SamplePolicy policy, std::int32_t length, std::int32_t quads,
                                            std::int32_t k, std::int32_t threads) {
  if (policy.max_samples > kRegisterSamples) policy.max_samples = kRegisterSamples;
  return group_view(policy, length, quads, k, threads);
}

// The same for a row, where `full` is that of a full one. Rows of nearly that length take its ranks.
HPCTOPK_HOST_DEVICE GroupView row_view(const GroupView& full, const SamplePolicy& policy, std::int32_t length,
                                       std::int32_t quads, std::int32_t k, std::int32_t threads) {
  if (quads < full.quads - full.quads / 128) return register_view(policy, length, quads, k, threads);
  GroupView view = full;
  view.length = length;
  view.quads = quads;
  if (quads != full.quads && full.hashed.samples > 0) {
    view.hashed.stratum = quads / (full.hashed.samples >> (full.hashed.log_chunk + 2));
  }
  return view;
}

// Of a full row: as long as the matrix is wide, beginning where a quad does.
inline GroupView full_view(const Plan& plan, std::int32_t threads) {
  const auto columns = static_cast<std::int32_t>(plan.problem.num_columns);
  return register_view(plan.policy.sample, columns, columns / 4, plan.problem.k, threads);
}

// The view for a group of which every thread takes a few quads. It is that of a full row, and shorter rows take it too:
// what lies beyond them is absent, and as many of the k best are expected among the rest as in a full row's sample.
struct QuadView {
  HashedView hashed;
  std::int32_t columns;  // of a full row
  std::int32_t quads;
  std::int32_t least;       // rows of fewer scores have too few samples
  std::int32_t log_subset;  // 2^log_subset threads are a subset of the sample: see hashed_boundary(); -1: too few
  std::int32_t certain;     // what is above the sample's value of this rank is among the k best
};

inline QuadView quad_view(const Plan& plan, std::int32_t threads, std::int32_t quads) {
  SamplePolicy policy = plan.policy.sample;
  if (policy.max_samples > 4 * threads * quads) policy.max_samples = 4 * threads * quads;
  const auto columns = static_cast<std::int32_t>(plan.problem.num_columns);
  QuadView view{};
  view.hashed = hashed_view(policy, columns, columns / 4, plan.problem.k);
  view.columns = columns;
  view.quads = columns / 4;
  view.least = 0x7FFFFFFF;
  if (!view.hashed.usable()) {
    view.hashed.samples = 0;
    return view;
  }
  const auto samples = static_cast<float>(view.hashed.samples);
  view.least = static_cast<std::int32_t>(
      std::ceil(static_cast<float>(view.hashed.rank + 1) / samples * static_cast<float>(columns)));
  const std::int32_t sampling = view.hashed.samples / 4 < threads ? view.hashed.samples / 4 : threads;
  view.log_subset = -1;
  while (view.log_subset < 5 && sampling >> (view.log_subset + 1) >= view.hashed.rank) ++view.log_subset;
  const float expected = view.hashed.expected;
  const float certain = expected - policy.sigmas * std::sqrt(expected);
  view.certain = certain > 1.0F ? static_cast<std::int32_t>(certain) : 1;
  return view;
}

// The rank that the k best of a row in registers reach, with the certainty wanted, in a sample of one score in
// `stride`. The more of the row they are, the less is left to chance.
inline std::int32_t stratified_rank(const SamplePolicy& policy, std::int64_t length, std::int32_t k,
                                    std::int32_t stride) {
  const float expected = static_cast<float>(k) / static_cast<float>(stride);
  const float others = length > k ? 1.0F - static_cast<float>(k) / static_cast<float>(length) : 0.0F;
  const float margin = policy.sigmas * std::sqrt(expected * others);
  return static_cast<std::int32_t>(std::ceil(expected + margin + 0.5F * policy.sigmas * policy.sigmas * others + 1.0F));
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_VIEW_H_
