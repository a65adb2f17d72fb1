# SPDX-License-Identifier: Apache-2.0
"""A picture of scores and of what was selected from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.colors import PowerNorm
from matplotlib.ticker import StrMethodFormatter

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


def draw(
    path: Path,
    *,
    scores: NDArray[np.float32],
    row: int,
    selected: NDArray[np.int32],
    rows: list[int],
) -> None:
    """Write a picture: one row's scores with the selected ones, and where several rows were selected from.

    Args:
        path: the file to write; its suffix is the format.
        scores: float32 [N], the row above.
        row: the number of that row.
        selected: int32 [R, k], the selected columns (or -1) of the rows below.
        rows: the numbers of those R rows, `row` among them.
    """
    columns = scores.size
    chosen = selected[rows.index(row)]
    chosen = chosen[chosen >= 0]
    values = scores[chosen]
    with plt.rc_context(_STYLE):
        figure, (above, below) = plt.subplots(
            2, 1, figsize=(11, 6.6), sharex=True, height_ratios=(3, 2), layout="constrained"
        )
        position, lowest, highest = _envelope(scores, 2000)
        above.fill_between(position, lowest, highest, step="mid", color=_GREY, alpha=0.55, linewidth=0, label="scores")
        above.scatter(chosen, values, s=5, color=_ACCENT, alpha=0.8, linewidth=0, label="selected", rasterized=True)
        finite = values[np.isfinite(values)]
        if finite.size:
            boundary = float(finite.min())
            above.axhline(boundary, color=_INK, linewidth=0.9, linestyle=(0, (4, 3)), label=f"boundary {boundary:.4g}")
        above.set_ylabel("score")
        above.set_title(f"Top {chosen.size:,} of {columns:,} scores, row {row:,}", loc="left", fontweight="bold")
        above.legend(loc="upper center", ncols=3, frameon=False, bbox_to_anchor=(0.5, 1.0), markerscale=2.5)
        above.margins(y=0.14)

        bins = min(columns, 256)
        density = np.stack([np.histogram(r[r >= 0], bins=bins, range=(0, columns))[0] for r in selected])
        image = below.imshow(
            density * (bins / columns),
            aspect="auto",
            cmap="magma",
            interpolation="nearest",
            extent=(0, columns, len(rows) - 0.5, -0.5),
            norm=PowerNorm(0.6, vmin=0),  # a few hot bins must not hide the rest
        )
        below.set_yticks(range(len(rows)) if len(rows) <= 16 else range(0, len(rows), 4))
        below.set_yticklabels([f"{rows[int(tick)]:,}" for tick in below.get_yticks()])
        below.set_ylabel("row")
        below.set_xlabel("position in the row")
        below.xaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))
        below.set_title("Where the selected positions lie", loc="left", fontweight="bold")
        below.set_xlim(0, columns)
        bar = figure.colorbar(image, ax=below, pad=0.01, format="{x:.0%}")
        bar.set_label(f"selected of each {-(-columns // bins):,} scores")
        figure.savefig(path)
        plt.close(figure)
