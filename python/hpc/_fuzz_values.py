# SPDX-License-Identifier: Apache-2.0
"""Families of values that a fuzzed call is given: of real scores, and those that other top-k operators got wrong.

Each is a function of a `Draw` and gives float32 [rows, columns], or what broadcasts to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator

from hpc._fuzz_arrays import NumpyArrays

_INT32 = np.iinfo(np.int32)
_FLOAT = np.finfo(np.float32)


@dataclass
class Draw:
    """What a family draws from. Patterns of bits are int32, columns and ranks int64."""

    arrays: NumpyArrays
    rng: Generator
    rows: int
    columns: int
    k: int

    def __post_init__(self) -> None:
        self.xp = self.arrays.xp
        self.column = self.arrays.arange(self.columns)

    def normal(self) -> Any:
        return self.arrays.normal(self.rows, self.columns)

    def uniform(self) -> Any:
        return self.arrays.uniform(self.rows, self.columns)

    def bits(self) -> Any:
        return self.arrays.bits(self.rows, self.columns)

    def choose(self, values: Any, dtype: Any = np.float32) -> Any:
        """One of the values for every row: [rows, 1]."""
        return self.arrays.array(self.rng.choice(np.array(values, dtype), (self.rows, 1)))

    def place(self) -> Any:
        """A column for every row: int64 [rows, 1]."""
        return self.arrays.array(self.rng.integers(0, self.columns, (self.rows, 1)))

    def rank(self) -> Any:
        """In every row each of 0..columns - 1 once, scattered: int64 [rows, columns]."""
        step = int(self.rng.integers(1, self.columns + 1))
        while math.gcd(step, self.columns) != 1:
            step = step % self.columns + 1
        return (self.column * step + self.place()) % self.columns

    def count(self) -> Any:
        """How many scores of a row are special, around every size that a buffer may have: int64 [rows, 1]."""
        k, n = self.k, self.columns
        sizes = np.array([0, 1, 3, 100, k // 4, k, 2 * k, k + 2048, k + 8192, 2048, 4096, 8192, 16384, n // 2, n])
        counts = self.rng.choice(sizes, (self.rows, 1)) + self.rng.integers(-1, 2, (self.rows, 1))
        return self.arrays.array(np.maximum(counts, 0))


_SPECIAL = [0, -0.0, 1, -1, np.inf, -np.inf, np.nan, -np.nan, _FLOAT.max, _FLOAT.min, _FLOAT.tiny, -_FLOAT.tiny]
_SPECIAL += [_FLOAT.smallest_subnormal, -_FLOAT.smallest_subnormal, 65504, -65536]


def normal(d: Draw) -> Any:
    return d.normal()


def uniform(d: Draw) -> Any:
    return d.uniform()


def indexer(d: Draw) -> Any:
    """Neighbours that go together, an attention sink and recency."""
    w = d.arrays.normal(d.rows, d.columns + 7)
    for shift in (1, 2, 4):
        w = w[:, :-shift] + w[:, shift:]
    p = np.arange(d.columns) / d.columns
    ends = 2 * np.exp(-20 * p) + 2 * np.exp(-20 * (1 - p))
    return w.clip(0) * (1.5 / math.sqrt(8)) + d.normal().clip(0) + d.arrays.array(ends.astype(np.float32))


def indexer_causal(d: Draw) -> Any:
    return d.xp.where(d.column < d.place(), indexer(d), -math.inf)


def relu_plateau(d: Draw) -> Any:
    return d.xp.where(d.rank() < d.count(), abs(d.normal()) + 1e-3, 0.0)


def tie_group(d: Draw) -> Any:
    """Some above, some equal, the rest below."""
    rank, above = d.rank(), d.count()
    equal_or_below = d.xp.where(rank < above + d.count(), 0.0, -1 - d.uniform())
    return d.xp.where(rank < above, 1 + d.uniform(), equal_or_below) + d.choose([0, 0.5, -70000, 1e6])


def quantised(d: Draw) -> Any:
    """Three bits of mantissa, as of fp8."""
    return (d.normal().view(d.xp.int32) & -(1 << 20)).view(d.xp.float32)


def rounded(d: Draw) -> Any:
    return d.xp.round(d.normal() * d.choose([0.5, 2, 10]))


def one_bin(d: Draw) -> Any:
    return 1 + d.uniform() * d.choose([1e-6, 0.03, 0.245])


def narrow_bits(d: Draw) -> Any:
    """A few low bits of one pattern."""
    patterns = np.array([0x3F900000, 0x40400000, 0xBF900000, 0x00000000], np.uint32).view(np.int32)
    low = d.bits() & d.choose([(1 << 8) - 1, (1 << 10) - 1, (1 << 16) - 1], np.int32)
    return (low | d.choose(patterns, np.int32)).view(d.xp.float32)


def boundary_bin(d: Draw) -> Any:
    """A hundred above, a counted population of one coarse bin, the rest below."""
    rank = d.rank()
    low = ((d.bits() & 0xFFF) | 0x3F900000).view(d.xp.float32)
    return d.xp.where(rank < 100, 3.0, d.xp.where(rank < 100 + d.count(), low, -d.uniform()))


def offset(d: Draw) -> Any:
    return d.normal() + d.choose([100, -100, 65504, -70000, 1e7])


def ascending(d: Draw) -> Any:
    return d.column * d.choose([1, 1e-3])


def descending(d: Draw) -> Any:
    return d.column * d.choose([-1, -1e-3])


def spans(d: Draw) -> Any:
    """The best in a few runs of neighbours."""
    scores = d.normal()
    for level in (10, 20, 30):
        inside = (d.column - d.place()) % d.columns < d.k // 2 + 1
        scores = d.xp.where(inside, scores + level, scores)
    return scores


def periodic(d: Draw) -> Any:
    period = int(d.rng.choice([8, 32, 64, 97, 128, 256]))
    return d.arrays.normal(d.rows, period)[:, d.column % period] + 0.05 * d.normal()


def repeated(d: Draw) -> Any:
    """Runs of equal neighbours."""
    return d.normal()[:, d.column // int(d.rng.choice([2, 4, 33]))]


def equal(d: Draw) -> Any:
    return d.choose(_SPECIAL)


def special(d: Draw) -> Any:
    return d.arrays.array(np.array(_SPECIAL, np.float32))[d.bits() & 15]


def zeros(d: Draw) -> Any:
    """Zeros of both signs below a few."""
    zeros = (d.bits() & int(_INT32.min)).view(d.xp.float32)
    return d.xp.where(d.rank() < d.count(), abs(d.normal()), zeros)


def denormals(d: Draw) -> Any:
    return (d.bits() & (int(_INT32.min) | 0x7FFFFF)).view(d.xp.float32)


def infinities(d: Draw) -> Any:
    rank = d.rank()
    return d.xp.where(rank < d.count(), math.inf, d.xp.where(rank >= d.columns - d.count(), -math.inf, d.normal()))


def few_finite(d: Draw) -> Any:
    return d.xp.where(d.rank() < d.count(), d.normal(), -math.inf)


def nans(d: Draw) -> Any:
    """NaNs of any sign and payload among normals."""
    return d.xp.where(d.rank() < d.count(), (d.bits() | 0x7F800001).view(d.xp.float32), d.normal())


def any_bits(d: Draw) -> Any:
    return d.bits().view(d.xp.float32)


FAMILIES: dict[str, Callable[[Draw], Any]] = {
    make.__name__: make
    for make in (
        *(normal, uniform, indexer, indexer_causal, relu_plateau, tie_group, quantised, rounded, one_bin, narrow_bits),
        *(boundary_bin, offset, ascending, descending, spans, periodic, repeated, equal, special, zeros, denormals),
        *(infinities, few_finite, nans, any_bits),
    )
}
