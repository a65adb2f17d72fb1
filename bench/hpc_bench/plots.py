# SPDX-License-Identifier: Apache-2.0
"""A report as pictures: reach over M and N, speed against each peer, cost of value families, decode latency, traces."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from .grids import CLIFF_LIMIT
from .report import Report, Result, family_costs, mean

INK = "#1f2933"
GREY = "#9aa5b1"
COLOURS = ("#d1495b", "#edae49", "#00798c", "#30638e", "#66a182", "#8d6a9f", "#7a5c3e", "#52606d", "#2b9eb3", "#b56576")
STYLE: dict[Any, Any] = {
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.dpi": 160,
    "font.size": 9,
    "legend.frameon": False,
    "svg.hashsalt": "hpctopk",  # the same report gives the same file
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}
ON_RECORD = "best on record"  # of the peers that --baseline named
LARGEST_RATIO = 4.0  # where the colours of a speed end
PANELS_IN_ROW = 3
LEAST_WIDTH = 7.0  # inches, room for a title


def draw(report: Report, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write every picture that the report has figures for.

    Args:
        report: what was measured.
        folder: where to; made if it is not there.
        formats: suffixes without the dot: "png", "svg", "pdf".

    Returns:
        The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    with matplotlib.rc_context(STYLE):
        for name, figure in _figures(report):
            for suffix in formats:
                path = folder / f"{name}.{suffix}"
                figure.savefig(path, metadata={"Date": None} if suffix == "svg" else None)
                written.append(path)
    return written


def _figures(report: Report) -> Iterator[tuple[str, Figure]]:
    names = report.contestants()
    if not names:
        return
    ours = [name for name in names if name.partition(" ")[0] == "hpc"]
    for (grid, workload, k), results in report.groups():
        stem = "_".join(part for part in (grid, workload, f"k{k}") if part)
        title = f"{grid} {workload}".strip() + f", K = {k}"
        if grid == "cliffs":
            yield stem, _cliffs(report, results, names, title)
            continue
        if grid == "traces":
            yield stem, _traces(report, results, names, title)
            continue
        yield f"{stem}_reach", _heat_maps(report, results, ours, f"Reach of the read limit: {title}", _reach, _REACH)
        others = [name for name in names if name != "hpc"]
        others += [ON_RECORD] if any(r.baseline for r in results) else []
        if "hpc" in names and others:
            heading = f"Times faster than each: {title}"
            yield f"{stem}_speed", _heat_maps(report, results, others, heading, _speed, _SPEED)
        if grid == "decode":
            yield f"{stem}_latency", _latency(report, results, names, title)


def _source(report: Report) -> str:
    where = report.provenance
    revision = (where["revision"] or "unknown revision")[:12] + (" with changes" if where["dirty"] else "")
    return f"{where['device']}, read ceiling {report.ceiling['gbps']:.0f} GB/s, source {revision}, {where['date'][:10]}"


def _grid_of_axes(report: Report, title: str, panels: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    columns = min(PANELS_IN_ROW, panels)
    rows = -(-panels // columns)
    figure = Figure(figsize=(max(LEAST_WIDTH, width * columns), height * rows + 0.6), layout="constrained")
    figure.suptitle(title, x=0.01, ha="left", fontweight="bold", fontsize=12)
    figure.supxlabel(_source(report), x=0.01, ha="left", fontsize=7, color=GREY)
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for unused in axes[panels:]:
        unused.set_visible(False)
    return figure, axes[:panels]


def short(number: int) -> str:
    """131072 as 128K."""
    for unit, size in (("M", 1 << 20), ("K", 1 << 10)):
        if number >= size and number % size == 0:
            return f"{number // size}{unit}"
    return str(number)


# ----------------------------------------------------------------------------------------------------------------------
# Heat maps over M and N

Value = Callable[[Result, str], float | None]
Scale = tuple[str, Callable[[float], float], Normalize]  # colours, value to place, limits of places

_REACH: Scale = ("viridis", float, Normalize(0, 1))
_SPEED: Scale = ("RdBu", math.log2, Normalize(-math.log2(LARGEST_RATIO), math.log2(LARGEST_RATIO)))


def _reach(result: Result, name: str) -> float | None:
    return result.reach(name)


def _speed(result: Result, name: str) -> float | None:
    own = result.right_us("hpc")
    other = _recorded(result) if name == ON_RECORD else result.right_us(name)
    return other / own if own and other else None


def _recorded(result: Result) -> float | None:
    return float(result.baseline["us"]) if result.baseline else None


def _absence(result: Result, name: str) -> str:
    """Why a cell has no value, in a word."""
    timing = result.timing(name)
    if timing is None:
        return ""
    if timing.us is None:
        return "n/a" if timing.status == "unsupported" else timing.status
    return "wrong" if timing.right_us is None else ""


def _heat_maps(
    report: Report, results: list[Result], names: Sequence[str], title: str, value: Value, scale: Scale
) -> Figure:
    colours, place, limits = scale
    ms = sorted({r.rows for r in results})
    ns = sorted({r.columns for r in results})
    width, height = max(3.2, 0.62 * len(ns) + 1), max(2.2, 0.36 * len(ms) + 1.1)
    figure, axes = _grid_of_axes(report, title, len(names), width, height)
    for panel, name in zip(axes, names, strict=True):
        places = np.full((len(ms), len(ns)), np.nan)
        values = []
        for result in results:
            y, x = ms.index(result.rows), ns.index(result.columns)
            found = value(result, name)
            if found is None:
                panel.text(x, y, _absence(result, name), ha="center", va="center", fontsize=7, color=INK)
                continue
            values.append(found)
            places[y, x] = place(found)
            red, green, blue, _ = colormaps[colours](limits(places[y, x]))
            dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.5
            panel.text(x, y, f"{found:.2f}", ha="center", va="center", fontsize=7, color="white" if dark else INK)
        panel.imshow(places, cmap=colours, norm=limits, aspect="auto")
        panel.set_facecolor("#e4e7eb")
        panel.set_xticks(range(len(ns)), [short(n) for n in ns])
        panel.set_yticks(range(len(ms)), [str(m) for m in ms])
        panel.set_xlabel("N, columns")
        panel.set_ylabel("M, rows")
        panel.set_title(f"{name}\nmean {mean(values):.3f}, least {min(values):.2f}" if values else name)
    bar = figure.colorbar(ScalarMappable(limits, colours), ax=axes, shrink=0.8, pad=0.02)
    if scale is _SPEED:
        ticks = [0.25, 0.5, 1, 2, 4]
        bar.set_ticks([math.log2(t) for t in ticks], labels=[f"{t:g}x" for t in ticks])
    return figure


# ----------------------------------------------------------------------------------------------------------------------
# Lines and bars


def _latency(report: Report, results: list[Result], names: Sequence[str], title: str) -> Figure:
    ms = sorted({r.rows for r in results})
    figure, axes = _grid_of_axes(report, f"Latency: {title}", len(ms), 3.7, 2.7)
    for panel, m in zip(axes, ms, strict=True):
        row = sorted((r for r in results if r.rows == m), key=lambda r: r.columns)
        for i, name in enumerate(names):
            points = [(r.columns, us) for r in row if (us := r.right_us(name)) is not None]
            if points:
                width = 2.0 if name == "hpc" else 1.0
                panel.plot(
                    *zip(*points, strict=True), ".-", color=COLOURS[i % len(COLOURS)], label=name, linewidth=width
                )
        panel.plot([r.columns for r in row], [r.limit_us for r in row], color=GREY, linestyle="--", label="read limit")
        panel.set_xscale("log", base=2)
        panel.set_yscale("log")
        fastest = min((us for r in row for n in names if (us := r.right_us(n)) is not None), default=1.0)
        panel.set_ylim(bottom=fastest / 2)
        panel.set_xticks([r.columns for r in row], [short(r.columns) for r in row], minor=False)
        panel.minorticks_off()
        panel.tick_params(axis="x", labelsize=7)
        panel.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panel.yaxis.set_major_formatter("{x:g}")
        panel.grid(axis="y", color="#e4e7eb")
        panel.set_title(f"M = {m}")
        panel.set_ylabel("us")
    _legend(figure, axes)
    return figure


def _legend(figure: Figure, axes: Sequence[Axes]) -> None:
    handles = {
        label: handle for panel in axes for handle, label in zip(*panel.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside right center")


def _cliffs(report: Report, results: list[Result], names: Sequence[str], title: str) -> Figure:
    shapes = list(dict.fromkeys((r.rows, r.columns) for r in results))
    families = list(dict.fromkeys(r.workload for r in results))
    figure = Figure(figsize=(11, 1.9 * len(names) + 1.2), layout="constrained")
    figure.suptitle(f"Times the time on normal rows: {title}", x=0.01, ha="left", fontweight="bold", fontsize=12)
    figure.supxlabel(_source(report), x=0.01, ha="left", fontsize=7, color=GREY)
    axes = figure.subplots(len(names), 1, squeeze=False, sharex=True).ravel().tolist()
    width = 0.8 / len(shapes)
    for panel, name in zip(axes, names, strict=True):
        costs = family_costs(results, name)
        for s, (m, n) in enumerate(shapes):
            bars = [(f, cost) for f, family in enumerate(families) if (cost := costs.get((family, m, n))) is not None]
            offset = (s - (len(shapes) - 1) / 2) * width
            panel.bar(
                [f + offset for f, _ in bars],
                [cost for _, cost in bars],
                width * 0.9,
                color=COLOURS[s % len(COLOURS)],
                label=f"{m} x {short(n)}",
            )
        for result in results:
            word = _absence(result, name)
            if word:
                offset = (shapes.index((result.rows, result.columns)) - (len(shapes) - 1) / 2) * width
                x = families.index(result.workload) + offset
                panel.text(x, 0.05, word, rotation=90, ha="center", va="bottom", fontsize=7, color=INK)
        panel.axhline(CLIFF_LIMIT, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        panel.axhline(1, color=GREY, linewidth=0.7)
        panel.set_xticks(range(len(families)), families, rotation=20, ha="right")
        panel.set_title(name)
        panel.set_ylim(0, 1.1 * max([CLIFF_LIMIT, *costs.values()]))
    _legend(figure, axes)
    return figure


def _traces(report: Report, results: list[Result], names: Sequence[str], title: str) -> Figure:
    requests = sorted({r.tokens for r in results})
    figure, axes = _grid_of_axes(report, f"Whole requests: {title}", len(requests), 4.6, 0.32 * len(names) + 1.2)
    for panel, tokens in zip(axes, requests, strict=True):
        calls = [r for r in results if r.tokens == tokens]
        for y, name in enumerate(names):
            times = [us for r in calls if (us := r.right_us(name)) is not None]
            if len(times) < len(calls):
                panel.text(0, y, f" right in {len(times)} of {len(calls)} calls", va="center", fontsize=8)
                continue
            total = sum(times) / 1e3
            panel.barh(y, total, color=COLOURS[y % len(COLOURS)])
            panel.text(total, y, f" {total:.2f}", va="center", fontsize=8)
        limit = sum(r.limit_us for r in calls) / 1e3
        panel.axvline(limit, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        panel.set_yticks(range(len(names)), names)
        panel.set_ylim(len(names) - 0.5, -0.5)
        panel.margins(x=0.15)
        panel.set_xlabel("ms")
        panel.set_title(f"{tokens:,} tokens, {len(calls)} calls, read limit {limit:.2f} ms")
    return figure
