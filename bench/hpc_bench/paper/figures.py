# SPDX-License-Identifier: Apache-2.0
"""What the experiments' figures share: titles, provenance, colours, the paper's numbers as marks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..plots import COLOURS, STYLE
from .experiment import Experiment, Outcome

PAPER = "#7b2d8b"
LIGHT = "#e4e7eb"
BEYOND = 3.0  # times the longest bar of ours and the paper's: where those of slow peers are cut
LEAST_WIDTH = 8.5  # inches, room for a title


def panels(
    outcome: Outcome, rows: int, columns: int, size: tuple[float, float] = (4.2, 3.2)
) -> tuple[Figure, list[list[Axes]]]:
    """A figure of rows x columns axes, with the origin of its records at the foot. `finish` adds title and legend."""
    figure = Figure(figsize=(max(LEAST_WIDTH, size[0] * columns), size[1] * rows + 1.0), layout="constrained")
    figure.supxlabel(origin(outcome), x=0.01, ha="left", fontsize=7, color="#52606d")
    axes = figure.subplots(rows, columns, squeeze=False)
    for axis in axes.ravel():
        axis.grid(axis="y", color=LIGHT)
        axis.set_axisbelow(True)
    return figure, axes.tolist()


def origin(outcome: Outcome) -> str:
    """Device, source revision and date, in a line."""
    where = outcome.provenance
    revision = (where["revision"] or "unknown revision")[:12] + (" with changes" if where["dirty"] else "")
    words = [where["device"], f"source {revision}", where["date"][:10], f"K = {outcome.settings['k']:,}"]
    words += ["quick: few rows and shapes"] if outcome.settings["quick"] else []
    words += ["one call a step"] if any(r.get("weight", 1) != 1 for r in outcome.records) else []
    words += [] if outcome.complete else ["cut short"]
    return ", ".join(words)


def finish(figure: Figure, axes: Sequence[Sequence[Axes]], title: str) -> Figure:
    """Add a title and one legend for all those axes."""
    handles = {
        label: handle
        for row in axes
        for axis in row
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    columns = max(1, min(len(handles), int(figure.get_figwidth() / 3)))
    figure.legend(
        handles.values(),
        handles.keys(),
        loc="outside upper left",
        ncols=columns,
        fontsize=8,
        title=title,
        title_fontproperties={"weight": "bold", "size": 12},
        alignment="left",
    )
    return figure


def colour(index: int) -> str:
    """The colour of the index-th of what is compared."""
    return COLOURS[index % len(COLOURS)]


def band(axis: Axes, low: float, high: float, label: str = "paper") -> None:
    """The paper's range of what the y axis shows."""
    axis.axhspan(low, high, color=PAPER, alpha=0.15, linewidth=0, label=label)


def bars(axis: Axes, names: Sequence[str], values: Sequence[float | None], longest: float) -> None:
    """Name horizontal bars at 0, 1, ... and write what they show. The axis cuts those above `longest`."""
    for y, value in enumerate(values):
        if value is None:
            axis.text(0, y, " not right in every call", va="center", fontsize=7)
            continue
        cut = "\N{RIGHTWARDS ARROW} " if value > longest else ""
        axis.text(min(value, longest), y, f" {cut}{value:.2f}", va="center", fontsize=7)
    axis.set_xlim(0, 1.2 * min(longest, max((value for value in values if value), default=longest)))
    axis.set_yticks(range(len(names)), names, fontsize=7)
    axis.set_ylim(len(names) - 0.5, -0.5)


def longest_bar(names: Sequence[str], values: Sequence[float | None]) -> float:
    """How long bars may be beside ours, "hpc ...", and the paper's."""
    compared = [value for name, value in zip(names, values, strict=True) if name.startswith(("hpc", "paper"))]
    return BEYOND * max((value for value in compared if value), default=1)


def categories(axis: Axes, names: Sequence[str], label: str) -> None:
    """An x axis of names at 0, 1, ..."""
    axis.set_xticks(range(len(names)), names)
    axis.set_xlim(-0.6, len(names) - 0.4)
    axis.set_xlabel(label)


def save(experiment: Experiment, outcome: Outcome, path: Path) -> None:
    """Write the figure of an outcome; the suffix is the format."""
    with matplotlib.rc_context(STYLE):
        metadata = {"Date": None} if path.suffix == ".svg" else {"Software": None}
        experiment.draw(outcome).savefig(path, metadata=metadata)
