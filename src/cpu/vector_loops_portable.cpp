// SPDX-License-Identifier: Apache-2.0
#define HPCTOPK_VECTOR_LOOPS portable
#include "src/cpu/vector_loops.inc"
