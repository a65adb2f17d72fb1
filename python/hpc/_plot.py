# SPDX-License-Identifier: Apache-2.0
"""A picture of scores and of what was selected from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter, StrMethodFormatter
from numpy.typing import NDArray

_GREY = "#9aa5b1"
_ACCENT = "#d1495b"
_INK = "#1f2933"
_STYLE: dict[Any, Any] = {
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.dpi": 160,
    "font.size": 10,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
}


def _envelope(scores: NDArray[np.float32], bins: int) -> tuple[NDArray[np.float64], ...]:
    """Positions [bins], lowest and highest finite score of each bin (NaN where it has none)."""
    edges = np.linspace(0, scores.size, min(bins, scores.size) + 1).astype(np.int64)
    finite = np.isfinite(scores)
    lowest = np.minimum.reduceat(np.where(finite, scores, np.inf), edges[:-1])
    highest = np.maximum.reduceat(np.where(finite, scores, -np.inf), edges[:-1])
    empty = lowest > highest
    lowest[empty] = highest[empty] = np.nan
    return (edges[:-1] + edges[1:]) / 2, lowest.astype(np.float64), highest.astype(np.float64)


def _span(scores: NDArray[np.float32], boundary: float) -> tuple[float, float, bool]:
    """Lower and upper end of the score axis, and whether scores lie below it.

    A few very low scores must not flatten the selected ones, so what is below the boundary gets at most 1.2 times the
    height of what is above it.
    """
    finite = scores[np.isfinite(scores)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    clipped = False
    if low < boundary < high:
        floor = boundary - 1.2 * (high - boundary)
        low, clipped = max(low, floor), low < floor
    pad = 0.06 * (high - low) or max(0.1 * abs(high), 1e-6)
    return low if clipped else low - pad, high + 3 * pad, clipped  # the legend lies above the highest score


def _draw_scores(axes: Axes, scores: NDArray[np.float32], chosen: NDArray[np.int32]) -> None:
    """The scores of one row [N], and the chosen columns among them."""
    position, lowest, highest = _envelope(scores, 2000)
    values = scores[chosen]
    # The last to be selected; NaN ranks above every number.
    boundary = float("nan") if np.isnan(values).all() else float(np.nanmin(values))
    low, high, clipped = _span(scores, boundary)
    axes.fill_between(position, lowest, highest, step="mid", color=_GREY, alpha=0.55, linewidth=0, label="scores")
    axes.scatter(chosen, values, s=5, color=_ACCENT, alpha=0.8, linewidth=0, label="selected", rasterized=True)
    if chosen.size:
        label = f"boundary {boundary:.4g}"
        if np.isfinite(boundary):
            axes.axhline(boundary, color=_INK, linewidth=0.9, linestyle=(0, (4, 3)), label=label)
        else:
            axes.plot([], [], linestyle="none", label=label)
    hidden = int(np.count_nonzero(~np.isfinite(values)))
    notes = [f"{hidden:,} of the selected are not finite: not shown"] * (hidden > 0) + [
        "lower scores not shown"
    ] * clipped
    axes.set_title("; ".join(notes), loc="right", fontsize=9, style="italic")
    axes.set_ylim(low, high)
    axes.set_ylabel("score")
    axes.legend(loc="upper center", ncols=3, frameon=False, markerscale=2.5)


def _draw_density(axes: Axes, selected: NDArray[np.int32], rows: list[int], columns: int) -> None:
    """How much of each stretch of positions was selected, by row; beside it the scale."""
    bins = min(columns, 256)
    density = np.stack([np.histogram(r[r >= 0], bins=bins, range=(0, columns))[0] for r in selected]) * (bins / columns)
    most = float(density.max()) or 1.0
    image = axes.imshow(
        density,
        aspect="auto",
        cmap="magma",
        interpolation="nearest",
        extent=(0, columns, len(rows) - 0.5, -0.5),
        norm=PowerNorm(0.6, vmin=0, vmax=most),  # a few hot bins must not hide the rest
    )
    axes.set_yticks(range(len(rows)) if len(rows) <= 16 else range(0, len(rows), 4))
    axes.set_yticklabels([f"{rows[int(tick)]:,}" for tick in axes.get_yticks()])
    axes.set_ylabel("row")
    axes.set_xlabel("position in the row")
    axes.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
    axes.set_title("Where the selected positions lie", loc="left", fontweight="bold")
    axes.set_xlim(0, columns)
    decimals = max(0, 1 - int(np.floor(np.log10(100 * most))))
    bar = axes.figure.colorbar(image, ax=axes, pad=0.01, format=PercentFormatter(1, decimals))
    width = round(columns / bins)
    bar.set_label(f"selected, % of {width:,} position" + "s" * (width > 1))


def figure(*, scores: NDArray[np.float32], row: int, selected: NDArray[np.int32], rows: list[int]) -> Figure:
    """What `draw` writes, of the same arguments."""
    chosen = selected[rows.index(row)]
    chosen = chosen[chosen >= 0]
    with matplotlib.rc_context(_STYLE):
        result = Figure(figsize=(11, 6.6), layout="constrained")
        above, below = result.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        above.set_title(f"Top {chosen.size:,} of {scores.size:,} scores, row {row:,}", loc="left", fontweight="bold")
        _draw_scores(above, scores, chosen)
        _draw_density(below, selected, rows, scores.size)
    return result


def draw(path: Path, *, scores: NDArray[np.float32], row: int, selected: NDArray[np.int32], rows: list[int]) -> None:
    """Write a picture: one row's scores with the selected ones, and for several rows where the selected ones lie.

    Args:
        path: the file to write; its suffix is the format.
        scores: float32 [N], the row above.
        row: the number of that row.
        selected: int32 [R, k], the selected columns (or -1) of the rows below.
        rows: the numbers of those R rows, `row` among them.
    """
    with matplotlib.rc_context(_STYLE):
        figure(scores=scores, row=row, selected=selected, rows=rows).savefig(path)
