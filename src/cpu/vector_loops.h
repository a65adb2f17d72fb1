// SPDX-License-Identifier: Apache-2.0
//
// The loops of the CPU back end that live off vector instructions: one source, vector_loops.inc, compiled once for each
// instruction set, and the choice between the results.

#ifndef HPCTOPK_SRC_CPU_VECTOR_LOOPS_H_
#define HPCTOPK_SRC_CPU_VECTOR_LOOPS_H_

#include <cstdint>

namespace hpctopk::cpu {

// Admitted scores of a row or of a segment of it, in ascending column order, and as many keys for kth_largest() to use.
struct Candidates {
  std::uint32_t* keys;
  std::int32_t* columns;
  std::uint32_t* scratch;
  std::int32_t count;
  std::int32_t capacity;
};

// A place for candidates is found for this many scores at once: scan() needs as many free places to go on.
inline constexpr std::int32_t kScanWord = 64;

// The k-th largest of some keys, and how the k largest are cut at it: all keys above, and `owed` of the `ties` equal.
struct Cut {
  std::uint32_t key;
  std::int32_t owed;
  std::int32_t ties;
};

struct VectorLoops {
  const char* name;

  // Replaces the bits of `count` scores by their ordered keys.
  void (*make_keys)(std::uint32_t* scores, std::int32_t count);

  // Appends the columns in [begin, end) of `row` that `floor` admits (see admission_floor) while kScanWord places are
  // free. Returns the first column not looked at.
  std::int64_t (*scan)(const float* row, std::int64_t begin, std::int64_t end, float floor, Candidates* candidates);

  // Finds the k-th largest of `count` >= k >= 1 keys. `scratch` holds `count` keys and may not be `keys`.
  Cut (*kth_largest)(const std::uint32_t* keys, std::int32_t count, std::int32_t k, std::uint32_t* scratch);

  // Keeps what `cut` leaves, in place and in order: of equal keys the first.
  void (*keep)(Candidates* candidates, const Cut& cut);
};

// The variants that this build has and this processor can run, best first.
struct VectorLoopsList {
  const VectorLoops* loops[3];
  int count;
};
VectorLoopsList available_vector_loops() noexcept;

}  // namespace hpctopk::cpu

#endif  // HPCTOPK_SRC_CPU_VECTOR_LOOPS_H_
