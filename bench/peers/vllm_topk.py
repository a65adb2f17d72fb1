# SPDX-License-Identifier: Apache-2.0
"""vLLM's four selectors: per row for prefill and for decode, persistent, and cooperative (at most 32 rows)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch

from peers import Call, Peer, Run, UnsupportedError

_WORKSPACE_BYTES = 1 << 20  # what vLLM reserves for the persistent and the cooperative kernel


def _version(operator: str) -> str:
    import vllm
    import vllm._custom_ops  # registers torch.ops._C

    getattr(torch.ops._C, operator)
    return str(vllm.__version__)


def _out(call: Call) -> torch.Tensor:
    return torch.empty(call.scores.shape[0], call.k, dtype=torch.int32, device=call.scores.device)


def _run_prefill(call: Call, starts: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    rows, stride = call.scores.shape[0], call.scores.stride(0)
    torch.ops._C.top_k_per_row_prefill(call.scores, starts, call.lengths, out, rows, stride, 1, call.k)
    return out


def _prefill(calls: Sequence[Call]) -> list[Run]:
    starts = torch.zeros_like(calls[0].lengths)
    return [partial(_run_prefill, call, starts, _out(call)) for call in calls]


def _run_decode(call: Call, out: torch.Tensor) -> torch.Tensor:
    rows, stride = call.scores.shape[0], call.scores.stride(0)
    torch.ops._C.top_k_per_row_decode(call.scores, 1, call.lengths, out, rows, stride, 1, call.k)
    return out


def _decode(calls: Sequence[Call]) -> list[Run]:
    return [partial(_run_decode, call, _out(call)) for call in calls]


def _run_with_workspace(operator: str, call: Call, out: torch.Tensor, workspace: torch.Tensor) -> torch.Tensor:
    getattr(torch.ops._C, operator)(call.scores, call.lengths, out, workspace, call.k, call.scores.shape[1])
    return out


def _with_workspace(operator: str, most_rows: int | None, calls: Sequence[Call]) -> list[Run]:
    rows, k = calls[0].scores.shape[0], calls[0].k
    if k not in (512, 1024, 2048):
        raise UnsupportedError(f"k = {k} is none of 512, 1024, 2048")
    if most_rows is not None and rows > most_rows:
        raise UnsupportedError(f"{rows} rows are more than {most_rows}")
    workspace = torch.zeros(_WORKSPACE_BYTES, dtype=torch.uint8, device=calls[0].scores.device)
    return [partial(_run_with_workspace, operator, call, _out(call), workspace) for call in calls]


PEERS = (
    Peer("vllm-prefill", partial(_version, "top_k_per_row_prefill"), _prefill),
    Peer("vllm-decode", partial(_version, "top_k_per_row_decode"), _decode),
    Peer("vllm-persistent", partial(_version, "persistent_topk"), partial(_with_workspace, "persistent_topk", None)),
    Peer("vllm-cooperative", partial(_version, "cooperative_topk"), partial(_with_workspace, "cooperative_topk", 32)),
)
