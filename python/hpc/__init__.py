# SPDX-License-Identifier: Apache-2.0
"""Exact top-k of long, ragged float32 score rows.

For every row of a score matrix, the columns that hold its k largest scores, on the CPU (numpy arrays and torch tensors)
and on CUDA devices (torch tensors)::

    import numpy as np, hpc
    scores = np.random.default_rng(0).standard_normal((64, 131072), dtype=np.float32)
    columns = hpc.topk(scores, 2048)          # int32 [64, 2048], in no particular order
    print(hpc.plan(64, 131072, 2048))         # which kernel, why, what it costs and needs

Order of scores: every NaN is equal and ranks above +infinity, -0.0 equals +0.0. Equal scores at the boundary are taken
from the lowest column up, so the selected set depends on the row alone.

Where torch is installed and the package was built beside it, importing hpc also registers ``torch.ops.hpc.topk`` and
``torch.ops.hpc.topk.out`` (see `hpc._torch`).
"""

from hpc._core import __version__
from hpc._plan import Candidate, Plan, Policy, Problem, SamplePolicy, plan, workspace_size
from hpc._topk import topk

__all__ = [
    "Candidate",
    "Plan",
    "Policy",
    "Problem",
    "SamplePolicy",
    "__version__",
    "plan",
    "topk",
    "workspace_size",
]
