// SPDX-License-Identifier: Apache-2.0
//
// How functions are compiled that few rows come to.

#ifndef HPCTOPK_KERNELS_DETAIL_RARE_CUH_
#define HPCTOPK_KERNELS_DETAIL_RARE_CUH_

// Out of line, so that they cost the other rows no registers. But what lives through such a call goes to memory and
// back once a row, and while all of memory's time is taken that is a cost, so a kernel that has registers to spare
// defines this as __forceinline__ before it includes anything. They take their arguments by value either way: what is
// passed by reference to a function out of line is kept in memory.
#ifndef HPCTOPK_RARE
#define HPCTOPK_RARE __noinline__
#endif

#endif  // HPCTOPK_KERNELS_DETAIL_RARE_CUH_
