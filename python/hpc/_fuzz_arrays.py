# SPDX-License-Identifier: Apache-2.0
"""Where a fuzzed call runs: arrays, random numbers, the reference's sort and the call itself, of numpy or of torch.

What numpy and torch spell alike the callers write once, with the library as `xp`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hpc import _topk

_INT32 = np.iinfo(np.int32)


class Call(NamedTuple):
    """The arguments of a call, arrays of the library that makes it."""

    scores: Any
    k: int
    lengths: Any
    row_starts: Any
    num_rows: Any
    out: Any
    workspace: Any
    kernel: str
    threads: int
    """Of numpy alone; 0: every hardware thread."""


class NumpyArrays:
    """On the CPU, with numpy."""

    xp: Any = np
    device = "cpu"
    max_scores = 1 << 20
    max_rows = 1 << 12
    max_columns = 1 << 20
    far_rows = False
    """Whether rows may lie so far apart that offsets pass 2**31 elements."""
    OutOfMemory: type[BaseException] = MemoryError

    def release(self) -> None:
        """Give memory back that is kept for later."""

    def seed(self, seed: int) -> None:
        """Restart the random numbers."""
        self._rng = np.random.default_rng(seed)

    def array(self, values: NDArray[Any]) -> Any:
        """A copy of values of the host."""
        return values.copy()

    def host(self, array: Any) -> NDArray[Any]:
        """An array as one of numpy."""
        result: NDArray[Any] = array
        return result

    def empty(self, size: int, dtype: Any) -> Any:
        """An array [size] that may hold anything."""
        return np.empty(size, dtype)

    def arange(self, size: int) -> Any:
        """0, 1, ..., size - 1 as int64."""
        return np.arange(size)

    def normal(self, rows: int, columns: int) -> Any:
        """Standard normal, float32 [rows, columns]."""
        return self._rng.standard_normal((rows, columns), np.float32)

    def uniform(self, rows: int, columns: int) -> Any:
        """Uniform in [0, 1), float32 [rows, columns]."""
        return self._rng.random((rows, columns), np.float32)

    def bits(self, rows: int, columns: int) -> Any:
        """Any pattern of 32 bits, int32 [rows, columns]."""
        return self._rng.integers(_INT32.min, _INT32.max, (rows, columns), np.int32, endpoint=True)

    def ascending(self, matrix: Any) -> Any:
        """The rows of a matrix, each sorted."""
        return np.sort(matrix, axis=1)

    def best_first(self, scores: Any, inside: Any, k: int) -> Any:
        """The contract by sorting whole rows.

        Args:
            scores: float32 [M, N].
            inside: bool [M, N], true for the window of each row.
            k: how many.

        Returns:
            int64 [M, min(k, N)]: the best columns of each row's window, the best first, ties lowest first. What follows
            the whole of a window that is shorter means nothing.
        """
        if scores.size == 0:
            return np.zeros(scores.shape, np.int64)[:, :k]
        nan = np.isnan(scores)
        # The last key decides first; equal ones stay in the order of columns.
        return np.lexsort((-np.where(nan, np.float32(0), scores), ~nan, ~inside))[:, :k]

    def call(self, call: Call) -> None:
        """Make the call under test, and return when it is done."""
        _topk.topk_numpy(
            call.scores,
            call.k,
            call.lengths,
            row_starts=call.row_starts,
            num_rows=call.num_rows,
            out=call.out,
            workspace=call.workspace,
            kernel=call.kernel,
            num_threads=call.threads,
        )

    def repeat(self, call: Call) -> Callable[[], None]:
        """A function that makes the same call again, on whatever its arrays hold then."""
        return lambda: self.call(call)


class TorchArrays(NumpyArrays):
    """On a CUDA device, with torch; or on the CPU, which is for testing this class."""

    def __init__(self, device: str) -> None:
        import torch

        self.xp = torch
        self.device = device
        self._generator = torch.Generator(device)
        self.OutOfMemory = torch.OutOfMemoryError
        if device != "cpu":
            self.max_scores = 1 << 26
            self.max_rows = 1 << 16
            self.max_columns = 1 << 22
            self.far_rows = torch.cuda.get_device_properties(device).total_memory >= 64 << 30

    def release(self) -> None:
        self.xp.cuda.empty_cache()

    def seed(self, seed: int) -> None:
        self._generator.manual_seed(seed)

    def array(self, values: NDArray[Any]) -> Any:
        return self.xp.from_numpy(values.copy()).to(self.device)

    def host(self, array: Any) -> NDArray[Any]:
        result: NDArray[Any] = array.cpu().numpy()
        return result

    def empty(self, size: int, dtype: Any) -> Any:
        return self.xp.empty(size, dtype=dtype, device=self.device)

    def arange(self, size: int) -> Any:
        return self.xp.arange(size, device=self.device)

    def normal(self, rows: int, columns: int) -> Any:
        return self.xp.randn(rows, columns, generator=self._generator, device=self.device)

    def uniform(self, rows: int, columns: int) -> Any:
        return self.xp.rand(rows, columns, generator=self._generator, device=self.device)

    def bits(self, rows: int, columns: int) -> Any:
        return self.xp.randint(
            int(_INT32.min),
            int(_INT32.max) + 1,
            (rows, columns),
            dtype=self.xp.int32,
            generator=self._generator,
            device=self.device,
        )

    def ascending(self, matrix: Any) -> Any:
        return matrix.sort(dim=1).values

    def best_first(self, scores: Any, inside: Any, k: int) -> Any:
        rows, columns = scores.shape
        # One NaN and one zero, whatever their bits. The sort puts NaN first and keeps equal scores in column order.
        plain = self.xp.where(self.xp.isnan(scores), math.nan, scores + 0.0)
        order = plain.sort(dim=1, descending=True, stable=True).indices
        inside = inside.gather(1, order)
        place = self.xp.where(inside, inside.cumsum(1) - 1, k).clip(max=k)  # what is outside or too late goes to k
        best = self.xp.zeros((rows, k + 1), dtype=self.xp.int64, device=self.device)
        return best.scatter_(1, place, order)[:, : min(k, columns)]

    def call(self, call: Call) -> None:
        self._enqueue(call)
        if self.device != "cpu":
            self.xp.cuda.synchronize()

    def repeat(self, call: Call) -> Callable[[], None]:
        """A function that makes the same call again; on CUDA, the replay of a graph."""
        if self.device == "cpu":
            return lambda: self.call(call)
        cuda = self.xp.cuda
        graph = cuda.CUDAGraph()
        with cuda.stream(cuda.Stream()):  # not torch.cuda.graph(), which empties the allocator's cache each time
            graph.capture_begin()
            self._enqueue(call)
            graph.capture_end()

        def replay() -> None:
            graph.replay()
            cuda.synchronize()

        return replay

    def _enqueue(self, call: Call) -> None:
        self.xp.ops.hpc.topk.out(
            call.scores,
            call.lengths,
            call.k,
            call.row_starts,
            call.num_rows,
            call.kernel,
            out=call.out,
            workspace=call.workspace,
        )
