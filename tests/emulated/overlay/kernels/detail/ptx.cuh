// SPDX-License-Identifier: Apache-2.0
//
// Stands for the instructions of kernels/detail/ptx.cuh.

#ifndef HPCTOPK_KERNELS_DETAIL_PTX_CUH_
#define HPCTOPK_KERNELS_DETAIL_PTX_CUH_

#include "tests/emulated/emulator.h"

namespace hpctopk::detail {

inline float load_streaming(const float* address) { return *address; }
inline float4 load_streaming(const float4* address) {
  if (reinterpret_cast<std::uintptr_t>(address) % sizeof(float4) != 0) emulated::fail("a misaligned quad");
  return *address;
}

inline void wait_for_kernel_in_front() { emulated::wait_for_kernel_in_front(); }

inline void prefetch(const void*) {}

inline unsigned char* shared_memory() { return emulated::current->cta->shared; }

template <int kFirst>
void admit(const float4& quad, float floor, unsigned* mask) {
  const float scores[] = {quad.x, quad.y, quad.z, quad.w};
  for (int i = 0; i < 4; ++i) {
    if (!(scores[i] <= floor)) *mask |= 1U << (kFirst + i);
  }
}

class SharedCursor {
 public:
  explicit SharedCursor(void* pointer) : words_(static_cast<std::uint32_t*>(pointer)) {}
  template <unsigned kBit>
  void append_if(unsigned mask, std::uint32_t value) {
    if ((mask & kBit) != 0) store(value);
  }
  template <unsigned kBit>
  void append_if(unsigned mask, std::uint32_t first, std::uint32_t second) {
    if ((mask & kBit) == 0) return;
    store(first);
    store(second);
  }

 private:
  void store(std::uint32_t value) {
    emulated::offset(words_);
    *words_++ = value;
  }
  std::uint32_t* words_;
};

inline int highest_bit(unsigned word) { return 31 - __builtin_clz(word); }
inline int plus_lane_below(int value, int distance) {
  const int below = __shfl_up_sync(0xFFFFFFFFU, value, distance);
  return lane_of_current() >= distance ? value + below : value;
}
inline void count_if(bool condition, int* counter) {
  if (!condition) return;
  emulated::offset(counter);
  ++*counter;
}
inline int add_if(bool condition, int* counter, int term) {
  emulated::offset(counter);
  const int before = *counter;
  if (condition) *counter += term;
  return condition ? before : 0;
}
inline int add_one_if(bool condition, int* counter) { return add_if(condition, counter, 1); }
class SharedQuads {
 public:
  explicit SharedQuads(const float4* quads) : quads_(quads) {}
  float4 operator[](int quad) const {
    emulated::offset(quads_ + quad);
    return quads_[quad];
  }
  float score(int i) const {
    emulated::offset(reinterpret_cast<const float*>(quads_) + i);
    return reinterpret_cast<const float*>(quads_)[i];
  }

 private:
  const float4* quads_;
};
class SharedComposites {
 public:
  explicit SharedComposites(std::uint64_t* composites) : composites_(composites) {}
  void append(std::uint64_t composite) {
    emulated::offset(composites_);
    *composites_++ = composite;
  }

 private:
  std::uint64_t* composites_;
};
inline int read_thread_index() { return static_cast<int>(emulated::current->index); }
inline void keep_in_register(int*) {}
inline void keep_in_register(std::int32_t**) {}
inline void store_global(std::int32_t* address, std::int32_t value) { *address = value; }

inline std::uint32_t ordered_half(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return 0xFFFFU;
  std::uint32_t half = magnitude == 0x7F800000U ? 0x7C00U : 0x7BFFU;
  if (magnitude < 143U << 23) half = (magnitude - (112U << 23)) >> 13;                        // below 2^16
  if (magnitude < 113U << 23) half = static_cast<std::uint32_t>(std::fabs(x) * 16777216.0F);  // below 2^-14
  return half != 0 && bits != magnitude ? 0x7FFFU - half : 0x8000U + half;
}
inline std::uint32_t ordered_halves(float first, float second) {
  return ordered_half(first) | ordered_half(second) << 16;
}
inline float half_score(std::uint32_t half) {
  const std::uint32_t magnitude = half & 0x7FFFU;
  const std::uint32_t bits = magnitude > 0x7C00U ? 0x7FFFFFFFU : 0x7F800000U;
  float score = 0;
  std::memcpy(&score, &bits, sizeof score);
  if (magnitude < 0x7C00U) score = std::ldexp(static_cast<float>(magnitude), -24);
  if (magnitude >= 0x400U && magnitude < 0x7C00U) {
    const auto exponent = static_cast<int>(magnitude >> 10);
    score = std::ldexp(static_cast<float>((magnitude & 0x3FFU) + 0x400U), exponent - 25);
  }
  return (half & 0x8000U) != 0 ? -score : score;
}
inline float approximate_reciprocal(float x) { return 1 / x; }

template <int kThreads>
void barrier_sync() {
  emulated::barrier(0, kThreads);
}
template <int kThreads>
bool barrier_sync_or(bool value) {
  return emulated::barrier(0, kThreads, value);
}

using Barrier = std::uint64_t;

// What is behind a Barrier.
struct Mbarrier {
  std::uint32_t phase : 1, expected : 15, pending : 16;
  std::int32_t bytes;

  void end_phase_if_due() {
    if (pending != 0 || bytes != 0) return;
    phase ^= 1;
    pending = expected;
  }
  void arrive(std::uint32_t announced) {
    if (pending == 0) emulated::fail("more arrivals at a barrier than it expects");
    bytes += static_cast<std::int32_t>(announced);
    --pending;
    end_phase_if_due();
  }
  void complete(std::uint32_t landed) {
    bytes -= static_cast<std::int32_t>(landed);
    end_phase_if_due();
  }
};
static_assert(sizeof(Mbarrier) == sizeof(Barrier));
inline Mbarrier* mbarrier(void* barrier) { return static_cast<Mbarrier*>(barrier); }

inline void barrier_init(Barrier* barrier, int arrivals) {
  Mbarrier initial{};
  initial.expected = initial.pending = static_cast<std::uint32_t>(arrivals);
  std::memcpy(barrier, &initial, sizeof initial);
}
inline void barrier_init_fence() {}
inline void barrier_invalidate(Barrier* barrier) {
  if (mbarrier(barrier)->bytes != 0) emulated::fail("a barrier that copies count at is given up");
  std::memset(barrier, 0xCD, sizeof *barrier);
}
inline void barrier_arrive(Barrier* barrier) { mbarrier(barrier)->arrive(0); }
inline void barrier_arrive_expect(Barrier* barrier, std::uint32_t bytes) { mbarrier(barrier)->arrive(bytes); }
inline bool barrier_test(Barrier* barrier, std::uint32_t parity) { return mbarrier(barrier)->phase != parity; }
inline bool barrier_try_wait(Barrier* barrier, std::uint32_t parity) {
  if (mbarrier(barrier)->phase == parity) emulated::yield();
  return mbarrier(barrier)->phase != parity;
}
inline void barrier_wait(Barrier* barrier, std::uint32_t parity) {
  while (!barrier_try_wait(barrier, parity)) {
  }
}
inline void cluster_barrier_wait(Barrier* barrier, std::uint32_t parity) { barrier_wait(barrier, parity); }
inline void async_proxy_fence() {}

inline void bulk_copy(void* to, const void* from, std::uint32_t bytes, Barrier* barrier) {
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0 ||
      bytes % 16 != 0) {
    emulated::fail("a misaligned bulk copy");
  }
  std::memset(to, 0xEE, bytes);  // nobody may read it any more, nor yet
  emulated::later([=] {
    std::memcpy(to, from, bytes);
    mbarrier(barrier)->complete(bytes);
  });
}

inline void copy_quad(float4* to, const float4* from) {
  if (reinterpret_cast<std::uintptr_t>(to) % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0) {
    emulated::fail("a misaligned copy");
  }
  std::memset(to, 0xEE, sizeof *to);
  emulated::current->copies.push_back([=] { *to = *from; });
}
inline void copy_score(float* to, const float* from) {
  std::memset(to, 0xEE, sizeof *to);
  emulated::current->copies.push_back([=] { *to = *from; });
}
inline void barrier_arrive_behind_copies(Barrier* barrier) {
  emulated::later([barrier, copies = std::exchange(emulated::current->copies, {})] {
    for (const std::function<void()>& copy : copies) copy();
    mbarrier(barrier)->arrive(0);
  });
}

// Of shared memory of the cluster: the rank in the highest byte.
inline std::uint32_t cluster_address(const void* pointer, int rank) {
  return static_cast<std::uint32_t>(emulated::offset(pointer)) | static_cast<std::uint32_t>(rank) << 24;
}
inline void* cluster_memory(const emulated::Cluster& cluster, std::uint32_t address) {
  return cluster.ctas[address >> 24]->shared + (address & 0xFFFFFF);
}
inline void remote_store(std::uint32_t address, std::uint64_t value, std::uint32_t barrier) {
  emulated::later([=, cluster = emulated::current->cta->cluster] {
    std::memcpy(cluster_memory(*cluster, address), &value, sizeof value);
    mbarrier(cluster_memory(*cluster, barrier))->complete(sizeof value);
  });
}

inline void cluster_arrive() {
  emulated::Cluster* const cluster = emulated::current->cta->cluster;
  emulated::Meeting& meeting = cluster->meeting;
  emulated::current->cluster_generation = meeting.generation;
  if (++meeting.arrived < static_cast<int>(cluster->ctas.size() * 32 * cluster->ctas[0]->warps.size())) return;
  meeting.arrived = 0;
  ++meeting.generation;
}
inline void cluster_arrive_relaxed() { cluster_arrive(); }
inline void cluster_wait() {
  const emulated::Meeting& meeting = emulated::current->cta->cluster->meeting;
  const unsigned passed = emulated::current->cluster_generation;
  if (meeting.generation == passed) emulated::wait(meeting, passed);
}
inline void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_PTX_CUH_
