# SPDX-License-Identifier: Apache-2.0
"""The commands of `hpc bench`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from peers import Peer, all_peers, probe
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Column
from workloads import WORKLOADS

from hpc import _core
from hpc._files import FileError, require_different, require_writable

from . import grids, planner_table, provenance, report, summary
from .default_command import DefaultCommandGroup
from .paper.command import Tools, paper

if TYPE_CHECKING:
    import torch

DEFAULT_ROUNDS = 15
LEAST_ROUNDS = 9
FILE_WIDTH = 120  # columns of the tables where no terminal says how many it has


def numbers(text: str) -> tuple[int, ...]:
    """Numbers with commas between: 512,8192 or 128K,1M."""
    words = [re.fullmatch(r"(\d+)([KM]?)", word.strip()) for word in text.split(",")]
    if not all(words):
        raise click.BadParameter(f"{text!r}: must be numbers with commas between, such as 512,128K,1M")
    return tuple(int(word[1]) << {"": 0, "K": 10, "M": 20}[word[2]] for word in words if word)


_HELP = """Time the selection on a GPU beside the paper's policy and other selectors, and draw what was measured.

\b
Grids:
{grids}

\b
Examples:
  hpc bench prefill decode --k 2048 --out run.json
  hpc bench cliffs --out cliffs.json
  hpc bench plot run.json --out pictures
  hpc bench decode --candidates --peers none --out run.json
  hpc bench table run.json --device-like h200 --out bench/results/planner_h200.json
  hpc bench paper all --quick
""".format(grids="\n".join(f"  {name:<8} {description}" for name, description in grids.GRIDS.items()))


@click.group(
    cls=DefaultCommandGroup,
    default="measure",
    help=_HELP,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
        "ignore_unknown_options": True,  # they are those of `measure`
    },
    options_metavar="",
    subcommand_metavar="GRID... --out FILE.json [OPTIONS] | plot FILE.json --out DIR | paper NAME... | "
    "table FILE.json... --device-like NAME --out TABLE.json",
    epilog="Exit code: 0; 1 where a result of ours is not exact, failed, or a value family costs more than "
    f"{grids.CLIFF_LIMIT} times normal rows; 2 where an argument breaks a rule or there is no GPU.",
)
@click.pass_context
def bench(context: click.Context) -> None:
    context.obj = Tools(lambda: _require_gpu(), _wanted_peers, _installed)


bench.add_command(paper)


@bench.command(hidden=True)
@click.argument("names", metavar="GRID...", nargs=-1, required=True, type=click.Choice(list(grids.GRIDS)))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="FILE.json", help="Write the figures.")
@click.option("--k", "ks", multiple=True, type=click.IntRange(1, _core.MAX_K), help="Repeatable. Default: 2048.")
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    type=click.Choice(list(WORKLOADS)),
    help="Score rows. Repeatable. Default: normal; cliffs takes them all.",
)
@click.option(
    "--policy",
    "policies",
    multiple=True,
    type=click.Choice(["default", "paper"]),
    help="How the sample is taken and keys are split. Repeatable. Default: both.",
)
@click.option(
    "--kernel",
    "kernels",
    multiple=True,
    default=["auto"],
    show_default=True,
    type=click.Choice([name for name in _core.KERNELS if name != "cpu"]),
    help="Ours: force a kernel. Repeatable.",
)
@click.option(
    "--candidates",
    is_flag=True,
    help="Ours: the planner's choice and beside it every kernel and split that it could have chosen.",
)
@click.option(
    "--ctas-per-row", default=0, type=click.IntRange(0), help="Ours: CTAs that share a row. Default: planned."
)
@click.option("--peers", "peer_names", default="all", metavar="NAMES", help="all, none, or names with commas between.")
@click.option("--rows", type=numbers, metavar="N,...", help="Only cells with these M.")
@click.option("--columns", type=numbers, metavar="N,...", help="Only cells with these N, such as 128K,1M.")
@click.option("--quick", is_flag=True, help=f"A few cells of each grid, {LEAST_ROUNDS} replays.")
@click.option("--warm", is_flag=True, help="Leave L2 as the launches leave it, and use one input.")
@click.option(
    "--rounds", type=click.IntRange(LEAST_ROUNDS), help=f"Timed replays, at least {LEAST_ROUNDS}. Default: 15."
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the scores.")
@click.option("--baseline", type=click.Path(path_type=Path), metavar="FILE.json", help="Best peers on record.")
@click.option("--revision", help="Of a source tree without its history.")
def measure(
    names: tuple[str, ...],
    out: Path,
    ks: tuple[int, ...],
    workloads: tuple[str, ...],
    policies: tuple[str, ...],
    kernels: tuple[str, ...],
    candidates: bool,
    ctas_per_row: int,
    peer_names: str,
    rows: tuple[int, ...] | None,
    columns: tuple[int, ...] | None,
    quick: bool,
    warm: bool,
    rounds: int | None,
    seed: int,
    baseline: Path | None,
    revision: str | None,
) -> int:
    """Measure the cells of GRIDs and write FILE.json, anew after each cell, and FILE.md, the same as tables."""
    require_writable("--out", out, (".json",))
    if candidates and (policies, kernels, ctas_per_row) != ((), ("auto",), 0):
        raise FileError("--candidates: must be without --policy, --kernel and --ctas-per-row, which it goes through")
    wanted = _wanted_peers(peer_names)
    cells = grids.cells(
        list(dict.fromkeys(names)),
        workloads or ("normal",),
        ks or (2048,),
        rows=rows or (),
        columns=columns or (),
        quick=quick,
    )
    if not cells:
        raise FileError(f"GRID = {' '.join(names)}: --rows and --columns leave no cell of it")
    recorded = report.load_baseline("--baseline", baseline) if baseline is not None else {}
    native, device = _require_gpu()

    from . import contestants, run
    from .timer import Timer

    console = Console(stderr=True)
    installed, listed = _installed(wanted)
    for name, version in listed.items():
        console.print(f"peer {name}: {version}", highlight=False, soft_wrap=True)
    ours = [
        contestants.ours(native, policy, kernel, ctas_per_row)
        for policy in policies or (("default",) if candidates else ("default", "paper"))
        for kernel in kernels
    ]
    others = [contestants.of_peer(peer) for peer in installed]

    settings = run.Settings(rounds or (LEAST_ROUNDS if quick else DEFAULT_ROUNDS), seed, warm)
    timer = Timer(native, device, warm=warm)
    measured = report.Report(
        provenance={
            **provenance.software(revision, provenance.command_line()),
            **provenance.device(native, device.index),
        },
        settings={"rounds": settings.rounds, "seed": seed, "warm": warm, "quick": quick},
        ceiling=timer.read_ceiling(),
        peers=listed,
    )
    lost = ""
    with _progress(console, cells) as step:
        for cell in cells:
            forced = contestants.candidates(native, cell, device.index) if candidates else []
            taking_part = ours + forced + others
            advance = partial(step, cell, share=1 / len(taking_part))
            try:
                result = run.measure(cell, taking_part, timer, measured.ceiling["gbps"], settings, device, advance)
            except run.DeviceLostError as error:
                result, lost = error.result, str(error)
            result.baseline = recorded.get(report.baseline_name(cell.grid, cell.workload, cell.k), {}).get(
                (cell.rows, cell.columns)
            )
            measured.results.append(result)
            measured.complete = not lost and len(measured.results) == len(cells)
            if measured.complete:
                measured.ceiling["gbps_at_the_end"] = timer.read_ceiling()["gbps"]
            measured.save(out)
            step(cell, "", result)
            if lost:
                break
    return _conclude(measured, out, lost)


def _conclude(measured: report.Report, out: Path, lost: str) -> int:
    """Print the tables and what is wrong; the exit code."""
    console = Console()
    if not console.is_terminal:
        console.width = FILE_WIDTH
    for table in summary.tables(measured):
        console.print(table)
    console.print("Means are geometric. x hpc: the time / that of hpc, where both are right.")
    console.print(f"read ceiling {measured.ceiling['gbps']:.0f} GB/s", highlight=False)
    console.print(f"wrote {out}", highlight=False, soft_wrap=True)
    page = out.with_suffix(".md")
    page.write_text(summary.markdown(measured), encoding="utf-8")
    console.print(f"wrote {page}", highlight=False, soft_wrap=True)
    failures = summary.failures(measured)
    if lost:
        failures.append(f"the device was lost, the run ends early: {lost}")
    for failure in failures:
        print(f"hpc: error: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _wanted_peers(names: str) -> list[Peer]:
    known = all_peers()
    if names == "all":
        return list(known.values())
    if names == "none":
        return []
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise FileError(f"--peers = {name}: must be all, none, or of {', '.join(known)}")
    return [known[name] for name in dict.fromkeys(wanted)]


def _installed(wanted: list[Peer]) -> tuple[list[Peer], dict[str, str]]:
    """The peers that can be used, and of each one its version or what is missing."""
    installed, listed = [], {}
    for peer in wanted:
        listed[peer.name], usable = probe(peer)
        if usable:
            installed.append(peer)
    return installed, listed


def _require_gpu() -> tuple[Any, torch.device]:
    """The native module and the current CUDA device, or a FileError."""
    try:
        import torch
    except ImportError as error:
        raise FileError(f"hpc bench: needs torch: {error}") from error
    if not torch.cuda.is_available():
        raise FileError("hpc bench: needs an NVIDIA GPU: torch finds no CUDA device")
    try:
        native = import_module("hpc._bench")
    except ImportError as error:
        raise FileError(
            f"hpc bench: needs a build with -DHPCTOPK_BUILD_BENCHMARKS=ON, see bench/README.md: {error}"
        ) from error
    torch.cuda.init()
    return native, torch.device("cuda", torch.cuda.current_device())


@contextmanager
def _progress(console: Console, cells: list[grids.Cell]) -> Iterator[Any]:
    """What to call before each contestant and after each cell: a bar with an estimate, or a line for each cell."""
    weights = {cell: _weight(cell) for cell in cells}
    bar = Progress(
        TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        BarColumn(20),
        TextColumn("{task.fields[done]}/{task.fields[cells]}, left"),
        TimeRemainingColumn(),
        expand=True,
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        total = sum(weights.values())
        task = bar.add_task("measuring", total=total, done=0, cells=len(cells))
        done = 0

        def step(cell: grids.Cell, contestant: str, result: report.Result | None = None, *, share: float = 0) -> None:
            nonlocal done
            if result is None:
                bar.update(task, description=f"{cell}: {contestant}")
                bar.advance(task, weights[cell] * share)
                return
            done += 1
            bar.update(task, done=done)
            if not console.is_terminal:
                times = ", ".join(f"{t.contestant} {_time_text(t)}" for t in result.timings) or result.note
                console.print(f"[{done}/{len(cells)}] {cell}: {times}", markup=False, highlight=False, soft_wrap=True)

        yield step


def _time_text(timing: report.Timing) -> str:
    if timing.us is None:
        return timing.status
    return f"{timing.us:.1f} us" + ("" if timing.right_us is not None else f" {timing.verdict}")


def _weight(cell: grids.Cell) -> float:
    """Time that a cell takes, in a unit of no matter: set-up, and what is generated, read and checked."""
    return 1.0 + 4e-9 * cell.rows * cell.columns


@bench.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Folder of the pictures.")
@click.option(
    "--format",
    "formats",
    multiple=True,
    default=["png"],
    show_default=True,
    type=click.Choice(["png", "svg", "pdf"]),
    help="Repeatable.",
)
def plot(file: Path, out: Path, formats: tuple[str, ...]) -> int:
    """Draw the figures of FILE: reach over M and N, speed against each peer, cliffs, decode latency, whole requests."""
    measured = report.load("FILE", file)
    if out.exists() and not out.is_dir():
        raise FileError(f"--out = {out}: must be a folder, and is a file")
    if not out.parent.is_dir():
        raise FileError(f"--out = {out}: must be in a folder that exists")
    from .plots import draw

    for path in draw(measured, out, list(dict.fromkeys(formats))):
        click.echo(f"wrote {path}")
    return 0


@bench.command()
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--out", required=True, type=click.Path(path_type=Path), metavar="TABLE.json", help="Write the table.")
@click.option("--device-like", required=True, metavar="NAME", help="Device of the runs, as hpc plan knows it: h200.")
def table(files: tuple[Path, ...], out: Path, device_like: str) -> int:
    """Gather the times of runs with --candidates, and say where the planner's choice is not the best."""
    require_writable("--out", out, (".json",))
    require_different({**{f"FILE {file}": file for file in files}, "--out": out})
    gathered = planner_table.gather([report.load("FILE", file) for file in files], device_like.lower())
    gathered.save(out)
    for line in planner_table.offenders(gathered):
        click.echo(line)
    click.echo(planner_table.summary(gathered))
    click.echo(f"wrote {out}")
    return 0


def main(arguments: list[str]) -> int:
    """Run `hpc bench` with these arguments; what is wrong with them is a click.ClickException or a FileError."""
    return int(bench.main(arguments or ["--help"], prog_name="hpc bench", standalone_mode=False) or 0)
