# SPDX-License-Identifier: Apache-2.0
"""`hpc.topk`: the selection on numpy arrays and torch tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from hpc import _core
from hpc._arguments import check_choice, check_integer

if TYPE_CHECKING:
    import torch

try:
    from hpc import _torch
except ImportError as error:
    _no_torch = str(error)
else:
    _no_torch = ""


class Statistics(NamedTuple):
    """Counters of one or more calls, all in rows but for `candidates` and `scores_read`."""

    rows: int
    """Rows selected from (longer than k)."""
    candidates: int
    """Scores admitted by the boundary that was certified."""
    rescued: int
    """Rows that the secondary boundary completed."""
    recovered: int
    """Rows that needed the exact coarse boundary."""
    tightened: int
    """Times a full candidate buffer was cut to its k best."""
    scores_read: int
    """Scores read from memory, samples and rescans included."""


def topk_numpy(
    scores: NDArray[Any],
    k: int,
    lengths: NDArray[Any] | None = None,
    *,
    row_starts: NDArray[Any] | None = None,
    num_rows: NDArray[Any] | None = None,
    out: NDArray[Any] | None = None,
    workspace: NDArray[Any] | None = None,
    kernel: str = "auto",
    num_threads: int = 0,
) -> tuple[NDArray[np.int32], Statistics]:
    """`topk` on numpy arrays with its statistics, on num_threads threads (0: every hardware thread)."""
    arrays = {"lengths": lengths, "row_starts": row_starts, "num_rows": num_rows, "out": out, "workspace": workspace}
    for name, array in arrays.items():
        if array is not None and not isinstance(array, np.ndarray):
            raise TypeError(f"{name} = {type(array).__name__}: must be a numpy array, as scores is")
    for name, array in {"scores": scores, **arrays}.items():
        if isinstance(array, np.ma.MaskedArray):
            raise TypeError(f"{name} = MaskedArray: must be an array without a mask: rows are cut by lengths")
    result, counters = _core.topk(
        scores, k, lengths, row_starts, num_rows, out, workspace, kernel=kernel, num_threads=num_threads
    )
    return result, Statistics(*counters)


@overload
def topk(
    scores: NDArray[np.float32],
    k: int,
    lengths: NDArray[np.int32] | None = None,
    *,
    row_starts: NDArray[np.int32] | None = None,
    num_rows: NDArray[np.int32] | None = None,
    out: NDArray[np.int32] | None = None,
    workspace: NDArray[np.uint8] | None = None,
    kernel: str = "auto",
) -> NDArray[np.int32]: ...


@overload
def topk(
    scores: torch.Tensor,
    k: int,
    lengths: torch.Tensor | None = None,
    *,
    row_starts: torch.Tensor | None = None,
    num_rows: torch.Tensor | None = None,
    out: torch.Tensor | None = None,
    workspace: torch.Tensor | None = None,
    kernel: str = "auto",
) -> torch.Tensor: ...


def topk(
    scores: Any,
    k: int,
    lengths: Any = None,
    *,
    row_starts: Any = None,
    num_rows: Any = None,
    out: Any = None,
    workspace: Any = None,
    kernel: str = "auto",
) -> Any:
    """The columns of the k largest scores of every row: int32 [M, k], in no particular order.

    Row r is selected from its window, columns [start, start + length). A row whose window holds no more than k scores
    gets start, start + 1, ... in order, and then -1. Every NaN ranks above +infinity, -0.0 equals +0.0, -infinity is a
    score like any other, and equal scores at the boundary are taken from the lowest column up: the selected set depends
    on the row alone, not on the other rows, the kernel or the device.

    Args:
        scores: float32 [M, N], a numpy array or a torch tensor on the CPU or a CUDA device. The last dimension is
            contiguous; rows may lie any distance >= N apart. N is below 2**31.
        k: 1 to 4096. More than N is allowed.
        lengths: int32 [M], contiguous, clamped to [0, N - start] where a row is read. None: every row is full.
        row_starts: int32 [M], contiguous, clamped to [0, N]. None: 0.
        num_rows: int32 [1]; rows at and past it are not touched (-1 in a result that is allocated here). None: M.
        out: int32 [M, k] to write and return; its rows may lie any distance >= k apart. None: allocated.
        workspace: uint8 [`workspace_size` bytes], 16-byte aligned, of any contents, not shared by calls that can
            overlap. None: allocated.
        kernel: "auto", or the kernel to force (see `plan`).

    Every array is of the same library and on the same device as scores, and `out` and `workspace` share no memory with
    another argument. On a CUDA device the call enqueues on torch's current stream and returns; with `out` and
    `workspace` it allocates nothing, so a CUDA graph may hold it. Inside torch.compile, give both or neither.

    Returns:
        `out`, or a new int32 [M, k] beside the scores.

    Raises:
        TypeError: an argument is not an array of the scores' library, or has the wrong dtype.
        ValueError: a shape, stride, device, size or value breaks a rule above, or the kernel cannot serve the shape.
        RuntimeError: CUDA refused the launch, or torch tensors were given and this build has no torch op.

    An error about an argument names it, its value and the rule, and is raised before anything is written.
    """
    k = check_integer("k", k, 1, _core.MAX_K)
    check_choice("kernel", kernel, _core.KERNELS)
    if isinstance(scores, np.ndarray):
        return topk_numpy(
            scores,
            k,
            lengths,
            row_starts=row_starts,
            num_rows=num_rows,
            out=out,
            workspace=workspace,
            kernel=kernel,
        )[0]
    if _no_torch:
        if type(scores).__module__.partition(".")[0] == "torch":
            raise RuntimeError(f"scores = {type(scores).__name__}: {_no_torch}")
    elif _torch.is_tensor(scores):
        return _torch.topk(
            scores,
            k,
            lengths,
            row_starts=row_starts,
            num_rows=num_rows,
            out=out,
            workspace=workspace,
            kernel=kernel,
        )
    raise TypeError(f"scores = {type(scores).__name__}: must be a numpy array or a torch tensor")
