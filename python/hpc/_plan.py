# SPDX-License-Identifier: Apache-2.0
"""The planner: which kernel serves a shape on a device, why, what it costs and what it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from hpc import _core
from hpc._arguments import check_choice, check_integer, shown

if TYPE_CHECKING:
    import torch


_INT64_MAX = 2**63 - 1
_INT32_MAX = 2**31 - 1


@dataclass(frozen=True)
class Problem:
    """The shape of a call."""

    num_rows: int
    num_columns: int
    row_stride: int
    """Elements between neighbouring rows."""
    k: int


@dataclass(frozen=True)
class SamplePolicy:
    """How the first phase proposes a boundary."""

    view: str
    """"none" (the boundary comes from the whole row), "strided" or "hashed"."""
    stride: int
    """Scores of the row for each sample."""
    chunk: int
    """Consecutive samples."""
    rank_margin: float
    """Rank of the primary boundary / k."""
    rescue_margin: float
    """Rank of the secondary boundary / k."""
    sigmas: float
    """Standard deviations of sampling error that the hashed view leaves."""


@dataclass(frozen=True)
class Policy:
    """What the phases are told."""

    sample: SamplePolicy
    digits: str
    """How refinement splits the ordered key: "fixed" (11 + 11 + 10 bits) or "normalised" (to what is left of it)."""


@dataclass(frozen=True)
class Candidate:
    """One mapping that the planner looked at."""

    kernel: str
    feasible: bool
    cost_us: float
    """The model's estimate in microseconds; 0 where not feasible."""
    note: str
    """Why it costs that, or why it cannot serve the shape."""


@dataclass(frozen=True)
class Plan:
    """A launch, decided. ``print(plan)`` says which kernel, why, what it costs and needs, and what was not chosen."""

    problem: Problem
    kernel: str
    policy: Policy
    grid: int
    """CTAs; threads for the cpu kernel."""
    block: int
    """Threads of a CTA."""
    ctas_per_row: int
    cluster_size: int
    programmatic_dependence: bool
    """Whether the device can begin a kernel before the one in front of it has ended."""
    candidate_capacity: int
    """(key, index) pairs that a CTA can hold."""
    shared_bytes: int
    """Dynamic shared memory of a CTA."""
    workspace_bytes: int
    candidates: tuple[Candidate, ...]
    _text: str = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self._text


@cache
def _cuda_device(ordinal: int) -> _core.DeviceInfo:
    return _core.cuda_device(ordinal)


def _device_info(device: str | torch.device | None) -> _core.DeviceInfo:
    if device is None:
        try:
            return _cuda_device(0)
        except (ValueError, RuntimeError):  # a build without CUDA, a machine without a device or its driver
            return _core.named_device("cpu")
    if not isinstance(device, str) and type(device).__module__ != "torch":
        raise TypeError(f"device = {shown(device)}: must be a str or a torch.device")
    name = str(device)
    kind, _, ordinal = name.partition(":")
    if kind == "cuda" and (ordinal.isdecimal() or ":" not in name):
        try:
            return _cuda_device(int(ordinal or 0))
        except (TypeError, ValueError, RuntimeError) as error:  # TypeError: an ordinal beyond a C int
            reason = "no such ordinal" if isinstance(error, TypeError) else error
            raise ValueError(f"device = {shown(name)}: must be a CUDA device of this machine: {reason}") from None
    return _core.named_device(name if name.isprintable() else shown(name))


def _shape(m: int, n: int, k: int) -> tuple[int, int, int]:
    return (
        check_integer("num_rows", m, 0, _INT64_MAX),
        check_integer("num_columns", n, 0, _INT32_MAX),
        check_integer("k", k, 1, _core.MAX_K),
    )


def plan(
    m: int,
    n: int,
    k: int,
    *,
    row_stride: int | None = None,
    device: str | torch.device | None = None,
    kernel: str = "auto",
) -> Plan:
    """Decide the launch for scores [m, n] and k. Pure: the same arguments give the same plan on every machine.

    Args:
        m: rows, 0 or more.
        n: columns, the allocated width of a row, 0 to 2**31 - 1.
        k: columns to select in each row, 1 to 4096.
        row_stride: elements between neighbouring rows, at least n; None: n.
        device: None (CUDA device 0 where there is one, else the CPU), "cpu", "cuda", "cuda:1", a torch.device, or a
            device by name: "a100", "h20", "h100", "h200", "b200", "rtx5090".
        kernel: "auto", or the kernel to force: "persistent", "kv_split", "row_local", "cluster", "fallback" (GPU) or
            "cpu".

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument is out of range, the device is unknown or absent, or the kernel cannot serve the shape.
    """
    m, n, k = _shape(m, n, k)
    if row_stride is not None:
        row_stride = check_integer("row_stride", row_stride, -_INT64_MAX, _INT64_MAX)
        if row_stride < n:
            raise ValueError(f"row_stride = {row_stride}: must be at least num_columns = {n}")
    check_choice("kernel", kernel, _core.KERNELS)
    fields = _core.make_plan(m, n, n if row_stride is None else row_stride, k, _device_info(device), kernel)
    return Plan(
        problem=Problem(**fields.pop("problem")),
        policy=Policy(SamplePolicy(**fields.pop("sample")), fields.pop("digits")),
        candidates=tuple(Candidate(**candidate) for candidate in fields.pop("candidates")),
        _text=fields.pop("text"),
        **fields,
    )


def workspace_size(m: int, n: int, k: int, *, device: str | torch.device | None = None) -> int:
    """Bytes of workspace with which `topk` serves scores [m, n] and k, whatever their row stride and the kernel.

    At most 16 MiB. `plan` says what one kernel at one row stride needs: ``hpc.plan(...).workspace_bytes``.

    Args:
        m: rows, 0 or more.
        n: columns, 0 to 2**31 - 1.
        k: columns to select in each row, 1 to 4096.
        device: as in `plan`.

    Raises:
        TypeError: an argument has the wrong type.
        ValueError: an argument is out of range, or the device is unknown or absent.
    """
    return _core.workspace_size(*_shape(m, n, k), _device_info(device))
