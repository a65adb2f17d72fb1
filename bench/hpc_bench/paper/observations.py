# SPDX-License-Identifier: Apache-2.0
"""The paper's two observations (section 3.1): how far a boundary may be off, and how well a view finds one."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ..plots import GREY, INK
from . import figures, ranks
from .experiment import Advance, Experiment, Outcome, Record, Setup, Step, Table
from .scores import Source, long_rows

CAPTURES = (65_536, 131_072, 244_650)  # the longest rows of the paper's three captures
ROWS, QUICK_ROWS = 4096, 32  # of each capture, at equal spacing from 4 K scores on
ALL = 0  # the "capture" of all three together

Rows = tuple[int, NDArray[np.int32], NDArray[np.int64]]  # (capture, lengths, numbers)


def _captures(setup: Setup, source: Source) -> list[Rows]:
    count = QUICK_ROWS if setup.quick else ROWS
    if source.file is not None:
        return [(source.shape[1], *long_rows(source, 4 * setup.k, count))]
    return [
        (longest, np.linspace(4 * setup.k, longest, count).astype(np.int32), np.arange(count) + 10_000 * number)
        for number, longest in enumerate(CAPTURES)
    ]


def _seconds(setup: Setup, source: Source, per_score: float) -> float:
    scores = sum(float(lengths.sum(dtype=np.int64)) for _, lengths, _ in _captures(setup, source))
    return scores * per_score / (1 if setup.device.type == "cpu" else 100)


def _named(capture: int) -> str:
    return f"rows to {capture:,}" if capture else "all rows"


# ----------------------------------------------------------------------------------------------------------------------
# Observation 1

GAPS = np.union1d(np.logspace(0, 4, 25), [100.0, 500.0])
PAPER_TOLERANCE = {100: (1.03, 1.15), 500: (1.18, 2.02)}  # gaps: median and 95th percentile of C / K


def _tolerance(setup: Setup, source: Source, advance: Advance) -> list[Record]:
    """C(epsilon): how many scores reach the k-th best less epsilon of the gap below it."""
    counted: dict[int, list[NDArray[np.float64]]] = defaultdict(list)
    omitted: dict[int, int] = defaultdict(int)
    gaps = torch.from_numpy(GAPS).to(setup.device)
    captures = _captures(setup, source)
    for number, (capture, lengths, numbers) in enumerate(captures):
        for scores, _, done in source.batches(setup, lengths, numbers):
            ordered = ranks.ascending(scores)
            last, next_ = (ordered[:, -rank].double() for rank in (setup.k, setup.k + 1))
            wide = (last > next_) & torch.isfinite(next_)
            edge = last[wide, None] - gaps * (last - next_)[wide, None]
            least = edge.float()  # the lowest float32 at or above it
            least = torch.where(least < edge, torch.nextafter(least, torch.full_like(least, torch.inf)), least)
            counts = (ranks.count_at_least(ordered[wide], least).double() / setup.k).cpu().numpy()
            for key in (capture, ALL):
                counted[key].append(counts)
                omitted[key] += int((~wide).sum())
            advance((number + done) / len(captures))
    return [
        {
            "part": "tolerance",
            "source": source.name,
            "capture": capture,
            "rows": len(counts),
            "omitted": omitted[capture],
            "gaps": [round(float(gap), 4) for gap in GAPS],
            "median": np.median(counts, axis=0).round(4).tolist(),
            "p95": np.percentile(counts, 95, axis=0).round(4).tolist(),
        }
        for capture, parts in counted.items()
        if len(counts := np.concatenate(parts))
    ]


def _tolerance_steps(setup: Setup) -> list[Step]:
    return [
        Step(f"tolerance, {source.name}", 1 + _seconds(setup, source, 35e-9), partial(_tolerance, setup, source))
        for source in setup.sources
    ]


def _draw_tolerance(outcome: Outcome) -> Figure:
    sources = outcome.values("source")
    figure, (axes,) = figures.panels(outcome, 1, len(sources))
    for axis, source in zip(axes, sources, strict=True):
        for record in outcome.select(source=source):
            if record["capture"] == ALL:
                for name, style in (("median", "-"), ("p95", "--")):
                    label = "median" if name == "median" else "95th percentile"
                    axis.plot(record["gaps"], record[name], style, color=figures.colour(2), linewidth=2, label=label)
            else:
                label = "median of one capture"
                axis.plot(record["gaps"], record["median"], color=GREY, linewidth=0.8, label=label)
        for i, (mark, label) in enumerate((("o", "paper: median"), ("^", "paper: 95th percentile"))):
            values = [both[i] for both in PAPER_TOLERANCE.values()]
            axis.plot(list(PAPER_TOLERANCE), values, mark, color=figures.PAPER, label=label)
        axis.set_xscale("log")
        axis.set_yscale("log", base=2)
        axis.set_ylim(0.9, 20)
        axis.set_yticks([1, 2, 4, 8, 16], [f"{y}" for y in (1, 2, 4, 8, 16)])
        axis.minorticks_off()
        axis.set_xlabel("boundary error, gaps between rank K and K + 1")
        axis.set_ylabel("scores kept / K")
        axis.set_title(source)
    return figures.finish(figure, [axes], "Scores kept when the boundary is off (observation 1)")


def _tolerance_table(outcome: Outcome) -> Table:
    sources = outcome.values("source")
    rows = []
    for gaps, both in PAPER_TOLERANCE.items():
        for name, label, paper in zip(("median", "p95"), ("median", "95th percentile"), both, strict=True):
            found = []
            for source in sources:
                (record,) = outcome.select(source=source, capture=ALL)
                found.append(f"{record[name][record['gaps'].index(float(gaps))]:.2f} K")
            rows.append((f"kept at {gaps} gaps, {label}", f"{paper:.2f} K", *found))
    omitted = [outcome.select(source=source, capture=ALL)[0] for source in sources]
    rows.append(("rows; without a gap, omitted", "-", *(f"{r['rows']}; {r['omitted']}" for r in omitted)))
    return Table(("", "paper", *sources), rows)


TOLERANCE = Experiment(
    "tolerance",
    "3.1, observation 1",
    "How much a boundary may be off: scores kept against the error in gaps at rank K",
    "all of it",
    _tolerance_steps,
    _draw_tolerance,
    _tolerance_table,
)


# ----------------------------------------------------------------------------------------------------------------------
# Observation 2

STRIDES = (16, 32, 64, 128, 256)
MARGINS = (1.0, 1.25, 1.5, 1.75, 2.0)  # requested complete-row rank / K
SHOWN_MARGIN = 1.5
CHUNK = 16  # of the default policy
SEEDS = 16  # hashed views of each row
STRIDED, HASHED = "strided", f"chunks of {CHUNK}, hashed"
PAPER_SPANS = {64: (1.23, 1.77), 128: (1.09, 1.92)}  # 5th..95th percentile at 1.5 K
PAPER_ENDS = (0.52, 0.74)  # of the top K in the first and the last tenth of the row


class _Counts:
    """Complete-row ranks / k of one view's boundaries, by requested margin."""

    def __init__(self) -> None:
        self.found: list[NDArray[np.float32]] = []
        self.expected: list[NDArray[np.float64]] = []  # mean square error if ranks are exchangeable

    def add(self, ordered: torch.Tensor, values: torch.Tensor, k: int, expected: NDArray[np.float64]) -> None:
        """values [R, views, margins], and what is expected of each row [R, margins]."""
        counts = ranks.count_at_least(ordered, values).double() / k
        self.found.append(counts.reshape(-1, values.shape[2]).float().cpu().numpy())
        self.expected.append(expected)

    def records(self, **fields: Any) -> list[Record]:
        found, expected = np.concatenate(self.found), np.concatenate(self.expected)
        p5, median, p95 = np.percentile(found, (5, 50, 95), axis=0)
        return [
            {
                **fields,
                "margin": margin,
                "boundaries": len(found),
                "p5": round(float(p5[i]), 4),
                "median": round(float(median[i]), 4),
                "p95": round(float(p95[i]), 4),
                "underfilled": round(float((found[:, i] < 1).mean()), 6),
                "rms": round(float(np.sqrt(((found[:, i] - margin) ** 2).mean())), 4),
                "exchangeable_rms": round(float(np.sqrt(expected[:, i].mean())), 4),
                "error_p95": round(float(np.percentile(np.abs(found[:, i] - margin), 95)), 4),
            }
            for i, margin in enumerate(MARGINS)
        ]


def _expected(lengths: NDArray[np.int32], stride: int, k: int) -> NDArray[np.float64]:
    """Mean square error of the complete-row rank / k that exchangeable ranks give: [R, margins]."""
    length = lengths.astype(np.float64)
    columns = []
    for margin in MARGINS:
        rank = math.ceil(margin * k / stride)
        bias = ranks.exchangeable_mean(length, length / stride, rank) - margin * k
        columns.append((ranks.exchangeable_variance(length, length / stride, rank) + bias**2) / k**2)
    return np.stack(columns, axis=1)


def _views(setup: Setup, source: Source, advance: Advance) -> list[Record]:
    counts: dict[tuple[int, str, int], _Counts] = defaultdict(_Counts)
    ends: dict[int, list[float]] = defaultdict(list)
    captures = _captures(setup, source)
    for number, (capture, lengths, numbers) in enumerate(captures):
        for scores, valid, done in source.batches(setup, lengths, numbers):
            ordered = ranks.ascending(scores)
            length = torch.from_numpy(valid).to(setup.device)[:, None]
            column = torch.arange(scores.shape[1], device=setup.device)
            edge = (column < length // 10) | ((column >= length - length // 10) & (column < length))
            best = scores >= ordered[:, -setup.k, None]
            share = ((best & edge).sum(dim=1) / best.sum(dim=1)).tolist()
            for stride in STRIDES:
                wanted = [math.ceil(margin * setup.k / stride) for margin in MARGINS]
                found = {STRIDED: ranks.strided(scores, stride, wanted)}
                by_row = [
                    [math.ceil(margin * setup.k * (size // stride // CHUNK * CHUNK) / size) for margin in MARGINS]
                    for size in valid.tolist()
                ]
                found[HASHED] = ranks.hashed(scores, valid, SEEDS, (stride, CHUNK, 1 << 30), by_row)
                expected = _expected(valid, stride, setup.k)
                for key in (capture, ALL):
                    for view, values in found.items():
                        counts[key, view, stride].add(ordered, values, setup.k, expected)
            for key in (capture, ALL):
                ends[key] += share
            advance((number + done) / len(captures))
    records: list[Record] = [
        {"part": "ends", "source": source.name, "capture": capture, "share": round(float(np.mean(shares)), 4)}
        for capture, shares in ends.items()
    ]
    for (capture, view, stride), found_there in counts.items():
        records += found_there.records(part="view", source=source.name, capture=capture, view=view, stride=stride)
    return records


def _view_steps(setup: Setup) -> list[Step]:
    return [
        Step(f"views, {source.name}", 1 + _seconds(setup, source, 200e-9), partial(_views, setup, source))
        for source in setup.sources
    ]


def _draw_views(outcome: Outcome) -> Figure:
    sources = outcome.values("source")
    figure, axes = figures.panels(outcome, len(sources), 3, (4.4, 3.0))
    names = [f"1/{stride}" for stride in STRIDES]
    for (median, span, error), source in zip(axes, sources, strict=True):
        view = partial(outcome.select, part="view", source=source, capture=ALL)
        median.plot(MARGINS, MARGINS, color=GREY, linewidth=3, alpha=0.5, label="as requested")
        for i, stride in enumerate(STRIDES):
            values = [r["median"] for r in view(view=STRIDED, stride=stride)]
            median.plot(MARGINS, values, ".-", color=figures.colour(i), label=f"1/{stride}", linewidth=1)
        median.set_xlabel("requested rank / K")
        median.set_ylabel("median rank / K, strided")
        median.set_title(f"{source}: calibration")
        median.legend(fontsize=7)
        for v, (name, offset) in enumerate(((STRIDED, -0.15), (HASHED, 0.15))):
            for x, stride in enumerate(STRIDES):
                (record,) = view(view=name, stride=stride, margin=SHOWN_MARGIN)
                label = f"{name}: 5th to 95th percentile, median" if x == 0 else None
                colour = figures.colour(2 * v)
                span.plot([x + offset] * 2, [record["p5"], record["p95"]], color=colour, linewidth=5, label=label)
                span.plot(x + offset, record["median"], "_", color=INK, markersize=9)
            errors = [view(view=name, stride=stride, margin=SHOWN_MARGIN)[0] for stride in STRIDES]
            error.plot(range(len(STRIDES)), [r["rms"] for r in errors], ".-", color=figures.colour(2 * v), label=name)
        for x, stride in enumerate(STRIDES):
            if stride in PAPER_SPANS:
                label = "paper, strided: 5th to 95th percentile" if stride == 64 else None
                span.plot([x - 0.38] * 2, PAPER_SPANS[stride], "_-", color=figures.PAPER, linewidth=1.5, label=label)
        expected = [view(view=STRIDED, stride=s, margin=SHOWN_MARGIN)[0]["exchangeable_rms"] for s in STRIDES]
        error.plot(range(len(STRIDES)), expected, "--", color=INK, label="exchangeable ranks (section 3.2)")
        span.axhline(1, color=INK, linewidth=0.9, linestyle=(0, (4, 3)), label="below: underfilled")
        span.set_yscale("log", base=2)
        span.set_yticks([0.25, 0.5, 1, 2, 4, 8, 16], ["1/4", "1/2", "1", "2", "4", "8", "16"])
        span.minorticks_off()
        error.set_yscale("log")
        error.set_ylim(0.07, 10)
        error.set_yticks([0.1, 0.2, 0.5, 1, 2, 5], ["0.1", "0.2", "0.5", "1", "2", "5"])
        error.minorticks_off()
        figures.categories(span, names, "share of the row that is sampled")
        figures.categories(error, names, "share of the row that is sampled")
        span.set_ylabel(f"rank / K, {SHOWN_MARGIN} requested")
        error.set_ylabel(f"RMS error / K, {SHOWN_MARGIN} requested")
        span.set_title(f"{source}: spread")
        error.set_title(f"{source}: error")
    title = "Complete-row rank of a view's boundary (observation 2)"
    return figures.finish(figure, [row[1:] for row in axes], title)


def _view_table(outcome: Outcome) -> Table:
    sources = outcome.values("source")
    rows = []

    def add(label: str, paper: str, view: str, stride: int, text: str, margin: float = SHOWN_MARGIN) -> None:
        cells = []
        for source in sources:
            (record,) = outcome.select(part="view", source=source, capture=ALL, view=view, stride=stride, margin=margin)
            cells.append(text.format(**record))
        rows.append((label, paper, *cells))

    for stride in STRIDES:
        paper = "{:.2f}..{:.2f} K".format(*PAPER_SPANS[stride]) if stride in PAPER_SPANS else "-"
        add(f"1/{stride}, strided: span at 1.5 K", paper, STRIDED, stride, "{p5:.2f}..{p95:.2f} K")
    for stride in STRIDES:
        add(f"1/{stride}, {HASHED}: the same", "-", HASHED, stride, "{p5:.2f}..{p95:.2f} K")
    for stride, paper in ((64, "0.32 K"), (128, "0.50 K")):
        add(f"1/{stride}, strided: 95% of errors within", paper, STRIDED, stride, "{error_p95:.2f} K")
    rows.append(("medians, requested K to 2 K, 1/16 to 1/64: off by at most", "1.3%", *_off(outcome, (16, 32, 64))))
    rows.append(("the same, 1/256", "5%", *_off(outcome, (256,))))
    ratios = []
    for source in sources:
        found = outcome.select(part="view", source=source, capture=ALL, view=STRIDED, margin=SHOWN_MARGIN)
        parts = [r["rms"] / r["exchangeable_rms"] for r in found]
        ratios.append(f"{min(parts):.2f}..{max(parts):.2f}")
    rows.append(("RMS error / that of exchangeable ranks, strided", "0.72..0.86", *ratios))
    shares = [outcome.select(part="ends", source=source, capture=ALL)[0]["share"] for source in sources]
    paper = "{:.0%}..{:.0%}".format(*PAPER_ENDS)
    rows.append(("top K in the first and last tenth of the row", paper, *(f"{share:.0%}" for share in shares)))
    return Table(("", "paper", *sources), rows)


def _off(outcome: Outcome, strides: tuple[int, ...]) -> list[str]:
    """The largest error of a median, for each source."""
    return [
        "{:.1%}".format(
            max(
                abs(r["median"] / r["margin"] - 1)
                for r in outcome.select(part="view", source=source, capture=ALL, view=STRIDED)
                if r["stride"] in strides
            )
        )
        for source in outcome.values("source")
    ]


VIEWS = Experiment(
    "views",
    "3.1, observation 2; 3.2",
    "How well a view finds the boundary: complete-row rank of a sample's rank, for 1/16 to 1/256 of the row",
    "all of it",
    _view_steps,
    _draw_views,
    _view_table,
)
