# SPDX-License-Identifier: Apache-2.0
"""FlashInfer's ragged transform: top-k within lengths, plus an offset of zero."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from peers import Call, Peer, Run


def _version() -> str:
    import flashinfer

    _ = flashinfer.top_k_ragged_transform  # since 0.6
    return str(flashinfer.__version__)


def _prepare(calls: Sequence[Call]) -> list[Run]:
    import flashinfer

    offsets = torch.zeros_like(calls[0].lengths)
    return [partial(flashinfer.top_k_ragged_transform, call.scores, offsets, call.lengths, call.k) for call in calls]


PEERS = (Peer("flashinfer", _version, _prepare),)
