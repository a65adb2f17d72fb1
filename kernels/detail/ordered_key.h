// SPDX-License-Identifier: Apache-2.0
//
// Scores as integers that compare as the contract orders them, and the composite that makes every candidate distinct.
// Host and device run the same code.

#ifndef HPCTOPK_KERNELS_DETAIL_ORDERED_KEY_H_
#define HPCTOPK_KERNELS_DETAIL_ORDERED_KEY_H_

#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#define HPCTOPK_HOST_DEVICE __host__ __device__ __forceinline__
#else
// Always inlined: the CPU back end compiles these for several instruction sets, and a linker would keep one copy.
#define HPCTOPK_HOST_DEVICE __attribute__((always_inline)) inline
#endif

namespace hpctopk::detail {

HPCTOPK_HOST_DEVICE std::uint32_t float_bits(float x) {
#if defined(__CUDA_ARCH__)
  return __float_as_uint(x);
#else
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
#endif
}

HPCTOPK_HOST_DEVICE float bits_float(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
  return __uint_as_float(bits);
#else
  float x;
  std::memcpy(&x, &bits, sizeof x);
  return x;
#endif
}

inline constexpr std::uint32_t kNanKey = 0xFFFFFFFFU;       // above every number, infinity included
inline constexpr std::uint32_t kInfinityKey = 0xFF800000U;  // the highest number
inline constexpr std::uint32_t kLowestKey = 0x007FFFFFU;    // of -infinity

// A score as an unsigned integer in ascending order of the contract: all NaNs equal and highest, -0.0 equal to +0.0.
HPCTOPK_HOST_DEVICE std::uint32_t ordered_key(float x) {
  const std::uint32_t bits = float_bits(x + 0.0F);  // -0.0 + 0.0 is +0.0; no other number changes
#if defined(__CUDA_ARCH__)
  // A NaN has become 0x7FFFFFFF, the one that a GPU's arithmetic gives, and that is kNanKey's.
  return bits ^ (static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | 0x80000000U);
#else
  const std::uint32_t key = (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
  return x != x ? kNanKey : key;
#endif
}

// The score of a key, for keys that ordered_key() returns. kNanKey and keys below that of -infinity give a NaN.
HPCTOPK_HOST_DEVICE float key_score(std::uint32_t key) {
  return bits_float((key & 0x80000000U) != 0 ? key ^ 0x80000000U : ~key);
}

// The scan's test: a score x is admitted where !(x <= admission_floor(key)), which holds exactly for the scores whose
// ordered key is >= key: one comparison that lets NaNs through, and lets everything through where key is that of
// -infinity or lower (the floor is then a NaN).
HPCTOPK_HOST_DEVICE float admission_floor(std::uint32_t key) {
  std::uint32_t below = key - 1;
  if (below == 0x7FFFFFFFU) --below;  // the key of -0.0, which no score has: step over it to the next number down
  if (key != 0 && below > kInfinityKey) below = kInfinityKey;
  return key_score(below);
}

// (key, index) in one integer: a larger composite is a better candidate, and no two candidates of a row are equal.
// The lowest-index rule for ties is nothing but this order.
HPCTOPK_HOST_DEVICE std::uint64_t composite(std::uint32_t key, std::uint32_t index) {
  return (static_cast<std::uint64_t>(key) << 32) | static_cast<std::uint32_t>(~index);
}
HPCTOPK_HOST_DEVICE std::uint32_t composite_key(std::uint64_t c) { return static_cast<std::uint32_t>(c >> 32); }
HPCTOPK_HOST_DEVICE std::uint32_t composite_index(std::uint64_t c) { return ~static_cast<std::uint32_t>(c); }

// ---------------------------------------------------------------------------------------------------------------------
// The 11-bit coarse key (paper, equation 7), ascending: sign, 5 exponent bits and 5 mantissa bits of the score in fp16.

inline constexpr int kCoarseBins = 2048;

// The coarse bin of a non-negative float's bits, 0..992 for finite scores below 2^16, 992 from there on.
HPCTOPK_HOST_DEVICE std::uint32_t coarse_magnitude(std::uint32_t bits) {
  constexpr std::uint32_t kSmallestNormal = 113U << 23;  // 2^-14, fp16's smallest normal number
  constexpr std::uint32_t kLargest = 143U << 23;         // 2^16
  if (bits >= kLargest) return 992;
  if (bits >= kSmallestNormal) return (bits - (112U << 23)) >> 18;
  return static_cast<std::uint32_t>(bits_float(bits) * 524288.0F);  // fp16 subnormals: units of 2^-19
}

// The smallest non-negative float's bits in coarse magnitude bin `bin`.
HPCTOPK_HOST_DEVICE std::uint32_t coarse_magnitude_floor(std::uint32_t bin) {
  if (bin >= 32) return (bin << 18) + (112U << 23);
  return float_bits(static_cast<float>(bin) * (1.0F / 524288.0F));
}

// The coarse key of an ordered key: monotone, 0..kCoarseBins - 1.
HPCTOPK_HOST_DEVICE std::uint32_t coarse_key(std::uint32_t key) {
  if (key == kNanKey) return kCoarseBins - 1;
  return (key & 0x80000000U) != 0 ? 1024 + coarse_magnitude(key & 0x7FFFFFFFU)
                                  : 1023 - coarse_magnitude(~key & 0x7FFFFFFFU);
}

// The smallest ordered key of coarse bin `bin`, so that key >= coarse_floor(bin) exactly where coarse_key(key) >= bin.
HPCTOPK_HOST_DEVICE std::uint32_t coarse_floor(std::uint32_t bin) {
  constexpr std::uint32_t kHighest = 1024 + 992;  // the bin of everything from 2^16 to infinity
  constexpr std::uint32_t kLowest = 1023 - 992;
  if (bin > kHighest) return kNanKey;
  if (bin >= 1024) return 0x80000000U | coarse_magnitude_floor(bin - 1024);
  if (bin <= kLowest) return 0;
  return 0x7FFFFFFFU - (coarse_magnitude_floor(1024 - bin) - 1);
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_ORDERED_KEY_H_
