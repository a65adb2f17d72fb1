// SPDX-License-Identifier: Apache-2.0

#include "tests/emulated/emulator.h"

#include <sys/mman.h>

#if !defined(__x86_64__)
#error "fibers are switched in the words of x86-64"
#endif

// Saves what a callee must keep on this stack, and goes on where another stack left off.
extern "C" void hpctopk_switch_stack(void** from, void* to);
asm(R"(
.text
hpctopk_switch_stack:
  pushq %rbx
  pushq %rbp
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbp
  popq %rbx
  ret
)");

namespace emulated {

Thread* current = nullptr;
unsigned grid_size = 0;
std::function<void()> kernel_in_front;

namespace {

constexpr std::size_t kStackBytes = 128 << 10;
constexpr std::size_t kGuardBytes = 256;
constexpr std::size_t kMostSharedBytes = 232448;  // of an H200
constexpr int kMostRounds = 1000000;              // of all threads: some thousands are usual

void* scheduler_stack;
const std::function<void()>* body;
std::vector<std::function<void()>> pending;
std::mt19937 rng(1);

void enter() {
  (*body)();
  current->done = true;
  hpctopk_switch_stack(&current->stack_pointer, scheduler_stack);
  fail("a thread that had ended ran on");
}

void prepare_stack(Thread* thread, std::size_t which) {
  static std::vector<char*> stacks;  // kept for the next launch
  while (stacks.size() <= which) {
    void* const stack =
        mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) fail("no memory for stacks");
    stacks.push_back(static_cast<char*>(stack));
  }
  void** top = reinterpret_cast<void**>(stacks[which] + kStackBytes);
  *--top = nullptr;
  *--top = reinterpret_cast<void*>(enter);
  for (int i = 0; i < 6; ++i) *--top = nullptr;  // the registers that a switch restores
  thread->stack_pointer = top;
}

bool one_of(unsigned n) { return rng() % n == 0; }

// Lets about one of `n` operations that are under way happen.
bool run_pending(unsigned n) {
  const bool any = !pending.empty();
  for (std::size_t i = 0; i < pending.size();) {
    if (!one_of(n)) {
      ++i;
      continue;
    }
    const std::function<void()> operation = std::move(pending[i]);
    pending[i] = std::move(pending.back());
    pending.pop_back();
    operation();
  }
  return any;
}

void run_cluster(unsigned first, unsigned block, unsigned size, std::size_t shared_bytes) {
  Cluster cluster;
  std::vector<Cta> ctas(size);
  for (unsigned rank = 0; rank < size; ++rank) {
    Cta& cta = ctas[rank];
    cta.memory.assign(shared_bytes + 2 * kGuardBytes, 0xCD);
    const auto address = reinterpret_cast<std::uintptr_t>(cta.memory.data());
    cta.shared = cta.memory.data() + (kGuardBytes - address % kGuardBytes);
    std::memset(cta.shared + shared_bytes, 0xAB, kGuardBytes);
    cta.warps.resize(block / 32);
    cta.block = first + rank;
    cta.rank = static_cast<int>(rank);
    cta.cluster = &cluster;
    cluster.ctas.push_back(&cta);
  }
  std::vector<Thread> threads(std::size_t{size} * block);
  for (std::size_t i = 0; i < threads.size(); ++i) {
    threads[i].index = static_cast<unsigned>(i % block);
    threads[i].cta = &ctas[i / block];
    prepare_stack(&threads[i], i);
  }
  std::vector<std::size_t> warps(threads.size() / 32);
  for (std::size_t i = 0; i < warps.size(); ++i) warps[i] = i;

  const unsigned latency = one_of(2) ? 3 : one_of(8) ? 1000 : 50;  // of operations under way
  std::size_t left = threads.size();
  std::size_t slow = 0;  // a warp that falls behind
  for (int round = 0; left > 0; ++round) {
    if (round == kMostRounds) fail("%zu of %zu threads have not ended after %d rounds", left, threads.size(), round);
    bool ran = false;
    if (one_of(8)) {
      std::shuffle(warps.begin(), warps.end(), rng);
      slow = rng() % warps.size();
    }
    for (const std::size_t warp : warps) {
      if (warp == slow && !one_of(16)) {
        ran = true;
        continue;
      }
      for (std::size_t i = 32 * warp; i < 32 * (warp + 1); ++i) {
        Thread& thread = threads[i];
        if (thread.done || (thread.waits_for != nullptr && *thread.waits_for == thread.passed)) continue;
        current = &thread;
        hpctopk_switch_stack(&scheduler_stack, thread.stack_pointer);
        ran = true;
        if (thread.done) --left;
      }
    }
    ran |= run_pending(latency);
    if (!ran) fail("%zu of %zu threads wait for each other", left, threads.size());
  }
  if (!pending.empty()) fail("%zu copies to shared memory are under way at its end", pending.size());
  for (const Cta& cta : ctas) {
    for (std::size_t i = 0; i < kGuardBytes; ++i) {
      if (cta.shared[shared_bytes + i] != 0xAB) fail("written beyond the shared memory");
    }
  }
}

}  // namespace

void fail(const char* format, ...) {
  std::va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  std::abort();
}

void yield() { hpctopk_switch_stack(&current->stack_pointer, scheduler_stack); }

void later(std::function<void()> operation) { pending.push_back(std::move(operation)); }

void run(unsigned grid, unsigned block, unsigned cluster, std::size_t shared_bytes,
         const std::function<void()>& kernel) {
  if (shared_bytes > kMostSharedBytes) fail("%zu bytes of shared memory", shared_bytes);
  body = &kernel;
  grid_size = grid;
  for (unsigned first = 0; first < grid; first += cluster) run_cluster(first, block, cluster, shared_bytes);
}

}  // namespace emulated
