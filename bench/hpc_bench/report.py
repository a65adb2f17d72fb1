# SPDX-License-Identifier: Apache-2.0
"""What a run measured, as a JSON file. All times are microseconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from hpc import _core
from hpc._files import FileError, replacing

SCHEMA = "hpctopk-bench-1"
RIGHT = ("exact", "ties")


@dataclass
class Timing:
    """One contestant at one cell.

    Attributes:
        contestant: "hpc" with what was asked of it, as in "hpc paper cluster"; or a peer's name.
        status: "ok", "unsupported" (the call is not for it) or "failed".
        note: why it is not "ok", or which row is wrong.
        us: median time of a launch.
        samples_us: that of each timed replay.
        verdict: "exact" (the contract's set), "ties" (the right values, but other columns of equal score) or "wrong".
        plan: of ours, what the planner chose.
        statistics: of ours, counters of one launch (hpctopk::Statistics).
    """

    contestant: str
    status: str = "ok"
    note: str = ""
    us: float | None = None
    samples_us: list[float] = field(default_factory=list)
    verdict: str | None = None
    plan: dict[str, Any] | None = None
    statistics: dict[str, int] | None = None

    @property
    def ours(self) -> bool:
        """Whether this is the library, not a peer."""
        return self.contestant.partition(" ")[0] == "hpc"

    @property
    def forced(self) -> bool:
        """Whether this is the library with the default policy and a kernel that the planner did not choose."""
        words = self.contestant.split(" ")
        return self.ours and len(words) > 1 and words[1] in _core.KERNELS

    @property
    def right_us(self) -> float | None:
        """The time, where the result is right; ours must be the contract's set."""
        return self.us if self.verdict == "exact" or (self.verdict == "ties" and not self.ours) else None


@dataclass
class Result:
    """The timings of one cell.

    Attributes:
        grid, workload, rows, columns, k, tokens, call: as hpc_bench.grids.Cell.
        row_stride: elements between rows.
        valid_bytes: of the scores of one launch that lie within the rows' lengths.
        limit_us: valid_bytes at the read ceiling.
        inputs: buffers that the launches take turns over.
        launches: of one replay.
        cold: whether L2 was emptied before each replay.
        baseline: {"peer": name, "us": time} of the best peer that --baseline records for this cell.
        note: why there are no timings.
    """

    grid: str
    workload: str
    rows: int
    columns: int
    k: int
    tokens: int
    call: int
    row_stride: int = 0
    valid_bytes: int = 0
    limit_us: float = 0
    inputs: int = 0
    launches: int = 0
    cold: bool = True
    baseline: dict[str, Any] | None = None
    timings: list[Timing] = field(default_factory=list)
    note: str = ""

    def timing(self, contestant: str) -> Timing | None:
        """The timing of a contestant, if it took part."""
        return next((t for t in self.timings if t.contestant == contestant), None)

    def right_us(self, contestant: str) -> float | None:
        """The time of a contestant whose result is right."""
        timing = self.timing(contestant)
        return timing.right_us if timing is not None else None

    def reach(self, contestant: str) -> float | None:
        """limit_us / time of a contestant whose result is right."""
        us = self.right_us(contestant)
        return self.limit_us / us if us else None


@dataclass
class Report:
    """A run.

    Attributes:
        provenance: device, driver, versions, source revision, date and command line.
        settings: the options of the run.
        ceiling: what a plain read kernel reached: {"gbps": 1e9 bytes/s, ...}.
        peers: each peer's version, or why it was not timed.
        results: one for each cell measured so far.
        complete: whether the run came to its end.
    """

    provenance: dict[str, Any]
    settings: dict[str, Any]
    ceiling: dict[str, float]
    peers: dict[str, str]
    results: list[Result] = field(default_factory=list)
    complete: bool = False
    schema: str = SCHEMA

    def save(self, path: Path) -> None:
        """Write the file; a reader never sees half of it."""
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")

    def contestants(self) -> list[str]:
        """Everyone who took part: ours first, each in order of appearance."""
        names = dict.fromkeys(t.contestant for r in self.results for t in r.timings)
        return sorted(names, key=lambda name: name.partition(" ")[0] != "hpc")

    def groups(self) -> Iterator[tuple[tuple[str, str, int], list[Result]]]:
        """((grid, workload, k), results) of what belongs together; workload is "" for cliffs, which compares them."""

        def key(result: Result) -> tuple[str, str, int]:
            return result.grid, "" if result.grid == "cliffs" else result.workload, result.k

        for group, results in groupby(sorted(self.results, key=key), key):
            yield group, list(results)


def load(argument: str, path: Path) -> Report:
    """Read a report, or refuse the file with a FileError that names `argument`."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        results = [
            Result(**{**result, "timings": [Timing(**timing) for timing in result["timings"]]})
            for result in fields.pop("results")
        ]
        return Report(**fields, results=results)
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FileError(f"{argument} = {path}: must be a report of hpc bench: {error}") from error


def load_baseline(argument: str, path: Path) -> dict[str, dict[tuple[int, int], dict[str, Any]]]:
    """Best peers on record: {"prefill_K2048": {(M, N): {"peer": name, "us": time}}, "prefill_indexer_K2048": ...}.

    The file is a JSON object; those of its members that are lists hold objects with M, N, best_us and best_peer.
    """
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        return {
            name: {
                (int(e["M"]), int(e["N"])): {"peer": str(e["best_peer"]), "us": float(e["best_us"])} for e in entries
            }
            for name, entries in fields.items()
            if isinstance(entries, list)
        }
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise FileError(f"{argument} = {path}: must hold lists of M, N, best_us and best_peer: {reason}") from error


def baseline_name(grid: str, workload: str, k: int) -> str:
    """The member of a baseline that holds the cells of a grid: normal rows go without their name."""
    return f"{grid}_K{k}" if workload == "normal" else f"{grid}_{workload}_K{k}"


def ratios(results: list[Result], slower: str, faster: str) -> list[float]:
    """Time of `slower` / time of `faster` at each cell where both are right. "baseline" is the best peer on record."""
    pairs = []
    for result in results:
        numerator = result.baseline["us"] if slower == "baseline" and result.baseline else result.right_us(slower)
        denominator = result.right_us(faster)
        if numerator and denominator:
            pairs.append(numerator / denominator)
    return pairs


def family_costs(results: list[Result], contestant: str) -> dict[tuple[str, int, int], float]:
    """Time on a value family / time on normal rows, where both are right, by (workload, M, N)."""
    normal = {(r.rows, r.columns): r.right_us(contestant) for r in results if r.workload == "normal"}
    costs = {}
    for result in results:
        us, base = result.right_us(contestant), normal.get((result.rows, result.columns))
        if us and base:
            costs[result.workload, result.rows, result.columns] = us / base
    return costs


def mean(values: list[float]) -> float:
    """Geometric mean; values is not empty."""
    return geometric_mean(values)
