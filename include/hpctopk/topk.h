// SPDX-License-Identifier: Apache-2.0
//
// hpctopk: exact top-k of long, ragged float32 score rows. The one public header.
//
// Contract
//   Scores are a row-major float32 matrix [num_rows, num_columns]. Neighbouring rows lie `row_stride` elements apart
//   (>= num_columns), and the base needs only the 4-byte alignment of a float. Row r holds valid scores in the window
//   [start, start + length): `lengths[r]` is clamped to [0, num_columns - start] where the row is read, `row_starts[r]`
//   is clamped to [0, num_columns] and is 0 when absent. Rows of the output at and past `num_rows[0]`, when given, are
//   not touched. Scores outside of a window, and of rows at and past `num_rows[0]`, may be read, but are never used:
//   all num_columns of all num_rows rows have to be readable memory.
//
//   The result of row r is the set of columns that hold its k largest scores, as k int32 in no particular order. A row
//   with length <= k gets start, start + 1, ..., start + length - 1 and then -1.
//
//   Order of scores: every NaN is equal and ranks above +infinity, -0.0 equals +0.0, -infinity inside the window is a
//   score like any other. Equal scores at the boundary are taken from the lowest column up. So the selected set depends
//   on the row alone: not on the other rows, the plan, the device or the back end.
//
//   launch() enqueues work on a stream and returns. It never allocates, synchronises, reads device memory, queries the
//   device or reads the environment, so a stream capture may hold it, and a replay with other scores, lengths and row
//   counts is right. The workspace may hold anything before a launch, must not be shared by launches that can overlap,
//   and never exceeds kMaxWorkspaceBytes.
//
// Errors are values: every function that can refuse returns a Status and throws nothing.

#ifndef HPCTOPK_TOPK_H_
#define HPCTOPK_TOPK_H_

#include <cstddef>
#include <cstdint>

#if defined(__GNUC__) || defined(__clang__)
#define HPCTOPK_API __attribute__((visibility("default")))
#else
#define HPCTOPK_API
#endif

struct CUstream_st;  // the type behind cudaStream_t; no CUDA header is needed to call this library

namespace hpctopk {

using Stream = CUstream_st*;

inline constexpr std::int32_t kMaxK = 4096;
inline constexpr std::int64_t kMaxColumns = (std::int64_t{1} << 31) - 1;  // columns are returned as int32
inline constexpr std::size_t kMaxWorkspaceBytes = std::size_t{16} << 20;

// ---------------------------------------------------------------------------------------------------------------------
// Status

enum class StatusCode : std::int32_t {
  kOk = 0,
  kInvalidArgument,  // an argument breaks a rule of the contract
  kUnsupported,      // the request is legal, but this kernel, device or build cannot serve it
  kOutOfMemory,      // the CPU back end could not get scratch memory
  kCudaError,        // the CUDA runtime refused a launch
};

// The outcome of a call. A message names the argument, its value and what is allowed, in one line.
class [[nodiscard]] Status {
 public:
  constexpr Status() noexcept = default;
  HPCTOPK_API static Status error(StatusCode code, const char* format, ...) noexcept
#if defined(__GNUC__) || defined(__clang__)
      __attribute__((format(printf, 2, 3)))
#endif
      ;

  constexpr bool ok() const noexcept { return code_ == StatusCode::kOk; }
  constexpr StatusCode code() const noexcept { return code_; }
  constexpr const char* message() const noexcept { return message_; }

 private:
  StatusCode code_ = StatusCode::kOk;
  char message_[252] = {};
};

// ---------------------------------------------------------------------------------------------------------------------
// What is asked, and of which device

// The shape of a call: everything about it that is known before capture.
struct Problem {
  std::int64_t num_rows = 0;     // M >= 0
  std::int64_t num_columns = 0;  // N, the allocated width, 0..kMaxColumns
  std::int64_t row_stride = 0;   // elements between rows, >= num_columns; 0 means num_columns
  std::int32_t k = 0;            // 1..kMaxK
};

// What the planner needs to know of a device. compute_capability 0 is the CPU.
struct DeviceInfo {
  char name[64] = {};
  std::int32_t compute_capability = 0;       // 10 * major + minor, e.g. 90
  std::int32_t num_sms = 0;                  // multiprocessors; CPU: hardware threads
  std::int32_t shared_memory_per_block = 0;  // bytes a block may opt in to
  std::int32_t shared_memory_per_sm = 0;     // bytes
  std::int32_t max_cluster_size = 1;         // CTAs; 1 where the device has no clusters
  std::int64_t l2_bytes = 0;                 // bytes
  double memory_bandwidth_gbps = 0;          // 1e9 bytes/s a plain read kernel reaches, or the datasheet's
};

// The device `ordinal` of this process. Fails with kUnsupported in a build without CUDA.
HPCTOPK_API Status query_device(int ordinal, DeviceInfo* device) noexcept;

// The processor this process runs on.
HPCTOPK_API DeviceInfo cpu_device() noexcept;

// A device by name ("a100", "h20", "h100", "h200", "b200", "rtx5090", "cpu"), for planning without one.
HPCTOPK_API Status named_device(const char* name, DeviceInfo* device) noexcept;

// ---------------------------------------------------------------------------------------------------------------------
// Plan

// A mapping answers who owns a row (paper, section 5.5).
enum class Kernel : std::int32_t {
  kAuto = 0,    // let the planner choose
  kPersistent,  // one CTA owns many rows in turn; sampled boundary (section 4.5)
  kKvSplit,     // several CTAs share a row and meet in memory (section 4.5)
  kRowLocal,    // one CTA a row, in registers up to 16,384 columns, else read twice (section 5.5)
  kCluster,     // a thread-block cluster shares a row (section 5.5)
  kFallback,    // the direct exact body that every shape and device can run (section 5.5)
  kCpu,         // the CPU back end
};
inline constexpr int kNumKernels = 7;

HPCTOPK_API const char* to_string(Kernel kernel) noexcept;  // "auto", "persistent", "kv_split", ...
HPCTOPK_API Status parse_kernel(const char* name, Kernel* kernel) noexcept;

// Where a sample is read from (section 4.2).
enum class View : std::int32_t {
  kNone,     // no sample: the boundary comes from the whole row
  kStrided,  // every stride-th score from a row-dependent phase, the paper's view
  kHashed,   // one chunk at a hashed place in each stratum: cheap in memory transactions, blind to any period
};

// How Phase 1 proposes a boundary. A boundary's requested complete-row rank is rank_margin * k (strided view), or the
// rank that leaves `sigmas` standard deviations of sampling error (hashed view), or more where the sample shows that
// the row's neighbours are alike, as in text, so that it says less than as many independent scores.
struct SamplePolicy {
  View view = View::kHashed;
  std::int32_t stride = 32;          // scores of the row for each sample
  std::int32_t min_samples = 4096;   // hashed view: shorter rows are sampled more densely, down to every fourth score
  std::int32_t max_samples = 16384;  // hashed view: longer rows are sampled more thinly
  std::int32_t chunk = 16;           // hashed view: consecutive samples, a power of two from 4 to 256
  float rank_margin = 1.5F;          // strided view: rho, the primary boundary's rank / k
  float rescue_margin = 1.75F;       // strided view: the secondary boundary's rank / k
  float sigmas = 4.0F;  // hashed view: the primary boundary's margin; the secondary's is half as much again
};

// How Phase 3 splits the ordered key into digits (section 4.4).
enum class Digits : std::int32_t {
  kFixed,       // 11 + 11 + 10 bits of the key, the paper's
  kNormalised,  // 11 bits of what is left of the key range: typical rows end after one histogram
};

// How the sampled mappings bring scores to the scan (section 5.3).
enum class Pipeline : std::int32_t {
  kLoads,  // vector loads by the threads that scan, the paper's
  kBulk,   // bulk copies to shared memory, under way before the boundary is known; kLoads where the device has none
};

struct Policy {
  SamplePolicy sample;
  Digits digits = Digits::kNormalised;
  Pipeline pipeline = Pipeline::kBulk;
};

HPCTOPK_API Policy default_policy() noexcept;
// Stride-128 phase view, 1.5k / 1.75k boundaries, 11+11+10 digits, vector loads.
HPCTOPK_API Policy paper_policy() noexcept;

struct PlanOptions {
  Kernel kernel = Kernel::kAuto;   // anything else forces that kernel, or is refused with the reason
  const Policy* policy = nullptr;  // null: default_policy()
  std::int32_t ctas_per_row = 0;   // kv_split, cluster: CTAs that share a row; 0: the planner's choice
};

// One mapping the planner looked at.
struct Candidate {
  Kernel kernel = Kernel::kAuto;
  bool feasible = false;
  double cost_us = 0;   // the model's estimate, microseconds
  char note[104] = {};  // why it costs that, or why it cannot serve the problem
};

// A launch, decided. Trivially copyable; describe() prints it. To be passed on as make_plan() made it: a launch checks
// the problem and the policy again, but not the geometry.
struct Plan {
  Problem problem;
  char device_name[64] = {};  // DeviceInfo::name
  Kernel kernel = Kernel::kAuto;
  Policy policy;
  std::int32_t grid = 0;                 // CTAs; threads of a CPU plan
  std::int32_t block = 0;                // threads of a CTA
  std::int32_t ctas_per_row = 1;         // parts of a row
  std::int32_t cluster_size = 1;         // CTAs of a cluster
  bool programmatic_dependence = false;  // the device can begin a kernel before the one in front of it has ended
  std::int32_t stages = 0;               // not 0: bulk copies bring the scores to shared memory; 0: vector loads
  std::int32_t candidate_capacity = 0;   // (key, index) pairs a CTA can hold
  std::int64_t shared_bytes = 0;         // dynamic shared memory of a CTA
  std::int64_t shared_limit = 0;         // and what the device grants one at most
  std::int64_t workspace_bytes = 0;
  std::int32_t num_candidates = 0;
  Candidate candidates[kNumKernels];
};

// Chooses a kernel and its geometry. Pure: the same inputs give the same plan on every machine.
HPCTOPK_API Status make_plan(const Problem& problem, const DeviceInfo& device, const PlanOptions& options,
                             Plan* plan) noexcept;

// Bytes of workspace that a launch of this plan needs; at most kMaxWorkspaceBytes, and 0 for some plans.
HPCTOPK_API std::size_t workspace_size(const Plan& plan) noexcept;

// The plan as text: the chosen kernel, why, what it costs and needs, and what was not chosen. Writes at most `size`
// bytes with the terminating zero and returns the length of the whole text.
HPCTOPK_API std::size_t describe(const Plan& plan, char* text, std::size_t size) noexcept;

// ---------------------------------------------------------------------------------------------------------------------
// Launch

// Counters of one or more launches, added to atomically. All in rows, but for `candidates` and `scores_read`.
struct Statistics {
  std::uint64_t rows;         // rows selected from (length > k)
  std::uint64_t candidates;   // scores admitted by the boundary that was certified
  std::uint64_t rescued;      // rows that the secondary boundary completed (section 4.3)
  std::uint64_t recovered;    // rows that needed the exact coarse boundary (section 4.3)
  std::uint64_t tightened;    // times a full candidate buffer was cut to its k best
  std::uint64_t scores_read;  // scores read by passes over rows, rescans included; by the CPU kernel's samples too
};

// The operands of a call. For a GPU plan every pointer is a device pointer, for a CPU plan a host pointer.
struct Arguments {
  const float* scores = nullptr;             // [num_rows, num_columns], rows row_stride apart
  const std::int32_t* lengths = nullptr;     // [num_rows]; null: num_columns - start for every row
  const std::int32_t* row_starts = nullptr;  // [num_rows]; null: 0
  const std::int32_t* num_rows = nullptr;    // [1], clamped to [0, problem.num_rows]; null: problem.num_rows
  std::int32_t* out = nullptr;               // [num_rows, k], rows out_row_stride apart
  std::int64_t out_row_stride = 0;           // elements, >= k; 0 means k
  void* workspace = nullptr;                 // 16-byte aligned, workspace_size(plan) bytes
  std::size_t workspace_bytes = 0;
  Statistics* statistics = nullptr;  // null: not counted

  // Programmatic dependent launch: the first kernel may begin while the kernel in front of it on the stream still runs,
  // once all CTAs of that one have triggered it. It reads no operand and writes nothing until that one has ended, so
  // the kernel in front may write all operands after its trigger. A kernel in front that was itself launched so must
  // wait for its own predecessor (griddepcontrol.wait). Without effect below compute capability 9.0; false for a CPU
  // plan.
  //
  // Whether set or not, a kernel behind that is launched so may begin once all of this launch have, and must wait
  // before it touches an operand.
  bool programmatic_dependent = false;
};

// Enqueues a GPU plan on `stream`. The current device must be the one the plan was made for.
HPCTOPK_API Status launch(const Plan& plan, const Arguments& arguments, Stream stream) noexcept;

// Runs a CPU plan on up to `num_threads` threads (0: as many as the plan's device has) and returns when it is done.
HPCTOPK_API Status run_cpu(const Plan& plan, const Arguments& arguments, int num_threads = 0) noexcept;

}  // namespace hpctopk

#endif  // HPCTOPK_TOPK_H_
