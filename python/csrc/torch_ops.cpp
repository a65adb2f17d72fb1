// SPDX-License-Identifier: Apache-2.0
//
// torch.ops.hpc, through libtorch's stable ABI: one binary serves torch 2.10 and every later version, with and without
// CUDA. The kernels are written in the boxed form (an array of StableIValue in, the results out), because torch's own
// unboxing of a string argument leaks it, and an engine calls this once a layer and step.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>

#include "csrc/operands.h"
#include "hpctopk/topk.h"

// libtorch_cuda defines it; a torch without CUDA does not, and has no CUDA tensor that would reach the call.
extern "C" AOTITorchError aoti_torch_get_current_cuda_stream(std::int32_t device_index, void** stream)
    __attribute__((weak));

namespace {

using hpctopk::Arguments;
using hpctopk::DeviceInfo;
using hpctopk::Kernel;
using hpctopk::Plan;
using hpctopk::PlanOptions;
using hpctopk::Problem;
using hpctopk::Statistics;
using hpctopk::python::arguments_of;
using hpctopk::python::Operand;
using hpctopk::python::Operands;
using hpctopk::python::problem_of;
using hpctopk::python::require;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using torch::stable::detail::from;
using torch::stable::detail::to;

// What every overload takes first: scores, lengths, k, row_starts, num_rows, kernel.
struct Call {
  Tensor scores;
  std::optional<Tensor> lengths;
  std::int64_t k;
  std::optional<Tensor> row_starts;
  std::optional<Tensor> num_rows;
  std::unique_ptr<std::remove_pointer_t<StringHandle>, AOTITorchError (*)(StringHandle)> kernel;

  static constexpr int kNumInputs = 6;

  explicit Call(const StableIValue* stack)  // takes what the stack owns
      : scores(to<Tensor>(stack[0])),
        lengths(to<std::optional<Tensor>>(stack[1])),
        k(to<std::int64_t>(stack[2])),
        row_starts(to<std::optional<Tensor>>(stack[3])),
        num_rows(to<std::optional<Tensor>>(stack[4])),
        kernel(to<StringHandle>(stack[5]), torch_delete_string) {}
};

const char* dtype_name(ScalarType type) {
  switch (type) {
    case ScalarType::Float:
      return "float32";
    case ScalarType::Int:
      return "int32";
    case ScalarType::Byte:
      return "uint8";
    case ScalarType::Double:
      return "float64";
    case ScalarType::Half:
      return "float16";
    case ScalarType::BFloat16:
      return "bfloat16";
    case ScalarType::Long:
      return "int64";
    default:
      return torch::headeronly::toString(type);
  }
}

Operand operand_of(const char* name, const Tensor& tensor) {
  Operand operand;
  operand.name = name;
  operand.dtype = dtype_name(tensor.scalar_type());
  if (tensor.is_cuda()) {
    operand.device = "cuda";
    operand.device_index = tensor.get_device_index();
  } else if (!tensor.is_cpu()) {
    operand.device = "another device";
  }
  operand.item_bytes = static_cast<std::int64_t>(tensor.element_size());
  operand.rank = tensor.dim();
  for (std::int64_t d = 0; d < 2 && d < operand.rank; ++d) {
    operand.shape[d] = tensor.size(d);
    operand.strides[d] = tensor.stride(d) * operand.item_bytes;
  }
  operand.data = tensor.data_ptr();
  return operand;
}

std::optional<Operand> operand_of(const char* name, const std::optional<Tensor>& tensor) {
  if (!tensor) return std::nullopt;
  return operand_of(name, *tensor);
}

// Queried once a device, so that no call after the first asks the driver.
const DeviceInfo& device_of(const Operand& scores) {
  static const DeviceInfo cpu = hpctopk::cpu_device();
  if (std::string(scores.device) == "cpu") return cpu;
  constexpr int kMaxDevices = 128;  // torch numbers devices with 8 bits
  static std::array<DeviceInfo, kMaxDevices> devices;
  static std::array<std::once_flag, kMaxDevices> queried;
  const auto i = static_cast<std::size_t>(scores.device_index);
  std::call_once(queried.at(i), [i] { require(hpctopk::query_device(static_cast<int>(i), &devices.at(i))); });
  return devices.at(i);
}

// A call, checked as far as its inputs go, and its plan.
struct Planned {
  Operands operands;
  Plan plan;

  explicit Planned(const Call& call) {
    operands.scores = operand_of("scores", call.scores);
    operands.lengths = operand_of("lengths", call.lengths);
    operands.row_starts = operand_of("row_starts", call.row_starts);
    operands.num_rows = operand_of("num_rows", call.num_rows);
    const char* kernel = nullptr;
    TORCH_ERROR_CODE_CHECK(torch_string_c_str(call.kernel.get(), &kernel));
    PlanOptions options;
    options.kernel = hpctopk::python::kernel_of(kernel);
    const Problem problem = problem_of(operands.scores, call.k);
    require(hpctopk::make_plan(problem, device_of(operands.scores), options, &plan));
    arguments_of(operands, problem);
  }

  void run(const Tensor& out, const Tensor& workspace, Statistics* statistics) {
    operands.out = operand_of("out", out);
    operands.workspace = operand_of("workspace", workspace);
    Arguments arguments = arguments_of(operands, plan.problem);
    arguments.statistics = statistics;
    if (plan.kernel == Kernel::kCpu) {
      require(hpctopk::run_cpu(plan, arguments, static_cast<int>(torch::stable::get_num_threads())));
      return;
    }
    const std::int32_t device = operands.scores.device_index;
    const torch::stable::accelerator::DeviceGuard guard(device);
    void* stream = nullptr;
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_current_cuda_stream(device, &stream));
    require(hpctopk::launch(plan, arguments, static_cast<hpctopk::Stream>(stream)));
  }

  // Rows past num_rows are -1: nobody else has written them.
  Tensor run_and_allocate(const Call& call, Statistics* statistics) {
    const std::int64_t shape[] = {plan.problem.num_rows, plan.problem.k};
    const Tensor out = torch::stable::new_empty(call.scores, {shape, 2}, ScalarType::Int);
    if (call.num_rows) torch::stable::fill_(out, -1);
    const auto bytes = static_cast<std::int64_t>(hpctopk::workspace_size(plan));
    const Tensor workspace = torch::stable::new_empty(call.scores, {&bytes, 1}, ScalarType::Byte);
    run(out, workspace, statistics);
    return out;
  }
};

void topk(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const Call call(stack);
  stack[0] = from(Planned(call).run_and_allocate(call, nullptr));
}

void topk_out(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const Call call(stack);
  const Tensor out = to<Tensor>(stack[Call::kNumInputs]);
  const Tensor workspace = to<Tensor>(stack[Call::kNumInputs + 1]);
  Planned(call).run(out, workspace, nullptr);
}

void topk_counted(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const Call call(stack);
  Planned planned(call);
  static_assert(sizeof(Statistics) == 6 * sizeof(std::int64_t));
  const std::int64_t counters = 6;
  const Tensor statistics = torch::stable::new_zeros(call.scores, {&counters, 1}, ScalarType::Long);
  stack[0] = from(planned.run_and_allocate(call, static_cast<Statistics*>(statistics.mutable_data_ptr())));
  stack[1] = from(statistics);
}

// Which back end runs is read off `scores`. The dispatcher takes CUDA where any operand is there; the check of devices
// then names the one that is not beside the scores.
void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("topk", topk).impl("topk.out", topk_out);
  library.impl("_topk", topk).impl("_topk.out", topk_out);
  library.impl("topk_counted", topk_counted);
}

}  // namespace

// What they take and give is said in hpc/_torch.py, which also decomposes topk into _topk for torch's compiler: a graph
// lowered by inductor cannot hold an operator with an argument named `kernel`, a name its own lowerings use.
STABLE_TORCH_LIBRARY_FRAGMENT(hpc, library) {
  library.def(
      "topk(Tensor scores, Tensor? lengths, int k, Tensor? row_starts=None, Tensor? num_rows=None, "
      "str kernel=\"auto\") -> Tensor");
  library.def(
      "topk.out(Tensor scores, Tensor? lengths, int k, Tensor? row_starts=None, Tensor? num_rows=None, "
      "str kernel=\"auto\", *, Tensor(a!) out, Tensor(b!) workspace) -> ()");
  library.def(
      "_topk(Tensor scores, Tensor? lengths, int k, Tensor? row_starts, Tensor? num_rows, str mapping) -> Tensor");
  library.def(
      "_topk.out(Tensor scores, Tensor? lengths, int k, Tensor? row_starts, Tensor? num_rows, str mapping, *, "
      "Tensor(a!) out, Tensor(b!) workspace) -> ()");
  library.def(
      "topk_counted(Tensor scores, Tensor? lengths, int k, Tensor? row_starts=None, Tensor? num_rows=None, "
      "str mapping=\"auto\") -> (Tensor indices, Tensor statistics)");
}

STABLE_TORCH_LIBRARY_IMPL(hpc, CPU, library) { implement(library); }

STABLE_TORCH_LIBRARY_IMPL(hpc, CUDA, library) { implement(library); }
