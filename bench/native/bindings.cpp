// SPDX-License-Identifier: Apache-2.0
//
// hpc._bench: launches with a policy and a split of the caller's choice, and the timing of graphs. Device memory,
// streams and graphs are torch's and come as addresses; bench/hpc_bench keeps them alive and checks their shapes.

#include <cuda_runtime_api.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "bench/native/kernels.h"
#include "hpctopk/topk.h"

namespace py = pybind11;

namespace {

using Address = std::uintptr_t;

void require(const hpctopk::Status& status) {
  if (status.ok()) return;
  if (status.code() == hpctopk::StatusCode::kCudaError) throw std::runtime_error(status.message());
  throw py::value_error(status.message());
}

void require(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

template <typename T>
T* pointer(Address address) {
  return reinterpret_cast<T*>(address);
}

cudaStream_t stream_of(Address stream) { return reinterpret_cast<cudaStream_t>(stream); }

// A keyword of `changes` and the field of a policy that it sets.
template <typename Field>
void change(const py::dict& changes, const char* name, Field* field) {
  if (changes.contains(name)) *field = changes[name].cast<Field>();
}

// The same for a field whose values have names, in the order of the enumeration.
template <typename Field>
void change(const py::dict& changes, const char* name, const std::vector<std::string>& values, Field* field) {
  if (!changes.contains(name)) return;
  const auto wanted = changes[name].cast<std::string>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != wanted) continue;
    *field = static_cast<Field>(i);
    return;
  }
  throw py::value_error("policy." + std::string(name) + " = " + wanted + ": has no such value");
}

// "default" or "paper" with fields of its own: {"view": "strided", "stride": 64, "rescue_margin": 1.5}. make_plan()
// checks their ranges.
hpctopk::Policy make_policy(const std::string& base, const py::dict& changes) {
  if (base != "default" && base != "paper") throw py::value_error("policy = " + base + ": must be default or paper");
  hpctopk::Policy policy = base == "paper" ? hpctopk::paper_policy() : hpctopk::default_policy();
  change(changes, "view", {"none", "strided", "hashed"}, &policy.sample.view);
  change(changes, "stride", &policy.sample.stride);
  change(changes, "min_samples", &policy.sample.min_samples);
  change(changes, "max_samples", &policy.sample.max_samples);
  change(changes, "chunk", &policy.sample.chunk);
  change(changes, "rank_margin", &policy.sample.rank_margin);
  change(changes, "rescue_margin", &policy.sample.rescue_margin);
  change(changes, "sigmas", &policy.sample.sigmas);
  change(changes, "digits", {"fixed", "normalised"}, &policy.digits);
  change(changes, "pipeline", {"loads", "bulk"}, &policy.pipeline);
  return policy;
}

// A plan and its launches.
class Selection {
 public:
  Selection(std::int64_t num_rows, std::int64_t num_columns, std::int64_t row_stride, std::int32_t k,
            const std::string& kernel, const std::string& policy, const py::dict& changes, std::int32_t ctas_per_row,
            int device) {
    hpctopk::Problem problem;
    problem.num_rows = num_rows;
    problem.num_columns = num_columns;
    problem.row_stride = row_stride;
    problem.k = k;
    hpctopk::DeviceInfo info;
    require(hpctopk::query_device(device, &info));
    const hpctopk::Policy wanted = make_policy(policy, changes);
    hpctopk::PlanOptions options;
    require(hpctopk::parse_kernel(kernel.c_str(), &options.kernel));
    options.policy = &wanted;
    options.ctas_per_row = ctas_per_row;
    require(hpctopk::make_plan(problem, info, options, &plan_));
  }

  void launch(Address scores, Address lengths, Address out, Address workspace, std::size_t workspace_bytes,
              Address statistics, Address stream) const {
    hpctopk::Arguments arguments;
    arguments.scores = pointer<const float>(scores);
    arguments.lengths = pointer<const std::int32_t>(lengths);
    arguments.out = pointer<std::int32_t>(out);
    arguments.workspace = pointer<void>(workspace);
    arguments.workspace_bytes = workspace_bytes;
    arguments.statistics = pointer<hpctopk::Statistics>(statistics);
    require(hpctopk::launch(plan_, arguments, stream_of(stream)));
  }

  std::size_t workspace_bytes() const { return hpctopk::workspace_size(plan_); }

  py::dict describe() const {
    double cost_us = 0;
    for (std::int32_t i = 0; i < plan_.num_candidates; ++i) {
      if (plan_.candidates[i].kernel == plan_.kernel) cost_us = plan_.candidates[i].cost_us;
    }
    return py::dict(py::arg("kernel") = hpctopk::to_string(plan_.kernel), py::arg("grid") = plan_.grid,
                    py::arg("block") = plan_.block, py::arg("ctas_per_row") = plan_.ctas_per_row,
                    py::arg("cluster_size") = plan_.cluster_size, py::arg("stages") = plan_.stages,
                    py::arg("shared_bytes") = plan_.shared_bytes, py::arg("workspace_bytes") = workspace_bytes(),
                    py::arg("cost_us") = cost_us);
  }

 private:
  hpctopk::Plan plan_;
};

void read_memory(Address data, std::int64_t bytes, int blocks, Address sink, Address stream) {
  require(hpctopk::bench::launch_read(pointer<const void>(data), bytes, blocks, pointer<std::uint32_t>(sink),
                                      stream_of(stream)),
          "read kernel");
}

std::size_t sort_rows(Address scores, Address begins, Address ends, Address sorted_scores, Address columns,
                      Address sorted_columns, Address out, std::int32_t num_rows, std::int32_t row_stride,
                      std::int32_t k, Address temporary, std::size_t temporary_bytes, Address stream) {
  hpctopk::bench::SortRows rows;
  rows.scores = pointer<const float>(scores);
  rows.begins = pointer<const std::int32_t>(begins);
  rows.ends = pointer<const std::int32_t>(ends);
  rows.sorted_scores = pointer<float>(sorted_scores);
  rows.columns = pointer<const std::int32_t>(columns);
  rows.sorted_columns = pointer<std::int32_t>(sorted_columns);
  rows.out = pointer<std::int32_t>(out);
  rows.num_rows = num_rows;
  rows.row_stride = row_stride;
  rows.k = k;
  require(hpctopk::bench::sort_rows(rows, pointer<void>(temporary), &temporary_bytes, stream_of(stream)), "CUB's sort");
  return temporary_bytes;
}

class Event {
 public:
  Event() { require(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Microseconds of each of `rounds` replays of `timed`, each right after a replay of `before`. While the device works on
// `before` the host enqueues the rest of the round, so that no launch latency falls between the events.
std::vector<double> replay(Address before, Address timed, int rounds, Address stream) {
  const auto before_graph = reinterpret_cast<cudaGraphExec_t>(before);
  const auto timed_graph = reinterpret_cast<cudaGraphExec_t>(timed);
  std::vector<Event> begins(static_cast<std::size_t>(rounds));
  std::vector<Event> ends(static_cast<std::size_t>(rounds));
  for (std::size_t r = 0; r < begins.size(); ++r) {
    require(cudaGraphLaunch(before_graph, stream_of(stream)), "cudaGraphLaunch");
    require(cudaEventRecord(begins[r].get(), stream_of(stream)), "cudaEventRecord");
    require(cudaGraphLaunch(timed_graph, stream_of(stream)), "cudaGraphLaunch");
    require(cudaEventRecord(ends[r].get(), stream_of(stream)), "cudaEventRecord");
  }
  require(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
  std::vector<double> microseconds;
  for (std::size_t r = 0; r < begins.size(); ++r) {
    float milliseconds = 0;
    require(cudaEventElapsedTime(&milliseconds, begins[r].get(), ends[r].get()), "cudaEventElapsedTime");
    microseconds.push_back(1e3 * static_cast<double>(milliseconds));
  }
  return microseconds;
}

// Versions as CUDA counts them: 13000 is 13.0.
py::dict cuda_versions() {
  int runtime = 0;
  int driver = 0;
  require(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  require(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  return py::dict(py::arg("runtime") = runtime, py::arg("driver") = driver);
}

}  // namespace

PYBIND11_MODULE(_bench, module) {
  module.doc() = "What `hpc bench` runs on the GPU: see bench/README.md.";
  py::class_<Selection>(module, "Selection")
      .def(py::init<std::int64_t, std::int64_t, std::int64_t, std::int32_t, const std::string&, const std::string&,
                    const py::dict&, std::int32_t, int>(),
           py::arg("num_rows"), py::arg("num_columns"), py::arg("row_stride"), py::arg("k"), py::kw_only(),
           py::arg("kernel"), py::arg("policy"), py::arg("changes") = py::dict(), py::arg("ctas_per_row"),
           py::arg("device"))
      .def("launch", &Selection::launch, py::kw_only(), py::arg("scores"), py::arg("lengths"), py::arg("out"),
           py::arg("workspace"), py::arg("workspace_bytes"), py::arg("statistics"), py::arg("stream"))
      .def_property_readonly("workspace_bytes", &Selection::workspace_bytes)
      .def("describe", &Selection::describe);
  module.def("read", &read_memory, py::arg("data"), py::arg("bytes"), py::arg("blocks"), py::arg("sink"),
             py::arg("stream"));
  module.def("sort_rows", &sort_rows, py::kw_only(), py::arg("scores"), py::arg("begins"), py::arg("ends"),
             py::arg("sorted_scores"), py::arg("columns"), py::arg("sorted_columns"), py::arg("out"),
             py::arg("num_rows"), py::arg("row_stride"), py::arg("k"), py::arg("temporary"), py::arg("temporary_bytes"),
             py::arg("stream"));
  module.def("replay", &replay, py::arg("before"), py::arg("timed"), py::arg("rounds"), py::arg("stream"),
             py::call_guard<py::gil_scoped_release>());
  module.def("cuda_versions", &cuda_versions);
  module.def("cub_version", &hpctopk::bench::cub_version);
}
