# SPDX-License-Identifier: Apache-2.0
"""What every launch that the planner could choose takes, as a table to hold its choices against. Times are in us."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import hpc
from hpc._files import FileError, replacing

from .report import Report, mean

SCHEMA = "hpctopk-planner-1"
LIMIT = 1.03  # most that the planned launch may take, in times of the best


@dataclass(frozen=True)
class Row:
    """A launch of rows of the workload `normal`, and its time.

    Attributes:
        m, n, k: rows, columns, columns to select in each row.
        kernel: forced.
        ctas_per_row: that share a row.
        us: median time of a launch.
    """

    m: int
    n: int
    k: int
    kernel: str
    ctas_per_row: int
    us: float

    @property
    def launch(self) -> str:
        """What was launched, for people and to compare by."""
        return f"{self.kernel}, {self.ctas_per_row} a row"


@dataclass
class PlannerTable:
    """Rows of one device.

    Attributes:
        device: as hpc.plan names it.
        provenance: of each run: device, driver, versions, source revision, date and command line.
        rows: no two of the same launch at the same shape.
    """

    device: str
    provenance: list[dict[str, Any]]
    rows: list[Row]

    def save(self, path: Path) -> None:
        """Write the file, a line for each row; a reader never sees half of it."""
        rows = ",\n".join(f"  {json.dumps(asdict(row))}" for row in self.rows)
        head = json.dumps({"schema": SCHEMA, "device": self.device, "provenance": self.provenance}, indent=1)
        with replacing(path) as temporary:
            temporary.write_text(f'{head[:-2]},\n "rows": [\n{rows}\n ]\n}}\n', encoding="utf-8")


def load(argument: str, path: Path) -> PlannerTable:
    """Read a table, or refuse the file with a FileError that names `argument`."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(fields, dict) or fields.pop("schema", None) != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        return PlannerTable(**{**fields, "rows": [Row(**row) for row in fields["rows"]]})
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise FileError(f"{argument} = {path}: must be a table of hpc bench table: {error}") from error


def gather(reports: Iterable[Report], device: str) -> PlannerTable:
    """The exact results of forced launches on rows of `normal`; of a launch in several reports, the last one's.

    Args:
        reports: of runs with --candidates.
        device: theirs, as hpc.plan names it.

    Raises:
        FileError: there are none, or there is no such device.
    """
    table = PlannerTable(device, [], [])
    rows: dict[tuple[int, int, int, str], Row] = {}
    for report in reports:
        table.provenance.append(report.provenance)
        for result in report.results:
            for timing in result.timings:
                plan, us = timing.plan, timing.right_us
                if result.workload != "normal" or not timing.forced or plan is None or us is None:
                    continue
                row = Row(result.rows, result.columns, result.k, plan["kernel"], plan["ctas_per_row"], us)
                rows[row.m, row.n, row.k, row.launch] = row
    table.rows = list(rows.values())
    if not table.rows:
        raise FileError("FILE: must hold exact results of --candidates on the workload normal")
    try:
        hpc.plan(1, 1, 1, device=device)
    except ValueError as error:
        raise FileError(f"--device-like = {str(error).removeprefix('device = ')}") from None
    return table


def compare(table: PlannerTable) -> dict[tuple[int, int, int], tuple[str, float | None, Row]]:
    """Of each shape (m, n, k): the launch that is planned, its time where that was measured, and the best row."""
    shapes: dict[tuple[int, int, int], list[Row]] = {}
    for row in table.rows:
        shapes.setdefault((row.m, row.n, row.k), []).append(row)
    compared = {}
    for (m, n, k), rows in shapes.items():
        plan = hpc.plan(m, n, k, device=table.device)
        planned = Row(m, n, k, plan.kernel, plan.ctas_per_row, 0).launch
        times = {row.launch: row.us for row in rows}
        compared[m, n, k] = planned, times.get(planned), min(rows, key=lambda row: row.us)
    return compared


def offenders(table: PlannerTable) -> list[str]:
    """A line for each shape whose planned launch takes more than LIMIT times the best one, or was not measured."""
    lines = []
    for (m, n, k), (planned, us, best) in compare(table).items():
        if us is None or us > LIMIT * best.us:
            took = "was not measured" if us is None else f"takes {us:.2f} us, {us / best.us:.3f} times the best"
            lines.append(f"{m} x {n}, k {k}: planned {planned} {took}: {best.launch} takes {best.us:.2f} us")
    return lines


def summary(table: PlannerTable) -> str:
    """One line: how close the planner's choices are to the best."""
    compared = compare(table)
    ratios = [us / best.us for _, us, best in compared.values() if us is not None]
    close = sum(ratio <= LIMIT for ratio in ratios)
    text = f"{len(compared)} shapes, {len(table.rows)} launches: {close} choices within {LIMIT:g} times the best"
    return text + (f", mean {mean(ratios):.3f}, most {max(ratios):.3f}" if ratios else "")
