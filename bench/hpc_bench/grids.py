# SPDX-License-Identifier: Apache-2.0
"""What is measured: the cells of each grid and the lengths of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray
from workloads import DECODE_GRID, OPERATOR_GRID, TRACE_TOKENS, WORKLOADS, Call, causal_lengths, trace

GRIDS = {
    "prefill": "the paper's operator matrix, 512 to 8192 rows of 128K to 1M columns, causal lengths",
    "decode": "1 to 256 rows of 4K to 1M columns, lengths within N / 64 of N, L2 cold",
    "cliffs": "every value family against normal rows, at four shapes, L2 cold",
    "traces": "every call of a request of 244,650 and of 430,000 tokens, causal lengths",
}

CLIFF_SHAPES = ((512, 131_072), (64, 131_072), (8, 262_144), (1, 1_048_576))
CLIFF_LIMIT = 1.5  # most that a family may cost, in times of normal rows


@dataclass(frozen=True)
class Cell:
    """One selection to time.

    Attributes:
        grid: a key of GRIDS.
        workload: a key of workloads.WORKLOADS.
        rows: M.
        columns: N.
        k: columns to select in each row.
        tokens: of the request, traces only.
        call: position in the request, from 0, traces only.
    """

    grid: str
    workload: str
    rows: int
    columns: int
    k: int
    tokens: int = 0
    call: int = 0

    def __str__(self) -> str:
        call = f", call {self.call + 1} of {self.tokens:,} tokens" if self.tokens else ""
        return f"{self.grid} {self.workload} {self.rows} x {self.columns}, k {self.k}{call}"

    @property
    def rotates(self) -> bool:
        """Whether launches take turns over inputs that L2 does not hold; else all read one input."""
        return self.grid in ("decode", "cliffs")


@cache
def _trace(tokens: int) -> list[Call]:
    return trace(tokens)


def _quick_calls(tokens: int) -> list[int]:
    """The last call of each scheduler step."""
    calls = _trace(tokens)
    return [i for i, call in enumerate(calls) if i + 1 == len(calls) or calls[i + 1].columns != call.columns]


def _shapes(grid: str, quick: bool) -> Iterable[tuple[int, int, int, int]]:
    """(rows, columns, tokens, call) of each cell."""
    if grid == "prefill":
        ends = ((512, 8192), (131_072, 1_048_576))
        return ((m, n, 0, 0) for m, n in OPERATOR_GRID if not quick or (m in ends[0] and n in ends[1]))
    if grid == "decode":
        some = ((1, 16, 256), (4096, 65_536, 1_048_576))
        shapes = dict.fromkeys((m, n) for m, n, _ in DECODE_GRID)
        return ((m, n, 0, 0) for m, n in shapes if not quick or (m in some[0] and n in some[1]))
    if grid == "cliffs":
        return ((m, n, 0, 0) for m, n in (CLIFF_SHAPES[1:2] if quick else CLIFF_SHAPES))
    return (
        (_trace(tokens)[call].rows, _trace(tokens)[call].columns, tokens, call)
        for tokens in TRACE_TOKENS
        for call in (_quick_calls(tokens) if quick else range(len(_trace(tokens))))
    )


def cells(
    grids: Sequence[str],
    workloads: Sequence[str],
    ks: Sequence[int],
    *,
    rows: Sequence[int] = (),
    columns: Sequence[int] = (),
    quick: bool = False,
) -> list[Cell]:
    """The cells of `grids`, in the order in which they are measured.

    Args:
        grids: keys of GRIDS.
        workloads: keys of WORKLOADS; cliffs takes every one of them instead.
        ks: columns to select, each at least 1.
        rows: keep cells with these M only; empty: all.
        columns: keep cells with these N only; empty: all.
        quick: a few cells of each grid.
    """
    return [
        Cell(grid, workload, m, n, k, tokens, call)
        for grid in grids
        for k in ks
        for workload in (WORKLOADS if grid == "cliffs" else workloads)
        for m, n, tokens, call in _shapes(grid, quick)
        if (not rows or m in rows) and (not columns or n in columns)
    ]


def lengths_of(cell: Cell, seed: int) -> NDArray[np.int32]:
    """The valid scores of each row: int32 [M]. A workload may shorten them."""
    if cell.grid == "prefill":
        return causal_lengths(cell.rows, cell.columns)
    if cell.grid == "traces":
        return _trace(cell.tokens)[cell.call].lengths
    full = np.full(cell.rows, cell.columns, np.int32)
    if cell.grid == "decode":
        full -= np.random.default_rng((seed, cell.rows, cell.columns)).integers(
            0, cell.columns // 64, cell.rows, dtype=np.int32, endpoint=True
        )
    return full
