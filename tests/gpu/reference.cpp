// SPDX-License-Identifier: Apache-2.0

#include "tests/gpu/reference.h"

#include <numeric>
#include <sstream>

namespace hpctopk::gpu_test {
namespace {

const char* to_string(Fill fill) {
  constexpr const char* kNames[] = {"normal",
                                    "uniform",
                                    "high",
                                    "low",
                                    "one coarse bin or two",
                                    "one coarse bin",
                                    "16 free bits",
                                    "10 free bits",
                                    "zero",
                                    "+-zero",
                                    "one",
                                    "infinity",
                                    "-infinity",
                                    "NaN",
                                    "denormal",
                                    "below fp16",
                                    "+-FLT_MAX",
                                    "special",
                                    "any bits",
                                    "ascending",
                                    "descending",
                                    "quads",
                                    "levels",
                                    "relu",
                                    "sink and recency"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Fill::kCount));
  return kNames[static_cast<std::size_t>(fill)];
}

const char* to_string(Place place) {
  constexpr const char* kNames[] = {"scattered", "in one run", "every 32nd", "every 64th", "every 128th"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(Place::kCount));
  return kNames[static_cast<std::size_t>(place)];
}

}  // namespace

std::vector<std::int32_t> sorted_reference(const std::vector<float>& row, Window window, std::int32_t k) {
  std::vector<std::int32_t> columns(static_cast<std::size_t>(window.length));
  std::iota(columns.begin(), columns.end(), static_cast<std::int32_t>(window.start));
  const auto taken = static_cast<std::size_t>(std::min<std::int64_t>(k, window.length));
  std::sort(columns.begin(), columns.end(), [&row](std::int32_t i, std::int32_t j) {
    return better(row[static_cast<std::size_t>(i)], i, row[static_cast<std::size_t>(j)], j);
  });
  columns.resize(taken);
  std::sort(columns.begin(), columns.end());
  columns.resize(static_cast<std::size_t>(k), -1);
  return columns;
}

std::string to_string(const Pattern& pattern) {
  std::ostringstream text;
  for (const Layer& layer : {pattern.first, pattern.second}) {
    if (layer.count > 0) text << layer.count << " " << to_string(layer.fill) << ", ";
  }
  text << "rest " << to_string(pattern.rest);
  if (pattern.first.count + pattern.second.count > 0) text << ", " << to_string(pattern.place);
  return text.str();
}

std::string to_string(const Report& report) {
  std::ostringstream text;
  const std::uint32_t kept = std::min(report.count, Report::kKept);
  for (std::uint32_t i = 0; i < kept; ++i) {
    const Finding& f = report.findings[i];
    text << (i == 0 ? "" : "; ");
    switch (f.fault) {
      case Fault::kUnwritten:
        text << "row " << f.row << " slot " << f.slot << " is unwritten";
        break;
      case Fault::kNotInWindow:
        text << "row " << f.row << " slot " << f.slot << " holds " << f.value << ", outside the window";
        break;
      case Fault::kDuplicate:
        text << "row " << f.row << " slot " << f.slot << " repeats column " << f.value;
        break;
      case Fault::kNotLargest:
        text << "row " << f.row << " slot " << f.slot << " holds column " << f.value << ", but column " << f.other
             << " comes before it";
        break;
      case Fault::kShortRow:
        text << "row " << f.row << " (length <= k) slot " << f.slot << " holds " << f.value << ", wanted " << f.other;
        break;
      case Fault::kWrittenOutside:
        text << "element " << f.row << " of out, outside the result, was written with " << f.value;
        break;
      case Fault::kGuard:
        text << "word " << f.row << " beside the workspace was written with " << f.value;
        break;
    }
  }
  if (report.count > kept) text << "; " << report.count - kept << " more";
  return text.str();
}

}  // namespace hpctopk::gpu_test
