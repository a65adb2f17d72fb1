# SPDX-License-Identifier: Apache-2.0
"""The contract of the operator, written out in numpy by sorting whole rows. Shares nothing with the package."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

POISON = 0x5A5A5A5A
GUARD = 3  # columns between the rows of a poisoned output


def window(row: NDArray[np.float32], start: int, length: int | None) -> tuple[int, int]:
    """The first column and the number of valid scores of a row, clamped as the contract says."""
    start = min(max(int(start), 0), row.size)
    left = row.size - start
    return start, left if length is None else min(max(int(length), 0), left)


def expected_row(row: NDArray[np.float32], k: int, start: int = 0, length: int | None = None) -> NDArray[np.int64]:
    """The k selected columns of a row, ascending; of a short row, the window and then -1."""
    start, length = window(row, start, length)
    if length <= k:
        return np.concatenate([np.arange(start, start + length), np.full(k - length, -1)])
    scores = row[start : start + length]
    nan = np.isnan(scores)
    # The last key decides first: NaN before numbers, then the larger score, then the lower column.
    order = np.lexsort((np.arange(length), -np.where(nan, np.float32(0), scores), ~nan))
    return np.sort(order[:k]) + start


def expected(
    scores: NDArray[np.float32],
    k: int,
    lengths: NDArray[np.int32] | None = None,
    row_starts: NDArray[np.int32] | None = None,
) -> NDArray[np.int64]:
    """`expected_row` of every row: [M, k]."""
    rows = [
        expected_row(row, k, 0 if row_starts is None else row_starts[r], None if lengths is None else lengths[r])
        for r, row in enumerate(scores)
    ]
    return np.array(rows, dtype=np.int64).reshape(len(rows), k)


def canonical(
    selected: NDArray[np.int32],
    scores: NDArray[np.float32],
    lengths: NDArray[np.int32] | None = None,
    row_starts: NDArray[np.int32] | None = None,
) -> NDArray[np.int64]:
    """`selected` with the rows that are longer than k, whose order is free, sorted."""
    result = selected.astype(np.int64)
    for r, row in enumerate(scores):
        length = window(row, 0 if row_starts is None else row_starts[r], None if lengths is None else lengths[r])[1]
        if length > selected.shape[1]:
            result[r].sort()
    return result


def poisoned_buffer(rows: int, k: int) -> NDArray[np.int32]:
    """int32 [rows, k + GUARD], full of POISON: its first k columns are an output whose rows do not touch."""
    return np.full((rows, k + GUARD), POISON, np.int32)
