# SPDX-License-Identifier: Apache-2.0
"""Seeded score rows of many characters, by name: `generate("indexer", rows, columns, seed)`.

Row r depends on (name, columns, seed, k, r) alone, never on the number of rows, so that one row of a large run can be
made again by itself. z stands for a standard normal, i for a column, N for `columns`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

Row = NDArray[np.float32]

SAMPLE_PATH = Path(__file__).parent / "text" / "sample.npy"
SAMPLE_LENGTHS_PATH = Path(__file__).parent / "text" / "sample_lengths.npy"
SAMPLE_LAYERS = (2, 5)  # encoder layers of the sample; its rows are split evenly between them, in this order
WINDOW = 256  # tokens the encoder read at a time: the period of the text rows
PERIOD = 128  # of the periodic rows, and the stride of the paper's sample


def normal(rng: Generator, row: int, columns: int, k: int) -> Row:
    """z."""
    return rng.standard_normal(columns, dtype=np.float32)


@lru_cache(maxsize=4)
def _sink_and_recency(columns: int) -> Row:
    p = np.arange(columns) / columns
    terms: Row = (2 * np.exp(-20 * p) + 2 * np.exp(-20 * (1 - p))).astype(np.float32)
    return terms


def indexer(rng: Generator, row: int, columns: int, k: int) -> Row:
    """1.5 relu(w) + relu(z) + 2 exp(-20 p) + 2 exp(-20 (1 - p)), w a sum of 8 neighbouring z / sqrt 8, p = i / N."""
    w = rng.standard_normal(columns + 7, dtype=np.float32)
    for shift in (1, 2, 4):
        w = w[:-shift] + w[shift:]
    scores = rng.standard_normal(columns, dtype=np.float32)
    np.maximum(scores, 0, out=scores)
    np.maximum(w, 0, out=w)
    w *= np.float32(1.5 / np.sqrt(8))
    scores += w
    scores += _sink_and_recency(columns)
    return scores


def causal_length(row: int, columns: int) -> int:
    """N - (r modulo N)."""
    return columns - row % columns


def indexer_causal(rng: Generator, row: int, columns: int, k: int) -> Row:
    """The indexer's row with -inf from column N - (r modulo N) on: a causal suffix."""
    scores = indexer(rng, row, columns, k)
    scores[causal_length(row, columns) :] = -np.inf
    return scores


def relu_plateau(rng: Generator, row: int, columns: int, k: int) -> Row:
    """|z| + 0.001 at min(N, k / 4) random columns, exactly 0 elsewhere: so that k falls in a tie of the whole rest."""
    scores = np.zeros(columns, dtype=np.float32)
    positives = min(columns, max(1, k // 4))
    columns_of_positives = rng.choice(columns, positives, replace=False)
    # + 0.001: a draw may be 0, the plateau's value.
    scores[columns_of_positives] = np.abs(rng.standard_normal(positives, dtype=np.float32)) + np.float32(1e-3)
    return scores


def quantised(rng: Generator, row: int, columns: int, k: int) -> Row:
    """z rounded to the nearest fp8 e4m3 value (ties to even): about a hundred distinct values, some of them -0.0."""
    scores = rng.standard_normal(columns, dtype=np.float32)
    exponent = np.frexp(scores)[1] - 1
    quantum = np.ldexp(np.float32(1), np.maximum(exponent, -6) - 3)  # 3 mantissa bits, subnormal below 2^-6
    scores /= quantum
    np.rint(scores, out=scores)
    scores *= quantum
    return scores


def one_bin(rng: Generator, row: int, columns: int, k: int) -> Row:
    """Uniform over the float32 values in [1.0, 1.03): one bin of any coarse key, with ties."""
    scores = rng.integers(0, int(0.03 * 2**23), columns).astype(np.float32)
    scores *= np.float32(2**-23)
    scores += np.float32(1)
    return scores


def offset(rng: Generator, row: int, columns: int, k: int) -> Row:
    """100 + z."""
    scores = rng.standard_normal(columns, dtype=np.float32)
    scores += np.float32(100)
    return scores


def ascending(rng: Generator, row: int, columns: int, k: int) -> Row:
    """i, strictly up to N = 2^24: every score beats all before it, the worst order for a running threshold."""
    return np.arange(columns, dtype=np.float32)


def descending(rng: Generator, row: int, columns: int, k: int) -> Row:
    """N - 1 - i, strictly up to N = 2^24: the first k columns win."""
    return np.arange(columns - 1, -1, -1, dtype=np.float32)


def spans(rng: Generator, row: int, columns: int, k: int) -> Row:
    """z with the top 2k in 4 contiguous runs at random places, run levels 10, 20, 30, 40: worst for chunk samples."""
    scores = rng.standard_normal(columns, dtype=np.float32)
    runs = np.array_split(np.arange(min(columns, 2 * k)), 4)  # where the runs lie once the gaps are taken out
    gaps = np.sort(rng.integers(0, columns - min(columns, 2 * k) + 1, 4))
    for run, gap, level in zip(runs, gaps, rng.permutation([10, 20, 30, 40]), strict=True):
        scores[run + gap] += np.float32(level)
    return scores


def periodic(rng: Generator, row: int, columns: int, k: int) -> Row:
    """A pattern of 128 z, repeated, + 0.05 z: one phase of the paper's sample sees one value of the pattern only."""
    pattern = rng.standard_normal(PERIOD, dtype=np.float32)
    scores = rng.standard_normal(columns, dtype=np.float32)
    scores *= np.float32(0.05)
    scores += np.resize(pattern, columns)
    return scores


@cache
def load_sample() -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """The committed sample of attention-head scores over a real text (see text/README.md).

    Returns:
        scores: float32 [16, 65536], read-only. Rows 0-7 are of layer 2, rows 8-15 of layer 5 (`SAMPLE_LAYERS`), each
            row a query of one of the last tokens. Columns past a row's length hold scores of later tokens.
        lengths: int32 [16], read-only: the causal lengths 65529..65536 of each layer.
    """
    scores, lengths = np.load(SAMPLE_PATH), np.load(SAMPLE_LENGTHS_PATH)
    scores.setflags(write=False)
    lengths.setflags(write=False)
    return scores, lengths


def text(rng: Generator, row: int, columns: int, k: int) -> Row:
    """The sample's rows of one layer (even r: layer 2, odd r: 5) end to end, from a random window, repeated to fill N.

    A layer holds 524,288 scores; wider rows repeat them, so that equal scores then come in pairs.
    """
    layers = load_sample()[0].reshape(len(SAMPLE_LAYERS), -1)
    band = layers[row % len(layers)]
    return np.resize(np.roll(band, -WINDOW * int(rng.integers(band.size // WINDOW))), columns)


@dataclass(frozen=True)
class Workload:
    """A family of score rows.

    Attributes:
        description: one line.
        row: makes row r: (generator seeded by (seed, r), r, columns, k) -> float32 [columns].
        length: the valid length of row r: (r, columns) -> 1..columns.
    """

    description: str
    row: Callable[[Generator, int, int, int], Row]
    length: Callable[[int, int], int] = lambda row, columns: columns


WORKLOADS: dict[str, Workload] = {
    "normal": Workload("independent N(0, 1)", normal),
    "indexer": Workload("relu mixture like an indexer's: correlated neighbours, attention sink, recency", indexer),
    "indexer_causal": Workload(
        "indexer with a -inf causal suffix, row r ends at column N - r", indexer_causal, causal_length
    ),
    "relu_plateau": Workload("k / 4 positives, the rest exactly 0", relu_plateau),
    "quantised": Workload("N(0, 1) rounded to fp8 e4m3: many ties, -0.0", quantised),
    "one_bin": Workload("all scores in [1.0, 1.03): one bin of a coarse key", one_bin),
    "offset": Workload("N(100, 1): few leading key bits differ", offset),
    "ascending": Workload("strictly rising", ascending),
    "descending": Workload("strictly falling", descending),
    "spans": Workload("the top 2k in 4 contiguous runs", spans),
    "periodic": Workload("period 128, the stride of the paper's sample", periodic),
    "text": Workload("attention-head scores of a real encoder over a real text", text),
}


def generate(
    name: str, rows: int, columns: int, seed: int, k: int = 2048, first_row: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.int32]]:
    """Score rows `first_row`..`first_row + rows - 1` of the workload `name`.

    Rows are made on all cores. The same arguments give the same bits with one numpy version on one kind of processor.

    Args:
        name: a key of `WORKLOADS`.
        rows: M, at least 0.
        columns: N, at least 1.
        seed: any integer >= 0; each row is seeded by (seed, row).
        k: the k that will be asked for, at least 1; `relu_plateau` and `spans` are built around it.
        first_row: row number of the first row, at least 0.

    Returns:
        scores: float32 [rows, columns], C order.
        lengths: int32 [rows]: columns, or for `indexer_causal` the column where the -inf suffix starts.

    Raises:
        ValueError: an argument breaks its rule.
    """
    if name not in WORKLOADS:
        raise ValueError(f"name is {name!r}, must be one of {', '.join(WORKLOADS)}")
    for argument, value, least in (
        ("rows", rows, 0),
        ("columns", columns, 1),
        ("seed", seed, 0),
        ("k", k, 1),
        ("first_row", first_row, 0),
    ):
        if value < least:
            raise ValueError(f"{argument} is {value}, must be at least {least}")
    workload = WORKLOADS[name]
    scores = np.empty((rows, columns), dtype=np.float32)
    lengths = np.empty(rows, dtype=np.int32)

    def fill(index: int) -> None:
        row = first_row + index
        scores[index] = workload.row(np.random.default_rng((seed, row)), row, columns, k)
        lengths[index] = workload.length(row, columns)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(fill, range(rows)):
            pass  # draining the results raises what a row raised
    return scores, lengths


def causal_lengths(rows: int, columns: int) -> NDArray[np.int32]:
    """The last `rows` causal lengths of a prefill that ends at `columns`: int32 [rows], N-M+1..N, at least 0.

    Args:
        rows: M, at least 0.
        columns: N, at least 0.
    """
    return np.maximum(np.arange(columns - rows + 1, columns + 1, dtype=np.int64), 0).astype(np.int32)
