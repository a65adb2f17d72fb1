// SPDX-License-Identifier: Apache-2.0
//
// Instructions that C++ has no words for.

#ifndef HPCTOPK_KERNELS_DETAIL_PTX_CUH_
#define HPCTOPK_KERNELS_DETAIL_PTX_CUH_

#include <cstdint>

namespace hpctopk::detail {

// Loads of scores that are read once: they pass the L1 cache by.
__device__ __forceinline__ float load_streaming(const float* address) {
  float value;
  asm volatile("ld.global.L1::no_allocate.f32 %0, [%1];" : "=f"(value) : "l"(address));
  return value;
}
__device__ __forceinline__ float4 load_streaming(const float4* address) {
  float4 value;
  asm volatile("ld.global.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "l"(address));
  return value;
}

// A store to device memory through a pointer that was in keep_in_register().
__device__ __forceinline__ void store_global(std::int32_t* address, std::int32_t value) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

// Waits until the kernel in front on the stream has ended and what it wrote can be read, then lets the kernel behind
// begin. Either does nothing where the kernel that it holds back was launched without programmatic dependence.
//
// Every kernel calls it before it ends, and the first of a launch by all threads before they read or write device
// memory, so no kernel ends before the one in front of it has, and after the call not that one alone has ended but all
// in front: nobody else uses the operands or the workspace any more, the launch before on the same ones among them. And
// no kernel begins before all have ended but the one in front of it, which let it in after they had; so the second
// kernel of a launch may use before the call what the first does not: kv_split's merge reads what was written before
// the scan, the ring selects its first row. The kernel behind is let in before this one has written anything: it waits
// for this one's end.
__device__ __forceinline__ void wait_for_kernel_in_front() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Has a line of memory brought to the L2 cache, and its page known.
__device__ __forceinline__ void prefetch(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// The CTA's dynamic shared memory.
__device__ __forceinline__ unsigned char* shared_memory() {
  extern __shared__ __align__(128) unsigned char shared[];
  return shared;
}

// Sets bits kFirst..kFirst + 3 of `mask` for the scores of a quad that are admitted.
template <int kFirst>
__device__ __forceinline__ void admit(const float4& quad, float floor, unsigned* mask) {
  asm("{\n"
      ".reg .pred x, y, z, w;\n"
      "setp.gtu.f32 x, %1, %5;\n"  // greater or unordered
      "setp.gtu.f32 y, %2, %5;\n"
      "setp.gtu.f32 z, %3, %5;\n"
      "setp.gtu.f32 w, %4, %5;\n"
      "@x or.b32 %0, %0, %6;\n"
      "@y or.b32 %0, %0, %7;\n"
      "@z or.b32 %0, %0, %8;\n"
      "@w or.b32 %0, %0, %9;\n"
      "}"
      : "+r"(*mask)
      : "f"(quad.x), "f"(quad.y), "f"(quad.z), "f"(quad.w), "f"(floor), "n"(1U << kFirst), "n"(2U << kFirst),
        "n"(4U << kFirst), "n"(8U << kFirst));
}

// Two scores in fp16, rounded to zero, as unsigned integers in ascending order: all NaNs equal and highest, both zeros
// equal. The first is the lower half.
__device__ __forceinline__ std::uint32_t ordered_halves(float first, float second) {
  std::uint32_t ordered;
  asm("{\n"
      ".reg .b32 halves, zero, signs;\n"
      "mov.b32 zero, 0;\n"
      "cvt.rz.f16x2.f32 halves, %2, %1;\n"
      "add.rn.f16x2 halves, halves, zero;\n"             // -0 becomes +0
      "prmt.b32 signs, halves, 0, 0xBB99;\n"             // of each half, in all its bits
      "lop3.b32 %0, halves, signs, 0x80008000, 0x1E;\n"  // halves ^ (signs | 0x80008000)
      "}"
      : "=r"(ordered)
      : "f"(first), "f"(second));
  return ordered;
}

// The score of an fp16 number, in the lower half of a word.
__device__ __forceinline__ float half_score(std::uint32_t half) {
  float score;
  asm("{\n"
      ".reg .b16 low, high;\n"
      "mov.b32 {low, high}, %1;\n"
      "cvt.f32.f16 %0, low;\n"
      "}"
      : "=f"(score)
      : "r"(half));
  return score;
}

__device__ __forceinline__ float approximate_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

// The barrier of the CTA. Not the aligned form (bar.sync): a warp may reach inline assembly without having reconverged.
template <int kThreads>
__device__ __forceinline__ void barrier_sync() {
  asm volatile("barrier.sync 0, %0;" ::"n"(kThreads) : "memory");
}
template <int kThreads>
__device__ __forceinline__ bool barrier_sync_or(bool value) {
  int any;
  asm volatile(
      "{\n"
      ".reg .pred in, out;\n"
      "setp.ne.s32 in, %1, 0;\n"
      "barrier.red.or.pred out, 0, %2, in;\n"
      "selp.s32 %0, 1, 0, out;\n"
      "}"
      : "=r"(any)
      : "r"(static_cast<int>(value)), "n"(kThreads)
      : "memory");
  return any != 0;
}

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// A place in shared memory where words are stored one after the other, each if a bit of `mask` is set. Predicated.
class SharedCursor {
 public:
  __device__ explicit SharedCursor(const void* pointer) : address_(shared_address(pointer)) {}

  template <unsigned kBit>
  __device__ __forceinline__ void append_if(unsigned mask, std::uint32_t value) {
    asm volatile(
        "{\n"
        ".reg .pred set;\n"
        ".reg .b32 bit;\n"
        "and.b32 bit, %1, %3;\n"
        "setp.ne.u32 set, bit, 0;\n"
        "@set st.shared.u32 [%0], %2;\n"
        "@set add.u32 %0, %0, 4;\n"
        "}"
        : "+r"(address_)
        : "r"(mask), "r"(value), "n"(kBit)
        : "memory");
  }
  template <unsigned kBit>
  __device__ __forceinline__ void append_if(unsigned mask, std::uint32_t first, std::uint32_t second) {
    asm volatile(
        "{\n"
        ".reg .pred set;\n"
        ".reg .b32 bit;\n"
        "and.b32 bit, %1, %4;\n"
        "setp.ne.u32 set, bit, 0;\n"
        "@set st.shared.v2.u32 [%0], {%2, %3};\n"
        "@set add.u32 %0, %0, 8;\n"
        "}"
        : "+r"(address_)
        : "r"(mask), "r"(first), "r"(second), "n"(kBit)
        : "memory");
  }

 private:
  std::uint32_t address_;
};

// The thread's index in its CTA, read again each time.
__device__ __forceinline__ int read_thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}
// The index of the highest bit that is set; `word` is not 0.
__device__ __forceinline__ int highest_bit(unsigned word) {
  int bit;
  asm("bfind.u32 %0, %1;" : "=r"(bit) : "r"(word));
  return bit;
}
// A value, and where there is a lane `distance` lanes below this one, its value added.
__device__ __forceinline__ int plus_lane_below(int value, int distance) {
  asm volatile(
      "{\n"
      ".reg .pred is_there;\n"
      ".reg .s32 below;\n"
      "shfl.sync.up.b32 below|is_there, %0, %1, 0, 0xFFFFFFFF;\n"
      "@is_there add.s32 %0, %0, below;\n"
      "}"
      : "+r"(value)
      : "r"(distance));
  return value;
}

// Adds one to a counter in shared memory where `condition` says. Predicated: several are under way at once.
__device__ __forceinline__ void count_if(bool condition, int* counter) {
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.s32 add, %0, 0;\n"
      "@add red.shared.add.u32 [%1], 1;\n"
      "}"
      :
      : "r"(static_cast<int>(condition)), "r"(shared_address(counter))
      : "memory");
}
// Adds to a counter in shared memory where `condition` says; returns what it was. Predicated: several are under way at
// once, and the lanes' terms are not summed before.
__device__ __forceinline__ int add_if(bool condition, int* counter, int term) {
  int before = 0;
  asm volatile(
      "{\n"
      ".reg .pred add;\n"
      "setp.ne.s32 add, %1, 0;\n"
      "@add atom.shared.add.u32 %0, [%2], %3;\n"
      "}"
      : "+r"(before)
      : "r"(static_cast<int>(condition)), "r"(shared_address(counter)), "r"(term)
      : "memory");
  return before;
}
__device__ __forceinline__ int add_one_if(bool condition, int* counter) { return add_if(condition, counter, 1); }

// Quads and composites in shared memory by 32-bit addresses, which the compiler does not take apart.
class SharedQuads {
 public:
  __device__ explicit SharedQuads(const float4* quads) : address_(shared_address(quads)) {}
  __device__ __forceinline__ float4 operator[](int quad) const {
    float4 value;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
                 : "r"(address_ + static_cast<unsigned>(sizeof(float4)) * static_cast<unsigned>(quad))
                 : "memory");
    return value;
  }
  __device__ __forceinline__ float score(int i) const {
    float value;
    asm volatile("ld.shared.f32 %0, [%1];"
                 : "=f"(value)
                 : "r"(address_ + static_cast<unsigned>(sizeof(float)) * static_cast<unsigned>(i))
                 : "memory");
    return value;
  }

 private:
  std::uint32_t address_;
};
class SharedComposites {
 public:
  __device__ explicit SharedComposites(const std::uint64_t* composites) : address_(shared_address(composites)) {}
  __device__ __forceinline__ void append(std::uint64_t composite) {
    asm volatile("st.shared.u64 [%0], %1;" ::"r"(address_), "l"(composite) : "memory");
    address_ += sizeof composite;
  }

 private:
  std::uint32_t address_;
};

// Has the compiler take a value for one that it cannot compute again.
__device__ __forceinline__ void keep_in_register(int* value) { asm volatile("" : "+r"(*value)); }
__device__ __forceinline__ void keep_in_register(std::int32_t** value) { asm volatile("" : "+l"(*value)); }

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// An mbarrier: a phase ends when all arrivals have come and all announced bytes have landed.
using Barrier = std::uint64_t;

__device__ __forceinline__ void barrier_init(Barrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Before another barrier_init().
__device__ __forceinline__ void barrier_invalidate(Barrier* barrier) {
  asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barrier_arrive(Barrier* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
__device__ __forceinline__ void barrier_arrive_expect(Barrier* barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
               : "memory");
}
// Whether the phase of this parity has ended.
__device__ __forceinline__ bool barrier_test(Barrier* barrier, std::uint32_t parity) {
  std::uint32_t ended;
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "mbarrier.test_wait.parity.shared.b64 ended, [%1], %2;\n"
      "selp.u32 %0, 1, 0, ended;\n"
      "}"
      : "=r"(ended)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return ended != 0;
}
// The same; waits a little for it.
__device__ __forceinline__ bool barrier_try_wait(Barrier* barrier, std::uint32_t parity) {
  std::uint32_t ended;
  asm volatile(
      "{\n"
      ".reg .pred ended;\n"
      "mbarrier.try_wait.parity.shared.b64 ended, [%1], %2;\n"
      "selp.u32 %0, 1, 0, ended;\n"
      "}"
      : "=r"(ended)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return ended != 0;
}
__device__ __forceinline__ void barrier_wait(Barrier* barrier, std::uint32_t parity) {
  while (!barrier_try_wait(barrier, parity)) {
  }
}

// Lets bulk copies overwrite shared memory that the CTA has written otherwise.
__device__ __forceinline__ void async_proxy_fence() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Copies `bytes` (a multiple of 16, both addresses 16-byte aligned) of scores to shared memory, counted by `barrier`.
// They are read once, and leave the L2 cache before everything else does: what is written stays there meanwhile.
__device__ __forceinline__ void bulk_copy(void* to, const void* from, std::uint32_t bytes, Barrier* barrier) {
  constexpr std::uint64_t kEvictFirst = 0x12F0000000000000;  // as createpolicy.fractional.L2::evict_first gives it
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(kEvictFirst)
      : "memory");
}

// Copies a quad to shared memory, and has `barrier` count an arrival of the thread, one that it expects, when all that
// the thread has begun to copy so has landed.
__device__ __forceinline__ void copy_quad(float4* to, const float4* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_score(float* to, const float* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ __forceinline__ void barrier_arrive_behind_copies(Barrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier)) : "memory");
}

// A place in the shared memory of a CTA of the cluster, and a store there that counts its bytes at a barrier of that
// CTA.
__device__ __forceinline__ std::uint32_t cluster_address(const void* pointer, int rank) {
  std::uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(pointer)), "r"(rank));
  return address;
}
__device__ __forceinline__ void remote_store(std::uint32_t address, std::uint64_t value, std::uint32_t barrier) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(address),
               "l"(value), "r"(barrier)
               : "memory");
}
// As barrier_wait() for arrivals from other CTAs of the cluster.
__device__ __forceinline__ void cluster_barrier_wait(Barrier* barrier, std::uint32_t parity) {
  std::uint32_t ended;
  do {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%1], %2;\n"
        "selp.u32 %0, 1, 0, ended;\n"
        "}"
        : "=r"(ended)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
  } while (ended == 0);
}

// The barrier of a thread-block cluster: what a thread wrote before it, its members read after it.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
// The same where what was written has been ordered otherwise: does not wait for what the thread has under way.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
__device__ __forceinline__ void cluster_sync() {
  cluster_arrive();
  cluster_wait();
}
#endif

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_PTX_CUH_
