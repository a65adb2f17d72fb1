# SPDX-License-Identifier: Apache-2.0
"""Every experiment, in the order of the paper's evaluation."""

from __future__ import annotations

from .chain import CHAIN
from .experiment import Experiment
from .latency import CROSSOVER, MECHANISM_EXPERIMENT, OPERATOR, TRACES
from .observations import TOLERANCE, VIEWS
from .policies import MARGIN, RESCUE_EXPERIMENT, STRIDE_EXPERIMENT
from .traffic import TRAFFIC

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        OPERATOR,
        TRACES,
        CHAIN,
        MARGIN,
        STRIDE_EXPERIMENT,
        RESCUE_EXPERIMENT,
        MECHANISM_EXPERIMENT,
        CROSSOVER,
        TOLERANCE,
        VIEWS,
        TRAFFIC,
    )
}
