# SPDX-License-Identifier: Apache-2.0
"""R_eq by the hardware's counters: bytes that the memory was read for, by ncu, over the bytes of the valid scores.

`python -m hpc_bench.paper.traffic` is what ncu runs, once for each source of rows: every shape with both policies. What
ncu looks at of each is a mark, a kernel of torch's, and one selection.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from threading import Timer
from typing import Any

import torch
from matplotlib.figure import Figure
from workloads import OPERATOR_GRID

from .. import inputs as score_inputs
from ..contestants import ours, ours_name
from ..grids import Cell
from ..plots import INK, short
from . import figures, gpu
from .experiment import Advance, Experiment, Outcome, Record, Setup, Step, Table
from .scores import Source, open_source

METRIC = "dram__bytes_read.sum"
POLICIES = ("default", "paper")
QUICK_SHAPES = ((512, 131_072), (512, 1_048_576))
SAID = "hpc-traffic "  # before what the profiled process says of a selection
MOST_SECONDS = 600  # of one run under ncu
LIMIT = 1.03  # asked of the default policy
PAPER_STRIDE = 128
SECTOR, ACCESS = 32, 64  # bytes that a sample of 4 brings to L2, and from the memory


def _missing() -> str:
    return "" if shutil.which("ncu") else "needs ncu, of NVIDIA Nsight Compute, on PATH"


def _steps(setup: Setup) -> list[Step]:
    steps = []
    for source in setup.sources:
        shapes = [source.shape] if source.file else list(QUICK_SHAPES if setup.quick else OPERATOR_GRID)
        seconds = 20 + sum(1 + 1e-9 * rows * columns for rows, columns in shapes)
        steps.append(Step(f"traffic, {source.name}", seconds, partial(_measure, setup, source, shapes)))
    return steps


def _measure(setup: Setup, source: Source, shapes: Sequence[tuple[int, int]], advance: Advance) -> list[Record]:
    """A record of each shape and policy; of one that ncu gave nothing for, why."""
    gpu.synchronize(setup.device)  # what this process holds no longer, the other may need
    call = {"source": source.name, "files": source.paths, "shapes": shapes, "k": setup.k, "seed": setup.seed}
    said: list[Record] = []
    last = ""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        for line in _run_ncu(log, [sys.executable, "-m", "hpc_bench.paper.traffic", json.dumps(call)]):
            if line.startswith(SAID):
                said.append(json.loads(line.removeprefix(SAID)))
                advance(len(said) / (len(POLICIES) * len(shapes)))
            elif line.strip():
                last = line.strip()
        report = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
    errors = [line for line in report.splitlines() if line.startswith("==ERROR==")]
    found = {(r["policy"], r["rows"], r["columns"]): r for r in read_report(said, report)}
    lost = {"status": "failed", "verdict": None, "note": f"ncu gave no figures: {(*errors, last)[0]}", "right": False}
    return [
        {
            "part": "traffic",
            "source": source.name,
            "policy": policy,
            "rows": rows,
            "columns": columns,
            "contestant": ours_name(policy, "auto", 0),
            **found.get((policy, rows, columns), lost),
        }
        for rows, columns in shapes
        for policy in POLICIES
    ]


def _run_ncu(log: Path, command: Sequence[str]) -> Iterator[str]:
    """Run a command under ncu, whose report goes to `log`; the lines that the command prints, as they come."""
    options = ["--target-processes", "all", "--metrics", METRIC]
    options += ["--csv", "--print-units", "base", "--log-file", str(log)]
    options += ["--profile-from-start", "off"]  # between the profiler's start and stop
    options += ["--cache-control", "all", "--clock-control", "none"]  # L2 cold before each kernel; clocks are not ours
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    with subprocess.Popen(
        [shutil.which("ncu") or "ncu", *options, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # so that the command ends with ncu
    ) as process:
        assert process.stdout is not None

        def end() -> None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        watchdog = Timer(MOST_SECONDS, end)
        watchdog.start()
        try:
            yield from process.stdout
            if process.wait() < 0:
                yield f"ncu was ended by signal {-process.returncode}; it may take {MOST_SECONDS} s"
        finally:
            watchdog.cancel()
            if process.poll() is None:
                end()


def read_report(said: Iterable[Record], report: str) -> list[Record]:
    """What the profiled process says of each selection, with the bytes that all of its kernels read.

    Args:
        said: of the selections, in their order; one with "status" did not run.
        report: CSV of ncu, after lines of other text. The kernel that comes first marks where a selection begins.
    """
    lines = report.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    kernels = [row for row in csv.DictReader(lines[begin:]) if row["Metric Name"] == METRIC]
    selections: list[list[float]] = []
    for row in kernels:
        if row["Kernel Name"] == kernels[0]["Kernel Name"]:
            selections.append([])
        else:
            selections[-1].append(float(row["Metric Value"].replace(",", "")))
    read = iter(selections)
    records = []
    for own in said:
        if "status" in own:
            records.append({**own, "verdict": None, "right": False})
        elif found := next(read, None):
            records.append(
                {
                    **own,
                    "status": "ok",
                    "right": True,
                    "kernels": len(found),
                    "dram_bytes": int(sum(found)),
                    "r_eq": round(sum(found) / own["valid_bytes"], 5),
                    "r_eq_scores": round(4 * own["statistics"]["scores_read"] / own["valid_bytes"], 5),
                }
            )
    return records


def profiled(call: dict[str, Any]) -> None:
    """Run the selections that ncu looks at, and say how many scores each had and read."""
    device = torch.device("cuda", torch.cuda.current_device())
    native = import_module("hpc._bench")
    source = open_source(*map(Path, call["files"])) if call["files"] else Source(call["source"])
    mark = torch.zeros(1, device=device)
    for rows, columns in call["shapes"]:
        cell = Cell("saved" if call["files"] else "prefill", source.name, rows, columns, call["k"])
        for policy in POLICIES:
            own: Record = {"policy": policy, "rows": rows, "columns": columns}
            try:
                own |= _profile_one(native, source, cell, policy, call["seed"], mark)
            except torch.OutOfMemoryError:
                own |= {"status": "unsupported", "note": "the scores do not fit the device's memory"}
            torch.cuda.empty_cache()
            print(SAID + json.dumps(own), flush=True)


def _profile_one(native: Any, source: Source, cell: Cell, policy: str, seed: int, mark: torch.Tensor) -> Record:
    made = score_inputs.make(cell, 1, seed, mark.device, source.fill)
    prepared = ours(native, policy, "auto", 0).prepare(made.calls)
    assert prepared.plan is not None
    assert prepared.count is not None
    counted = prepared.count()
    prepared.runs[0]()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    mark.add_(1)
    prepared.runs[0]()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    return {"kernel": prepared.plan["kernel"], "valid_bytes": made.valid_bytes, "statistics": counted}


def _draw(outcome: Outcome) -> Figure:
    sources = outcome.values("source")
    widths = sorted(outcome.values("columns"))
    figure, (axes,) = figures.panels(outcome, 1, len(sources), (4.8, 3.4))
    for axis, source in zip(axes, sources, strict=True):
        for p, policy in enumerate(POLICIES):
            found = outcome.select(source=source, policy=policy, right=True)
            xs = [widths.index(r["columns"]) + (p - 0.5) * 0.24 for r in found]
            axis.plot(
                xs, [r["r_eq"] for r in found], "o", color=figures.colour(2 * p), alpha=0.8, label=f"{policy} policy"
            )
            axis.plot(
                [x + 0.1 for x in xs],
                [r["r_eq_scores"] for r in found],
                "_",
                color=figures.colour(2 * p),
                markersize=7,
                label=f"{policy} policy: scores that the kernels count",
            )
        for value, style, label in (
            (LIMIT, "-", f"{LIMIT}: asked of the default policy"),
            (1 + 1 / PAPER_STRIDE, ":", f"1 + 1/{PAPER_STRIDE}: the paper's count of scores"),
            (1 + SECTOR / 4 / PAPER_STRIDE, "-.", f"1 + 8/{PAPER_STRIDE}: sectors of {SECTOR} bytes"),
            (1 + ACCESS / 4 / PAPER_STRIDE, "--", f"1 + 16/{PAPER_STRIDE}: memory accesses of {ACCESS} bytes"),
        ):
            colour = INK if value == LIMIT else figures.PAPER
            axis.axhline(value, color=colour, linewidth=1, linestyle=style, label=label)
        axis.set_ylabel("bytes read / bytes of the valid scores")
        axis.set_title(source)
        figures.categories(axis, [short(width) for width in widths], "N, columns; a point for each M")
    return figures.finish(figure, [axes], "Memory traffic by the hardware's counters (section 4.6)")


def _table(outcome: Outcome) -> Table:
    sources = outcome.values("source")
    rows = []
    for policy, paper in (("default", "-"), ("paper", f"{1 + 1 / PAPER_STRIDE:.4f}")):
        for label, name, stated in (
            ("bytes read / row bytes, ncu", "r_eq", "-"),
            ("scores read / scores, the kernels' counters", "r_eq_scores", paper),
        ):
            cells = []
            for source in sources:
                found = [r[name] for r in outcome.select(source=source, policy=policy, right=True)]
                cells.append(f"{min(found):.3f}..{max(found):.3f}" if found else "-")
            rows.append((f"{policy} policy: {label}", stated, *cells))
    kept = []
    for source in sources:
        found = [r["r_eq"] for r in outcome.select(source=source, policy="default", right=True)]
        kept.append(f"{sum(value <= LIMIT for value in found)} of {len(found)}" if found else "-")
    rows.append((f"default policy: shapes with at most {LIMIT} by ncu", "-", *kept))
    model = f"{1 + SECTOR / 4 / PAPER_STRIDE:.4f}, {1 + ACCESS / 4 / PAPER_STRIDE:.4f}"
    rows.append(
        (f"stride {PAPER_STRIDE} in sectors of {SECTOR}, accesses of {ACCESS} bytes", "-", *[model] * len(sources))
    )
    return Table(("", "paper", *sources), rows)


TRAFFIC = Experiment(
    "traffic",
    "4.6",
    "R_eq by the hardware's counters, with ncu: bytes read / bytes of the valid scores, on the operator shapes",
    "",
    _steps,
    _draw,
    _table,
    missing=_missing,
)


if __name__ == "__main__":
    profiled(json.loads(sys.argv[1]))
