// SPDX-License-Identifier: Apache-2.0
// What the header promises of its types and functions: plain values, and no exceptions.
#include <type_traits>
#include <utility>

#include "hpctopk/topk.h"

namespace hpctopk {

static_assert(std::is_trivially_copyable_v<Problem>);
static_assert(std::is_trivially_copyable_v<DeviceInfo>);
static_assert(std::is_trivially_copyable_v<Plan>);
static_assert(std::is_trivially_copyable_v<Arguments>);
static_assert(std::is_trivially_copyable_v<Statistics>);
static_assert(std::is_trivially_copyable_v<Status>);

static_assert(noexcept(Status()));
static_assert(noexcept(Status::error(StatusCode::kOk, " ")));
static_assert(noexcept(query_device(0, nullptr)));
static_assert(noexcept(cpu_device()));
static_assert(noexcept(named_device("", nullptr)));
static_assert(noexcept(to_string(Kernel::kAuto)));
static_assert(noexcept(parse_kernel("", nullptr)));
static_assert(noexcept(default_policy()));
static_assert(noexcept(paper_policy()));
static_assert(noexcept(make_plan(std::declval<Problem>(), std::declval<DeviceInfo>(), {}, nullptr)));
static_assert(noexcept(workspace_size(std::declval<Plan>())));
static_assert(noexcept(describe(std::declval<Plan>(), nullptr, 0)));
static_assert(noexcept(launch(std::declval<Plan>(), std::declval<Arguments>(), nullptr)));
static_assert(noexcept(run_cpu(std::declval<Plan>(), std::declval<Arguments>())));

static_assert(Status().ok() && Status().message()[0] == '\0');

}  // namespace hpctopk
