# SPDX-License-Identifier: Apache-2.0
"""Random calls of every kind, held against a stable sort of whole rows: what ``hpc fuzz`` runs.

A case is a call drawn from (seed, number): its shape, strides and bases, its kernel, what its vectors hold, and a
family of values for every row. All that a call may write is poisoned and lies between guards, so that a case sees what
is selected wrongly, what is not written, and what should not have been. Some cases call again with other inputs in the
same buffers; on CUDA that is the replay of a graph.

On device "cpu" a case is the same on every machine; on "cuda" it depends on the kind of GPU too.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from hpc._fuzz_arrays import Call, NumpyArrays, TorchArrays
from hpc._fuzz_values import FAMILIES, Draw
from hpc._plan import plan, workspace_size

__all__ = ["FAMILIES", "MAX_FAILURES", "NumpyArrays", "Report", "TorchArrays", "run"]

POISON = -559038737
MAX_FAILURES = 10  # end a run
_GUARD = 256  # elements before and after out, bytes before and after the workspace, elements after scores
_INT32 = np.iinfo(np.int32)


@dataclass(frozen=True)
class Case:
    """The shape of a call and the kinds of what it is given."""

    kernel: str
    runs: str
    """The kernel that the planner makes of it."""
    rows: int
    columns: int
    row_stride: int
    base: int
    """Elements before the first score."""
    k: int
    out_stride: int
    out_base: int
    """Elements before the first of out, past the guard."""
    workspace_bytes: int
    vectors: tuple[str, ...]
    """Which of lengths, row_starts and num_rows are given."""
    families: tuple[str, ...]
    outside: float | None
    """What stands in a row outside its window; None: what its family gives."""
    threads: int
    """Of the cpu kernel; 0: every hardware thread."""
    rounds: int
    """Calls: one, or another in the same buffers too."""

    def __str__(self) -> str:
        kernel = self.kernel if self.runs == self.kernel else f"{self.kernel} ({self.runs})"
        return (
            f"kernel {kernel}, {self.rows} x {self.columns}, row stride {self.row_stride}, base {self.base}, "
            f"k {self.k}, out stride {self.out_stride}, base {self.out_base}, workspace {self.workspace_bytes}, "
            f"with {', '.join(self.vectors) or 'no vectors'}, {self.threads} threads, {self.rounds} calls"
        )


def _log_uniform(rng: Generator, high: int) -> int:
    """1..high, each magnitude alike."""
    return min(high, int(math.exp(rng.uniform(0, math.log(high + 1)))))


def _draw_case(arrays: NumpyArrays, rng: Generator) -> Case:
    def often(high: int, usual: list[int]) -> int:
        return int(rng.choice(usual)) if rng.random() < 0.5 else _log_uniform(rng, high)

    k = often(4096, [1, 2, 7, 64, 512, 705, 1000, 1024, 2047, 2048, 4096])
    # Around k and around powers of two, where a kernel takes another way.
    edges = [k, 2 * k, 64, *(1 << e for e in range(11, arrays.max_columns.bit_length()))]
    columns = often(arrays.max_columns, [0, *(edge + d for edge in edges for d in range(-2, 4))])
    columns = max(columns, 0)
    most = max(1, (1 << int(rng.integers(10, arrays.max_scores.bit_length()))) // max(columns, 1))
    some = [0, 1, 1, 1, 2, 3, 7, 64, 131, 132, 133, 264, 265]
    rows = min(most, often(arrays.max_rows, [*some, *[arrays.max_rows] * 5]))

    row_stride = columns + int(rng.choice([0, 0, 1, 2, 3, 4, 96, columns]))
    if arrays.far_rows and rows > 1 and rng.random() < 0.005:
        row_stride = max(row_stride, (1 << 31) // (rows - 1) + 1)
    shape: dict[str, Any] = {"row_stride": row_stride if rows > 1 else None, "device": arrays.device}
    chosen = plan(rows, columns, k, **shape)
    kernel = str(rng.choice(["auto", *(candidate.kernel for candidate in chosen.candidates if candidate.feasible)]))
    if kernel != "auto":
        chosen = plan(rows, columns, k, **shape, kernel=kernel)
    return Case(
        kernel=kernel,
        runs=chosen.kernel,
        rows=rows,
        columns=columns,
        row_stride=row_stride,
        base=int(rng.integers(8)),
        k=k,
        out_stride=k + int(rng.choice([0, 0, 1, 3, 64])),
        out_base=int(rng.integers(4)),
        workspace_bytes=int(
            rng.choice([chosen.workspace_bytes, workspace_size(rows, columns, k, device=arrays.device)])
        ),
        vectors=tuple(name for name in ("lengths", "row_starts", "num_rows") if rng.random() < 0.6),
        families=tuple(rng.choice(list(FAMILIES), int(rng.choice([1, 2, len(FAMILIES)])), replace=False).tolist()),
        outside=[None, math.nan, math.inf][rng.integers(3)],
        threads=int(rng.choice([0, 1, 2, 3, 8])),
        rounds=int(rng.choice([1, 1, 1, 2])) if rows > 0 else 1,  # or a graph would be empty
    )


def _draw_vectors(case: Case, rng: Generator) -> dict[str, NDArray[np.int32]]:
    n, k, rows = case.columns, case.k, case.rows
    row = np.arange(rows)

    def one_of(*kinds: Any) -> NDArray[np.int32]:
        values: NDArray[Any] = kinds[rng.integers(len(kinds))]
        return values.clip(_INT32.min, _INT32.max).astype(np.int32)

    return {
        "lengths": one_of(
            np.full(rows, n),
            n - row % (n + 1),
            np.where(row % 2 == 0, k // 2, n),
            rng.integers(0, n + 1, rows),
            rng.integers(0, k + 2, rows),
            rng.choice([_INT32.min, -1, 0, 1, k - 1, k, k + 1, n - 1, n, n + 1, _INT32.max], rows),
        ),
        "row_starts": one_of(
            np.zeros(rows),
            rng.integers(0, 8, rows),
            rng.integers(0, n + 1, rows),
            rng.choice([_INT32.min, -1, 0, 1, n - 1, n, n + 1, _INT32.max], rows),
        ),
        "num_rows": rng.choice([-3, 0, 1, rows // 2, rows - 1, rows, rows, rows + 5], 1).astype(np.int32),
    }


def _matrix(buffer: Any, base: int, rows: int, stride: int, columns: int) -> Any:
    """The view [rows, columns] of a buffer."""
    return buffer[base : base + rows * stride].reshape(rows, stride)[:, :columns]


class _Buffers:
    """The operands of a case amid what surrounds them, in memory that stays while it is filled anew."""

    def __init__(self, arrays: NumpyArrays, case: Case) -> None:
        xp = arrays.xp
        self.arrays, self.case = arrays, case
        self.scores_buffer = arrays.empty(case.base + case.rows * case.row_stride + _GUARD, xp.float32)
        self.scores = _matrix(self.scores_buffer, case.base, case.rows, case.row_stride, case.columns)
        self.out_buffer = arrays.empty(2 * _GUARD + case.out_base + case.rows * case.out_stride, xp.int32)
        self.out = self._out_of(self.out_buffer)
        self.workspace_buffer = arrays.empty(2 * _GUARD + case.workspace_bytes, xp.uint8)
        self.vectors = {name: arrays.empty(1 if name == "num_rows" else case.rows, xp.int32) for name in case.vectors}

    def _out_of(self, buffer: Any) -> Any:
        case = self.case
        return _matrix(buffer, _GUARD + case.out_base, case.rows, case.out_stride, case.k)

    def call(self) -> Call:
        """The arguments."""
        return Call(
            scores=self.scores,
            k=self.case.k,
            lengths=self.vectors.get("lengths"),
            row_starts=self.vectors.get("row_starts"),
            num_rows=self.vectors.get("num_rows"),
            out=self.out,
            workspace=self.workspace_buffer[_GUARD : _GUARD + self.case.workspace_bytes],
            kernel=self.case.kernel,
            threads=self.case.threads,
        )

    def fill(self, rng: Generator) -> None:
        """Draw what a call reads, poison what it may write, and keep what it may not change."""
        arrays, xp, case = self.arrays, self.arrays.xp, self.case
        arrays.seed(int(rng.integers(1 << 62)))
        given = _draw_vectors(case, rng)
        for name, vector in self.vectors.items():
            vector[...] = arrays.array(given[name])
        self.live = min(max(int(given["num_rows"][0]), 0), case.rows) if "num_rows" in self.vectors else case.rows
        everywhere = np.zeros(case.rows, np.int64)
        self.start = np.clip(given["row_starts"] if "row_starts" in self.vectors else everywhere, 0, case.columns)
        left = case.columns - self.start.astype(np.int64)
        self.length = np.clip(given["lengths"] if "lengths" in self.vectors else left, 0, left)

        self.scores_buffer[...] = math.nan
        self.family = rng.integers(len(case.families), size=case.rows)
        for i, name in enumerate(case.families):
            rows = np.flatnonzero(self.family == i)
            if rows.size > 0 and case.columns > 0:
                self.scores[arrays.array(rows)] = FAMILIES[name](Draw(arrays, rng, rows.size, case.columns, case.k))
        column = arrays.arange(case.columns)
        start, length = arrays.array(self.start)[:, None], arrays.array(self.length)[:, None]
        self.inside = (column >= start) & (column < start + length)
        if case.outside is not None:
            self.scores[...] = xp.where(self.inside, self.scores, case.outside)

        self.out_buffer[...] = POISON
        size = self.workspace_buffer.shape[0]
        noise = arrays.bits(1, size // 4 + 1).reshape(-1).view(xp.uint8)[:size]
        self.workspace_buffer[...] = noise * int(rng.integers(2)) | int(rng.choice([0, 255]))
        self.guards = self.workspace_buffer + 0
        inputs = {"scores": self.scores_buffer, **self.vectors}
        self.inputs = {name: (array, array.view(xp.int32) + 0) for name, array in inputs.items()}

    def failure(self) -> str:
        """What is wrong after the call, in one line; empty: nothing."""
        arrays, xp, case = self.arrays, self.arrays.xp, self.case
        for name, (array, before) in self.inputs.items():
            changed = array.view(xp.int32) != before
            if changed.any():
                return f"writes {name}, element {_first(arrays, changed)} of its buffer"
        changed = self.workspace_buffer != self.guards
        changed[_GUARD : _GUARD + case.workspace_bytes] = False
        if changed.any():
            return f"writes byte {_first(arrays, changed) - _GUARD} of a workspace of {case.workspace_bytes}"
        written = self.out_buffer != POISON
        self._out_of(written)[: self.live] = False
        if written.any():
            row, slot = divmod(_first(arrays, written) - _GUARD - case.out_base, case.out_stride)
            return f"writes out[{row}, {slot}], which is none of {self.live} x {case.k} slots"
        return self._wrong_row() if self.live > 0 else ""

    def _wrong_row(self) -> str:
        arrays, xp, case, live = self.arrays, self.arrays.xp, self.case, self.live
        length = arrays.array(self.length[:live])[:, None]
        in_window = arrays.arange(case.k) < length
        best = arrays.empty(live * case.k, xp.int64).reshape(live, case.k)
        best[...] = case.columns
        best[:, : case.columns] = arrays.best_first(self.scores[:live], self.inside[:live], case.k)
        best = arrays.ascending(xp.where(in_window, best, case.columns))
        best = xp.where(in_window, best, -1)
        out = self.out[:live]
        got = xp.where(length > case.k, arrays.ascending(out), out)  # a short row comes in order
        wrong = (got != best).any(1)
        if not wrong.any():
            return ""
        row = _first(arrays, wrong)
        expected, selected = (set(arrays.host(columns[row]).tolist()) for columns in (best, out))
        difference = f"not {sorted(expected - selected)[:3]} but {sorted(selected - expected)[:3]}"
        if expected == selected:
            difference = "what it should, but in a wrong order or some twice"
        return (
            f"row {row} selects {difference} (family {case.families[self.family[row]]}, start {self.start[row]}, "
            f"length {self.length[row]}; {int(wrong.sum())} of {live} rows are wrong)"
        )


def _first(arrays: NumpyArrays, flags: Any) -> int:
    return int(arrays.host(flags).argmax())


@dataclass
class Report:
    """What a run has come to."""

    seed: int
    device: str
    seconds: float = 0
    cases: int = 0
    rows: int = 0
    """Rows that were selected and compared."""
    kernels: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Cases and rows of each kernel."""
    skipped: int = 0
    """Cases that there was no memory for, beside whatever else has some. Their rows do not count."""
    failures: list[str] = field(default_factory=list)
    """A line each, which ends with the command that runs the case again."""


def _run_case(arrays: NumpyArrays, case: Case, rng: Generator, report: Report) -> tuple[str, bool]:
    """Run a case and count it. Returns what is wrong with it, and whether the run can go on."""
    buffers = _Buffers(arrays, case)
    rows, failure, usable = 0, "", True
    for number in range(case.rounds):
        try:
            if number == 1:
                repeat = arrays.repeat(buffers.call())
            buffers.fill(rng)
            if number == 0:
                arrays.call(buffers.call())
            else:
                repeat()
        except arrays.OutOfMemory:  # never the call's fault: it allocates nothing
            raise
        except (TypeError, ValueError, RuntimeError) as error:
            failure = f"raises {type(error).__name__}: {' '.join(str(error).split())}"
            usable = not isinstance(error, RuntimeError)  # what CUDA says once, it says again
        else:
            rows += buffers.live
            failure = buffers.failure()
        if failure:
            failure += " in the second call" if number == 1 else ""
            break
    report.cases += 1
    report.rows += rows
    cases, kernel_rows = report.kernels.get(case.runs, (0, 0))
    report.kernels[case.runs] = cases + 1, kernel_rows + rows
    return failure, usable


def run(
    arrays: NumpyArrays,
    seed: int,
    *,
    seconds: float = math.inf,
    rows: float = math.inf,
    case: int | None = None,
    before: Callable[[int, Case], None] = lambda number, case: None,
    after: Callable[[Report], None] = lambda report: None,
) -> Report:
    """Run cases 0, 1, ... of a seed, or one case again and again, up to a limit or `MAX_FAILURES`.

    Args:
        arrays: where.
        seed: 0 or more.
        seconds: of time.
        rows: to compare.
        case: the number of the only case. Without a limit it runs once.
        before: is told of each case before it runs.
        after: is told of the report after each case.
    """
    report = Report(seed, arrays.device)
    begin = time.perf_counter()
    for number in itertools.count() if case is None else itertools.repeat(case):
        rng = np.random.default_rng([seed, number])
        drawn = _draw_case(arrays, rng)
        before(number, drawn)
        try:
            failure, usable = _run_case(arrays, drawn, rng, report)
        except arrays.OutOfMemory:
            failure, usable = "", True
            report.skipped += 1
            arrays.release()
        report.seconds = time.perf_counter() - begin
        if failure:
            device = "" if arrays.device == "cpu" else f" --device {arrays.device}"
            replay = f"hpc fuzz{device} --seed {seed} --case {number}"
            report.failures.append(f"case {number}: {failure}: {drawn}: {replay}")
        after(report)
        if not usable or len(report.failures) == MAX_FAILURES or report.seconds >= seconds or report.rows >= rows:
            break
        if case is not None and math.isinf(seconds) and math.isinf(rows):
            break
    return report
