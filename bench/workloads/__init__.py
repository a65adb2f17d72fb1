# SPDX-License-Identifier: Apache-2.0
"""Score rows and call shapes that tests and benchmarks share. Import with `bench/` on the Python path."""

from workloads.generators import WORKLOADS, Workload, causal_lengths, generate, load_sample
from workloads.shapes import DECODE_GRID, OPERATOR_GRID, TRACE_TOKENS, Call, trace

__all__ = [
    "DECODE_GRID",
    "OPERATOR_GRID",
    "TRACE_TOKENS",
    "WORKLOADS",
    "Call",
    "Workload",
    "causal_lengths",
    "generate",
    "load_sample",
    "trace",
]
