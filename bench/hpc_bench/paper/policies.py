# SPDX-License-Identifier: Apache-2.0
"""The paper's ablations of the sampled path (section 6.4): retention margin, stride and rescue.

Rates are counted, on any device, over rows of the last scheduler steps: all phases of a strided view with the paper's
coarse boundaries, or hashed views with exact ones. So a rate is the mean over what a kernel draws one of for each row.
On a GPU the kernels run with each policy too: latency, and the counters of the launches.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..contestants import Contestant
from ..grids import Cell
from ..plots import INK
from . import figures, gpu, ranks
from .experiment import Advance, Experiment, Outcome, Record, Setup, Step, Table
from .scores import LastStep, Source, last_rows, last_steps

ROWS, QUICK_ROWS = 1024, 16  # of each last step
SEEDS = 16  # hashed views of each row
CHUNKS = (16, 8)  # the default policy's first
MARGINS = (1.0, 1.25, 1.5, 1.75, 2.0)
STRIDES = (16, 32, 64, 128, 256)
STRIDED = "strided"
RHO, RESCUE, STRIDE = 1.5, 1.75, 128  # the paper's default


def hashed_name(chunk: int) -> str:
    """How records call a hashed view."""
    return f"chunks of {chunk}, hashed"


@dataclass(frozen=True)
class View:
    """A view whose boundaries are counted.

    Attributes:
        name: STRIDED, or `hashed_name`.
        stride: scores of the row for each sample.
        chunk: neighbouring samples; 1: strided.
        most: samples of a row.
    """

    name: str
    stride: int
    chunk: int = 1
    most: int = 1 << 30

    def samples(self, length: int) -> int:
        """Of a row."""
        return min(length // self.stride, self.most) // self.chunk * self.chunk


# Sample ranks of the boundaries in a row of so many scores, from its samples and k.
Ranks = Callable[[int, int, int], ranks.RowRanks]


def margins(*values: float) -> Ranks:
    """The ranks of complete-row targets value * k (equation 10)."""
    return lambda samples, length, k: [math.ceil(value * k * samples / length) for value in values]


def own_sigmas(sigmas: float, chunk: int) -> Ranks:
    """The default policy's ranks: `sigmas` deviations of sampling error, or what the sample shows; and half again."""

    def of_row(samples: int, length: int, k: int) -> ranks.RowRanks:
        def of_sample(sample: torch.Tensor) -> torch.Tensor:
            margins = ranks.own_margins(sample, chunk, sigmas).tolist()
            expected = samples * k / length
            found = [[ranks.rank_with_margin(expected, part * margin) for part in (1, 1.5)] for margin in margins]
            return torch.tensor(found, device=sample.device)

        return of_sample

    return of_row


Counts = dict[int, list[np.ndarray[Any, np.dtype[np.float64]]]]  # by view number: C / k [boundaries of all rows, ranks]


def _count(
    setup: Setup, source: Source, views: Sequence[tuple[View, Ranks]], advance: Advance
) -> list[tuple[int, int, Counts]]:
    """(tokens, rows, counts) of each last step."""
    steps = last_rows(setup, source, QUICK_ROWS if setup.quick else ROWS)
    found = []
    for number, (tokens, lengths, numbers) in enumerate(steps):
        counts: Counts = defaultdict(list)
        for scores, valid, done in source.batches(setup, lengths, numbers):
            ordered = ranks.ascending(scores)
            length = torch.from_numpy(valid).to(setup.device)[:, None, None]
            for v, (view, rule) in enumerate(views):
                if view.chunk == 1:
                    wanted = rule(10**6, view.stride * 10**6, setup.k)  # of the stride alone, as equation 10 has it
                    assert not callable(wanted)
                    values = ranks.coarse_floor(ranks.strided(scores, view.stride, wanted))
                else:
                    by_row = [rule(view.samples(size), size, setup.k) for size in valid.tolist()]
                    values = ranks.hashed(scores, valid, SEEDS, (view.stride, view.chunk, view.most), by_row)
                reached = ranks.count_at_least(ordered, values).minimum(length).double() / setup.k
                counts[v].append(reached.reshape(-1, values.shape[2]).cpu().numpy())
            advance((number + done) / len(steps))
        found.append((tokens, lengths.size, counts))
    return found


def _rates(
    setup: Setup, views: Sequence[tuple[View, Ranks, list[dict[str, Any]]]], source: Source, advance: Advance
) -> list[Record]:
    """A record for each view and rank: `recovered`, the share of rows that the boundary leaves underfilled."""
    records = []
    for tokens, rows, counts in _count(setup, source, [(view, rule) for view, rule, _ in views], advance):
        for v, (view, _, fields) in enumerate(views):
            found = np.concatenate(counts[v])
            for i, extra in enumerate(fields):
                records.append(
                    {
                        "part": "rate",
                        "source": source.name,
                        "tokens": tokens,
                        "view": view.name,
                        "stride": view.stride,
                        **extra,
                        "rows": rows,
                        "boundaries": len(found),
                        "recovered": round(float((found[:, i] < 1).mean()), 7),
                        "candidates": round(float(found[:, i].mean()), 4),
                        "p5": round(float(np.percentile(found[:, i], 5)), 4),
                        "p95": round(float(np.percentile(found[:, i], 95)), 4),
                    }
                )
    return records


def _rate_seconds(setup: Setup, source: Source, views: int) -> float:
    rows = last_rows(setup, source, QUICK_ROWS if setup.quick else ROWS)
    scores = sum(float(lengths.sum(dtype=np.int64)) for _, lengths, _ in rows)
    return 0.5 + scores * (40e-9 + 25e-9 * views) / (1 if setup.device.type == "cpu" else 100)


def _rate_steps(name: str, setup: Setup, views: int, count: Callable[[Source, Advance], list[Record]]) -> list[Step]:
    """A step for each source, which counts the rates of so many views."""
    return [
        Step(f"{name}, {source.name}, rates", _rate_seconds(setup, source, views), partial(count, source))
        for source in setup.sources
    ]


def _timings(
    setup: Setup,
    source: Source,
    step: LastStep,
    contestants: list[tuple[Contestant, dict[str, Any]]],
    number: int,
    advance: Advance,
) -> list[Record]:
    """The contestants at one call of a last step. Each brings the fields that its records hold."""
    cell: Cell = step.cells[number]
    records = gpu.timed(setup, source, cell, [c for c, _ in contestants], advance, weight=step.weights[number])
    by_name = {contestant.name: fields for contestant, fields in contestants}
    return [record | by_name[record["contestant"]] | {"tokens": step.tokens} for record in records]


def timed_steps(
    name: str, setup: Setup, contestants: Callable[[], list[tuple[Contestant, dict[str, Any]]]]
) -> list[Step]:
    """A step for each call of the last steps, on a GPU; else none."""
    if setup.gpu is None:
        return []
    return [
        Step(
            f"{name}, {source.name}, {step.tokens:,} tokens",
            gpu.weight(cell, len(contestants())),
            partial(_timings, setup, source, step, contestants(), number),
        )
        for source in setup.sources
        for step in last_steps(setup, source)
        for number, cell in enumerate(step.cells)
    ]


def _with_peers(setup: Setup, ours: list[tuple[Contestant, dict[str, Any]]]) -> list[tuple[Contestant, dict[str, Any]]]:
    return [*ours, (setup.timed.ours(), {}), *((peer, {}) for peer in setup.timed.others())]


def step_ms(outcome: Outcome, source: str, tokens: int, contestant: str) -> float | None:
    """The latency of a last step."""
    return gpu.total_ms(outcome.select(part="time", source=source, tokens=tokens, contestant=contestant))


def percent(value: float) -> str:
    """A share as text, with as many digits as it has."""
    return "0" if value == 0 else f"{100 * value:.2g}%" if value < 0.1 else f"{100 * value:.0f}%"


def _range(values: Sequence[float]) -> str:
    """The least and the largest share."""
    low, high = percent(min(values)), percent(max(values))
    return low if low == high else f"{low}..{high}"


def _speed_text(outcome: Outcome, source: str, contestant: str, baseline: Callable[[int], float | None]) -> str:
    """How many times faster than a baseline, over the two requests; or that it was not timed."""
    found = []
    for tokens in outcome.values("tokens", part="time", source=source):
        own, base = step_ms(outcome, source, tokens, contestant), baseline(tokens)
        if own and base:
            found.append(base / own)
    return f"{min(found):.2f}..{max(found):.2f} x" if found else "not timed"


def best_peer(outcome: Outcome, source: str) -> Callable[[int], float | None]:
    """The latency of the fastest peer in a step, by its tokens."""

    def best(tokens: int) -> float | None:
        found = gpu.best_other(outcome, lambda name: step_ms(outcome, source, tokens, name))
        return found[1] if found else None

    return best


def _latency_panel(axis: Axes, outcome: Outcome, source: str, field: str, values: Sequence[float]) -> None:
    """Latency against a field of the policy."""
    for i, tokens in enumerate(outcome.values("tokens", part="time", source=source)):
        for v, view in enumerate(outcome.values("view", part="time", source=source)):
            points = []
            for x, value in enumerate(values):
                found = outcome.select(part="time", source=source, tokens=tokens, view=view, **{field: value})
                ms = gpu.total_ms(found)
                if ms is not None:
                    points.append((x, ms))
            if points:
                style = "-" if v == 0 else ":"
                axis.plot(*zip(*points, strict=True), f".{style}", color=figures.colour(i), label=f"{tokens:,}, {view}")
        ms = step_ms(outcome, source, tokens, "hpc")
        if ms is not None:
            axis.axhline(ms, color=figures.colour(i), linewidth=0.9, linestyle="--", label=f"{tokens:,}, hpc default")
    axis.set_ylabel("last step, ms")
    axis.set_ylim(bottom=0)
    axis.set_title(f"{source}: latency")
    axis.legend(fontsize=6, loc="lower left")


def _rate_panel(
    axis: Axes,
    outcome: Outcome,
    source: str,
    field: str,
    values: Sequence[float],
    bands: dict[float, tuple[float, float]],
) -> None:
    """Underfilled rows against a field of the policy, with the paper's ranges."""
    floor = 1e-5
    for v, view in enumerate(outcome.values("view", part="rate", source=source)):
        for t, tokens in enumerate(outcome.values("tokens", part="rate", source=source)):
            found = [
                outcome.select(part="rate", source=source, tokens=tokens, view=view, **{field: value})
                for value in values
            ]
            points = [(x, max(floor, r[0]["recovered"])) for x, r in enumerate(found) if r]
            if points:
                style = ("-", "--")[t % 2]
                label = f"{view}, {tokens:,} tokens"
                axis.plot(
                    *zip(*points, strict=True), f".{style}", color=figures.colour(2 * v), label=label, linewidth=1.2
                )
    for x, value in enumerate(values):
        if value in bands:
            low, high = bands[value]
            once = "paper, strided" if value == next(iter(bands)) else None
            axis.plot([x, x], [max(floor, low), high], "_-", color=figures.PAPER, linewidth=2.5, alpha=0.8, label=once)
    axis.set_yscale("log")
    axis.set_ylim(floor / 1.6, 1.2)
    axis.set_yticks([1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1], ["0", "0.01%", "0.1%", "1%", "10%", "100%"])
    axis.minorticks_off()
    axis.axhline(floor, color=INK, linewidth=0.5)
    axis.set_ylabel("rows that the boundary underfills")
    axis.set_title(f"{source}: recovery")


def _panel_rows(outcome: Outcome) -> int:
    """Rates, and latencies where they were measured."""
    return 2 if outcome.select(part="time") else 1


def _untimed(outcome: Outcome) -> str:
    return "" if outcome.select(part="time") else " (no latency: it takes a GPU)"


def _draw(
    outcome: Outcome,
    title: str,
    field: str,
    values: Sequence[float],
    label: str,
    bands: dict[float, tuple[float, float]],
) -> Figure:
    sources = outcome.values("source")
    figure, axes = figures.panels(outcome, _panel_rows(outcome), len(sources), (4.4, 2.9))
    names = [f"{value:g}" for value in values]
    for rate, source in zip(axes[0], sources, strict=True):
        _rate_panel(rate, outcome, source, field, values, bands)
        figures.categories(rate, names, label)
    for row in axes[1:]:
        for latency, source in zip(row, sources, strict=True):
            _latency_panel(latency, outcome, source, field, values)
            figures.categories(latency, names, label)
    return figures.finish(figure, axes[:1], title + _untimed(outcome))


# ----------------------------------------------------------------------------------------------------------------------
# Retention margin

PAPER_MARGIN = {1.0: (0.30, 0.37), 1.25: (0.057, 0.078), 1.5: (0.0, 0.01)}  # "roughly one third", "below 1%"


def _margin_views(chunks: Sequence[int] = (CHUNKS[0],)) -> list[tuple[View, Ranks, list[dict[str, Any]]]]:
    fields = [{"margin": margin} for margin in MARGINS]
    views = [View(STRIDED, STRIDE), *(View(hashed_name(chunk), STRIDE, chunk) for chunk in chunks)]
    return [(view, margins(*MARGINS), fields) for view in views]


def _margin_steps(setup: Setup) -> list[Step]:
    def contestants() -> list[tuple[Contestant, dict[str, Any]]]:
        def variant(margin: float) -> Contestant:
            name = f"hpc paper, margin {margin:g}"
            return setup.timed.ours(name, "paper", rank_margin=margin, rescue_margin=margin, stride=STRIDE)

        return _with_peers(setup, [(variant(m), {"view": STRIDED, "margin": m}) for m in MARGINS])

    views = _margin_views()
    rates = _rate_steps("margin", setup, len(views), partial(_rates, setup, views))
    return rates + timed_steps("margin", setup, contestants)


def _draw_margin(outcome: Outcome) -> Figure:
    title = "Retention margin at stride 128, primary boundary only"
    return _draw(outcome, title, "margin", MARGINS, "requested rank / K", PAPER_MARGIN)


def _rate_rows(outcome: Outcome, paper: dict[float, str], label: str, field: str) -> list[tuple[str, ...]]:
    rows = []
    for view in outcome.values("view", part="rate"):
        for value in outcome.values(field, part="rate", view=view):
            cells = []
            for source in outcome.values("source"):
                found = outcome.select(part="rate", source=source, view=view, **{field: value})
                cells.append(_range([r["recovered"] for r in found]))
            stated = paper.get(value, "-") if view == STRIDED else "-"
            rows.append((f"{view}, {label.format(value)}: rows underfilled", stated, *cells))
    return rows


def _margin_table(outcome: Outcome) -> Table:
    sources = outcome.values("source")
    paper = {1.0: "about a third", 1.25: "5.7..7.8%", 1.5: "below 1%"}
    rows = _rate_rows(outcome, paper, "{:g} K", "margin")
    kept = []
    for source in sources:
        found = outcome.select(part="rate", source=source, view=STRIDED, margin=RHO)
        kept.append(f"{np.mean([r['candidates'] for r in found]):.2f} K")
    rows.append(("strided, 1.5 K: scores admitted, mean", "-", *kept))
    for margin, stated in ((1.0, "none"), (1.5, "1.51..1.54 x")):
        name = f"hpc paper, margin {margin:g}"
        speeds = [_speed_text(outcome, s, name, best_peer(outcome, s)) for s in sources]
        rows.append((f"{margin:g} K: times faster than the best peer", stated, *speeds))
    return Table(("", "paper", *sources), rows)


MARGIN = Experiment(
    "margin",
    "6.4, retention margin",
    "The requested rank from K to 2 K at stride 128, primary boundary only: underfilled rows and latency",
    "the rates",
    _margin_steps,
    _draw_margin,
    _margin_table,
)


# ----------------------------------------------------------------------------------------------------------------------
# Stride

PAPER_STRIDE = {16: (0.0, 1e-4), 32: (0.0, 1e-4), 64: (0.0, 1e-4), 128: (0.0, 0.009), 256: (0.0248, 0.0326)}


def _stride_steps(setup: Setup) -> list[Step]:
    def contestants() -> list[tuple[Contestant, dict[str, Any]]]:
        timed = setup.timed
        found: list[tuple[Contestant, dict[str, Any]]] = []
        for stride in STRIDES:
            name = f"hpc paper, stride {stride}"
            strided = timed.ours(name, "paper", stride=stride, rank_margin=RHO, rescue_margin=RHO)
            found.append((strided, {"view": STRIDED, "stride": stride}))
            hashed = timed.ours(f"hpc, 1 in {stride}", stride=stride, chunk=CHUNKS[0], min_samples=0)
            found.append((hashed, {"view": hashed_name(CHUNKS[0]), "stride": stride}))
        return _with_peers(setup, found)

    names: list[tuple[str, int]] = [(STRIDED, 1), *((hashed_name(chunk), chunk) for chunk in CHUNKS)]
    views = [
        (View(name, stride, chunk), margins(RHO), [{"margin": RHO}]) for name, chunk in names for stride in STRIDES
    ]
    rates = _rate_steps("stride", setup, len(views), partial(_rates, setup, views))
    return rates + timed_steps("stride", setup, contestants)


def _draw_stride(outcome: Outcome) -> Figure:
    title = "Sampling stride at 1.5 K, primary boundary only"
    return _draw(outcome, title, "stride", STRIDES, "scores of the row for each sample", dict(PAPER_STRIDE.items()))


def _stride_table(outcome: Outcome) -> Table:
    sources = outcome.values("source")
    paper: dict[float, str] = dict.fromkeys((16, 32, 64), "below 0.01%")
    paper |= {128: "below 0.9%", 256: "2.48..3.26%"}
    rows = _rate_rows(outcome, paper, "1 in {}", "stride")
    for stride, stated in ((16, "about 1.05 x"), (128, "1.51..1.54 x")):
        name = f"hpc paper, stride {stride}"
        speeds = [_speed_text(outcome, s, name, best_peer(outcome, s)) for s in sources]
        rows.append((f"strided, 1 in {stride}: times faster than the best peer", stated, *speeds))
    return Table(("", "paper", *sources), rows)


STRIDE_EXPERIMENT = Experiment(
    "stride",
    "6.4, sampling stride",
    "The stride from 16 to 256 at a requested rank of 1.5 K, strided and chunk views: underfilled rows and latency",
    "the rates",
    _stride_steps,
    _draw_stride,
    _stride_table,
)


# ----------------------------------------------------------------------------------------------------------------------
# Rescue

DEFAULT = "hpc default: 1 in 32, at most 16384, 4 and 6 sigmas or more"
RESCUED_VIEWS: tuple[tuple[View, Ranks], ...] = (
    (View(f"{STRIDED}, 1 in 64", 64), margins(RHO, RESCUE)),
    (View(f"{STRIDED}, 1 in 128", 128), margins(RHO, RESCUE)),
    (View(f"{STRIDED}, 1 in 256", 256), margins(RHO, RESCUE)),
    (View(hashed_name(CHUNKS[0]) + ", 1 in 128", 128, CHUNKS[0]), margins(RHO, RESCUE)),
    (View(DEFAULT, 32, CHUNKS[0], 16_384), own_sigmas(4, CHUNKS[0])),
)


def _rescue_rates(setup: Setup, source: Source, advance: Advance) -> list[Record]:
    """Rows that the primary boundary underfills, those of them that the secondary fills, and what both cost.

    R_eq, row reads before refinement, is 1 + samples + p_band + 2 p_exact (section 4.6).
    """
    records = []
    for tokens, rows, counts in _count(setup, source, RESCUED_VIEWS, advance):
        for v, (view, _) in enumerate(RESCUED_VIEWS):
            first, second = np.concatenate(counts[v]).T
            underfilled, lost = float((first < 1).mean()), float((second < 1).mean())
            sampled = view.samples(tokens) / tokens
            records.append(
                {
                    "part": "rate",
                    "source": source.name,
                    "tokens": tokens,
                    "view": view.name,
                    "rows": rows,
                    "boundaries": len(first),
                    "underfilled": round(underfilled, 7),
                    "recovered": round(lost, 7),
                    "admitted": round(float(first.mean()), 4),
                    "r_eq": round(1 + sampled + underfilled + 2 * lost, 6),
                    "r_eq_without": round(1 + sampled + 2 * underfilled, 6),
                }
            )
    return records


RESCUE_NAMES = ("hpc paper", "hpc paper, no rescue", "hpc")


def _rescue_steps(setup: Setup) -> list[Step]:
    def contestants() -> list[tuple[Contestant, dict[str, Any]]]:
        timed = setup.timed
        primary = timed.ours(RESCUE_NAMES[1], "paper", rescue_margin=RHO)
        return _with_peers(setup, [(timed.ours(RESCUE_NAMES[0], "paper"), {}), (primary, {})])

    rates = _rate_steps("rescue", setup, len(RESCUED_VIEWS), partial(_rescue_rates, setup))
    return rates + timed_steps("rescue", setup, contestants)


def _mean(records: Sequence[Record], name: str) -> float:
    return float(np.mean([r[name] for r in records]))


def _draw_rescue(outcome: Outcome) -> Figure:
    sources = outcome.values("source")
    figure, axes = figures.panels(outcome, _panel_rows(outcome), len(sources), (4.6, 3.0))
    for rate, source in zip(axes[0], sources, strict=True):
        _rescued_panel(rate, outcome, source)
    for row in axes[1:]:
        for latency, source in zip(row, sources, strict=True):
            _rescue_latency_panel(latency, outcome, source)
    return figures.finish(figure, axes[:1], "Rescue: the secondary boundary at 1.75 K" + _untimed(outcome))


def _rescue_latency_panel(axis: Axes, outcome: Outcome, source: str) -> None:
    tokens_timed = outcome.values("tokens", part="time", source=source)
    for t, tokens in enumerate(tokens_timed):
        for n, name in enumerate(RESCUE_NAMES):
            ms = step_ms(outcome, source, tokens, name)
            if ms is not None:
                x = t + (n - 1) * 0.26
                axis.bar(x, ms, 0.24, color=figures.colour(n), label=name if t == 0 else None)
                axis.text(x, ms, f"{ms:.2f}", ha="center", va="bottom", fontsize=7)
    figures.categories(axis, [f"{tokens:,}" for tokens in tokens_timed], "tokens of the request")
    axis.set_ylabel("last step, ms")
    axis.set_title(f"{source}: latency")
    axis.margins(y=0.35)
    axis.legend(fontsize=7, loc="upper left")


def _rescued_panel(axis: Axes, outcome: Outcome, source: str) -> None:
    floor = 1e-5
    views = outcome.values("view", part="rate", source=source)
    for y, view in enumerate(views):
        found = outcome.select(part="rate", source=source, view=view)
        for name, offset, colour, label in (
            ("underfilled", -0.18, 1, "underfilled by the primary boundary"),
            ("recovered", 0.18, 0, "and by the secondary: exact recovery"),
        ):
            value = _mean(found, name)
            length = max(value, floor)
            axis.barh(y + offset, length, 0.34, color=figures.colour(colour), label=label if y == 0 else None)
            axis.text(length * 1.15, y + offset, percent(value), va="center", fontsize=7)
    axis.set_xscale("log")
    axis.set_xlim(floor, 3)
    axis.set_xticks([1e-4, 1e-3, 1e-2, 1e-1, 1], ["0.01%", "0.1%", "1%", "10%", "100%"])
    axis.minorticks_off()
    axis.set_yticks(range(len(views)), [v.replace(", ", ",\n", 1).replace(": ", ":\n", 1) for v in views], fontsize=7)
    axis.set_ylim(len(views) - 0.5, -0.5)
    axis.set_xlabel("share of rows")
    axis.set_title(f"{source}: rows")


def _rescue_table(outcome: Outcome) -> Table:
    sources = outcome.values("source")
    rows: list[tuple[str, ...]] = []
    for view in outcome.values("view", part="rate"):
        found = [outcome.select(part="rate", source=source, view=view) for source in sources]
        stated = "below 0.9%" if view == f"{STRIDED}, 1 in 128" else "-"
        rows.append((f"{view}: underfilled", stated, *(_range([r["underfilled"] for r in f]) for f in found)))
        rows.append(("... and by the secondary too", "-", *(_range([r["recovered"] for r in f]) for f in found)))
        both = [f"{_mean(f, 'r_eq_without'):.4f}, {_mean(f, 'r_eq'):.4f}" for f in found]
        rows.append(("... row reads without and with rescue", "-", *both))
    speeds = [
        _speed_text(outcome, s, RESCUE_NAMES[0], partial(step_ms, outcome, s, contestant=RESCUE_NAMES[1]))
        for s in sources
    ]
    rows.append(("latency without / with rescue, the paper's policy", "-", *speeds))
    return Table(("", "paper", *sources), rows)


RESCUE_EXPERIMENT = Experiment(
    "rescue",
    "6.4, conditional rescue",
    "The secondary boundary at 1.75 K: underfilled rows that it saves, and what that is worth",
    "the rates",
    _rescue_steps,
    _draw_rescue,
    _rescue_table,
)
