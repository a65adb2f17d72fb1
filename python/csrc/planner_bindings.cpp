// SPDX-License-Identifier: Apache-2.0
//
// hpc._core: the planner, devices, and the CPU back end on numpy arrays. hpc/_core.pyi holds the signatures.

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "csrc/operands.h"
#include "hpctopk/topk.h"

namespace py = pybind11;

namespace {

using hpctopk::Arguments;
using hpctopk::DeviceInfo;
using hpctopk::Plan;
using hpctopk::PlanOptions;
using hpctopk::Problem;
using hpctopk::Statistics;
using hpctopk::python::ArgumentError;
using hpctopk::python::arguments_of;
using hpctopk::python::kernel_of;
using hpctopk::python::Operand;
using hpctopk::python::Operands;
using hpctopk::python::problem_of;
using hpctopk::python::require;

DeviceInfo named_device(const std::string& name) {
  DeviceInfo device;
  require(hpctopk::named_device(name.c_str(), &device));
  return device;
}

DeviceInfo cuda_device(int ordinal) {
  DeviceInfo device;
  require(hpctopk::query_device(ordinal, &device));
  return device;
}

const char* name_of(hpctopk::View view) {
  switch (view) {
    case hpctopk::View::kNone:
      return "none";
    case hpctopk::View::kStrided:
      return "strided";
    default:
      return "hashed";
  }
}

py::dict make_plan(std::int64_t num_rows, std::int64_t num_columns, std::int64_t row_stride, std::int64_t k,
                   const DeviceInfo& device, const std::string& kernel) {
  Problem problem;
  problem.num_rows = num_rows;
  problem.num_columns = num_columns;
  problem.row_stride = row_stride;
  problem.k = hpctopk::python::k_of(k);
  PlanOptions options;
  options.kernel = kernel_of(kernel);
  Plan plan;
  require(hpctopk::make_plan(problem, device, options, &plan));

  std::string text(hpctopk::describe(plan, nullptr, 0), '\0');
  hpctopk::describe(plan, text.data(), text.size() + 1);
  py::list candidates;
  for (std::int32_t i = 0; i < plan.num_candidates; ++i) {
    const hpctopk::Candidate& candidate = plan.candidates[i];
    candidates.append(py::dict(py::arg("kernel") = hpctopk::to_string(candidate.kernel),
                               py::arg("feasible") = candidate.feasible, py::arg("cost_us") = candidate.cost_us,
                               py::arg("note") = candidate.note));
  }
  const hpctopk::SamplePolicy& sample = plan.policy.sample;
  return py::dict(
      py::arg("problem") =
          py::dict(py::arg("num_rows") = plan.problem.num_rows, py::arg("num_columns") = plan.problem.num_columns,
                   py::arg("row_stride") = plan.problem.row_stride, py::arg("k") = plan.problem.k),
      py::arg("kernel") = hpctopk::to_string(plan.kernel),
      py::arg("sample") = py::dict(py::arg("view") = name_of(sample.view), py::arg("stride") = sample.stride,
                                   py::arg("chunk") = sample.chunk, py::arg("rank_margin") = sample.rank_margin,
                                   py::arg("rescue_margin") = sample.rescue_margin, py::arg("sigmas") = sample.sigmas),
      py::arg("digits") = plan.policy.digits == hpctopk::Digits::kFixed ? "fixed" : "normalised",
      py::arg("grid") = plan.grid, py::arg("block") = plan.block, py::arg("ctas_per_row") = plan.ctas_per_row,
      py::arg("cluster_size") = plan.cluster_size, py::arg("programmatic_dependence") = plan.programmatic_dependence,
      py::arg("candidate_capacity") = plan.candidate_capacity, py::arg("shared_bytes") = plan.shared_bytes,
      py::arg("workspace_bytes") = hpctopk::workspace_size(plan), py::arg("candidates") = candidates,
      py::arg("text") = text);
}

// The most that any kernel needs for this shape, at any row stride.
std::size_t workspace_size(std::int64_t num_rows, std::int64_t num_columns, std::int64_t k, const DeviceInfo& device) {
  Problem problem;
  problem.num_rows = num_rows;
  problem.num_columns = num_columns;
  problem.k = hpctopk::python::k_of(k);
  Plan plan;
  require(hpctopk::make_plan(problem, device, {}, &plan));
  std::size_t most = hpctopk::workspace_size(plan);
  constexpr std::int64_t kVector = 32;  // elements: a stride that suits every vector load
  for (const std::int64_t stride : {num_columns, num_columns | 1, (num_columns + kVector - 1) / kVector * kVector}) {
    problem.row_stride = stride;
    for (int i = 0; i < hpctopk::kNumKernels; ++i) {
      PlanOptions options;
      options.kernel = static_cast<hpctopk::Kernel>(i);
      if (!hpctopk::make_plan(problem, device, options, &plan).ok()) continue;  // cannot serve this shape
      most = std::max(most, hpctopk::workspace_size(plan));
    }
  }
  return most;
}

// Holds the array and the text that its operand borrows.
class Array {
 public:
  Array(const char* name, const py::array& array) : dtype_(py::str(array.dtype())) {
    operand_.name = name;
    operand_.dtype = dtype_.c_str();
    operand_.item_bytes = array.itemsize();
    operand_.rank = array.ndim();
    for (py::ssize_t d = 0; d < 2 && d < array.ndim(); ++d) {
      operand_.shape[d] = array.shape(d);
      operand_.strides[d] = array.strides(d);
    }
    operand_.data = const_cast<void*>(array.data());
  }

  const Operand& operand() const { return operand_; }

 private:
  std::string dtype_;
  Operand operand_;
};

std::optional<Array> array_of(const char* name, const std::optional<py::array>& array) {
  if (!array) return std::nullopt;
  return std::optional<Array>(std::in_place, name, *array);
}

std::optional<Operand> operand_of(const std::optional<Array>& array) {
  if (!array) return std::nullopt;
  return array->operand();
}

py::tuple topk(const py::array& scores, std::int64_t k, const std::optional<py::array>& lengths,
               const std::optional<py::array>& row_starts, const std::optional<py::array>& num_rows,
               std::optional<py::array> out, std::optional<py::array> workspace, const std::string& kernel,
               int num_threads) {
  const Array scores_array("scores", scores);
  const auto lengths_array = array_of("lengths", lengths);
  const auto row_starts_array = array_of("row_starts", row_starts);
  const auto num_rows_array = array_of("num_rows", num_rows);
  Operands operands;
  operands.scores = scores_array.operand();
  operands.lengths = operand_of(lengths_array);
  operands.row_starts = operand_of(row_starts_array);
  operands.num_rows = operand_of(num_rows_array);
  const Problem problem = problem_of(operands.scores, k);
  if (num_threads < 0) hpctopk::python::refuse("threads", std::to_string(num_threads), "at least 0");

  PlanOptions options;
  options.kernel = kernel_of(kernel);
  Plan plan;
  require(hpctopk::make_plan(problem, hpctopk::cpu_device(), options, &plan));
  arguments_of(operands, problem);  // before anything is allocated

  if (!out) {
    out = py::array_t<std::int32_t>({problem.num_rows, std::int64_t{problem.k}});
    if (num_rows) out->attr("fill")(-1);  // rows past num_rows: nobody else writes them
  }
  if (!out->writeable()) hpctopk::python::refuse("out.flags.writeable", "False", "True");
  if (!workspace) {
    workspace = py::array_t<std::uint8_t>(static_cast<py::ssize_t>(hpctopk::workspace_size(plan)));
  }
  const Array out_array("out", *out);
  const Array workspace_array("workspace", *workspace);
  operands.out = out_array.operand();
  operands.workspace = workspace_array.operand();

  Arguments arguments = arguments_of(operands, problem);
  Statistics statistics = {};
  arguments.statistics = &statistics;
  {
    const py::gil_scoped_release released;
    require(hpctopk::run_cpu(plan, arguments, num_threads));
  }
  return py::make_tuple(*out, py::make_tuple(statistics.rows, statistics.candidates, statistics.rescued,
                                             statistics.recovered, statistics.tightened, statistics.scores_read));
}

}  // namespace

PYBIND11_MODULE(_core, m) {
  m.attr("__version__") = HPCTOPK_VERSION;
  m.attr("MAX_K") = hpctopk::kMaxK;
  m.attr("KERNELS") = [] {
    py::list names;
    for (int i = 0; i < hpctopk::kNumKernels; ++i) names.append(hpctopk::to_string(static_cast<hpctopk::Kernel>(i)));
    return py::tuple(names);
  }();

  py::register_exception_translator([](std::exception_ptr error) {
    try {
      if (error) std::rethrow_exception(error);
    } catch (const ArgumentError& refused) {
      py::set_error(refused.is_type() ? PyExc_TypeError : PyExc_ValueError, refused.what());
    }
  });

  py::class_<DeviceInfo>(m, "DeviceInfo")
      .def_property_readonly("name", [](const DeviceInfo& device) { return std::string(device.name); })
      .def_readonly("compute_capability", &DeviceInfo::compute_capability)
      .def_readonly("num_sms", &DeviceInfo::num_sms)
      .def_readonly("shared_memory_per_block", &DeviceInfo::shared_memory_per_block)
      .def_readonly("shared_memory_per_sm", &DeviceInfo::shared_memory_per_sm)
      .def_readonly("max_cluster_size", &DeviceInfo::max_cluster_size)
      .def_readonly("l2_bytes", &DeviceInfo::l2_bytes)
      .def_readonly("memory_bandwidth_gbps", &DeviceInfo::memory_bandwidth_gbps);

  m.def("named_device", &named_device, py::arg("name"));
  m.def("cuda_device", &cuda_device, py::arg("ordinal"));
  m.def("make_plan", &make_plan, py::arg("num_rows"), py::arg("num_columns"), py::arg("row_stride"), py::arg("k"),
        py::arg("device"), py::arg("kernel"));
  m.def("workspace_size", &workspace_size, py::arg("num_rows"), py::arg("num_columns"), py::arg("k"),
        py::arg("device"));
  m.def("topk", &topk, py::arg("scores"), py::arg("k"), py::arg("lengths"), py::arg("row_starts"), py::arg("num_rows"),
        py::arg("out"), py::arg("workspace"), py::arg("kernel"), py::arg("num_threads"));
}
