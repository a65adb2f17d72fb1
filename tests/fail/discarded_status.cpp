// SPDX-License-Identifier: Apache-2.0
// A Status may not be dropped.
#include "hpctopk/topk.h"

void select(const hpctopk::Plan& plan, const hpctopk::Arguments& arguments) { hpctopk::run_cpu(plan, arguments); }
