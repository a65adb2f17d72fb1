// SPDX-License-Identifier: Apache-2.0
//
// Stands for kernels/detail/launch.cuh: a launch runs at once.

#ifndef HPCTOPK_KERNELS_DETAIL_LAUNCH_CUH_
#define HPCTOPK_KERNELS_DETAIL_LAUNCH_CUH_

#include "hpctopk/topk.h"
#include "tests/emulated/emulator.h"

namespace hpctopk::detail {

class LaunchConfig {
 public:
  LaunchConfig(const Plan& plan, Stream, bool)
      : grid_(plan.grid), block_(plan.block), shared_bytes_(plan.shared_bytes) {}

  void set_shared_bytes(std::int64_t bytes) { shared_bytes_ = bytes; }
  void set_grid(std::int64_t ctas) { grid_ = ctas; }
  void set_block(std::int32_t threads) { block_ = threads; }
  void set_cluster(int ctas) { cluster_ = ctas; }

  template <class... Parameters, class... Values>
  int launch(void (*kernel)(Parameters...), const Values&... values) {
    emulated::run(static_cast<unsigned>(grid_), static_cast<unsigned>(block_), static_cast<unsigned>(cluster_),
                  static_cast<std::size_t>(shared_bytes_), [&] { kernel(values...); });
    return cudaSuccess;
  }

 private:
  std::int64_t grid_;
  std::int32_t block_;
  int cluster_ = 1;
  std::int64_t shared_bytes_;
};

}  // namespace hpctopk::detail

#endif  // HPCTOPK_KERNELS_DETAIL_LAUNCH_CUH_
