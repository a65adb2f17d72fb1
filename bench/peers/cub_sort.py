# SPDX-License-Identifier: Apache-2.0
"""CUB's segmented radix sort of whole rows, of which the first k columns are kept. In the native module."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any

import torch

from peers import Call, Peer, Run, UnsupportedError


def _native() -> Any:
    return import_module("hpc._bench")


def _version() -> str:
    version = _native().cub_version()
    return f"{version // 100000}.{version // 100 % 1000}.{version % 100}"


class _Sort:
    """Sorts the rows of calls of one shape; what it needs besides the scores is shared by all of them."""

    def __init__(self, call: Call) -> None:
        (rows, columns), stride, device = call.scores.shape, call.scores.stride(0), call.scores.device
        if call.k > columns:
            raise UnsupportedError(f"k = {call.k} is more than the {columns} columns")
        if rows * stride >= 2**31:
            raise UnsupportedError(f"{rows} x {stride} scores are not below 2^31")
        self._native = _native()
        self._begins = torch.arange(rows, dtype=torch.int32, device=device) * stride
        self._numbers = torch.arange(stride, dtype=torch.int32, device=device).repeat(rows, 1)
        self._sorted_numbers = torch.full_like(self._numbers, -1)
        self._sorted_scores = torch.empty(rows, stride, device=device)
        self._temporary = torch.empty(0, dtype=torch.uint8, device=device)
        ends, out = self.operands(call)
        self._temporary = torch.empty(max(1, self._sort(call, ends, out)), dtype=torch.uint8, device=device)

    def operands(self, call: Call) -> tuple[torch.Tensor, torch.Tensor]:
        """Where the rows of one call end, and room for its columns."""
        shape = (call.scores.shape[0], call.k)
        return self._begins + call.lengths, torch.empty(shape, dtype=torch.int32, device=call.scores.device)

    def run(self, call: Call, ends: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Enqueue one call."""
        self._sort(call, ends, out)
        return out

    def _sort(self, call: Call, ends: torch.Tensor, out: torch.Tensor) -> int:
        bytes_needed: int = self._native.sort_rows(
            scores=call.scores.data_ptr(),
            begins=self._begins.data_ptr(),
            ends=ends.data_ptr(),
            sorted_scores=self._sorted_scores.data_ptr(),
            columns=self._numbers.data_ptr(),
            sorted_columns=self._sorted_numbers.data_ptr(),
            out=out.data_ptr(),
            num_rows=out.shape[0],
            row_stride=call.scores.stride(0),
            k=call.k,
            temporary=self._temporary.data_ptr(),  # null while it is empty: then only its size is told
            temporary_bytes=self._temporary.numel(),
            stream=torch.cuda.current_stream(out.device).cuda_stream,
        )
        return bytes_needed


def _prepare(calls: Sequence[Call]) -> list[Run]:
    sort = _Sort(calls[0])
    return [partial(sort.run, call, *sort.operands(call)) for call in calls]


PEERS = (Peer("cub-sort", _version, _prepare),)
