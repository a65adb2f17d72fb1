// SPDX-License-Identifier: Apache-2.0

#include "tests/gpu/reference.h"

#include <cfloat>

namespace hpctopk::gpu_test {
namespace {

constexpr int kThreads = 512;
constexpr int kCheckThreads = 1024;
constexpr unsigned kMaxBlocks = 1U << 15;

unsigned blocks_for(std::int64_t items) {
  return static_cast<unsigned>(std::clamp<std::int64_t>((items + kThreads - 1) / kThreads, 1, kMaxBlocks));
}

// ---------------------------------------------------------------------------------------------------------------------
// Inputs

__device__ std::uint64_t mix(std::uint64_t x) {  // SplitMix64
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

__device__ float from_bits(std::uint64_t bits) { return __uint_as_float(static_cast<std::uint32_t>(bits)); }
__device__ float uniform(std::uint64_t h) { return static_cast<float>(h >> 40) * 0x1p-24F; }
__device__ float normal(std::uint64_t h) {
  const float radius = sqrtf(-2.0F * logf(uniform(h) + 0x1p-25F));
  return radius * cosf(6.2831853F * uniform(h << 24));
}

__device__ float draw(Fill fill, std::uint64_t seed, std::int64_t column, std::int64_t length) {
  const std::uint64_t h = mix(seed + static_cast<std::uint64_t>(column));
  const std::uint64_t sign = h & 0x80000000U;
  switch (fill) {
    case Fill::kNormal:
      return normal(h);
    case Fill::kUniform:
      return uniform(h);
    case Fill::kHigh:
      return 2.0F + uniform(h);
    case Fill::kLow:
      return -1.0F - uniform(h);
    case Fill::kOneCoarse:
      return 1.0F + 0.245F * uniform(h);
    case Fill::kCoarseBin:
      return from_bits(0x3F800000U | (h & 0x3FFFFU));
    case Fill::kSharedHigh:
      return from_bits(0x3F800000U | (h & 0xFFFFU));
    case Fill::kSharedMost:
      return from_bits(0x3F900000U | (h & 0x3FFU));
    case Fill::kZero:
      return 0.0F;
    case Fill::kSignedZero:
      return from_bits(sign);
    case Fill::kOne:
      return 1.0F;
    case Fill::kInfinity:
      return from_bits(0x7F800000U);
    case Fill::kNegativeInfinity:
      return from_bits(0xFF800000U);
    case Fill::kNan:
      return from_bits(sign | 0x7F800001U | (h & 0x7FFFFFU));
    case Fill::kDenormal:
      return from_bits(sign | (h & 0x7FFFFFU));
    case Fill::kBelowHalf:
      return -65536.0F - 1e6F * uniform(h);
    case Fill::kExtreme:
      return sign != 0 ? -FLT_MAX : FLT_MAX;
    case Fill::kSpecial: {
      const std::uint32_t magnitudes[] = {0x7F7FFFFFU, 0x7F800000U, 0, 1, 0x7FC00000U, 0x3F800000U};
      return from_bits(sign | magnitudes[h % 6]);
    }
    case Fill::kBits:
      return from_bits(h);
    case Fill::kAscending:
      return static_cast<float>(column);
    case Fill::kDescending:
      return -static_cast<float>(column);
    case Fill::kQuads:
      return normal(mix(seed + static_cast<std::uint64_t>(column / 4)));
    case Fill::kLevels:
      return rintf(4.0F * normal(h)) / 4.0F;
    case Fill::kRelu:
      return fmaxf(normal(h) - 2.0F, 0.0F);
    case Fill::kSinkRecency: {
      const float p = static_cast<float>(column) / static_cast<float>(length);
      return fmaxf(normal(h), 0.0F) + 2.0F * expf(-20.0F * p) + 2.0F * expf(-20.0F * (1.0F - p));
    }
    default:
      return 0.0F;
  }
}

// The place of a column in the order in which the layers take them: a permutation of [0, length).
__device__ std::int64_t rank_of(Place place, std::uint64_t seed, std::int64_t column, std::int64_t length) {
  const auto n = static_cast<std::uint64_t>(length);
  const auto c = static_cast<std::uint64_t>(column);
  const std::uint64_t shift = seed % n;
  constexpr std::uint64_t kPrime = 2654435761U;  // above every length, so multiplying by it permutes
  std::uint64_t period = 32;
  switch (place) {
    case Place::kScattered:
      return static_cast<std::int64_t>((c * kPrime + shift) % n);
    case Place::kContiguous:
      return static_cast<std::int64_t>((c + shift) % n);
    case Place::kEvery64:
      period = 64;
      break;
    case Place::kEvery128:
      period = 128;
      break;
    default:
      break;
  }
  const std::uint64_t residue = c % period;
  const std::uint64_t longer = n % period;  // the residues below it have one column more
  return static_cast<std::int64_t>(residue * (n / period) + (residue < longer ? residue : longer) + c / period);
}

__global__ void fill_rows_kernel(Rows rows, Pattern pattern, std::uint64_t seed, std::int32_t probe_period) {
  for (std::int64_t row = blockIdx.y; row < rows.num_rows; row += gridDim.y) {
    const bool probe = probe_period > 0 && (row + 1) % probe_period == 0;
    const std::uint64_t row_seed = mix(seed ^ mix(probe ? ~0ULL : static_cast<std::uint64_t>(row)));
    const Window window = window_of(rows.num_columns, rows.lengths, rows.row_starts, row);
    float* scores = rows.scores + row * rows.row_stride + window.start;
    const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < window.length;
         i += step) {
      Fill fill = pattern.rest;
      if (pattern.first.count + pattern.second.count > 0) {
        const std::int64_t rank = rank_of(pattern.place, row_seed, i, window.length);
        if (rank < pattern.first.count) {
          fill = pattern.first.fill;
        } else if (rank < pattern.first.count + pattern.second.count) {
          fill = pattern.second.fill;
        }
      }
      scores[i] = draw(fill, row_seed, i, window.length);
    }
  }
}

__global__ void fill_outside_kernel(float* scores, std::int64_t count, std::int64_t row_stride, std::uint64_t seed) {
  constexpr std::uint32_t kHighest[] = {0xFFFFFFFFU, 0x7F800000U, 0x7F7FFFFFU};  // NaN, +infinity, FLT_MAX
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    scores[i] = from_bits(kHighest[(static_cast<std::uint64_t>(i / row_stride) + seed) % 3]);
  }
}

__global__ void fill_words_kernel(std::uint32_t* words, std::int64_t count, std::uint32_t word) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    words[i] = word;
  }
}

__global__ void fill_bits_kernel(std::uint32_t* words, std::int64_t count, std::uint64_t seed) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    words[i] = static_cast<std::uint32_t>(mix(seed + static_cast<std::uint64_t>(i)));
  }
}

__global__ void draw_lengths_kernel(std::int32_t* lengths, std::int64_t count, std::int64_t num_columns, std::int32_t k,
                                    std::uint32_t* turn) {
  const std::uint64_t seed = mix(*turn);
  for (std::int64_t row = threadIdx.x; row < count; row += blockDim.x) {
    const std::uint64_t h = mix(seed + static_cast<std::uint64_t>(row));
    const std::int64_t edges[] = {-1, 0, 1, k - 1, k, k + 1, num_columns - 1, num_columns, num_columns + 1};
    const std::int64_t length = h % 3 == 0 ? edges[(h >> 8) % 9] : static_cast<std::int64_t>((h >> 8) % num_columns);
    lengths[row] = static_cast<std::int32_t>(length);
  }
  __syncthreads();
  if (threadIdx.x == 0) ++*turn;
}

__device__ std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void occupy_kernel(std::uint64_t duration_ns) {
  const std::uint64_t end = nanoseconds() + duration_ns;
  while (nanoseconds() < end) {
  }
}

__global__ void copy_late_kernel(const WordCopies late, std::uint64_t delay_ns) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
  const std::uint64_t begin = nanoseconds() + delay_ns;
  while (nanoseconds() < begin) {
  }
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (const WordCopy& copy : late.copies) {
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < copy.count; i += step) {
      copy.to[i] = copy.from[i];
    }
  }
}

__global__ void hold_kernel(Hold* hold) {
  constexpr std::uint64_t kLongestNs = 120'000'000'000;
  atomicAdd_system(&hold->arrived, 1U);
  const std::uint64_t end = nanoseconds() + kLongestNs;
  while (*static_cast<volatile std::uint32_t*>(&hold->released) == 0 && nanoseconds() < end) __nanosleep(100000);
}

// ---------------------------------------------------------------------------------------------------------------------
// Check

__device__ void add_finding(Report* report, const Finding& finding) {
  const std::uint32_t at = atomicAdd(&report->count, 1U);
  if (at < Report::kKept) report->findings[at] = finding;
}

struct Item {
  float score;
  std::int64_t column;  // -1: none
  std::int64_t slot;
};

// The item of the block that comes last (or first) in the order, known to thread 0.
__device__ Item reduce(Item item, bool first, Item* shared) {
  shared[threadIdx.x] = item;
  __syncthreads();
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      const Item a = shared[threadIdx.x];
      const Item b = shared[threadIdx.x + half];
      const bool take_b = a.column < 0 || (b.column >= 0 && better(b.score, b.column, a.score, a.column) == first);
      if (take_b) shared[threadIdx.x] = b;
    }
    __syncthreads();
  }
  item = shared[0];
  __syncthreads();
  return item;
}

__device__ void check_outside(const Output& output, Report* report) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < output.size; i += step) {
    const std::int64_t element = i - output.offset;
    const bool inside =
        element >= 0 && element / output.row_stride < output.live_rows && element % output.row_stride < output.k;
    const std::int32_t value = output.allocation[i];
    if (!inside && value != kPoison) add_finding(report, {Fault::kWrittenOutside, value, element, 0, 0});
  }
}

// One kernel, and loads in batches: what a check costs in a graph is latency.
__global__ void __launch_bounds__(kCheckThreads)
    check_rows_kernel(Rows rows, Output output, std::uint32_t* scratch, Report* report) {
  constexpr int kBatch = 8;
  __shared__ Item items[kCheckThreads];
  check_outside(output, report);
  const std::int64_t words = (rows.num_columns + 31) / 32;
  for (std::int64_t row = blockIdx.x; row < output.live_rows; row += gridDim.x) {
    const Window window = window_of(rows.num_columns, rows.lengths, rows.row_starts, row);
    const float* scores = rows.scores + row * rows.row_stride;
    const std::int32_t* out = output.allocation + output.offset + row * output.row_stride;
    std::uint32_t* taken = scratch + row * words;
    if (window.length <= output.k) {
      for (std::int64_t slot = threadIdx.x; slot < output.k; slot += blockDim.x) {
        const std::int64_t wanted = slot < window.length ? window.start + slot : -1;
        if (out[slot] != wanted) add_finding(report, {Fault::kShortRow, out[slot], row, slot, wanted});
      }
      continue;
    }
    Item worst{0.0F, -1, 0};
    for (std::int64_t slot = threadIdx.x; slot < output.k; slot += blockDim.x) {
      const std::int32_t column = out[slot];
      if (column < window.start || column >= window.start + window.length) {
        add_finding(report, {column == kPoison ? Fault::kUnwritten : Fault::kNotInWindow, column, row, slot, 0});
        continue;
      }
      const std::uint32_t bit = 1U << (column % 32);
      if ((atomicOr(&taken[column / 32], bit) & bit) != 0) {
        add_finding(report, {Fault::kDuplicate, column, row, slot, 0});
      }
      const float score = scores[column];
      if (worst.column < 0 || better(worst.score, worst.column, score, column)) worst = {score, column, slot};
    }
    worst = reduce(worst, false, items);  // its barriers also order the marks before the reads below
    Item best{0.0F, -1, 0};
    for (std::int64_t i = threadIdx.x; i < window.length; i += kBatch * blockDim.x) {
      float score[kBatch];
      std::uint32_t marks[kBatch];
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {  // all on their way before the first is looked at
        const std::int64_t at = i + static_cast<std::int64_t>(j) * blockDim.x;
        const std::int64_t column = window.start + (at < window.length ? at : window.length - 1);
        score[j] = scores[column];
        marks[j] = __ldcg(&taken[column / 32]) >> (column % 32);
      }
#pragma unroll
      for (int j = 0; j < kBatch; ++j) {
        const std::int64_t at = i + static_cast<std::int64_t>(j) * blockDim.x;
        const std::int64_t column = window.start + at;
        if (at >= window.length || (marks[j] & 1U) != 0) continue;
        if (best.column < 0 || better(score[j], column, best.score, best.column)) best = {score[j], column, 0};
      }
    }
    best = reduce(best, true, items);  // all have read the marks
    for (std::int64_t word = threadIdx.x; word < words; word += blockDim.x) taken[word] = 0;
    if (threadIdx.x == 0 && worst.column >= 0 && best.column >= 0 &&
        better(best.score, best.column, worst.score, worst.column)) {
      add_finding(report, {Fault::kNotLargest, static_cast<std::int32_t>(worst.column), row, worst.slot, best.column});
    }
  }
}

__global__ void check_guards_kernel(const std::uint32_t* words, std::int64_t size, std::int64_t guard, Report* report) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < 2 * guard; i += step) {
    const std::int64_t at = i < guard ? i : size - 2 * guard + i;
    if (words[at] != kGuardWord) {
      add_finding(report, {Fault::kGuard, static_cast<std::int32_t>(words[at]), at - guard, 0, 0});
    }
  }
}

}  // namespace

void fill_rows(const Rows& rows, const Pattern& pattern, std::uint64_t seed, std::int32_t probe_period,
               cudaStream_t stream) {
  if (rows.num_rows == 0 || rows.num_columns == 0) return;
  const auto y = static_cast<unsigned>(std::min<std::int64_t>(rows.num_rows, 65535));
  const unsigned x = std::min(blocks_for(rows.num_columns), std::max(1U, kMaxBlocks / y));
  fill_rows_kernel<<<dim3(x, y), kThreads, 0, stream>>>(rows, pattern, seed, probe_period);
}

void fill_outside(float* scores, std::int64_t count, std::int64_t row_stride, std::uint64_t seed, cudaStream_t stream) {
  if (count == 0) return;
  row_stride = std::max<std::int64_t>(row_stride, 1);
  fill_outside_kernel<<<blocks_for(count), kThreads, 0, stream>>>(scores, count, row_stride, seed);
}

void fill_words(std::uint32_t* words, std::int64_t count, std::uint32_t word, cudaStream_t stream) {
  if (count > 0) fill_words_kernel<<<blocks_for(count), kThreads, 0, stream>>>(words, count, word);
}

void fill_bits(std::uint32_t* words, std::int64_t count, std::uint64_t seed, cudaStream_t stream) {
  if (count > 0) fill_bits_kernel<<<blocks_for(count), kThreads, 0, stream>>>(words, count, seed);
}

void draw_lengths(std::int32_t* lengths, std::int64_t count, std::int64_t num_columns, std::int32_t k,
                  std::uint32_t* turn, cudaStream_t stream) {
  draw_lengths_kernel<<<1, kThreads, 0, stream>>>(lengths, count, num_columns, k, turn);
}

void occupy(std::int32_t microseconds, cudaStream_t stream) {
  occupy_kernel<<<64, 256, 0, stream>>>(static_cast<std::uint64_t>(microseconds) * 1000U);
}

// Few CTAs: others find room beside them.
void copy_late(const WordCopies& copies, std::int32_t microseconds, cudaStream_t stream) {
  copy_late_kernel<<<32, kThreads, 0, stream>>>(copies, static_cast<std::uint64_t>(microseconds) * 1000U);
}

unsigned hold_multiprocessors(std::int32_t cluster_size, Hold* hold, cudaStream_t stream) {
  constexpr int kSpare = 8;
  int device = 0;
  int shared_bytes = 0;
  int clusters = 0;  // that fit at once
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  cudaDeviceGetAttribute(&clusters, cudaDevAttrMultiProcessorCount, device);
  cudaFuncSetAttribute(hold_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attribute{};
  config.blockDim = dim3(1);
  config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
  config.stream = stream;
  if (cluster_size > 1) {  // clusters of the same size, so that what they leave is a place for one and not scattered
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(cluster_size), 1, 1};
    config.attrs = &attribute;
    config.numAttrs = 1;
    config.gridDim = dim3(static_cast<unsigned>(cluster_size));
    cudaFuncSetAttribute(hold_kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    cudaOccupancyMaxActiveClusters(&clusters, hold_kernel, &config);
  }
  clusters -= (kSpare + cluster_size - 1) / cluster_size;
  if (clusters < 1) return 0;
  config.gridDim = dim3(static_cast<unsigned>(clusters * cluster_size));
  cudaLaunchKernelEx(&config, hold_kernel, hold);
  return config.gridDim.x;
}

void check_rows(const Rows& rows, const Output& output, std::uint32_t* scratch, Report* report, cudaStream_t stream) {
  const auto row_blocks = static_cast<unsigned>(std::clamp<std::int64_t>(output.live_rows, 1, kMaxBlocks));
  const unsigned blocks = std::max(row_blocks, blocks_for(output.size));
  check_rows_kernel<<<blocks, kCheckThreads, 0, stream>>>(rows, output, scratch, report);
}

void check_guards(const std::uint32_t* words, std::int64_t size, std::int64_t guard, Report* report,
                  cudaStream_t stream) {
  check_guards_kernel<<<blocks_for(2 * guard), kThreads, 0, stream>>>(words, size, guard, report);
}

}  // namespace hpctopk::gpu_test
