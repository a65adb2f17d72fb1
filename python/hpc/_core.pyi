# SPDX-License-Identifier: Apache-2.0
"""The planner, devices, and the CPU back end on numpy arrays: python/csrc/planner_bindings.cpp.

A refused argument is a ValueError, a refused dtype a TypeError. Both name the argument, its value and the rule.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__version__: str
MAX_K: int
KERNELS: tuple[str, ...]

class DeviceInfo:
    @property
    def name(self) -> str: ...
    @property
    def compute_capability(self) -> int: ...
    @property
    def num_sms(self) -> int: ...
    @property
    def shared_memory_per_block(self) -> int: ...
    @property
    def shared_memory_per_sm(self) -> int: ...
    @property
    def max_cluster_size(self) -> int: ...
    @property
    def l2_bytes(self) -> int: ...
    @property
    def memory_bandwidth_gbps(self) -> float: ...

def named_device(name: str) -> DeviceInfo:
    """A device by name: a100, h20, h100, h200, b200, rtx5090, cpu."""

def cuda_device(ordinal: int) -> DeviceInfo:
    """The CUDA device `ordinal` of this process. ValueError without one, RuntimeError where the driver fails."""

def make_plan(
    num_rows: int, num_columns: int, row_stride: int, k: int, device: DeviceInfo, kernel: str
) -> dict[str, Any]:
    """The fields of an `hpc.Plan`, nested as dicts. row_stride 0 means num_columns."""

def workspace_size(num_rows: int, num_columns: int, k: int, device: DeviceInfo) -> int:
    """Bytes of workspace that serve the shape with any kernel at any row stride."""

def topk(
    scores: NDArray[Any],
    k: int,
    lengths: NDArray[Any] | None,
    row_starts: NDArray[Any] | None,
    num_rows: NDArray[Any] | None,
    out: NDArray[Any] | None,
    workspace: NDArray[Any] | None,
    kernel: str,
    num_threads: int,
) -> tuple[NDArray[np.int32], tuple[int, int, int, int, int, int]]:
    """`hpc.topk` on numpy arrays, and the call's `hpc._topk.Statistics`. num_threads 0 means every hardware thread.

    Releases the GIL while it selects.
    """
