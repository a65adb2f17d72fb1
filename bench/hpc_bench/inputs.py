# SPDX-License-Identifier: Apache-2.0
"""Scores and lengths on the device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from peers import Call
from workloads import generate, on_device

from .grids import Cell, lengths_of

ALIGNMENT = 64  # elements: rows lie a multiple of 256 bytes apart, as engines pad them
ROTATED_BYTES = 400_000_000  # that inputs taken in turns add up to: several times any L2
GENERATED_BYTES = 1 << 27  # of distinct rows that the host makes; larger matrices repeat them
MASKED_AT_ONCE = 1 << 27  # scores


@dataclass(frozen=True)
class Inputs:
    """The buffers of one cell.

    Attributes:
        calls: one for each buffer.
        row_stride: elements between rows.
        valid_bytes: of the scores within their lengths, of one call.
    """

    calls: list[Call]
    row_stride: int
    valid_bytes: int


# Writes scores [M, N] for rows of these lengths, of a cell and a seed, and returns the lengths, which it may shorten.
Fill = Callable[[torch.Tensor, NDArray[np.int32], Cell, int], NDArray[np.int32]]


def row_stride(columns: int) -> int:
    """Elements between the rows of a matrix of so many columns."""
    return -(-columns // ALIGNMENT) * ALIGNMENT


def matrix_bytes(cell: Cell) -> int:
    """Of the scores of one input."""
    return 4 * cell.rows * row_stride(cell.columns)


def count(cell: Cell, launches: int, *, warm: bool) -> int:
    """How many inputs the launches of a replay take turns over."""
    if warm or not cell.rotates:
        return 1
    return max(1, min(launches, -(-ROTATED_BYTES // matrix_bytes(cell))))


def fill_generated(scores: torch.Tensor, lengths: NDArray[np.int32], cell: Cell, seed: int) -> NDArray[np.int32]:
    """A Fill with rows of the cell's workload. Those that the host makes repeat beyond GENERATED_BYTES."""
    if cell.workload in on_device.FILLS:
        on_device.fill(cell.workload, scores, lengths, seed)
        return lengths
    distinct = min(scores.shape[0], max(1, GENERATED_BYTES // (4 * cell.columns)))
    generated, shortened = generate(cell.workload, distinct, cell.columns, seed, k=cell.k)
    made = torch.from_numpy(generated).to(scores.device)
    for begin in range(0, scores.shape[0], distinct):
        block = scores[begin : begin + distinct]
        block.copy_(made[: block.shape[0]])
    return np.minimum(lengths, np.resize(shortened, lengths.size))


def make(cell: Cell, inputs: int, seed: int, device: torch.device, fill: Fill = fill_generated) -> Inputs:
    """Make `inputs` buffers. Scores at and past a row's length become -infinity."""
    stride = row_stride(cell.columns)
    rows = inputs * cell.rows
    scores = torch.empty(rows, stride, dtype=torch.float32, device=device)[:, : cell.columns]
    lengths = fill(scores, np.tile(lengths_of(cell, seed), inputs), cell, seed)
    length = torch.from_numpy(lengths).to(device)
    mask(scores, length)
    calls = [
        Call(scores[begin : begin + cell.rows], length[begin : begin + cell.rows].clone(), cell.k)  # aligned
        for begin in range(0, rows, cell.rows)
    ]
    return Inputs(calls, stride, 4 * int(lengths.sum(dtype=np.int64)) // inputs)


def mask(scores: torch.Tensor, lengths: torch.Tensor) -> None:
    """Put -infinity at and past each row's length: float32 [M, N], integers [M]."""
    column = torch.arange(scores.shape[1], device=scores.device)
    at_once = max(1, MASKED_AT_ONCE // scores.shape[1])
    for begin in range(0, scores.shape[0], at_once):
        block = scores[begin : begin + at_once]
        block.masked_fill_(column >= lengths[begin : begin + at_once, None], -torch.inf)


Make = Callable[[Cell, int, int, torch.device], Inputs]
