# SPDX-License-Identifier: Apache-2.0
"""Fixtures: where a test runs, and the operator on numpy arrays wherever that is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hpc
from hpc import _topk


def require_device(name: str) -> Any:
    """torch, or a skip that says why tensors on "cpu" or "cuda" cannot be used here."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if _topk._no_torch:
        pytest.skip(_topk._no_torch)
    if name == "cuda":
        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")
        try:
            hpc.plan(1, 1, 1, device="cuda:0")
        except ValueError as error:
            pytest.skip(str(error))
    return torch


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> str:
    """A device for torch tensors."""
    require_device(request.param)
    return str(request.param)


Select = Callable[..., NDArray[np.int32]]


@pytest.fixture(params=["numpy", "cpu", "cuda"])
def select(request: pytest.FixtureRequest) -> Select:
    """`hpc.topk` on numpy arrays: as they are, or by way of torch tensors on a device. `out` is written in place."""
    if request.param == "numpy":
        return hpc.topk
    torch = require_device(request.param)

    def on_device(array: NDArray[Any]) -> Any:
        tensor = torch.from_numpy(array)
        if request.param == "cpu":
            return tensor
        # Keeps the strides and what lies between the rows.
        base = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cuda")
        return base.copy_(tensor)

    def run(
        scores: NDArray[np.float32], k: int, lengths: NDArray[np.int32] | None = None, **options: Any
    ) -> NDArray[np.int32]:
        tensors = {
            name: on_device(value) if isinstance(value, np.ndarray) else value for name, value in options.items()
        }
        result = hpc.topk(on_device(scores), k, None if lengths is None else on_device(lengths), **tensors)
        out = options.get("out")
        if out is None:
            return result.cpu().numpy()
        np.copyto(out, tensors["out"].cpu().numpy())
        return out

    return run
