// SPDX-License-Identifier: Apache-2.0
//
// The rules of the contract that a call's operands must obey, checked on the host without reading what they point to.

#ifndef HPCTOPK_SRC_CHECK_ARGUMENTS_H_
#define HPCTOPK_SRC_CHECK_ARGUMENTS_H_

#include "hpctopk/topk.h"

namespace hpctopk {

// The first rule that a problem breaks.
Status check_problem(const Problem& problem) noexcept;

// The first rule that a policy breaks.
Status check_policy(const Policy& policy) noexcept;

// The first rule that the problem or the policy of a plan breaks, should somebody have edited it, or the operands of
// `plan` break: null, misaligned, too small or overlapping.
Status check_arguments(const Plan& plan, const Arguments& arguments) noexcept;

}  // namespace hpctopk

#endif  // HPCTOPK_SRC_CHECK_ARGUMENTS_H_
