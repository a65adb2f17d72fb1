// SPDX-License-Identifier: Apache-2.0
//
// The kernels without a GPU: every thread of a CTA, and of the CTAs of a cluster, is a fiber of one host thread, and
// the schedule is random. Warps run far apart and bulk copies land late, so that what is not ordered by a barrier comes
// in the wrong order sooner or later; a barrier that not all threads reach is reported and not waited for. What it does
// not show: anything of time, and orders of memory that the fences of the machine are for.
//
// Included before everything else into the kernels' sources, which are compiled as C++. The words of CUDA follow below;
// overlay/ has the headers that stand for those with PTX and for the launch.

#ifndef HPCTOPK_TESTS_EMULATED_EMULATOR_H_
#define HPCTOPK_TESTS_EMULATED_EMULATOR_H_

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

// All standard headers of the kernels and of emulator.cpp come before __noinline__ is a macro: they spell an attribute
// so.
#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <type_traits>
#include <utility>
#include <vector>

namespace emulated {

// Ends the process with a message, which a test expects of no kernel.
[[noreturn]] void fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

// Where threads wait: for another generation.
struct Meeting {
  unsigned generation = 0;
  int arrived = 0;
};

struct Warp {
  Meeting meeting;
  std::uint64_t in[32], out[32];
};

struct NamedBarrier {
  Meeting meeting;
  bool any = false;
  bool result = false;
};

struct Cluster;

struct Cta {
  std::vector<unsigned char> memory;
  unsigned char* shared = nullptr;
  NamedBarrier barriers[16];
  std::vector<Warp> warps;
  unsigned block = 0;
  int rank = 0;
  Cluster* cluster = nullptr;
};

struct Cluster {
  std::vector<Cta*> ctas;
  Meeting meeting;
};

struct Thread {
  void* stack_pointer = nullptr;
  unsigned index = 0;
  Cta* cta = nullptr;
  bool done = false;
  const unsigned* waits_for = nullptr;  // a generation other than `passed`
  unsigned passed = 0;
  unsigned cluster_generation = 0;            // at its arrival
  std::vector<std::function<void()>> copies;  // begun and not yet behind a barrier
};

extern Thread* current;
extern unsigned grid_size;

// What the kernel in front on the stream does last: done when the first thread waits for its end.
extern std::function<void()> kernel_in_front;
inline void wait_for_kernel_in_front() {
  if (kernel_in_front) std::exchange(kernel_in_front, nullptr)();
}

// Lets other threads run.
void yield();

// Has `operation` done at some later time, as a copy engine does.
void later(std::function<void()> operation);

// Runs a grid. Shared memory begins as garbage.
void run(unsigned grid, unsigned block, unsigned cluster, std::size_t shared_bytes,
         const std::function<void()>& kernel);

inline void wait(const Meeting& meeting, unsigned passed) {
  current->waits_for = &meeting.generation;
  current->passed = passed;
  yield();
  current->waits_for = nullptr;
}

// The last of `threads` to come goes on and releases the others; whether this was the last.
template <class Act>
void meet(Meeting* meeting, int threads, const Act& act) {
  if (++meeting->arrived == threads) {
    act();
    meeting->arrived = 0;
    ++meeting->generation;
  } else {
    wait(*meeting, meeting->generation);
  }
}

// What all lanes of the warp put in.
inline const std::uint64_t* exchange(std::uint64_t value) {
  Warp& warp = current->cta->warps[current->index / 32];
  warp.in[current->index % 32] = value;
  meet(&warp.meeting, 32, [&] { std::memcpy(warp.out, warp.in, sizeof warp.out); });
  return warp.out;
}

inline bool barrier(int id, int threads, bool value = false) {
  NamedBarrier& barrier = current->cta->barriers[id];
  barrier.any |= value;
  meet(&barrier.meeting, threads, [&] {
    barrier.result = barrier.any;
    barrier.any = false;
  });
  return barrier.result;
}

inline int offset(const void* shared) {
  const auto bytes = static_cast<const unsigned char*>(shared) - current->cta->shared;
  if (bytes < 0 || bytes >= static_cast<std::ptrdiff_t>(current->cta->memory.size())) fail("not in shared memory");
  return static_cast<int>(bytes);
}

template <class T>
std::uint64_t bits(T value) {
  std::uint64_t result = 0;
  std::memcpy(&result, &value, sizeof value);
  return result;
}
template <class T>
T unbits(std::uint64_t value) {
  T result;
  std::memcpy(&result, &value, sizeof result);
  return result;
}

struct Index {
  unsigned x;
};
inline Index thread_index() { return {current->index}; }
inline Index block_index() { return {current->cta->block}; }
inline Index grid_dimension() { return {grid_size}; }

}  // namespace emulated

#define threadIdx (emulated::thread_index())
#define blockIdx (emulated::block_index())
#define gridDim (emulated::grid_dimension())
#define __launch_bounds__(...)
#define __noinline__ __attribute__((noinline))
#undef __forceinline__
#define __forceinline__ inline

template <class A, class B>
std::common_type_t<A, B> min(A a, B b) {
  using Common = std::common_type_t<A, B>;
  return static_cast<Common>(b) < static_cast<Common>(a) ? static_cast<Common>(b) : static_cast<Common>(a);
}
template <class A, class B>
std::common_type_t<A, B> max(A a, B b) {
  using Common = std::common_type_t<A, B>;
  return static_cast<Common>(a) < static_cast<Common>(b) ? static_cast<Common>(b) : static_cast<Common>(a);
}

inline int lane_of_current() { return static_cast<int>(emulated::current->index % 32); }

template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return emulated::unbits<T>(emulated::exchange(emulated::bits(value))[lane & 31]);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulated::unbits<T>(emulated::exchange(emulated::bits(value))[lane_of_current() ^ mask]);
}
template <class T>
T __shfl_up_sync(unsigned, T value, int distance) {
  const std::uint64_t* const all = emulated::exchange(emulated::bits(value));
  const int lane = lane_of_current();
  return emulated::unbits<T>(all[lane >= distance ? lane - distance : lane]);
}
inline unsigned __ballot_sync(unsigned, bool value) {
  const std::uint64_t* const all = emulated::exchange(value ? 1 : 0);
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= static_cast<unsigned>(all[i]) << i;
  return result;
}
inline unsigned __match_any_sync(unsigned, unsigned value) {
  const std::uint64_t* const all = emulated::exchange(value);
  unsigned result = 0;
  for (int i = 0; i < 32; ++i) result |= static_cast<unsigned>(all[i] == value) << i;
  return result;
}
inline bool __any_sync(unsigned mask, bool value) { return __ballot_sync(mask, value) != 0; }
inline void __syncwarp() { emulated::exchange(0); }

template <class T, class Combine>
T reduce(T value, const Combine& combine) {
  const std::uint64_t* const all = emulated::exchange(emulated::bits(value));
  T result = emulated::unbits<T>(all[0]);
  for (int i = 1; i < 32; ++i) result = combine(result, emulated::unbits<T>(all[i]));
  return result;
}
inline unsigned __reduce_min_sync(unsigned, unsigned value) {
  return reduce(value, [](unsigned a, unsigned b) { return min(a, b); });
}
inline unsigned __reduce_max_sync(unsigned, unsigned value) {
  return reduce(value, [](unsigned a, unsigned b) { return max(a, b); });
}
inline int __reduce_add_sync(unsigned, int value) {
  return reduce(value, [](int a, int b) { return a + b; });
}

inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const std::uint64_t bytes = std::uint64_t{y} << 32 | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= static_cast<unsigned>(bytes >> (selector >> 4 * i & 7) * 8 & 0xFF) << 8 * i;
  return result;
}
inline unsigned __dp4a(unsigned a, unsigned b, unsigned sum) {
  for (int i = 0; i < 32; i += 8) sum += (a >> i & 0xFF) * (b >> i & 0xFF);
  return sum;
}
inline int __ffs(int value) { return __builtin_ffs(value); }
inline int __clz(int value) { return value == 0 ? 32 : __builtin_clz(static_cast<unsigned>(value)); }
inline int __clzll(long long value) {
  return value == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(value));
}

template <class T, class U>
T atomicAdd(T* address, U value) {
  const T old = *address;
  *address = static_cast<T>(old + static_cast<T>(value));
  return old;
}
template <class T, class U>
T atomicMin(T* address, U value) {
  const T old = *address;
  *address = min(old, static_cast<T>(value));
  return old;
}
template <class T, class U>
T atomicMax(T* address, U value) {
  const T old = *address;
  *address = max(old, static_cast<T>(value));
  return old;
}
template <class T, class U>
T atomicExch(T* address, U value) {
  const T old = *address;
  *address = static_cast<T>(value);
  return old;
}
template <class T>
T __ldcg(const T* address) {
  return *address;
}
inline void __trap() { emulated::fail("trap"); }

inline unsigned __clusterRelativeBlockRank() { return static_cast<unsigned>(emulated::current->cta->rank); }
inline unsigned __clusterSizeInBlocks() { return static_cast<unsigned>(emulated::current->cta->cluster->ctas.size()); }
inline void* __cluster_map_shared_rank(void* address, unsigned rank) {
  return emulated::current->cta->cluster->ctas[rank]->shared + emulated::offset(address);
}

template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel*, cudaFuncAttribute, int) {
  return cudaSuccess;
}

#endif  // HPCTOPK_TESTS_EMULATED_EMULATOR_H_
