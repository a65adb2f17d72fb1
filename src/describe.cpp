// SPDX-License-Identifier: Apache-2.0
//
// Names and plans as text.

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "hpctopk/topk.h"
#include "kernels/detail/view.h"
#include "kernels/kernels.h"

namespace hpctopk {
namespace {

constexpr const char* kKernelNames[kNumKernels] = {"auto",    "persistent", "kv_split", "row_local",
                                                   "cluster", "fallback",   "cpu"};

// Appends to a buffer of fixed size, and counts on where it is full.
class Writer {
 public:
  Writer(char* text, std::size_t size) : text_(text), size_(text != nullptr ? size : 0) {}

  __attribute__((format(printf, 2, 3))) void print(const char* format, ...) {
    std::va_list arguments;
    va_start(arguments, format);
    const bool room = length_ < size_;
    const int written = std::vsnprintf(room ? text_ + length_ : nullptr, room ? size_ - length_ : 0, format, arguments);
    va_end(arguments);
    if (written > 0) length_ += static_cast<std::size_t>(written);
  }

  std::size_t length() const { return length_; }

 private:
  char* text_;
  std::size_t size_;
  std::size_t length_ = 0;
};

// Samples of a row as long as the matrix is wide, as the kernel takes them of the hashed view; 0: such rows are too
// short for one.
std::int32_t hashed_samples(const Plan& plan) {
  const SamplePolicy& sample = plan.policy.sample;
  const auto columns = static_cast<std::int32_t>(plan.problem.num_columns);
  if (plan.kernel == Kernel::kCluster && plan.stages != 0) {
    const std::int32_t quads = kernels::sampled_quads(columns, plan.cluster_size);
    return detail::quad_view(plan, kernels::kClusterBlock, quads).hashed.samples;
  }
  const detail::HashedView view =
      plan.stages != 0 ? detail::register_view(sample, columns, columns / 4, plan.problem.k, plan.block).hashed
                       : detail::hashed_view(sample, columns, columns / 4, plan.problem.k);
  return view.usable() ? view.samples : 0;
}

void print_sample(const Plan& plan, Writer* writer) {
  const SamplePolicy& sample = plan.policy.sample;
  switch (sample.view) {
    case View::kNone:
      writer->print("  sample        none: the boundary comes from the whole row\n");
      break;
    case View::kStrided:
      writer->print("  sample        strided: every %d-th score; boundaries at rank %.2f k and %.2f k\n", sample.stride,
                    static_cast<double>(sample.rank_margin), static_cast<double>(sample.rescue_margin));
      break;
    case View::kHashed:
      writer->print(
          "  sample        hashed: %d of a full row's scores, in runs of %d; boundary %.1f sigmas below rank k\n",
          hashed_samples(plan), sample.chunk, static_cast<double>(sample.sigmas));
      break;
  }
}

// Why this kernel: the least cost, with the next one for comparison, or somebody's wish.
void print_reason(const Plan& plan, int num_candidates, Writer* writer) {
  const Candidate* chosen = nullptr;
  const Candidate* best_other = nullptr;
  for (int i = 0; i < num_candidates; ++i) {
    const Candidate& candidate = plan.candidates[i];
    if (candidate.kernel == plan.kernel) {
      chosen = &candidate;
    } else if (candidate.feasible && (best_other == nullptr || candidate.cost_us < best_other->cost_us)) {
      best_other = &candidate;
    }
  }
  if (chosen == nullptr) return;
  if (best_other == nullptr) {
    writer->print("  why           the one kernel that can serve: %.1f us by the model\n", chosen->cost_us);
  } else if (chosen->cost_us <= best_other->cost_us) {
    writer->print("  why           the least time by the model: %.1f us; next %s, %.1f us\n", chosen->cost_us,
                  to_string(best_other->kernel), best_other->cost_us);
  } else {
    writer->print("  why           asked for; the planner would take %s (%.1f us)\n", to_string(best_other->kernel),
                  best_other->cost_us);
  }
}

}  // namespace

const char* to_string(Kernel kernel) noexcept {
  const auto i = static_cast<std::int32_t>(kernel);
  return i >= 0 && i < kNumKernels ? kKernelNames[i] : "unknown";
}

Status parse_kernel(const char* name, Kernel* kernel) noexcept {
  if (kernel == nullptr) return Status::error(StatusCode::kInvalidArgument, "kernel = null: must point to a Kernel");
  for (int i = 0; name != nullptr && i < kNumKernels; ++i) {
    if (std::strcmp(name, kKernelNames[i]) == 0) {
      *kernel = static_cast<Kernel>(i);
      return {};
    }
  }
  return Status::error(StatusCode::kInvalidArgument,
                       "kernel = %.64s: must be one of auto, persistent, kv_split, row_local, cluster, fallback, cpu",
                       name != nullptr ? name : "null");
}

std::size_t describe(const Plan& plan, char* text, std::size_t size) noexcept {
  Writer writer(text, size);
  const int num_candidates = std::min(std::max(plan.num_candidates, 0), kNumKernels);
  const Problem& problem = plan.problem;
  writer.print("rows %lld, columns %lld, row stride %lld, k %d\n", static_cast<long long>(problem.num_rows),
               static_cast<long long>(problem.num_columns), static_cast<long long>(problem.row_stride), problem.k);
  writer.print("  device        %s\n", plan.device_name);
  writer.print("  kernel        %s\n", to_string(plan.kernel));
  print_reason(plan, num_candidates, &writer);
  if (plan.kernel == Kernel::kCpu) {
    writer.print("  launch        %d thread(s)\n", plan.grid);
  } else {
    writer.print("  launch        grid %d, block %d, CTAs a row %d, cluster %d\n", plan.grid, plan.block,
                 plan.ctas_per_row, plan.cluster_size);
    writer.print("  shared memory %lld bytes a CTA, room for %d candidates\n",
                 static_cast<long long>(plan.shared_bytes), plan.candidate_capacity);
  }
  writer.print("  workspace     %lld bytes\n", static_cast<long long>(plan.workspace_bytes));
  print_sample(plan, &writer);
  writer.print("  refinement    %s digits\n", plan.policy.digits == Digits::kFixed ? "11 + 11 + 10 bit" : "normalised");
  writer.print("  candidates (modelled with an H200's constants: the order matters, not the time)\n");
  for (int i = 0; i < num_candidates; ++i) {
    const Candidate& candidate = plan.candidates[i];
    const char* mark = candidate.kernel == plan.kernel ? "*" : " ";
    if (candidate.feasible) {
      writer.print("  %s %-11s %12.1f us  %s\n", mark, to_string(candidate.kernel), candidate.cost_us, candidate.note);
    } else {
      writer.print("  %s %-11s %12s     %s\n", mark, to_string(candidate.kernel), "-", candidate.note);
    }
  }
  return writer.length();
}

}  // namespace hpctopk
