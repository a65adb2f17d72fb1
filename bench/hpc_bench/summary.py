# SPDX-License-Identifier: Apache-2.0
"""A report as tables: for the terminal, and as a Markdown page.

Means are geometric. "x hpc" is a contestant's time / that of ours with the default policy, where both are right.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.table import Table

from .grids import CLIFF_LIMIT
from .report import Report, Result, Timing, family_costs, mean, ratios


def failures(report: Report) -> list[str]:
    """What must not be: our results that are not exact, and value families that cost more than CLIFF_LIMIT."""
    found = []
    for result in report.results:
        where = f"{result.grid} {result.workload} {result.rows} x {result.columns}, k {result.k}"
        for timing in result.timings:
            if not timing.ours:
                continue
            if timing.status == "failed":
                found.append(f"{timing.contestant} failed at {where}: {timing.note}")
            elif timing.status == "ok" and timing.verdict != "exact":
                found.append(f"{timing.contestant} is not exact at {where}: {timing.verdict}, {timing.note}")
    for (grid, _, k), results in report.groups():
        if grid != "cliffs" or "hpc" not in report.contestants():
            continue
        for (workload, rows, columns), cost in family_costs(results, "hpc").items():
            if cost > CLIFF_LIMIT:
                found.append(f"hpc takes {cost:.2f} times normal rows' time on {workload} {rows} x {columns}, k {k}")
    return found


def tables(report: Report) -> Iterator[Table]:
    """One table for each grid, workload and k."""
    for (grid, workload, k), results in report.groups():
        title = " ".join(part for part in (grid, workload, f"k {k}, {len(results)} cells") if part)
        if grid == "cliffs":
            yield _cliff_table(title, report, results)
        elif grid == "traces":
            yield _trace_table(title, report, results)
        else:
            yield _grid_table(title, report, results)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column("", no_wrap=True)
    for column in columns:
        table.add_column(column, justify="right", no_wrap=column != "results")
    return table


def _states(results: list[Result], contestant: str) -> str:
    """How many results are right, wrong, not served, failed."""
    timings = [t for t in (r.timing(contestant) for r in results) if t is not None]
    counts = {
        "exact": sum(t.verdict == "exact" for t in timings),
        "other ties": sum(t.verdict == "ties" for t in timings),
        "WRONG": sum(t.verdict == "wrong" for t in timings),
        "unsupported": sum(t.status == "unsupported" for t in timings),
        "FAILED": sum(t.status == "failed" for t in timings),
    }
    return ", ".join(f"{number} {name}" for name, number in counts.items() if number)


def _grid_table(title: str, report: Report, results: list[Result]) -> Table:
    table = _table(title, "reach", "least", "at", "x hpc", "least", "at", "results")
    for name in report.contestants():
        reached = [(reach, r) for r in results if (reach := r.reach(name)) is not None]
        cells = [f"{mean([reach for reach, _ in reached]):.3f}", *_least(reached)] if reached else ["-"] * 3
        table.add_row(name, *cells, *_speed(results, name), _states(results, name))
    if any(r.baseline for r in results):
        table.add_row("best on record", *["-"] * 3, *_speed(results, "baseline"), "")
    return table


def _least(values: list[tuple[float, Result]]) -> list[str]:
    value, result = min(values, key=lambda pair: pair[0])
    return [f"{value:.3f}", f"{result.rows} x {result.columns}"]


def _speed(results: list[Result], other: str) -> list[str]:
    pairs = [(both[0], r) for r in results if other != "hpc" and (both := ratios([r], other, "hpc"))]
    return [f"{mean([ratio for ratio, _ in pairs]):.2f}", *_least(pairs)] if pairs else ["-"] * 3


def _trace_table(title: str, report: Report, results: list[Result]) -> Table:
    table = _table(title, "tokens", "calls", "limit, ms", "ms", "reach", "results")
    for tokens in sorted({r.tokens for r in results}):
        calls = [r for r in results if r.tokens == tokens]
        limit = sum(r.limit_us for r in calls)
        for name in report.contestants():
            times = [us for r in calls if (us := r.right_us(name)) is not None]
            whole = len(times) == len(calls)
            table.add_row(
                name,
                f"{tokens:,}",
                f"{len(times)} of {len(calls)}",
                f"{limit / 1e3:.2f}",
                f"{sum(times) / 1e3:.2f}" if whole else "-",
                f"{limit / sum(times):.3f}" if whole else "-",
                _states(calls, name),
            )
    return table


def _cliff_table(title: str, report: Report, results: list[Result]) -> Table:
    shapes = list(dict.fromkeys((r.rows, r.columns) for r in results))
    table = _table(f"{title}: us, and times normal rows' time", *(f"{m} x {n}" for m, n in shapes), "results")
    for name in report.contestants():
        table.add_section()
        for workload, *cells in _cliff_rows(results, name, shapes):
            own = [r for r in results if r.workload == workload]
            table.add_row(f"{name}: {workload}", *cells, _states(own, name))
    return table


def _cliff_rows(results: list[Result], name: str, shapes: list[tuple[int, int]]) -> Iterator[list[str]]:
    """A workload and its cells: the time and its ratio to that of normal rows, or why there is none."""
    costs = family_costs(results, name)
    for workload in dict.fromkeys(r.workload for r in results):
        row = [workload]
        for shape in shapes:
            found = [r for r in results if r.workload == workload and (r.rows, r.columns) == shape]
            timing = found[0].timing(name) if found else None
            row.append(_cliff_cell(timing, costs.get((workload, *shape))))
        yield row


def _cliff_cell(timing: Timing | None, cost: float | None) -> str:
    if timing is None:
        return "-"
    if timing.us is None:
        return timing.status
    if timing.right_us is None:
        return f"{timing.us:.1f} {'wrong' if timing.verdict == 'wrong' else 'other ties'}"
    return f"{timing.us:.1f}" + (f" ({cost:.2f}{'!' if cost > CLIFF_LIMIT else ''})" if cost is not None else "")


def markdown(report: Report) -> str:
    """The report as a Markdown page that says where its figures come from: each cell's time beside its limit, and the
    value families beside normal rows."""
    where = report.provenance
    revision = f"{where['revision'] or 'unknown revision'}{' with changes' if where['dirty'] else ''}"
    grids = list(dict.fromkeys(result.grid for result in report.results))
    lines = [
        f"# {' and '.join(grids) or 'nothing'}: time of a launch",
        "",
        "Microseconds. Every result was checked in full on the device, and one that is not exact says so.",
        "",
        f"- {where['device']}, driver {where['driver']}, CUDA {where['cuda_runtime']}, torch {where['torch']}",
        f"- source {revision}, {where['date']}",
        f"- `{where['command']}`",
        f"- read ceiling {report.ceiling['gbps']:.0f} GB/s",
    ]
    if not report.complete:
        lines.append("- the run did not come to its end: cells are missing")
    for (grid, workload, k), results in report.groups():
        if grid == "cliffs":
            lines += _cliff_section(report, results, k)
        else:
            lines += ["", f"## {grid}, {workload}, K = {k}", "", *_grid_section(report, results)]
    return "\n".join(lines) + "\n"


def _rows(header: list[str], rows: list[list[str]]) -> list[str]:
    """A Markdown table, its first column to the left."""
    return [f"| {' | '.join(row)} |" for row in (header, ["---", *["---:"] * (len(header) - 1)], *rows)]


def _cliff_section(report: Report, results: list[Result], k: int) -> list[str]:
    lines = [
        "",
        f"## Value families, K = {k}",
        "",
        f"In brackets times that of normal rows of the shape; {CLIFF_LIMIT} is the most that is accepted, and more is"
        " marked `!`.",
    ]
    shapes = list(dict.fromkeys((r.rows, r.columns) for r in results))
    for name in report.contestants():
        header = [name, *(f"{m} x {n}" for m, n in shapes)]
        lines += ["", *_rows(header, list(_cliff_rows(results, name, shapes)))]
    return lines


def _grid_section(report: Report, results: list[Result]) -> list[str]:
    """Reach is the limit, what the read ceiling takes for the valid scores, / the time of `hpc` or, without it, of the
    first who took part. Calls of a trace are added up."""
    names = [name for name in report.contestants() if any(r.timing(name) for r in results)]
    if not names:
        return ["Nothing was measured."]
    baseline = any(r.baseline for r in results)
    header = ["M x N" if not results[0].tokens else "tokens", "limit", *names, "reach", "kernel"]
    rows = []
    for cells in _calls(results):
        first, limit = cells[0], sum(r.limit_us for r in cells)
        times = [[r.right_us(name) for r in cells] for name in names]
        whole = [sum(us for us in each if us) if all(each) else None for each in times]
        plan = (first.timing(names[0]) or Timing("")).plan
        row = [
            f"{first.tokens:,}" if first.tokens else f"{first.rows} x {first.columns}",
            f"{limit:.1f}",
            *(f"{us:.1f}" if us else _state(first.timing(name)) for us, name in zip(whole, names, strict=True)),
            f"{limit / whole[0]:.3f}" if whole[0] else "-",
            _kernel(plan) if plan and not first.tokens else "-",
        ]
        if baseline:
            record, own = first.baseline, whole[0]
            row += [f"{record['peer']} {record['us']:.1f}" if record else "-"]
            row += [f"{record['us'] / own:.2f}" if record and own else "-"]
        rows.append(row)
    return _rows(header + (["best on record", "times as long"] if baseline else []), rows)


def _calls(results: list[Result]) -> list[list[Result]]:
    """Cells that are one row of a table: the calls of a trace, or each for itself."""
    if not results[0].tokens:
        return [[r] for r in results]
    return [[r for r in results if r.tokens == tokens] for tokens in sorted({r.tokens for r in results})]


def _kernel(plan: dict[str, Any]) -> str:
    parts = plan.get("ctas_per_row", 1)
    return f"{plan['kernel']}, {parts} a row" if parts > 1 else str(plan["kernel"])


def _state(timing: Timing | None) -> str:
    """Why there is no time."""
    if timing is None:
        return "-"
    return timing.status if timing.status != "ok" else str(timing.verdict)
