# SPDX-License-Identifier: Apache-2.0
"""R_eq by the hardware's counters: bytes that the memory was read for, by ncu, over the bytes of the valid scores.

`python -m hpc_bench.paper.traffic` is what ncu runs: one selection, between the profiler's start and stop.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from functools import partial
from importlib import import_module
from pathlib import Path

import torch
from matplotlib.figure import Figure
from workloads import OPERATOR_GRID

from hpc._files import FileError

from .. import inputs as score_inputs
from ..contestants import ours, ours_name
from ..grids import Cell
from ..plots import INK, short
from . import figures
from .experiment import Advance, Experiment, Outcome, Record, Setup, Step, Table
from .scores import Source

METRIC = "dram__bytes_read.sum"
POLICIES = ("default", "paper")
QUICK_SHAPES = [(512, 131_072), (512, 1_048_576)]
MARK = "hpc-traffic "  # before what the profiled process says of itself
MOST_SECONDS = 600
LIMIT = 1.03  # that the default policy keeps to
PAPER_STRIDE = 128
SECTOR, ACCESS = 32, 64  # bytes that a sample of 4 brings to L2, and from the memory


def _steps(setup: Setup) -> list[Step]:
    ncu = shutil.which("ncu")
    if ncu is None:
        raise FileError("hpc bench paper traffic: needs ncu, NVIDIA Nsight Compute, on PATH")
    return [
        Step(
            f"traffic, {source.name}, {policy}, {m} x {short(n)}",
            15,
            partial(_measure, setup, source, ncu, policy, m, n),
        )
        for source in setup.sources
        for m, n in (QUICK_SHAPES if setup.quick else OPERATOR_GRID)
        for policy in POLICIES
    ]


def _measure(
    setup: Setup, source: Source, ncu: str, policy: str, rows: int, columns: int, advance: Advance
) -> list[Record]:
    call = {"source": source.name, "policy": policy, "rows": rows, "columns": columns, "k": setup.k, "seed": setup.seed}
    profiled = [sys.executable, "-m", "hpc_bench.paper.traffic", json.dumps(call)]
    options = ["--csv", "--print-units", "base", "--profile-from-start", "off", "--metrics", METRIC]
    path = os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)])
    done = subprocess.run(
        [ncu, *options, *profiled],
        capture_output=True,
        text=True,
        timeout=MOST_SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    record: Record = {"part": "traffic", **call, "contestant": ours_name(policy, "auto", 0), "right": True}
    try:
        return [record | parse(done.stdout)]
    except ValueError as error:
        last = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        return [record | {"status": "failed", "verdict": None, "note": f"{error}: {last}", "right": False}]


def parse(output: str) -> Record:
    """What ncu printed: the bytes of all kernels of the call, and what the profiled process says of itself."""
    lines = output.splitlines()
    said = [line.removeprefix(MARK) for line in lines if line.startswith(MARK)]
    table = [i for i, line in enumerate(lines) if line.startswith('"ID"')]
    if not said or not table:
        raise ValueError("ncu gave no figures")
    kernels = [row for row in csv.DictReader(lines[table[0] :]) if row.get("Metric Name") == METRIC]
    if not kernels:
        raise ValueError(f"ncu gave no {METRIC}")
    read = sum(float(row["Metric Value"].replace(",", "")) for row in kernels)
    own = json.loads(said[0])
    return {
        **own,
        "kernels": len(kernels),
        "dram_bytes": int(read),
        "r_eq": round(read / own["valid_bytes"], 5),
        "r_eq_scores": round(4 * own["scores_read"] / own["valid_bytes"], 5),
    }


def profile(call: dict[str, str | int]) -> None:
    """Run the selection that ncu looks at, and say how many scores it had and read."""
    device = torch.device("cuda", torch.cuda.current_device())
    source = Source(str(call["source"]))
    cell = Cell("prefill", source.name, int(call["rows"]), int(call["columns"]), int(call["k"]))
    made = score_inputs.make(cell, 1, int(call["seed"]), device, source.fill)
    prepared = ours(import_module("hpc._bench"), str(call["policy"]), "auto", 0).prepare(made.calls)
    assert prepared.plan is not None
    assert prepared.count is not None
    counted = prepared.count()
    torch.cuda.synchronize()
    torch.cuda.profiler.start()
    prepared.runs[0]()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()
    own = {"kernel": prepared.plan["kernel"], "valid_bytes": made.valid_bytes, "scores_read": counted["scores_read"]}
    print(MARK + json.dumps(own), flush=True)


def _draw(outcome: Outcome) -> Figure:
    sources = outcome.values("source")
    widths = sorted(outcome.values("columns"))
    figure, (axes,) = figures.panels(outcome, 1, len(sources), (4.8, 3.4))
    for axis, source in zip(axes, sources, strict=True):
        for p, policy in enumerate(POLICIES):
            found = outcome.select(source=source, policy=policy, right=True)
            xs = [widths.index(r["columns"]) + (p - 0.5) * 0.2 for r in found]
            axis.plot(
                xs, [r["r_eq"] for r in found], "o", color=figures.colour(2 * p), alpha=0.8, label=f"{policy} policy"
            )
        for value, style, label in (
            (LIMIT, "-", f"{LIMIT}: what the default policy keeps to"),
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
    replays=False,
    in_all=False,
)


if __name__ == "__main__":
    profile(json.loads(sys.argv[1]))
