// SPDX-License-Identifier: Apache-2.0
// A message's arguments are checked against its format.
#include "hpctopk/topk.h"

hpctopk::Status refuse() {
  return hpctopk::Status::error(hpctopk::StatusCode::kInvalidArgument, "k is %d: must be positive", "zero");
}
