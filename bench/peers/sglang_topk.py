# SPDX-License-Identifier: Apache-2.0
"""SGLang's top-k V2, compiled when it is first used. Its plan depends on the lengths alone and is not timed."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import torch

from peers import Call, Peer, Run, UnsupportedError

_MODULES = ("sglang.kernels.ops.attention.dsv4", "sglang.jit_kernel.dsv4", "sglang.jit_kernel.deepseek_v4")
_TRANSFORMS = ("topk_transform_paged_v2", "topk_transform_512_v2")
_PAGE = 64  # columns of a page; page p of every row is page p of the cache, so that slots are columns


def _entry_points() -> tuple[Any, Any]:
    """(plan, transform) of the installed release, which has moved and renamed them."""
    reason: Exception = ImportError("no sglang")
    for name in _MODULES:
        try:
            module = import_module(name)
        except ImportError as error:
            reason = error
            continue
        for transform in _TRANSFORMS:
            if hasattr(module, transform):
                return module.plan_topk_v2, getattr(module, transform)
    raise ImportError(f"no top-k V2: {reason}")


def _version() -> str:
    _entry_points()
    import sglang

    return str(sglang.__version__)


def _run(transform: Any, call: Call, pages: torch.Tensor, out: torch.Tensor, metadata: Any) -> torch.Tensor:
    transform(call.scores, call.lengths, pages, out, _PAGE, metadata)
    return out


def _prepare(calls: Sequence[Call]) -> list[Run]:
    (rows, columns), k, device = calls[0].scores.shape, calls[0].k, calls[0].scores.device
    if k not in (512, 1024, 2048):
        raise UnsupportedError(f"k = {k} is none of 512, 1024, 2048")
    plan, transform = _entry_points()
    pages = torch.arange(-(-columns // _PAGE), dtype=torch.int32, device=device).repeat(rows, 1)
    return [
        partial(
            _run, transform, call, pages, torch.empty(rows, k, dtype=torch.int32, device=device), plan(call.lengths)
        )
        for call in calls
    ]


PEERS = (Peer("sglang", _version, _prepare),)
