# SPDX-License-Identifier: Apache-2.0
"""Where the boundaries of sampled views lie in the complete row: the views of kernels/detail/view.h, counted exactly.

Rows are float32 [R, W], -infinity past their lengths. A view proposes the score of a rank of its sample; what counts is
how many scores of the complete row reach it, C. Fewer than k and the row is underfilled (paper, section 4.3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

# Sample ranks of a row: the same for every view of it, or int64 [views, ranks] from the samples, float32 [views, n].
RowRanks = Sequence[int] | Callable[[torch.Tensor], torch.Tensor]

_LOW_BITS = (1 << 18) - 1  # of a float32, below the 5 mantissa bits of the coarse key
_SMALLEST_NORMAL = 2.0**-14  # of fp16
_SUBNORMAL_UNIT = 2.0**-19
_LARGEST = 2.0**16
_MIX = 0xFFFFFFFF


def ascending(scores: torch.Tensor) -> torch.Tensor:
    """Each row sorted, NaN last."""
    if scores.device.type == "cpu":
        return torch.from_numpy(np.sort(scores.numpy(), axis=1))  # vectorised, torch's is not
    return scores.sort(dim=1).values


def count_at_least(ordered: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """How many scores of each row reach each value: int64 [R, ...] for ordered [R, W] and values [R, ...]."""
    flat = values.reshape(values.shape[0], -1).contiguous()
    return (ordered.shape[1] - torch.searchsorted(ordered, flat)).reshape(values.shape)


def coarse_floor(values: torch.Tensor) -> torch.Tensor:
    """The lowest score in the 11-bit fp16 bin of each value (equation 7): what the paper's boundary admits down to."""
    bits = values.view(torch.int32)
    positive = torch.where(bits >= 0, bits & ~_LOW_BITS, bits | _LOW_BITS).view(torch.float32)
    magnitude = values.abs()
    unit = torch.floor(magnitude / _SUBNORMAL_UNIT)
    below = torch.nextafter((unit + 1) * _SUBNORMAL_UNIT, torch.zeros((), device=values.device))
    subnormal = torch.where(values >= 0, unit * _SUBNORMAL_UNIT, -below)
    floor = torch.where(magnitude < _SMALLEST_NORMAL, subnormal, positive)
    floor = torch.where(values >= _LARGEST, _LARGEST, floor)
    return torch.where(values <= -_LARGEST, -torch.inf, floor)


def strided(scores: torch.Tensor, stride: int, ranks: Sequence[int]) -> torch.Tensor:
    """The scores of these sample ranks in every phase of a fixed stride: float32 [R, stride, len(ranks)].

    -infinity where a phase holds fewer scores. Ranks count from 1, the largest.
    """
    rows, width = scores.shape
    samples = -(-width // stride)
    padded = torch.nn.functional.pad(scores, (0, samples * stride - width), value=-torch.inf)
    phases = padded.view(rows, samples, stride).transpose(1, 2).contiguous()
    best = phases.topk(min(max(ranks), samples), dim=2).values
    return torch.nn.functional.pad(best, (0, max(ranks) - best.shape[2]), value=-torch.inf)[
        :, :, torch.tensor(ranks, device=scores.device) - 1
    ]


def _mix(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The 32-bit hash of view.h, in int64."""
    x = (a * 0x9E3779B9 + b * 0x85EBCA6B) & _MIX
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & _MIX
    x = ((x ^ (x >> 15)) * 0x846CA68B) & _MIX
    return x ^ (x >> 16)


def hashed_columns(length: int, stride: int, chunk: int, seeds: torch.Tensor, most: int = 1 << 30) -> torch.Tensor:
    """The columns that the hashed view reads: int64 [seeds, samples].

    Args:
        length: of the row.
        stride: scores of the row for each sample.
        chunk: neighbouring samples, a multiple of 4.
        seeds: int64 [seeds], one for each view; a kernel's is the number of the row.
        most: samples, at most.
    """
    chunks = min(length // stride, most) // chunk
    quads = chunk // 4
    stratum = length // 4 // max(1, chunks)
    number = torch.arange(chunks, device=seeds.device)
    place = _mix(seeds[:, None], number) * (stratum - quads + 1) >> 32
    first = 4 * (number * stratum + place)
    return (first[:, :, None] + torch.arange(chunk, device=seeds.device)).reshape(seeds.numel(), -1)


def hashed(
    scores: torch.Tensor,
    lengths: NDArray[np.int32],
    seeds: int,
    view: tuple[int, int, int],
    ranks: Sequence[RowRanks],
) -> torch.Tensor:
    """The scores of sample ranks in the hashed views of `seeds` seeds: float32 [R, seeds, ranks of a row].

    Args:
        scores: float32 [R, W].
        lengths: int32 [R].
        seeds: how many views of each row.
        view: (stride, chunk, most samples).
        ranks: of each row. -infinity where a view has fewer samples.
    """
    found = []
    for number, (row, length, wanted) in enumerate(zip(scores, lengths.tolist(), ranks, strict=True)):
        seed = torch.arange(seeds, device=scores.device) + number * seeds
        sample = row[hashed_columns(length, view[0], view[1], seed, view[2])]
        own = wanted(sample) if callable(wanted) else torch.tensor([wanted] * seeds, device=scores.device)
        own = own.clamp(min=1)
        most = int(own.max())
        best = sample.topk(min(most, sample.shape[1]), dim=1).values
        best = torch.nn.functional.pad(best, (0, most - best.shape[1]), value=-torch.inf)
        found.append(best.gather(1, own - 1))
    return torch.stack(found)


def rank_with_margin(expected: float, sigmas: float) -> int:
    """The sample rank that leaves `sigmas` deviations of sampling error: sample_rank of view.h."""
    root = 0.5 * sigmas + math.sqrt(0.25 * sigmas * sigmas + expected)
    return math.ceil(root * root)


def own_margins(sample: torch.Tensor, chunk: int, sigmas: float) -> torch.Tensor:
    """The margins that samples ask for themselves, in deviations of independent scores: float64 [seeds].

    As HashedView::ranks of view.h: three deviations of what the chunks show, at least `sigmas` and at most twice that.

    Args:
        sample: float32 [seeds, samples], chunk after chunk.
        chunk: neighbouring samples, a multiple of 4.
        sigmas: the policy's.
    """
    if sample.shape[1] == 0:
        return torch.full((sample.shape[0],), sigmas, dtype=torch.float64, device=sample.device)
    quads = sample.reshape(sample.shape[0], -1, 4).amax(dim=2)
    threads = 256  # whose quads are subsets of the sample: a score that as many samples reach
    subsets = torch.nn.functional.pad(quads, (0, -quads.shape[1] % threads), value=-torch.inf)
    subsets = subsets.reshape(sample.shape[0], -1, threads).amax(dim=1)
    floor = subsets[:, : quads.shape[1]].amin(dim=1)
    held = (sample > floor[:, None]).reshape(sample.shape[0], -1, chunk).sum(dim=2).double()
    counted, pairs = held.sum(dim=1), held.square().sum(dim=1)
    effect = (pairs / counted - counted / held.shape[1]).nan_to_num(0)
    return (3 * effect.clamp(min=0).sqrt()).clamp(sigmas, 2 * sigmas)


def exchangeable_variance(length: NDArray[np.float64], samples: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """Of the complete-row rank of a sample rank, if ranks are exchangeable over positions (section 3.2)."""
    numerator = rank * (samples - rank + 1) * (length + 1) * (length - samples)
    return numerator / ((samples + 1) ** 2 * (samples + 2))


def exchangeable_mean(length: NDArray[np.float64], samples: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    """The mean of the same rank."""
    return rank * (length + 1) / (samples + 1)
