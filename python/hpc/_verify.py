# SPDX-License-Identifier: Apache-2.0
"""The definition of the selected set in numpy, which shares nothing with the library."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def ordered_keys(scores: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Unsigned keys in the order of the scores: every NaN equal and on top, -0.0 equal to +0.0."""
    with np.errstate(invalid="ignore"):  # a signalling NaN
        bits = (scores + np.float32(0)).view(np.uint32)  # -0.0 + 0.0 is +0.0
    keys: NDArray[np.uint32] = np.where(bits >> 31 == 1, ~bits, bits | np.uint32(1 << 31))
    keys[np.isnan(scores)] = np.iinfo(np.uint32).max
    return keys


def is_exact(selected: NDArray[Any], row: NDArray[np.float32], k: int, start: int, length: int) -> bool:
    """Whether `selected`, int [k], is what the contract says for the window [start, start + length) of `row`."""
    start = min(max(start, 0), row.size)
    length = min(max(length, 0), row.size - start)
    if length <= k:
        expected = np.full(k, -1)
        expected[:length] = np.arange(start, start + length)
        return bool(np.array_equal(selected, expected))
    keys = ordered_keys(row[start : start + length])
    boundary = np.partition(keys, length - k)[length - k]
    above = np.flatnonzero(keys > boundary)
    ties = np.flatnonzero(keys == boundary)[: k - above.size]
    return bool(np.array_equal(np.sort(selected), np.sort(np.concatenate([above, ties])) + start))
