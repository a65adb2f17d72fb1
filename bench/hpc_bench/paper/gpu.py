# SPDX-License-Identifier: Apache-2.0
"""Timings of selections for the experiments, by the harness of `hpc bench`, as flat records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from peers import Peer

from .. import inputs as score_inputs
from .. import run
from ..contestants import Contestant, of_peer, ours
from ..grids import Cell
from ..report import Result
from .experiment import Advance, Outcome, Record, Setup
from .scores import Source

SECONDS_OF_A_CELL = 1.0  # set-up; for the progress bar
SECONDS_OF_A_SCORE = 4e-10  # generated, timed and checked, for each contestant


@dataclass(frozen=True)
class Gpu:
    """What times selections.

    Attributes:
        native: the module hpc._bench.
        stopwatch: runs and times launches; emptied L2 before each replay.
        ceiling_gbps: what a plain read reaches, 1e9 bytes/s.
        peers: those that are installed.
        rounds: timed replays.
    """

    native: Any
    stopwatch: run.Stopwatch
    ceiling_gbps: float
    peers: tuple[Peer, ...]
    rounds: int

    def ours(self, name: str = "hpc", policy: str = "default", kernel: str = "auto", **changes: Any) -> Contestant:
        """The library with `changes` to a policy."""
        return ours(self.native, policy, kernel, 0, name=name, changes=changes)

    def others(self) -> list[Contestant]:
        """The peers."""
        return [of_peer(peer) for peer in self.peers]


def timed(
    setup: Setup, source: Source, cell: Cell, contestants: Sequence[Contestant], advance: Advance, **fields: Any
) -> list[Record]:
    """Time every contestant at one cell; a record of each.

    A record holds the fields of the cell, `us`, `verdict` and `status` of hpc_bench.report.Timing, `limit_us` (the
    valid scores at the read ceiling), the `kernel` that ran and `statistics` of one launch (hpctopk::Statistics) with
    `r_eq`, the scores read / valid scores; and `fields`.
    """
    names = [contestant.name for contestant in contestants]
    result = run.measure(
        cell,
        contestants,
        setup.timed.stopwatch,
        setup.timed.ceiling_gbps,
        run.Settings(setup.timed.rounds, setup.seed, False),
        setup.device,
        lambda name: advance(names.index(name) / len(names)),
        partial(score_inputs.make, fill=source.fill),
    )
    return [record | fields for record in records_of(result)]


def records_of(result: Result) -> list[Record]:
    """A result as flat records."""
    cell = {
        "part": "time",
        "source": result.workload,
        "rows": result.rows,
        "columns": result.columns,
        "tokens": result.tokens,
        "call": result.call,
        "limit_us": round(result.limit_us, 3),
    }
    if not result.timings:
        return [{**cell, "contestant": "hpc", "status": "unsupported", "note": result.note, "us": None}]
    records = []
    for timing in result.timings:
        record = {
            **cell,
            "contestant": timing.contestant,
            "us": timing.us,
            "verdict": timing.verdict,
            "status": timing.status,
            "note": timing.note,
            "right": timing.right_us is not None,
        }
        if timing.plan is not None:
            record["kernel"] = timing.plan["kernel"]
        if timing.statistics is not None:
            record["statistics"] = timing.statistics
            record["r_eq"] = round(4 * timing.statistics["scores_read"] / max(1, result.valid_bytes), 5)
        records.append(record)
    return records


def weight(cell: Cell, contestants: int) -> float:
    """Seconds that a cell takes, about."""
    return SECONDS_OF_A_CELL + SECONDS_OF_A_SCORE * cell.rows * cell.columns * (2 + contestants)


def failures(outcome: Outcome) -> list[str]:
    """What must not be: our results that failed or are not exact."""
    found: dict[tuple[str, str], list[str]] = {}
    for record in outcome.records:
        if not str(record.get("contestant", "")).startswith("hpc") or record.get("right", True):
            continue
        if record["status"] != "unsupported":
            why = f"{record['verdict'] or record['status']} {record['note']}"
            where = f"{outcome.experiment}, {record['source']} {record['rows']} x {record['columns']}"
            found.setdefault((record["contestant"], why), []).append(where)
    return [
        f"{contestant} at {where[0]}{f' and {len(where) - 1} more' if where[1:] else ''}: {why}"
        for (contestant, why), where in found.items()
    ]


# ----------------------------------------------------------------------------------------------------------------------
# Sums and ratios of records


def total_ms(records: Sequence[Record]) -> float | None:
    """The latency of a trace or a step: the sum of its calls, if each is right."""
    if not records or not all(r.get("right") for r in records):
        return None
    return float(sum(r["us"] * r.get("weight", 1) for r in records)) / 1e3


def best_other(outcome: Outcome, total: Callable[[str], float | None]) -> tuple[str, float] | None:
    """The peer with the least total, and that total."""
    names = [n for n in outcome.values("contestant") if n.partition(" ")[0] != "hpc"]
    found = [(ms, name) for name in names if (ms := total(name)) is not None]
    return (min(found)[1], min(found)[0]) if found else None


def rate(records: Sequence[Record], counter: str) -> float | None:
    """A counter of hpctopk::Statistics / rows, over all records that have it."""
    rows = sum(r["statistics"]["rows"] * r.get("weight", 1) for r in records if "statistics" in r)
    counted = sum(r["statistics"][counter] * r.get("weight", 1) for r in records if "statistics" in r)
    return counted / rows if rows else None


def synchronize(device: torch.device) -> None:
    """Wait for the device, and give unused memory back."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
