# SPDX-License-Identifier: Apache-2.0
"""The shapes that are measured: the paper's operator grid, a decode grid and the calls of whole requests."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import NDArray

#: (M, N) of the paper's operator matrix (section 6.2); K = 2048, lengths N-M+1..N.
OPERATOR_GRID: tuple[tuple[int, int], ...] = tuple(
    product((512, 1024, 2048, 4096, 8192), (131_072, 262_144, 524_288, 1_048_576))
)

#: (M, N, K) of decode steps: few rows, from short to long.
DECODE_GRID: tuple[tuple[int, int, int], ...] = tuple(
    product((1 << i for i in range(9)), (1 << i for i in range(12, 21)), (512, 1024, 2048))
)

#: Prompt lengths of the paper's two requests (section 6.3).
TRACE_TOKENS: tuple[int, int] = (244_650, 430_000)


@dataclass(frozen=True)
class Call:
    """One call of a trace.

    Attributes:
        rows: M, the query tokens of the call.
        columns: N, the allocated width of a score row.
        lengths: int32 [rows], the valid scores of each row.
    """

    rows: int
    columns: int
    lengths: NDArray[np.int32]


def trace(tokens: int, step: int = 65_536, budget_bytes: float = 6.25e9) -> list[Call]:
    """The top-k calls of one prefill request, in order (paper, section 6.3).

    The scheduler cuts the request into steps of `step` query tokens. In a step that ends at token `end` every score row
    is `end` columns wide, and the indexer splits the step again so that one float32 score matrix fits the budget: a
    call takes floor(budget_bytes / 4 / end) rows, the last call of a step what is left. Token t sees tokens 0..t, so
    its row is t + 1 long. 244,650 tokens give 26 calls, 430,000 give 71.

    Args:
        tokens: prompt length, at least 1.
        step: query tokens of a scheduler step, at least 1.
        budget_bytes: bytes of one call's score matrix, enough for one row of `tokens` scores.

    Raises:
        ValueError: an argument breaks its rule.
    """
    if tokens < 1:
        raise ValueError(f"tokens is {tokens}, must be at least 1")
    if step < 1:
        raise ValueError(f"step is {step}, must be at least 1")
    if budget_bytes < 4 * tokens:
        raise ValueError(f"budget_bytes is {budget_bytes:g}, must be at least {4 * tokens}, one row of {tokens} scores")
    calls = []
    for begin in range(0, tokens, step):
        end = min(begin + step, tokens)
        rows_per_call = int(budget_bytes / 4 / end)
        for first in range(begin, end, rows_per_call):
            lengths = np.arange(first + 1, min(first + rows_per_call, end) + 1, dtype=np.int32)
            calls.append(Call(lengths.size, end, lengths))
    return calls
