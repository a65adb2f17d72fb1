# SPDX-License-Identifier: Apache-2.0
"""Ours as a contestant: a plan with the kernel, the policy and the split that the command line asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from peers import Call, Peer, Run, UnsupportedError

from hpc import _core

from . import inputs
from .grids import Cell

STATISTICS = ("rows", "candidates", "rescued", "recovered", "tightened", "scores_read")  # hpctopk::Statistics
SPLITS = (0, 2, 4, 8, 16, 32, 64, 128)  # CTAs a row to ask for; 0: the planner's choice


@dataclass(frozen=True)
class Prepared:
    """A contestant, ready to run calls of one shape.

    Attributes:
        runs: as peers.Peer.prepare gives them.
        plan: what the planner chose; ours alone.
        count: runs the first call once more and returns the counters of that launch; ours alone.
    """

    runs: list[Run]
    plan: dict[str, Any] | None = None
    count: Callable[[], dict[str, int]] | None = None


@dataclass(frozen=True)
class Contestant:
    """Whoever is timed. `ours` must select the contract's set; a peer may break ties as it likes."""

    name: str
    ours: bool
    prepare: Callable[[Sequence[Call]], Prepared]


def of_peer(peer: Peer) -> Contestant:
    """A peer as a contestant."""
    return Contestant(peer.name, False, lambda calls: Prepared(peer.prepare(calls)))


def ours_name(policy: str, kernel: str, ctas_per_row: int) -> str:
    """ "hpc" with what differs from the default."""
    words = ["hpc"]
    words += [policy] if policy != "default" else []
    words += [kernel] if kernel != "auto" else []
    words += [f"{ctas_per_row} a row"] if ctas_per_row else []
    return " ".join(words)


def ours(
    native: Any,
    policy: str,
    kernel: str,
    ctas_per_row: int,
    *,
    name: str | None = None,
    changes: Mapping[str, Any] | None = None,
) -> Contestant:
    """The library with a policy ("default" or "paper"), a kernel ("auto": the planner's) and CTAs a row (0: likewise).

    Args:
        native: the module hpc._bench.
        policy, kernel, ctas_per_row: as the options of that name.
        name: starts with "hpc"; None: `ours_name`.
        changes: fields of the policy by their names in the header, enumerations as text: {"view": "none"}.
    """

    def prepare(calls: Sequence[Call]) -> Prepared:
        (rows, columns), k, device = calls[0].scores.shape, calls[0].k, calls[0].scores.device
        try:
            selection = native.Selection(
                rows,
                columns,
                calls[0].scores.stride(0),
                k,
                kernel=kernel,
                policy=policy,
                changes=dict(changes or {}),
                ctas_per_row=ctas_per_row,
                device=device.index,
            )
        except ValueError as error:
            raise UnsupportedError(str(error)) from None
        workspace = torch.empty(selection.workspace_bytes, dtype=torch.uint8, device=device)

        def launch(call: Call, out: torch.Tensor, statistics: int = 0) -> torch.Tensor:
            selection.launch(
                scores=call.scores.data_ptr(),
                lengths=call.lengths.data_ptr(),
                out=out.data_ptr(),
                workspace=workspace.data_ptr(),
                workspace_bytes=workspace.numel(),
                statistics=statistics,
                stream=torch.cuda.current_stream(device).cuda_stream,
            )
            return out

        def count() -> dict[str, int]:
            counters = torch.zeros(len(STATISTICS), dtype=torch.int64, device=device)
            launch(calls[0], torch.empty(rows, k, dtype=torch.int32, device=device), counters.data_ptr())
            return dict(zip(STATISTICS, counters.tolist(), strict=True))

        runs = [partial(launch, call, torch.empty(rows, k, dtype=torch.int32, device=device)) for call in calls]
        return Prepared(list(runs), selection.describe(), count)

    return Contestant(name or ours_name(policy, kernel, ctas_per_row), True, prepare)


def candidates(native: Any, cell: Cell, device: int) -> list[Contestant]:
    """Ours once for each kernel and number of CTAs a row that the default policy's plan for the cell can have.

    Args:
        native: the module hpc._bench.
        cell: what to select.
        device: ordinal of the CUDA device.
    """
    found: dict[str, Contestant] = {}
    for kernel in (name for name in _core.KERNELS if name not in ("auto", "cpu")):
        for ctas_per_row in SPLITS:
            try:
                plan = native.Selection(
                    cell.rows,
                    cell.columns,
                    inputs.row_stride(cell.columns),
                    cell.k,
                    kernel=kernel,
                    policy="default",
                    changes={},
                    ctas_per_row=ctas_per_row,
                    device=device,
                ).describe()
            except ValueError:  # refused: this split or, where the planner may choose it, this kernel
                if ctas_per_row == 0:
                    break
                continue
            parts = plan["ctas_per_row"] if plan["ctas_per_row"] > 1 else 0
            contestant = ours(native, "default", kernel, parts)
            found.setdefault(contestant.name, contestant)
            if parts == 0:  # it shares no rows
                break
    return list(found.values())
