// SPDX-License-Identifier: Apache-2.0

#include "src/cpu/vector_loops.h"

namespace hpctopk::cpu {

extern const VectorLoops portable;
extern const VectorLoops avx2;
extern const VectorLoops avx512;

VectorLoopsList available_vector_loops() noexcept {
  VectorLoopsList list{};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("x86-64-v4")) list.loops[list.count++] = &avx512;
  if (__builtin_cpu_supports("x86-64-v3")) list.loops[list.count++] = &avx2;
#endif
  list.loops[list.count++] = &portable;
  return list;
}

}  // namespace hpctopk::cpu
