# SPDX-License-Identifier: Apache-2.0
"""Times what is captured in CUDA graphs. Needs a GPU and the native module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

EMPTYING_BYTES = 512 << 20  # read to empty L2: several times any
CEILING_BYTES = 4 << 30
CEILING_BLOCKS_PER_SM = (2, 4, 8)  # the fastest counts
WARM_UPS = 3  # untimed replays


class Timer:
    """Captures launches on a stream of its own and times their replay.

    Args:
        native: the module hpc._bench.
        device: of all tensors.
        warm: leave L2 as the launches themselves leave it; else it is emptied before each replay.
    """

    def __init__(self, native: Any, device: torch.device, *, warm: bool) -> None:
        self._native = native
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._sink = torch.zeros(1, dtype=torch.int32, device=device)
        self._warm = warm
        self._scratch = torch.zeros(EMPTYING_BYTES, dtype=torch.uint8, device=device)
        self._read(self._scratch, 4)  # loads the kernel, which a capture may not
        self._emptying = self._capture([partial(self._read, self._scratch, 4)])[0]

    def run(self, launch: Callable[[], torch.Tensor]) -> torch.Tensor:
        """Run once, eagerly, and wait."""
        self._stream.wait_stream(torch.cuda.current_stream(self._device))
        with torch.cuda.stream(self._stream):
            result = launch()
        self._stream.synchronize()
        return result

    def time(
        self, launches: Sequence[Callable[[], torch.Tensor]], rounds: int
    ) -> tuple[list[float], list[torch.Tensor]]:
        """Microseconds of a launch in each of `rounds` replays of all launches, and what each launch returned.

        Args:
            launches: functions that enqueue on the current stream and return columns. Their tensors are overwritten
                before the first replay, so that what they hold in the end comes from a replay.
            rounds: timed replays.
        """
        graph, results = self._capture(launches)
        for result in results:
            result.fill_(-2)
        torch.cuda.synchronize(self._device)
        before = graph if self._warm else self._emptying
        self._replay(before, graph, WARM_UPS)
        samples = self._replay(before, graph, rounds)
        return [sample / len(launches) for sample in samples], results

    def read_ceiling(self) -> dict[str, float]:
        """What a plain read of memory reaches: {"gbps": 1e9 bytes/s, "bytes": read, "blocks_per_sm": of the best}."""
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info(self._device)
        words = min(CEILING_BYTES, free // 2) // 16 * 4
        data = torch.empty(words, dtype=torch.int32, device=self._device).random_()
        best = {"gbps": 0.0}
        for blocks in CEILING_BLOCKS_PER_SM:
            graph, _ = self._capture([partial(self._read, data, blocks)] * 3)
            self._replay(graph, graph, WARM_UPS)
            samples = sorted(self._replay(graph, graph, 9))
            gbps = 3 * data.nbytes / (samples[len(samples) // 2] * 1e3)
            if gbps > best["gbps"]:
                best = {"gbps": gbps, "bytes": float(data.nbytes), "blocks_per_sm": float(blocks)}
        return best

    def _read(self, data: torch.Tensor, blocks_per_sm: int) -> None:
        blocks = blocks_per_sm * torch.cuda.get_device_properties(self._device).multi_processor_count
        stream = torch.cuda.current_stream(self._device).cuda_stream
        self._native.read(data.data_ptr(), data.nbytes, blocks, self._sink.data_ptr(), stream)

    def _capture(self, launches: Sequence[Callable[[], Any]]) -> tuple[torch.cuda.CUDAGraph, list[Any]]:
        torch.cuda.synchronize(self._device)
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        # The outer context restores the current stream where a capture fails.
        with torch.cuda.stream(self._stream), torch.cuda.graph(graph, stream=self._stream):
            results = [launch() for launch in launches]
        graph.instantiate()
        return graph, results

    def _replay(self, before: torch.cuda.CUDAGraph, timed: torch.cuda.CUDAGraph, rounds: int) -> list[float]:
        samples: list[float] = self._native.replay(
            before.raw_cuda_graph_exec(), timed.raw_cuda_graph_exec(), rounds, self._stream.cuda_stream
        )
        return samples
