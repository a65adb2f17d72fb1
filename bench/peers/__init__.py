# SPDX-License-Identifier: Apache-2.0
"""Other exact selectors, timed beside ours where they are installed. bench/README.md says how to add one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class UnsupportedError(Exception):
    """A peer cannot serve a call. The text says why."""


@dataclass(frozen=True)
class Call:
    """The operands of one selection.

    Attributes:
        scores: float32 [M, N], rows 16-byte aligned and any distance apart. Columns at and past a row's length hold
            -infinity, for those peers that take no lengths.
        lengths: int32 [M], the valid scores of each row, beside the scores.
        k: columns to select in each row.
    """

    scores: torch.Tensor
    lengths: torch.Tensor
    k: int


Run = Callable[[], "torch.Tensor"]


@dataclass(frozen=True)
class Peer:
    """A selector.

    Attributes:
        name: how reports and the option --peers call it.
        version: the version installed; raises where it is not installed.
        prepare: allocates what calls of one shape need, a workspace once for all of them as an engine would, and
            returns for each a function without arguments, which enqueues the call on torch's current stream and
            returns its columns, integers [M, k]. A CUDA graph captures it. Entries that are not a valid column of
            their row count as unset. Raises UnsupportedError where it cannot serve the calls.
    """

    name: str
    version: Callable[[], str]
    prepare: Callable[[Sequence[Call]], list[Run]]


def all_peers() -> dict[str, Peer]:
    """Every peer by name, installed or not."""
    from peers import cub_sort, flashinfer_topk, sglang_topk, torch_topk, vllm_topk

    modules = (torch_topk, flashinfer_topk, sglang_topk, vllm_topk, cub_sort)
    return {peer.name: peer for module in modules for peer in module.PEERS}


def probe(peer: Peer) -> tuple[str, bool]:
    """(version, True) of an installed peer, or (why it cannot be used, False)."""
    try:
        return peer.version(), True
    except Exception as error:  # broken installations fail in every way
        return f"not installed: {' '.join(str(error).split())}", False
