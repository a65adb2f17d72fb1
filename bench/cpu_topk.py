# SPDX-License-Identifier: Apache-2.0
"""Times hpc.topk on the CPU against torch.topk and numpy.argpartition: same scores, same threads, one run.

    python bench/cpu_topk.py [--rows 64] [--columns 131072] [--k 2048 --k 512] [--json FILE] [--check]

Every contestant is checked before it is timed. The time of a contestant is the least of all its calls: on a shared
machine that is what the code costs. Contestants take turns in blocks with a pause between, since the thread pools
of some go on spinning for a while after a call.
"""

from __future__ import annotations

import json
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import click
import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

import hpc
from hpc._topk import topk_numpy

Scores = NDArray[np.float32]
Columns = NDArray[np.int64]

SPEEDUP_WANTED = {2048: 15.0, 512: 8.0}  # over the fastest torch.topk, on two cores, for 64 x 131072 scores
PAUSE_S = 0.05


@dataclass
class Timing:
    """One contestant at one k; times of a call in milliseconds."""

    name: str
    k: int
    least_ms: float
    median_ms: float
    exact: bool


def contestants(scores: Scores, k: int, threads: int) -> dict[str, Callable[[], NDArray[np.integer]]]:
    """Calls that return the columns of the k largest scores of every row, [rows, k]."""
    tensor = torch.from_numpy(scores)
    return {
        "hpc.topk": lambda: topk_numpy(scores, k, num_threads=threads)[0],
        "torch.topk": lambda: torch.topk(tensor, k).indices.numpy(),
        "torch.topk, unsorted": lambda: torch.topk(tensor, k, sorted=False).indices.numpy(),
        "numpy.argpartition": lambda: np.argpartition(scores, -k, axis=-1)[:, -k:],
    }


def best_columns(scores: Scores, k: int) -> Columns:
    """The columns of the k largest scores of every row, ascending; of equal scores the first."""
    best = np.argsort(-scores, axis=-1, kind="stable")[:, :k]
    return np.sort(best, axis=-1)


def is_exact(scores: Scores, selected: NDArray[np.integer], best: Columns, *, lowest_ties: bool) -> bool:
    """Whether `selected` holds distinct columns with the values of `best`; with lowest_ties, those very columns."""
    columns = np.sort(selected.astype(np.int64), axis=-1)
    if lowest_ties:
        return np.array_equal(columns, best)
    values = [np.sort(np.take_along_axis(scores, c, axis=-1), axis=-1) for c in (columns, best)]
    return bool((np.diff(columns, axis=-1) > 0).all()) and np.array_equal(values[0], values[1])


def block(call: Callable[[], object], repeats: int) -> list[float]:
    """Milliseconds of `repeats` calls in a row, after one that is not timed."""
    time.sleep(PAUSE_S)
    call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return times


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def revision() -> str:
    """The commit of the source tree, or nothing outside of one."""
    here = Path(__file__).parent
    git = subprocess.run(["git", "-C", str(here), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    return git.stdout.strip()


@click.command()
@click.option("--rows", default=64, show_default=True, type=click.IntRange(1))
@click.option("--columns", default=131072, show_default=True, type=click.IntRange(1))
@click.option("--k", "ks", default=[2048, 512], show_default=True, multiple=True, type=click.IntRange(1, 4096))
@click.option("--threads", default=torch.get_num_threads(), show_default=True, type=click.IntRange(1))
@click.option("--rounds", default=10, show_default=True, type=click.IntRange(1), help="Blocks of each contestant.")
@click.option("--repeats", default=10, show_default=True, type=click.IntRange(1), help="Timed calls of a block.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures here.")
@click.option("--check", is_flag=True, help="Exit 1 where a result is inexact or a speed-up misses its target.")
def main(
    rows: int,
    columns: int,
    ks: tuple[int, ...],
    threads: int,
    rounds: int,
    repeats: int,
    json_path: Path | None,
    check: bool,
) -> None:
    """Time hpc.topk on the CPU against torch.topk and numpy.argpartition."""
    if max(ks) > columns:
        raise click.UsageError(f"k = {max(ks)}: must be at most columns = {columns}, which the others do not take")
    torch.set_num_threads(threads)
    scores = np.random.default_rng(1).standard_normal((rows, columns), dtype=np.float32)
    tensor = torch.from_numpy(scores)

    exact: dict[tuple[str, int], bool] = {}
    times: dict[tuple[str, int], list[float]] = {}
    for k in ks:
        best = best_columns(scores, k)
        for name, call in contestants(scores, k, threads).items():
            exact[name, k] = is_exact(scores, call(), best, lowest_ties=name.startswith("hpc"))
    read_ms = float("inf")
    for _ in track(range(rounds), "timing", transient=True, console=Console(stderr=True)):
        read_ms = min(read_ms, *block(lambda: tensor.amax(dim=-1), repeats))
        for k in ks:
            for name, call in contestants(scores, k, threads).items():
                times.setdefault((name, k), []).extend(block(call, repeats))
    timings = [Timing(name, k, min(t), float(np.median(t)), exact[name, k]) for (name, k), t in times.items()]

    table = Table(title=f"{rows} x {columns} float32 normal scores, {threads} threads, {processor()}")
    for column in ("", "k", "least ms", "median ms", "exact", "x torch"):
        table.add_column(column, justify="left" if column == "" else "right", no_wrap=True)
    table.add_row("one read (torch.amax)", "", f"{read_ms:.2f}", "", "", "")
    speedups: dict[int, float] = {}
    for k in ks:
        torch_ms = min(t.least_ms for t in timings if t.k == k and t.name.startswith("torch"))
        for t in timings:
            if t.k != k:
                continue
            ratio = torch_ms / t.least_ms
            if t.name.startswith("hpc"):
                speedups[k] = ratio
            table.add_row(
                t.name, str(k), f"{t.least_ms:.2f}", f"{t.median_ms:.2f}", "yes" if t.exact else "NO", f"{ratio:.2f}"
            )
    console = Console()
    console.print(table)
    wanted = {k: SPEEDUP_WANTED[k] for k in ks if k in SPEEDUP_WANTED and (rows, columns) == (64, 131072)}
    for k, target in wanted.items():
        console.print(f"k = {k}: {speedups[k]:.1f} times the fastest torch.topk (wanted: {target:.0f})")

    if json_path is not None:
        report = {
            "rows": rows,
            "columns": columns,
            "threads": threads,
            "read_ms": read_ms,
            "timings": [asdict(t) for t in timings],
            "speedup_over_torch": speedups,
            "processor": processor(),
            "hpc": hpc.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "revision": revision(),
        }
        json_path.write_text(json.dumps(report, indent=2) + "\n")
    if check and not (all(exact.values()) and all(speedups[k] >= target for k, target in wanted.items())):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
