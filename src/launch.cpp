// SPDX-License-Identifier: Apache-2.0

#include "hpctopk/topk.h"
#include "kernels/kernels.h"
#include "src/check_arguments.h"
#include "src/device.h"

namespace hpctopk {
namespace {

#ifdef HPCTOPK_HAS_CUDA
constexpr bool kHasKernels = true;

int enqueue(const Plan& plan, const Arguments& arguments, Stream stream) {
  switch (plan.kernel) {
    case Kernel::kPersistent:
      return kernels::launch_persistent(plan, arguments, stream);
    case Kernel::kKvSplit:
      return kernels::launch_kv_split(plan, arguments, stream);
    case Kernel::kCluster:
      return kernels::launch_cluster(plan, arguments, stream);
    default:  // kRowLocal and kFallback: one body, two geometries
      return kernels::launch_row_local(plan, arguments, stream);
  }
}
#else
constexpr bool kHasKernels = false;

int enqueue(const Plan&, const Arguments&, Stream) { return 0; }
#endif

bool launches(Kernel kernel) {
  return kernel == Kernel::kPersistent || kernel == Kernel::kKvSplit || kernel == Kernel::kRowLocal ||
         kernel == Kernel::kCluster || kernel == Kernel::kFallback;
}

}  // namespace

Status launch(const Plan& plan, const Arguments& arguments, Stream stream) noexcept {
  if (plan.kernel == Kernel::kCpu) {
    return Status::error(StatusCode::kUnsupported, "plan.kernel = cpu: launch() takes GPU plans, run_cpu() this one");
  }
  if (Status status = check_arguments(plan, arguments); !status.ok()) return status;
  if (!kHasKernels || !launches(plan.kernel)) {
    return Status::error(StatusCode::kUnsupported, "plan.kernel = %s: this build has no such kernel",
                         to_string(plan.kernel));
  }
  if (plan.problem.num_rows == 0) return {};
  if (const int error = enqueue(plan, arguments, stream); error != 0) {
    return Status::error(StatusCode::kCudaError, "launch of the %s kernel: %s", to_string(plan.kernel),
                         cuda_error_text(error));
  }
  return {};
}

}  // namespace hpctopk
