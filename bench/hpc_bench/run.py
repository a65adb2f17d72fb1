# SPDX-License-Identifier: Apache-2.0
"""Measures cells: makes the inputs, times every contestant on them, and checks what the timed launches wrote."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

import torch
from peers import UnsupportedError

from . import inputs as score_inputs
from .check import check
from .contestants import Contestant
from .grids import Cell
from .report import Result, Timing

REPLAY_US = 400.0  # least time of a replay at the read limit, for short launches as far as MOST_LAUNCHES go
LEAST_LAUNCH_US = 6.0
MOST_LAUNCHES = 64
LEAST_LAUNCHES = 3


class Stopwatch(Protocol):
    """What hpc_bench.timer.Timer does, which a test can stand in for."""

    def run(self, launch: Callable[[], torch.Tensor]) -> torch.Tensor: ...

    def time(
        self, launches: Sequence[Callable[[], torch.Tensor]], rounds: int
    ) -> tuple[list[float], list[torch.Tensor]]: ...


@dataclass(frozen=True)
class Settings:
    """How cells are measured: the least number of timed replays, the seed of the scores, and L2 warm or cold."""

    rounds: int
    seed: int
    warm: bool


class DeviceLostError(Exception):
    """The device answers no more: whoever ran last has broken the process's context. `result` is what came before."""

    def __init__(self, result: Result, message: str) -> None:
        super().__init__(message)
        self.result = result


def launches_of(limit_us: float) -> int:
    """Launches of a replay, the same for every contestant of a cell."""
    return max(LEAST_LAUNCHES, min(MOST_LAUNCHES, round(REPLAY_US / max(limit_us, LEAST_LAUNCH_US))))


def blank(cell: Cell, note: str = "") -> Result:
    """A result without timings."""
    return Result(cell.grid, cell.workload, cell.rows, cell.columns, cell.k, cell.tokens, cell.call, note=note)


def measure(
    cell: Cell,
    contestants: Iterable[Contestant],
    stopwatch: Stopwatch,
    ceiling_gbps: float,
    settings: Settings,
    device: torch.device,
    advance: Callable[[str], None] = lambda name: None,
    make: score_inputs.Make = score_inputs.make,
) -> Result:
    """Time every contestant at one cell.

    Args:
        cell: what to select.
        contestants: whom to time.
        stopwatch: runs and times launches.
        ceiling_gbps: what a plain read reaches, 1e9 bytes/s.
        settings: how.
        device: where.
        advance: called with each contestant's name before it is timed.
        make: makes the inputs.

    Raises:
        DeviceLostError: a contestant broke the CUDA context.
    """
    result = blank(cell)
    result.launches = launches_of(score_inputs.matrix_bytes(cell) / (ceiling_gbps * 1e3))
    result.inputs = score_inputs.count(cell, result.launches, warm=settings.warm)
    result.cold = not settings.warm
    try:
        made = make(cell, result.inputs, settings.seed, device)
    except torch.OutOfMemoryError:
        result.note = "the scores do not fit the device's memory"
        return result
    result.row_stride = made.row_stride
    result.valid_bytes = made.valid_bytes
    result.limit_us = made.valid_bytes / (ceiling_gbps * 1e3)
    for contestant in contestants:
        advance(contestant.name)
        result.timings.append(_time(contestant, made, result.launches, stopwatch, settings.rounds))
        if device.type == "cuda":
            try:
                torch.cuda.synchronize(device)
                torch.cuda.empty_cache()
            except RuntimeError as error:
                raise DeviceLostError(result, f"{contestant.name}: {_line(error)}") from error
    return result


def _line(error: BaseException) -> str:
    """The first line of an error's text, with its kind where it has none."""
    return str(error).partition("\n")[0].strip() or type(error).__name__


def _time(
    contestant: Contestant, made: score_inputs.Inputs, launches: int, stopwatch: Stopwatch, rounds: int
) -> Timing:
    timing = Timing(contestant.name)
    try:
        prepared = contestant.prepare(made.calls)
        timing.plan = prepared.plan
        stopwatch.run(prepared.runs[0])  # compiles and loads what is not yet
        order = [i % len(prepared.runs) for i in range(launches)]
        samples, outputs = stopwatch.time([prepared.runs[i] for i in order], rounds)
        timing.us = round(median(samples), 3)
        timing.samples_us = [round(sample, 3) for sample in samples]
        timing.verdict, timing.note = _check(contestant, made, dict(zip(order, outputs, strict=True)))
        if prepared.count is not None:
            timing.statistics = prepared.count()
    except UnsupportedError as error:
        timing.status, timing.note = "unsupported", str(error)
    except torch.OutOfMemoryError:
        timing.status, timing.note = "failed", "out of device memory"
    except Exception as error:  # whatever a peer raises is its result
        timing.status, timing.note = "failed", _line(error)
    return timing


def _check(contestant: Contestant, made: score_inputs.Inputs, outputs: dict[int, torch.Tensor]) -> tuple[str, str]:
    """The worst verdict over the inputs, and its note."""
    worst = ("exact", "")
    for i, columns in outputs.items():
        call = made.calls[i]
        verdict = check(call.scores, call.lengths, columns, call.k, contract=contestant.ours)
        if verdict.text == "wrong":
            return verdict.text, f"input {i}, {verdict.note}"
        if verdict.text == "ties":
            worst = (verdict.text, verdict.note)
    return worst
