// SPDX-License-Identifier: Apache-2.0
#define HPCTOPK_VECTOR_LOOPS avx2
#include "src/cpu/vector_loops.inc"
