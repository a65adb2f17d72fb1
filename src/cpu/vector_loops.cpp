// SPDX-License-Identifier: Apache-2.0

#include "src/cpu/vector_loops.h"

namespace hpctopk::cpu {

extern const VectorLoops portable;
extern const VectorLoops avx2;
extern const VectorLoops avx512;

VectorLoopsList available_vector_loops() noexcept {
  VectorLoopsList list{};
#if defined(__x86_64__)  // the features that src/CMakeLists.txt lets each variant use
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
                        __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx2 && has_avx512) list.loops[list.count++] = &avx512;
  if (has_avx2) list.loops[list.count++] = &avx2;
#endif
  list.loops[list.count++] = &portable;
  return list;
}

}  // namespace hpctopk::cpu
