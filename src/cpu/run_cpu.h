// SPDX-License-Identifier: Apache-2.0

#ifndef HPCTOPK_SRC_CPU_RUN_CPU_H_
#define HPCTOPK_SRC_CPU_RUN_CPU_H_

#include "hpctopk/topk.h"
#include "src/cpu/vector_loops.h"

namespace hpctopk::cpu {

// run_cpu() with a given variant of the loops. Every variant and every number of threads selects the same set.
Status run(const Plan& plan, const Arguments& arguments, int num_threads, const VectorLoops& loops) noexcept;

}  // namespace hpctopk::cpu

#endif  // HPCTOPK_SRC_CPU_RUN_CPU_H_
