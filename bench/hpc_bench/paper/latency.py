# SPDX-License-Identifier: Apache-2.0
"""The paper's timings (sections 6.2 to 6.4): shapes, whole requests, the worth of the sample, the best mapping."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from workloads import OPERATOR_GRID

from ..contestants import Contestant
from ..grids import Cell
from ..plots import GREY, INK, short
from ..report import mean
from . import figures, gpu
from .experiment import Advance, Experiment, Outcome, Record, Setup, Step, Table
from .policies import step_ms, timed_steps
from .scores import Source, timed_calls


def _ours_and_peers(setup: Setup) -> list[Contestant]:
    return [setup.timed.ours(), setup.timed.ours("hpc paper", "paper"), *setup.timed.others()]


def _cell_step(
    name: str, setup: Setup, source: Source, cell: Cell, contestants: list[Contestant], **fields: Any
) -> Step:
    def run(advance: Advance) -> list[Record]:
        return gpu.timed(setup, source, cell, contestants, advance, **fields)

    return Step(f"{name}, {source.name}, {cell.rows} x {short(cell.columns)}", gpu.weight(cell, len(contestants)), run)


def _saved_cell(setup: Setup, source: Source) -> Cell:
    return Cell("saved", source.name, *source.shape, setup.k)


def _span(values: Sequence[float]) -> str:
    return f"{min(values):.2f}..{max(values):.2f} x" if values else "not timed"


# ----------------------------------------------------------------------------------------------------------------------
# Operator shapes

PAPER_OPERATOR = {131_072: (1.29, 1.42), 262_144: (1.49, 1.53), 524_288: (1.60, 1.72), 1_048_576: (1.68, 1.75)}
PAPER_OPERATOR_MEAN = 1.55
QUICK_SHAPES = [(512, 131_072), (8192, 131_072), (512, 1_048_576)]


def _operator_steps(setup: Setup) -> list[Step]:
    shapes = QUICK_SHAPES if setup.quick else OPERATOR_GRID
    return [
        _cell_step("operator", setup, source, cell, _ours_and_peers(setup))
        for source in setup.sources
        for cell in (
            [_saved_cell(setup, source)]
            if source.file
            else [Cell("prefill", source.name, rows, columns, setup.k) for rows, columns in shapes]
        )
    ]


def _speeds(outcome: Outcome, source: str, columns: int | None = None, over: str = "") -> list[float]:
    """Time of the fastest peer, or of the contestant `over`, / time of ours, at each shape where both are right."""
    found = []
    fields = {} if columns is None else {"columns": columns}
    for ours in outcome.select(source=source, contestant="hpc", right=True, **fields):
        others = [
            r["us"]
            for r in outcome.select(source=source, rows=ours["rows"], columns=ours["columns"], right=True)
            if (r["contestant"] == over if over else r["contestant"].partition(" ")[0] != "hpc")
        ]
        if others:
            found.append(min(others) / ours["us"])
    return found


def _draw_operator(outcome: Outcome) -> Figure:
    sources = outcome.values("source")
    widths = sorted(outcome.values("columns"))
    figure, axes = figures.panels(outcome, 2, len(sources), (4.6, 3.0))
    for (speed, reach), source in zip(zip(*axes, strict=True), sources, strict=True):
        for v, (over, label) in enumerate((("", "the best peer"), ("hpc paper", "the paper's policy, here"))):
            for x, width in enumerate(widths):
                values = _speeds(outcome, source, width, over)
                label_once = f"hpc: times faster than {label}" if x == 0 else None
                xs = np.full(len(values), x + (v - 0.5) * 0.24)
                speed.plot(xs, values, "o", color=figures.colour(2 * v), alpha=0.8, label=label_once)
        for x, width in enumerate(widths):
            if width in PAPER_OPERATOR:
                low, high = PAPER_OPERATOR[width]
                label_once = "paper, H20: than its best peer" if x == 0 else None
                speed.plot([x - 0.36] * 2, [low, high], "_-", color=figures.PAPER, linewidth=2, label=label_once)
        names = outcome.values("contestant", source=source)
        for c, name in enumerate(names):
            found = outcome.select(source=source, contestant=name, right=True)
            places = [widths.index(r["columns"]) + 0.5 * ((c + 0.5) / len(names) - 0.5) for r in found]
            reach.plot(places, [r["limit_us"] / r["us"] for r in found], ".", color=figures.colour(c), label=name)
        speed.axhline(1, color=INK, linewidth=0.7)
        shown = [value for over in ("", "hpc paper") for value in _speeds(outcome, source, over=over)]
        speed.set_ylim(0, 1.1 * max([1.8, *shown]))
        reach.set_ylim(0, 1.1)
        for axis in (speed, reach):
            figures.categories(axis, [short(width) for width in widths], "N, columns; a point for each M")
        speed.set_ylabel("times faster")
        reach.set_ylabel("read limit / time")
        speed.set_title(f"{source}: speed")
        reach.set_title(f"{source}: reach")
    return figures.finish(figure, axes, "Operator shapes (section 6.2)")


def _operator_table(outcome: Outcome) -> Table:
    sources = outcome.values("source")
    rows: list[tuple[str, ...]] = []
    for width in sorted(outcome.values("columns")):
        paper = _span(PAPER_OPERATOR[width]) if width in PAPER_OPERATOR else "-"
        rows.append(
            (f"N = {short(width)}: than the best peer", paper, *(_span(_speeds(outcome, s, width)) for s in sources))
        )
    for label, paper, over in (
        ("all, geometric mean: than the best peer", f"{PAPER_OPERATOR_MEAN} x", ""),
        ("... than the paper's policy, here", "-", "hpc paper"),
        *((f"... than {name}", "-", name) for name in outcome.values("contestant") if not name.startswith("hpc")),
    ):
        found = [_speeds(outcome, s, over=over) for s in sources]
        rows.append((label, paper, *(f"{mean(values):.2f} x" if values else "not timed" for values in found)))
    rows.append(("R_eq by the counters, largest", "1 + 1/s", *(_largest_r_eq(outcome, s) for s in sources)))
    exact = [outcome.select(source=s, contestant="hpc") for s in sources]
    rows.append(("exact", "20 of 20", *(f"{sum(bool(r.get('right')) for r in e)} of {len(e)}" for e in exact)))
    return Table(("times faster", "paper", *sources), rows)


def _largest_r_eq(outcome: Outcome, source: str) -> str:
    found = [r["r_eq"] for r in outcome.select(source=source, contestant="hpc") if "r_eq" in r]
    return f"{max(found):.3f}" if found else "-"


OPERATOR = Experiment(
    "operator",
    "6.2",
    "The 20 operator shapes: speed against each peer and against the paper's policy",
    "",
    _operator_steps,
    _draw_operator,
    _operator_table,
)


# ----------------------------------------------------------------------------------------------------------------------
# Whole requests

PAPER_TRACES = {244_650: (77.15, 56.53), 430_000: (233.50, 158.12)}  # ms: the best peer, HPC-Ops; H20
PAPER_TERMINAL = {430_000: 1.55}


def _trace_steps(setup: Setup) -> list[Step]:
    steps = []
    for source in setup.sources:
        if source.file is not None:
            steps.append(_cell_step("traces", setup, source, _saved_cell(setup, source), _ours_and_peers(setup)))
            continue
        for tokens in PAPER_TRACES:
            for i, call, share in timed_calls(setup, tokens):
                cell = Cell("traces", source.name, call.rows, call.columns, setup.k, tokens, i)
                steps.append(_cell_step("traces", setup, source, cell, _ours_and_peers(setup), weight=share))
    return steps


def _trace_ms(outcome: Outcome, source: str, tokens: int, name: str, last: bool = False) -> float | None:
    found = outcome.select(source=source, tokens=tokens, contestant=name)
    widest = max((r["columns"] for r in found), default=0)
    return gpu.total_ms([r for r in found if not last or r["columns"] == widest])


def _draw_traces(outcome: Outcome) -> Figure:
    sources, requests = outcome.values("source"), outcome.values("tokens")
    names = outcome.values("contestant")
    height = 0.34 * (len(names) + 2) + 1.3
    figure, axes = figures.panels(outcome, len(requests), len(sources), (5.0, height))
    for row, tokens in zip(axes, requests, strict=True):
        for axis, source in zip(row, sources, strict=True):
            bars: list[tuple[str, float | None, float | None, str]] = [
                (name, _trace_ms(outcome, source, tokens, name), _trace_ms(outcome, source, tokens, name, True), "")
                for name in names
            ]
            if tokens in PAPER_TRACES:
                peer, own = PAPER_TRACES[tokens]
                bars += [
                    ("paper: HPC-Ops, H20", own, None, figures.PAPER),
                    ("paper: best peer, H20", peer, None, figures.PAPER),
                ]
            axis.grid(False)
            labels, totals, *_ = zip(*bars, strict=True)
            longest = figures.longest_bar(labels, totals)
            for y, (_, ms, last, paint) in enumerate(bars):
                label = "paper" if paint else "other steps"
                axis.barh(y, min(ms or 0, longest), color=paint or figures.colour(2), label=label)
                if ms and last and ms <= longest:
                    axis.barh(y, last, left=ms - last, color=figures.colour(1), label="last scheduler step")
            figures.bars(axis, labels, totals, longest)
            axis.set_xlabel("ms")
            axis.set_title(f"{source}, {tokens:,} tokens" if tokens else source)
    return figures.finish(figure, axes, "Whole requests (section 6.3)")


def _trace_table(outcome: Outcome) -> Table:
    sources = outcome.values("source")
    rows: list[tuple[str, ...]] = []
    for tokens in outcome.values("tokens"):
        paper = PAPER_TRACES.get(tokens)
        cells: dict[str, list[str]] = {"ours": [], "policy": [], "peer": [], "speed": [], "share": [], "last": []}
        for source in sources:
            own, own_last = (_trace_ms(outcome, source, tokens, "hpc", last) for last in (False, True))
            policy = _trace_ms(outcome, source, tokens, "hpc paper")
            peer = gpu.best_other(outcome, partial(_trace_ms, outcome, source, tokens))
            peer_last = gpu.best_other(outcome, partial(_trace_ms, outcome, source, tokens, last=True))
            cells["ours"].append(f"{own:.2f} ms" if own else "-")
            cells["policy"].append(f"{policy:.2f} ms" if policy else "-")
            cells["peer"].append(f"{peer[1]:.2f} ms ({peer[0]})" if peer else "none installed")
            cells["speed"].append(f"{peer[1] / own:.2f} x" if peer and own else "-")
            cells["share"].append(f"{own_last / own:.0%}" if own and own_last else "-")
            cells["last"].append(f"{peer_last[1] / own_last:.2f} x" if peer_last and own_last else "-")
        name = f"{tokens:,} tokens: " if tokens else ""
        rows += [
            (f"{name}hpc", f"{paper[1]:.2f} ms" if paper else "-", *cells["ours"]),
            ("... the paper's policy, here", "-", *cells["policy"]),
            ("... best peer", f"{paper[0]:.2f} ms (SGLang)" if paper else "-", *cells["peer"]),
            ("... times faster than the best peer", f"{paper[0] / paper[1]:.2f} x" if paper else "-", *cells["speed"]),
            ("... share of the last scheduler step", "-", *cells["share"]),
            (
                "... times faster in the last step",
                f"{PAPER_TERMINAL[tokens]} x" if tokens in PAPER_TERMINAL else "-",
                *cells["last"],
            ),
        ]
    return Table(("", "paper, H20", *sources), rows)


TRACES = Experiment(
    "traces",
    "6.3",
    "The calls of requests of 244,650 and 430,000 tokens: latency, and the share of the terminal prefix",
    "",
    _trace_steps,
    _draw_traces,
    _trace_table,
)


# ----------------------------------------------------------------------------------------------------------------------
# The worth of the sample

MECHANISM = {
    "hpc": ("default", "auto", {}),
    "hpc, exact boundary": ("default", "auto", {"view": "none"}),
    "hpc paper": ("paper", "auto", {}),
    "hpc paper, exact boundary": ("paper", "auto", {"view": "none"}),
}


def _mechanism_steps(setup: Setup) -> list[Step]:
    def contestants() -> list[tuple[Contestant, dict[str, Any]]]:
        return [
            (setup.timed.ours(name, policy, kernel, **changes), {})
            for name, (policy, kernel, changes) in MECHANISM.items()
        ]

    return timed_steps("mechanism", setup, contestants)


def _draw_mechanism(outcome: Outcome) -> Figure:
    sources = outcome.values("source")
    figure, (axes,) = figures.panels(outcome, 1, len(sources), (4.8, 3.2))
    for axis, source in zip(axes, sources, strict=True):
        requests = outcome.values("tokens", source=source)
        for t, tokens in enumerate(requests):
            limit = gpu.total_ms(
                [
                    {**r, "us": r["limit_us"], "right": True}
                    for r in outcome.select(source=source, tokens=tokens, contestant="hpc")
                ]
            )
            for n, name in enumerate(MECHANISM):
                ms = step_ms(outcome, source, tokens, name)
                if ms is None:
                    continue
                x = t + (n - 1.5) * 0.2
                kernel = next(iter(outcome.values("kernel", source=source, tokens=tokens, contestant=name)), "")
                axis.bar(x, ms, 0.18, color=figures.colour(n), label=name if t == 0 else None)
                axis.text(x, ms, f"{ms:.2f}\n{kernel}", ha="center", va="bottom", fontsize=6)
            if limit is not None:
                axis.plot(
                    [t - 0.42, t + 0.42], [limit, limit], "--", color=GREY, label="read limit" if t == 0 else None
                )
        figures.categories(axis, [f"{tokens:,}" for tokens in requests], "tokens of the request")
        axis.margins(y=0.15)
        axis.set_ylabel("last step, ms")
        axis.set_title(source)
    return figures.finish(figure, [axes], "A sampled first boundary against an exact one (section 6.4)")


def _mechanism_table(outcome: Outcome) -> Table:
    sources = outcome.values("source")
    rows = []
    for tokens in outcome.values("tokens"):
        for sampled in ("hpc", "hpc paper"):
            cells = []
            for source in sources:
                with_, without = (step_ms(outcome, source, tokens, n) for n in (sampled, f"{sampled}, exact boundary"))
                cells.append(f"{without:.2f} / {with_:.2f} ms = {without / with_:.2f} x" if with_ and without else "-")
            policy = "default policy" if sampled == "hpc" else "paper's policy"
            rows.append((f"{tokens:,}, {policy}: exact boundary / sampled", "-", *cells))
    return Table(("", "paper", *sources), rows)


MECHANISM_EXPERIMENT = Experiment(
    "mechanism",
    "6.4, mechanism",
    "The same call with an exact first boundary in place of the sampled one: what the sample is worth",
    "",
    _mechanism_steps,
    _draw_mechanism,
    _mechanism_table,
)


# ----------------------------------------------------------------------------------------------------------------------
# Where each mapping wins

SAMPLED, EXACT = ("persistent", "kv_split", "cluster"), ("row_local", "fallback")
CROSSOVER_ROWS = (1, 4, 16, 64, 256, 1024, 4096)
CROSSOVER_COLUMNS = tuple(1 << i for i in range(12, 21))
QUICK_ROWS, QUICK_COLUMNS = (1, 64, 1024), (4096, 32_768, 262_144)
MOST_SCORES = 1 << 30  # of a shape


def _crossover_steps(setup: Setup) -> list[Step]:
    steps = []
    for source in setup.sources[:1] if setup.quick else setup.sources:
        most = source.shape if source.file is not None else (1 << 30, 1 << 30)
        shapes = [
            (m, n)
            for m in (QUICK_ROWS if setup.quick else CROSSOVER_ROWS)
            for n in (QUICK_COLUMNS if setup.quick else CROSSOVER_COLUMNS)
            if m * n <= MOST_SCORES and m <= most[0] and n <= most[1] and n > setup.k
        ]
        for m, n in shapes:
            contestants = [setup.timed.ours()]
            contestants += [setup.timed.ours(f"hpc {kernel}", "default", kernel) for kernel in SAMPLED + EXACT]
            # The lengths and the inputs, taken in turns with L2 cold, of a decode step.
            cell = Cell("decode", source.name, m, n, setup.k)
            steps.append(_cell_step("crossover", setup, source, cell, contestants))
    return steps


def _best(outcome: Outcome, source: str, rows: int, columns: int, kernels: Sequence[str]) -> tuple[float, str] | None:
    found = [
        (r["us"], r["contestant"].removeprefix("hpc "))
        for r in outcome.select(source=source, rows=rows, columns=columns, right=True)
        if r["contestant"].removeprefix("hpc ") in kernels
    ]
    return min(found) if found else None


def _picked(outcome: Outcome, source: str) -> list[tuple[int, int, str, float]]:
    """(M, N, kernel the planner chose, its time / that of the fastest mapping) of each shape."""
    found = []
    for auto in outcome.select(source=source, contestant="hpc", right=True):
        best = _best(outcome, source, auto["rows"], auto["columns"], SAMPLED + EXACT)
        if best:
            found.append((auto["rows"], auto["columns"], auto["kernel"], auto["us"] / best[0]))
    return found


def _draw_crossover(outcome: Outcome) -> Figure:
    sources = outcome.values("source")
    ms, ns = sorted(outcome.values("rows")), sorted(outcome.values("columns"))
    figure, axes = figures.panels(outcome, len(sources), 1, (0.95 * len(ns) + 1.2, 0.5 * len(ms) + 0.9))
    limits = Normalize(-2, 2)
    for (axis,), source in zip(axes, sources, strict=True):
        axis.grid(False)
        places = np.full((len(ms), len(ns)), np.nan)
        picked = {(m, n): (kernel, ratio) for m, n, kernel, ratio in _picked(outcome, source)}
        for y, m in enumerate(ms):
            for x, n in enumerate(ns):
                sampled, exact = (_best(outcome, source, m, n, kernels) for kernels in (SAMPLED, EXACT))
                if sampled and exact:
                    places[y, x] = np.clip(np.log2(exact[0] / sampled[0]), -2, 2)
                best = min(found for found in (sampled, exact, (np.inf, "")) if found)
                text = best[1]
                if (m, n) in picked and picked[m, n][1] > 1.05:
                    text += f"\n({picked[m, n][0]} {picked[m, n][1]:.2f} x)"
                axis.text(x, y, text, ha="center", va="center", fontsize=6.5, color=INK)
        axis.imshow(places, cmap="RdBu", norm=limits, aspect="auto", alpha=0.7)
        axis.set_xticks(range(len(ns)), [short(n) for n in ns])
        axis.set_yticks(range(len(ms)), [str(m) for m in ms])
        axis.set_xlabel("N, columns")
        axis.set_ylabel("M, rows")
        axis.set_title(f"{source}: fastest mapping; in brackets the planner's, where it takes over 1.05 x the time")
    for value, label in ((-1, "direct exact faster (2 x)"), (1, "sampled faster (2 x)")):
        axes[0][0].plot([], [], "s", color=colormaps["RdBu"](limits(value)), alpha=0.7, label=label)
    return figures.finish(figure, axes, "Sampled against direct exact over M and N (section 6.4)")


def _crossover_table(outcome: Outcome) -> Table:
    sources = outcome.values("source")
    wins: list[list[str]] = []
    for source in sources:
        shapes = [(r["rows"], r["columns"]) for r in outcome.select(source=source, contestant="hpc", right=True)]
        faster = []
        for m, n in shapes:
            sampled, exact = (_best(outcome, source, m, n, kernels) for kernels in (SAMPLED, EXACT))
            faster.append(bool(sampled and (not exact or sampled[0] < exact[0])))
        ratios = [ratio for *_, ratio in _picked(outcome, source)] or [float("nan")]
        close = sum(ratio <= 1.05 for ratio in ratios)
        wins.append([f"{sum(faster)} of {len(faster)}", f"{close} of {len(ratios)}", f"{max(ratios):.2f} x"])
    labels = (
        "shapes where a sampled mapping is fastest",
        "shapes where the planner's pick is within 5% of the fastest",
        "the planner's worst pick, time / that of the fastest",
    )
    return Table(("", "paper", *sources), [(label, "-", *(w[i] for w in wins)) for i, label in enumerate(labels)])


CROSSOVER = Experiment(
    "crossover",
    "6.4, crossover",
    "Sampled against direct-exact mappings over M and N: where each wins, and what the planner picks there",
    "",
    _crossover_steps,
    _draw_crossover,
    _crossover_table,
)
