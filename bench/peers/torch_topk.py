# SPDX-License-Identifier: Apache-2.0
"""torch.topk, unsorted. It takes no lengths: -infinity past a row's length keeps it inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from peers import Call, Peer, Run, UnsupportedError


def _run(call: Call) -> torch.Tensor:
    return torch.topk(call.scores, call.k, dim=1, sorted=False).indices


def _prepare(calls: Sequence[Call]) -> list[Run]:
    k, columns = calls[0].k, calls[0].scores.shape[1]
    if k > columns:
        raise UnsupportedError(f"k = {k} is more than the {columns} columns")
    return [partial(_run, call) for call in calls]


PEERS = (Peer("torch.topk", lambda: torch.__version__, _prepare),)
