# SPDX-License-Identifier: Apache-2.0
"""`hpc bench paper`: run the paper's experiments, or draw what they left."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table as RichTable

from hpc import _core
from hpc._files import FileError, require_writable

from .. import provenance
from ..default_command import DefaultCommandGroup

if TYPE_CHECKING:
    from peers import Peer

    from .experiment import Advance, Experiment, Outcome, Setup, Step
    from .scores import Source

NAMES = (  # `registry.EXPERIMENTS`, which takes torch and matplotlib to load
    "operator",
    "traces",
    "chain",
    "margin",
    "stride",
    "rescue",
    "mechanism",
    "crossover",
    "tolerance",
    "views",
    "traffic",
)
GENERATORS = ("normal", "indexer", "text")  # `scores.GENERATORS`, likewise
ROUNDS, QUICK_ROUNDS = 15, 9
SLOW_PEERS = ("cub-sort",)  # which `--peers all --quick` leaves out: it sorts whole rows
FILE_WIDTH = 120  # columns of the tables where no terminal says how many it has

# The native module and the device, or a FileError: cli.py's, which a test can stand in for.
RequireGpu = Callable[[], tuple[Any, Any]]


@dataclass
class Tools:
    """What the commands of `hpc bench` share."""

    require_gpu: RequireGpu
    peers: Callable[[str], list[Peer]]
    installed: Callable[[list[Peer]], tuple[list[Peer], dict[str, str]]]


@click.group(
    cls=DefaultCommandGroup,
    default="run",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "ignore_unknown_options": True},
    options_metavar="",
    subcommand_metavar="NAME... [OPTIONS] | draw [OPTIONS]",
    epilog="Exit code: 0; 1 where a result of ours is not exact or failed; 2 where an argument breaks a rule, or a "
    "NAME needs a GPU or ncu and there is none.",
)
def paper() -> None:
    """Reproduce the paper's evaluation; docs/evaluation.md says what each experiment shows.

    \b
    NAME:
      operator   the 20 operator shapes against peers and the paper's policy
      traces     requests of 244,650 and 430,000 tokens
      chain      score and select in one CUDA graph
      margin     requested rank from K to 2 K           (on the CPU: rates)
      stride     stride from 16 to 256, chunk views too (on the CPU: rates)
      rescue     the secondary boundary                 (on the CPU: rates)
      mechanism  an exact first boundary in place of the sampled one
      crossover  sampled against direct exact over M and N
      tolerance  observation 1: boundary error          (on the CPU too)
      views      observation 2: rank of a view          (on the CPU too)
      traffic    R_eq by the hardware's counters; needs ncu
      all        what can be run here

    \b
    Examples:
      hpc bench paper all --quick
      hpc bench paper margin stride --scores scores.npy --lengths lengths.npy
      hpc bench paper draw
    """


@paper.command(hidden=True)
@click.argument("names", metavar="NAME...", nargs=-1, required=True, type=click.Choice([*NAMES, "all"]))
@click.option(
    "--out",
    default=Path("paper"),
    show_default=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of NAME.json and NAME.png.",
)
@click.option("--quick", is_flag=True, help="Few rows and shapes, no peer that sorts: all of it in minutes.")
@click.option(
    "--one-call",
    is_flag=True,
    help="Time the middle call of a scheduler step in place of all of them, as --quick does.",
)
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Default: cuda where there is a GPU.")
@click.option(
    "--workload",
    "workloads",
    multiple=True,
    type=click.Choice(GENERATORS),
    help="Score rows. Repeatable. Default: all of them; with --quick on a GPU indexer.",
)
@click.option(
    "--scores",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Replay a saved matrix in place of generated rows: float32 [M, N], .npy or .safetensors.",
)
@click.option("--lengths", type=click.Path(path_type=Path), metavar="FILE", help="Its valid lengths: integers [M].")
@click.option("--k", default=2048, show_default=True, type=click.IntRange(1, _core.MAX_K), help="Columns to select.")
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Of the scores.")
@click.option("--rounds", type=click.IntRange(QUICK_ROUNDS), help="Timed replays. Default: 15; with --quick 9.")
@click.option("--peers", "peer_names", default="all", metavar="NAMES", help="all, none, or names with commas between.")
@click.option(
    "--format", "suffix", default="png", show_default=True, type=click.Choice(["png", "svg"]), help="Figures."
)
@click.option("--revision", help="Of a source tree without its history.")
@click.pass_obj
def run(
    tools: Tools,
    names: tuple[str, ...],
    out: Path,
    quick: bool,
    one_call: bool,
    device: str | None,
    workloads: tuple[str, ...],
    scores: Path | None,
    lengths: Path | None,
    k: int,
    seed: int,
    rounds: int | None,
    peer_names: str,
    suffix: str,
    revision: str | None,
) -> int:
    """Run experiments: each writes DIR/NAME.json, anew after each step, and DIR/NAME.png, and prints its table."""
    if lengths is not None and scores is None:
        raise FileError(f"--lengths = {lengths}: must come with --scores")
    if scores is not None and workloads:
        raise FileError(f"--workload = {workloads[0]}: must not come with --scores, which takes its place")
    wanted_peers = tools.peers(peer_names)
    if quick and peer_names == "all":
        wanted_peers = [peer for peer in wanted_peers if peer.name not in SLOW_PEERS]
    import torch

    from .registry import EXPERIMENTS
    from .scores import Source, open_source

    where = device or ("cuda" if torch.cuda.is_available() else "cpu")
    chosen, skipped = _chosen(EXPERIMENTS, names, where, scores is not None)
    if scores is not None:
        sources: tuple[Source, ...] = (open_source(scores, lengths),)
    else:
        few = quick and where == "cuda"
        sources = tuple(Source(name) for name in dict.fromkeys(workloads or (GENERATORS[1:2] if few else GENERATORS)))
    require_writable("--out", out / "a.json" if out.is_dir() else out.with_suffix(".json"), (".json",))

    console = Console(stderr=True)
    origin = provenance.software(revision, provenance.command_line())
    setup, found = _setup(tools, where, sources, k, seed, quick, one_call, rounds, wanted_peers)
    settings = {
        "k": k,
        "seed": seed,
        "quick": quick,
        "one_call": setup.one_call,
        "sources": [source.name for source in sources],
        "rounds": setup.gpu.rounds if setup.gpu else None,
        **found.pop("settings"),
    }
    for line in skipped + [f"peer {name}: {version}" for name, version in settings.get("peers", {}).items()]:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    failed: list[str] = []
    planned = [(experiment, experiment.steps(setup)) for experiment in chosen]
    out.mkdir(exist_ok=True)
    with _progress(console, [step for _, steps in planned for step in steps]) as advance_in:
        for experiment, steps in planned:
            from .experiment import Outcome

            outcome = Outcome(experiment.name, {**origin, **found}, settings)
            outcome.complete = _measure(steps, outcome, out, advance_in, failed)
            outcome.save(out / f"{experiment.name}.json")
            if outcome.records:
                failed += _conclude(experiment, outcome, out, suffix)
            if not outcome.complete:
                break
    for failure in failed:
        print(f"hpc: error: {failure}", file=sys.stderr)
    return 1 if failed else 0


def _measure(
    steps: list[Step], outcome: Outcome, out: Path, advance_in: Callable[[Step], Advance], failed: list[str]
) -> bool:
    """Run the steps of an experiment; whether the device is still there."""
    from ..run import DeviceLostError

    for step in steps:
        try:
            outcome.records += step.run(advance_in(step))
        except DeviceLostError as error:
            failed.append(f"the device was lost at {step.name}, the run ends early: {error}")
            return False
        outcome.save(out / f"{outcome.experiment}.json")
    return True


def _chosen(
    experiments: dict[str, Experiment], names: tuple[str, ...], device: str, saved: bool
) -> tuple[list[Experiment], list[str]]:
    """The experiments that were asked for, and of `all` those that are left out and why; a FileError for a name."""
    chosen: list[Experiment] = []
    skipped = []
    for name, experiment in experiments.items():
        if name not in names and "all" not in names:
            continue
        if device == "cpu" and not experiment.on_cpu:
            reason = "needs an NVIDIA GPU"
        elif saved and not experiment.replays:
            reason = "makes its own scores and takes no --scores"
        else:
            reason = experiment.missing()
        if not reason:
            chosen.append(experiment)
        elif name in names:
            raise FileError(f"NAME = {name}: {reason}")
        else:
            skipped.append(f"{name}: left out, {reason}")
    return chosen, skipped


def _setup(
    tools: Tools,
    where: str,
    sources: tuple[Source, ...],
    k: int,
    seed: int,
    quick: bool,
    one_call: bool,
    rounds: int | None,
    wanted_peers: list[Peer],
) -> tuple[Setup, dict[str, Any]]:
    """What the experiments are given, and the device for their provenance with more `settings`."""
    import torch

    from .experiment import Setup

    one_call |= quick
    if where == "cpu":
        return Setup(torch.device("cpu"), sources, k, seed, quick, one_call), {**provenance.cpu(), "settings": {}}
    native, device = tools.require_gpu()
    from ..timer import Timer
    from .gpu import Gpu

    installed, listed = tools.installed(wanted_peers)
    timer = Timer(native, device, warm=False)
    ceiling = timer.read_ceiling()
    gpu = Gpu(native, timer, ceiling["gbps"], tuple(installed), rounds or (QUICK_ROUNDS if quick else ROUNDS))
    found = {**provenance.device(native, device.index), "settings": {"ceiling": ceiling, "peers": listed}}
    return Setup(device, sources, k, seed, quick, one_call, gpu), found


@contextmanager
def _progress(console: Console, steps: list[Step]) -> Iterator[Callable[[Step], Advance]]:
    """Gives for each step, in order, what its `run` is called with: a bar with an estimate, or a line for each step."""
    total = sum(step.weight for step in steps)
    started = time.monotonic()
    finished = 0.0
    number = 0
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(20),
        TextColumn("{task.percentage:>3.0f}%, left"),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task("", total=total)

        def advance_in(step: Step) -> Advance:
            nonlocal finished, number
            before = sum(s.weight for s in steps[:number])
            number += 1
            if not console.is_terminal:
                passed = time.monotonic() - started
                left = passed * (total - before) / before if before else total
                console.print(
                    f"[{number}/{len(steps)}] {step.name}, about {left:.0f} s left",
                    markup=False,
                    highlight=False,
                    soft_wrap=True,
                )

            def advance(share: float) -> None:
                bar.update(task, description=step.name, completed=before + share * step.weight)

            advance(0)
            return advance

        yield advance_in


def _conclude(experiment: Experiment, outcome: Outcome, out: Path, suffix: str) -> list[str]:
    """Draw the figure, print the table; what is wrong."""
    from .figures import save
    from .gpu import failures

    console = Console()
    if not console.is_terminal:
        console.width = FILE_WIDTH
    lines = experiment.table(outcome)
    table = RichTable(title=f"{experiment.name} (paper, section {experiment.section})", title_justify="left")
    for i, name in enumerate(lines.header):
        table.add_column(name, justify="right" if i else "left")
    for row in lines.rows:
        table.add_row(*row)
    console.print(table)
    figure = out / f"{experiment.name}.{suffix}"
    save(experiment, outcome, figure)
    for path in (out / f"{experiment.name}.json", figure):
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return failures(outcome)


def _folder(argument: str, path: Path) -> Path:
    if not path.is_dir():
        raise FileError(f"{argument} = {path}: must be a folder that exists")
    return path


@paper.command("draw")
@click.option(
    "--results",
    default=provenance.ROOT / "bench/results/paper",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of NAME.json. Default: the committed ones, bench/results/paper.",
)
@click.option(
    "--out",
    default=provenance.ROOT / "docs/images/evaluation",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of NAME.png. Default: docs/images/evaluation.",
)
@click.option(
    "--page",
    default=provenance.ROOT / "docs/evaluation.md",
    type=click.Path(path_type=Path),
    metavar="FILE.md",
    help="Page whose figures and tables are made anew. Default: docs/evaluation.md.",
)
def draw_command(results: Path, out: Path, page: Path) -> int:
    """Draw what experiments left, and refresh the tables of a page between its marks."""
    from . import page as pages
    from .registry import EXPERIMENTS

    _folder("--out", out if out.exists() else out.parent)
    found = pages.outcomes(EXPERIMENTS, _folder("--results", results))
    for path in pages.draw(EXPERIMENTS, found, out):
        click.echo(f"wrote {path}")
    pages.refresh(page, EXPERIMENTS, found, out, results)
    click.echo(f"wrote {page}")
    return 0
