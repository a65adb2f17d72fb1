// SPDX-License-Identifier: Apache-2.0

#ifndef HPCTOPK_SRC_DEVICE_H_
#define HPCTOPK_SRC_DEVICE_H_

namespace hpctopk {

// The CUDA runtime's words for an error code.
const char* cuda_error_text(int code) noexcept;

}  // namespace hpctopk

#endif  // HPCTOPK_SRC_DEVICE_H_
