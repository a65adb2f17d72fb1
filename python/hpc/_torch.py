# SPDX-License-Identifier: Apache-2.0
"""torch.ops.hpc: loads the operators (python/csrc/torch_ops.cpp) and tells torch's compiler what they give.

::

    torch.ops.hpc.topk(scores, lengths, k, row_starts=None, num_rows=None, kernel="auto") -> int32 [M, k]
    torch.ops.hpc.topk.out(scores, lengths, k, row_starts=None, num_rows=None, kernel="auto", *, out, workspace) -> ()
    torch.ops.hpc.topk_counted(scores, lengths, k, row_starts=None, num_rows=None, mapping="auto")
        -> (int32 [M, k], int64 [6])

Arguments and rules are those of `hpc.topk`. lengths may be None. The form that takes out and workspace writes them and
allocates nothing. A refused argument is a RuntimeError that names it, its value and the rule. `topk_counted` also gives
the call's `hpc._topk.Statistics`, beside the scores; it serves the command line and the benchmarks.
"""

from __future__ import annotations

import re
from pathlib import Path

try:
    import torch
except ImportError as error:
    raise ImportError(f"torch cannot be imported: {error}") from error

from hpc import _plan

_LIBRARY = Path(__file__).with_name("libhpc_torch.so")
if not _LIBRARY.exists():
    raise ImportError(
        "this build of hpc has no torch op: with torch 2.10 or later installed, reinstall it with "
        "pip install --no-build-isolation, so that the build finds torch"
    )
try:
    torch.ops.load_library(_LIBRARY)
except OSError as error:
    raise ImportError(f"the torch op cannot be loaded, it needs torch 2.10 or later: {error}") from error

# How every refusal reads (python/csrc/operands.h, src/check_arguments.cpp): "name = value: must be ...".
_REFUSAL = re.compile(r"(scores|k|lengths|row_starts|num_rows|out|workspace|kernel)\w*(\.\S+)? = ")


_fragment = torch.library.Library("hpc", "FRAGMENT")


def _topk(
    scores: torch.Tensor,
    lengths: torch.Tensor | None,
    k: int,
    row_starts: torch.Tensor | None = None,
    num_rows: torch.Tensor | None = None,
    kernel: str = "auto",
) -> torch.Tensor:
    columns: torch.Tensor = torch.ops.hpc._topk(scores, lengths, k, row_starts, num_rows, kernel)
    return columns


def _topk_out(
    scores: torch.Tensor,
    lengths: torch.Tensor | None,
    k: int,
    row_starts: torch.Tensor | None = None,
    num_rows: torch.Tensor | None = None,
    kernel: str = "auto",
    *,
    out: torch.Tensor,
    workspace: torch.Tensor,
) -> None:
    torch.ops.hpc._topk.out(scores, lengths, k, row_starts, num_rows, kernel, out=out, workspace=workspace)


# For tracing alone: the CPU and CUDA keys have kernels of their own, which an eager call reaches directly.
_fragment.impl("topk", _topk, "CompositeImplicitAutograd")
_fragment.impl("topk.out", _topk_out, "CompositeImplicitAutograd")


def _check_fake(scores: torch.Tensor, **operands: torch.Tensor | None) -> None:
    """The checks of tensors that have no memory: what is traced, and what is on the meta device."""
    torch._check(scores.dim() == 2, lambda: f"scores.ndim = {scores.dim()}: must be 2")
    for name, operand in operands.items():
        if operand is not None and operand.device != scores.device:
            raise RuntimeError(f"{name}.device = {operand.device}: must be {scores.device}, that of scores")


@torch.library.register_fake("hpc::_topk", lib=_fragment)
def _topk_fake(
    scores: torch.Tensor,
    lengths: torch.Tensor | None,
    k: int,
    row_starts: torch.Tensor | None,
    num_rows: torch.Tensor | None,
    mapping: str,
) -> torch.Tensor:
    _check_fake(scores, lengths=lengths, row_starts=row_starts, num_rows=num_rows)
    return scores.new_empty((scores.shape[0], k), dtype=torch.int32)


@torch.library.register_fake("hpc::_topk.out", lib=_fragment)
def _topk_out_fake(
    scores: torch.Tensor,
    lengths: torch.Tensor | None,
    k: int,
    row_starts: torch.Tensor | None,
    num_rows: torch.Tensor | None,
    mapping: str,
    *,
    out: torch.Tensor,
    workspace: torch.Tensor,
) -> None:
    _check_fake(scores, lengths=lengths, row_starts=row_starts, num_rows=num_rows, out=out, workspace=workspace)


@torch.library.register_fake("hpc::topk_counted", lib=_fragment)
def _topk_counted_fake(
    scores: torch.Tensor,
    lengths: torch.Tensor | None,
    k: int,
    row_starts: torch.Tensor | None = None,
    num_rows: torch.Tensor | None = None,
    mapping: str = "auto",
) -> tuple[torch.Tensor, torch.Tensor]:
    columns = _topk_fake(scores, lengths, k, row_starts, num_rows, mapping)
    return columns, scores.new_empty((6,), dtype=torch.int64)


def is_tensor(value: object) -> bool:
    """Whether value is a torch tensor."""
    return isinstance(value, torch.Tensor)


def topk(
    scores: torch.Tensor,
    k: int,
    lengths: torch.Tensor | None,
    *,
    row_starts: torch.Tensor | None,
    num_rows: torch.Tensor | None,
    out: torch.Tensor | None,
    workspace: torch.Tensor | None,
    kernel: str,
) -> torch.Tensor:
    """`hpc.topk` on torch tensors."""
    tensors = {"lengths": lengths, "row_starts": row_starts, "num_rows": num_rows, "out": out, "workspace": workspace}
    for name, tensor in tensors.items():
        if tensor is not None and not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} = {type(tensor).__name__}: must be a torch tensor, as scores is")
    if torch.compiler.is_compiling():
        return _call(scores, k, lengths, row_starts, num_rows, out, workspace, kernel)
    try:
        return _call(scores, k, lengths, row_starts, num_rows, out, workspace, kernel)
    except RuntimeError as error:
        refusal = _REFUSAL.match(str(error))
        if refusal is None:
            raise
        raise (TypeError if refusal[2] == ".dtype" else ValueError)(str(error)) from None


def _call(
    scores: torch.Tensor,
    k: int,
    lengths: torch.Tensor | None,
    row_starts: torch.Tensor | None,
    num_rows: torch.Tensor | None,
    out: torch.Tensor | None,
    workspace: torch.Tensor | None,
    kernel: str,
) -> torch.Tensor:
    if out is None and workspace is None:
        columns: torch.Tensor = torch.ops.hpc.topk(scores, lengths, k, row_starts, num_rows, kernel)
        return columns
    if out is None or workspace is None:
        if scores.dim() != 2:
            raise ValueError(f"scores.ndim = {scores.dim()}: must be 2")
        size = _plan.workspace_size(scores.shape[0], scores.shape[1], k, device=scores.device)  # refuses k too
        if out is None:
            out = scores.new_empty((scores.shape[0], k), dtype=torch.int32)
            if num_rows is not None:
                out.fill_(-1)
        if workspace is None:
            workspace = scores.new_empty(size, dtype=torch.uint8)
    torch.ops.hpc.topk.out(scores, lengths, k, row_starts, num_rows, kernel, out=out, workspace=workspace)
    return out
