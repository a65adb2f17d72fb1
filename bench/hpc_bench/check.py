# SPDX-License-Identifier: Apache-2.0
"""Whether columns are the top-k of their rows, by counting: no sort of the scores, all rows, on the scores' device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

_CHUNK = 1 << 27  # scores looked at together


@dataclass(frozen=True)
class Verdict:
    """`text` is "exact", "ties" (right values, other columns of equal score) or "wrong"; `note` names a wrong row."""

    text: str
    note: str = ""


def ordered_keys(scores: torch.Tensor) -> torch.Tensor:
    """int32 keys in the order of float32 scores: every NaN equal and on top, -0.0 equal to +0.0."""
    bits = (scores + 0.0).view(torch.int32)  # -0.0 + 0.0 is +0.0
    keys = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return torch.where(torch.isnan(scores), torch.iinfo(torch.int32).max, keys)


def check(scores: torch.Tensor, lengths: torch.Tensor, columns: torch.Tensor, k: int, *, contract: bool) -> Verdict:
    """Compare a selection with the definition.

    A row longer than k is right if its k columns are distinct and inside, and as many of them as of the whole row lie
    above the least selected score: then none above it is missing. The contract also wants equal scores from the lowest
    column up: up to the last selected one of the least score, the row has no other.

    Args:
        scores: float32 [M, N], any row stride.
        lengths: integers [M], 0..N.
        columns: integers [M, k]. Entries that are not a valid column of their row count as unset.
        k: at least 1.
        contract: a row no longer than k must be 0, 1, ..., then -1; else its columns may come in any order.
    """
    ties = False
    rows_at_once = max(1, _CHUNK // max(1, scores.shape[1]))
    for begin in range(0, scores.shape[0], rows_at_once):
        rows = slice(begin, begin + rows_at_once)
        right, lowest = _check_rows(scores[rows], lengths[rows, None].long(), columns[rows].long(), k, contract)
        if not bool(right.all()):
            return Verdict("wrong", f"row {begin + int(torch.nonzero(~right)[0])}")
        ties |= not bool(lowest.all())
    return Verdict("ties" if ties else "exact")


def _check_rows(
    scores: torch.Tensor, length: torch.Tensor, selected: torch.Tensor, k: int, contract: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether each row is right, and whether its ties are the lowest: bool [M] both."""
    if selected.shape != (scores.shape[0], k):
        wrong = torch.zeros(scores.shape[0], dtype=torch.bool, device=scores.device)
        return wrong, wrong
    short = length <= k
    inside = (selected >= 0) & (selected < length)
    in_order = torch.where(inside, selected, -1).sort(dim=1).values
    distinct = ((in_order[:, 1:] != in_order[:, :-1]) | (in_order[:, 1:] < 0)).all(dim=1, keepdim=True)
    right = distinct & (inside.sum(dim=1, keepdim=True) == length.clamp(max=k))
    if contract:
        position = torch.arange(k, device=scores.device)
        right &= ~short | (selected == torch.where(position < length, position, -1)).all(dim=1, keepdim=True)
    if scores.shape[1] == 0:
        return right[:, 0], right[:, 0]

    keys = ordered_keys(scores)
    column = torch.arange(scores.shape[1], device=scores.device)
    valid = column < length
    chosen = keys.gather(1, selected.clamp(0, scores.shape[1] - 1))
    boundary = chosen.amin(dim=1, keepdim=True)
    above = ((keys > boundary) & valid).sum(dim=1, keepdim=True)
    right &= short | (above == (chosen > boundary).sum(dim=1, keepdim=True))
    last_tie = torch.where(chosen == boundary, selected, -1).amax(dim=1, keepdim=True)
    ties = ((keys == boundary) & valid & (column <= last_tie)).sum(dim=1, keepdim=True)
    lowest = short | (ties == k - above)
    return right[:, 0], lowest[:, 0]
