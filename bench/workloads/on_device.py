# SPDX-License-Identifier: Apache-2.0
"""Score rows made by torch where they are used: what `generate` makes in seconds, a GPU makes in milliseconds.

The formulas are those of `workloads.generators`; the random numbers are torch's, so the bits differ. Sink and recency
follow the length of each row, not the allocated width: the last scores of a causal row are the recent ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from workloads.generators import WINDOW, load_sample

AT_ONCE = 1 << 27  # scores whose intermediate values are held together

Fill = Callable[[torch.Tensor, torch.Tensor, torch.Generator], None]


def _normal(scores: torch.Tensor, lengths: torch.Tensor, rng: torch.Generator) -> None:
    scores.normal_(generator=rng)


def _indexer(scores: torch.Tensor, lengths: torch.Tensor, rng: torch.Generator) -> None:
    rows, columns = scores.shape
    wide = torch.empty(rows, columns + 7, device=scores.device).normal_(generator=rng)
    for shift in (1, 2, 4):
        wide = wide[:, :-shift] + wide[:, shift:]
    scores.normal_(generator=rng).clamp_(min=0).add_(wide.clamp_(min=0), alpha=1.5 / math.sqrt(8))
    p = torch.arange(columns, device=scores.device) / lengths[:, None]
    scores.add_(torch.exp(-20 * p), alpha=2).add_(torch.exp(-20 * (1 - p)).clamp_(max=1), alpha=2)


def _text(scores: torch.Tensor, lengths: torch.Tensor, rng: torch.Generator) -> None:
    layers = torch.from_numpy(load_sample()[0].reshape(2, -1).copy()).to(scores.device)
    size = layers.shape[1]
    starts = WINDOW * torch.randint(size // WINDOW, (scores.shape[0],), generator=rng, device=scores.device)
    column = torch.arange(scores.shape[1], device=scores.device)
    for row, start in enumerate(starts.tolist()):
        scores[row] = layers[row % 2][(column + start) % size]


FILLS: dict[str, Fill] = {"normal": _normal, "indexer": _indexer, "text": _text}


def fill(name: str, scores: torch.Tensor, lengths: NDArray[np.int32], seed: int) -> None:
    """Write rows of the workload `name` into `scores`.

    Args:
        name: a key of FILLS.
        scores: float32 [M, N] on any device, any row stride.
        lengths: int32 [M], 1..N: where each row ends. Scores past it are to be ignored.
        seed: any integer >= 0. The same arguments give the same bits with one torch on one kind of device.
    """
    rng = torch.Generator(scores.device).manual_seed(seed)
    length = torch.from_numpy(lengths).to(scores.device)
    at_once = max(2, AT_ONCE // max(1, scores.shape[1]) // 2 * 2)  # even: the layers of text alternate
    for begin in range(0, scores.shape[0], at_once):
        FILLS[name](scores[begin : begin + at_once], length[begin : begin + at_once], rng)
