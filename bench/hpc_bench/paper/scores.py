# SPDX-License-Identifier: Apache-2.0
"""Where score rows come from: a generator, or a saved matrix in its place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from workloads import TRACE_TOKENS, Call, generate, trace
from workloads.on_device import FILLS, fill

from hpc._files import ArrayFile, FileError, open_array, require_kind

from ..grids import Cell
from ..inputs import mask
from .experiment import Setup

GENERATORS = tuple(FILLS)
SEED_STRIDE = 1_000_003  # between the seeds of one run's matrices
AT_ONCE = {"cpu": 1 << 24, "cuda": 1 << 28}  # scores that are counted together
CHUNK_ROWS = 256  # of a file, read together


@dataclass(frozen=True)
class Source:
    """Score rows.

    Attributes:
        name: a key of FILLS, or what the saved matrix is called.
        file: the saved matrix, float32 [M, N].
        lengths: int32 [M], the valid scores of its rows.
        paths: of the saved matrix and, where it was given, of the lengths: what `open_source` took.
    """

    name: str
    file: ArrayFile | None = None
    lengths: NDArray[np.int32] | None = None
    paths: tuple[str, ...] = ()

    @property
    def shape(self) -> tuple[int, int]:
        """Of the saved matrix."""
        assert self.file is not None
        return self.file.shape[0], self.file.shape[1]

    def fill(self, scores: torch.Tensor, lengths: NDArray[np.int32], cell: Cell, seed: int) -> NDArray[np.int32]:
        """An `inputs.Fill`. A saved matrix gives its first rows and columns, again and again where there are more."""
        if self.file is None or self.lengths is None:
            fill(self.name, scores, lengths, seed * SEED_STRIDE + cell.call)
            return lengths
        rows, columns = min(cell.rows, self.shape[0]), scores.shape[1]
        for begin in range(0, rows, CHUNK_ROWS):
            end = min(rows, begin + CHUNK_ROWS)
            block = np.array(self.file.rows(begin, end)[:, :columns], order="C")
            scores[begin:end] = torch.from_numpy(block).to(scores.device)
        for begin in range(rows, scores.shape[0], rows):
            scores[begin : begin + rows] = scores[: min(rows, scores.shape[0] - begin)]
        return np.minimum(lengths, np.resize(self.lengths[:rows], lengths.size))

    def rows(self, setup: Setup, lengths: NDArray[np.int32], numbers: NDArray[np.int64]) -> torch.Tensor:
        """Rows as float32 [R, longest], -infinity past their lengths.

        Args:
            setup: of the run.
            lengths: int32 [R], of the rows.
            numbers: int64 [R]: which rows of a saved matrix; else what their generators are seeded by.
        """
        scores = torch.full((lengths.size, int(lengths.max())), -torch.inf, device=setup.device)
        if self.file is None and setup.device.type == "cuda":
            fill(self.name, scores, lengths, setup.seed * SEED_STRIDE + int(numbers[0]))
            mask(scores, torch.from_numpy(lengths).to(setup.device))
            return scores
        for target, length, number in zip(scores, lengths.tolist(), numbers.tolist(), strict=True):
            if self.file is not None:
                row = np.array(self.file.rows(number, number + 1)[0, :length])
            else:
                row = generate(self.name, 1, length, setup.seed, setup.k, number)[0][0]
            target[:length] = torch.from_numpy(row).to(setup.device)
        return scores

    def batches(
        self, setup: Setup, lengths: NDArray[np.int32], numbers: NDArray[np.int64]
    ) -> Iterator[tuple[torch.Tensor, NDArray[np.int32], float]]:
        """`rows` in parts that fit the memory: (scores [R, longest], lengths [R], share that is then done)."""
        at_once = max(1, AT_ONCE[setup.device.type] // int(lengths.max()))
        for begin in range(0, lengths.size, at_once):
            part = slice(begin, begin + at_once)
            yield self.rows(setup, lengths[part], numbers[part]), lengths[part], min(1.0, part.stop / lengths.size)


def open_source(scores: Path, lengths: Path | None = None) -> Source:
    """The saved matrix of --scores and --lengths, or a FileError."""
    file = open_array("--scores", scores)
    require_kind(file, ("float32",), 2, "rows and columns")
    rows, columns = file.shape
    if not rows or not columns:
        raise FileError(f"--scores.shape = [{rows}, {columns}]: must be at least [1, 1]")
    valid = np.full(rows, columns, np.int32)
    if lengths is not None:
        given = open_array("--lengths", lengths)
        require_kind(given, ("int32", "int64"), 1, "one for each row of --scores")
        if given.shape != (rows,):
            raise FileError(f"--lengths.shape = [{given.shape[0]}]: must be [{rows}], one for each row of --scores")
        valid = np.clip(given.rows(0, rows), 0, columns).astype(np.int32)
    return Source(scores.name, file, valid, tuple(str(path) for path in (scores, lengths) if path is not None))


def evenly(number: int, of: NDArray[np.int64]) -> NDArray[np.int64]:
    """At most `number` of the values, at equal spacing, the first and the last among them."""
    return of[np.unique(np.linspace(0, of.size - 1, min(number, of.size)).astype(np.int64))]


def long_rows(source: Source, least: int, number: int) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """(lengths, numbers) of at most `number` rows of a saved matrix that hold at least `least` scores."""
    assert source.lengths is not None
    found = np.flatnonzero(source.lengths >= least)
    if not found.size:
        raise FileError(f"--scores = {source.name}: must hold a row of at least {least} scores")
    numbers = evenly(number, found)
    return source.lengths[numbers], numbers


@dataclass(frozen=True)
class LastStep:
    """The last scheduler step of a request (section 6.4): what its rows are, and how they come in calls.

    Attributes:
        tokens: of the request; the columns of a saved matrix.
        cells: the calls.
        weights: how many calls of the step each cell stands for.
    """

    tokens: int
    cells: tuple[Cell, ...]
    weights: tuple[float, ...]


def timed_calls(setup: Setup, tokens: int) -> list[tuple[int, Call, float]]:
    """(number, call, how many calls it stands for) of each call of a request that is timed."""
    timed = []
    for _, step in groupby(enumerate(trace(tokens)), key=lambda numbered: numbered[1].columns):
        calls = list(step)
        if not setup.one_call:
            timed += [(number, call, 1.0) for number, call in calls]
            continue
        number, call = calls[(len(calls) - 1) // 2]  # its rows are as long as the step's are on average, or nearly
        timed.append((number, call, sum(c.rows for _, c in calls) / call.rows))
    return timed


def last_steps(setup: Setup, source: Source) -> list[LastStep]:
    """The last steps of the paper's two requests, or the saved matrix as one call."""
    if source.file is not None:
        rows, columns = source.shape
        return [LastStep(columns, (Cell("saved", source.name, rows, columns, setup.k),), (1.0,))]
    steps = []
    for tokens in TRACE_TOKENS:
        last = [timed for timed in timed_calls(setup, tokens) if timed[1].columns == tokens]
        cells = tuple(Cell("traces", source.name, call.rows, tokens, setup.k, tokens, i) for i, call, _ in last)
        steps.append(LastStep(tokens, cells, tuple(weight for *_, weight in last)))
    return steps


def last_rows(setup: Setup, source: Source, number: int) -> list[tuple[int, NDArray[np.int32], NDArray[np.int64]]]:
    """(tokens, lengths, numbers) of at most `number` rows of each last step, at equal spacing."""
    if source.file is not None:
        return [(source.shape[1], *long_rows(source, setup.k + 1, number))]
    steps = []
    for tokens in TRACE_TOKENS:
        lengths = np.concatenate([call.lengths for call in trace(tokens) if call.columns == tokens])
        numbers = evenly(number, np.arange(lengths.size))
        steps.append((tokens, lengths[numbers], numbers))
    return steps
