# SPDX-License-Identifier: Apache-2.0
"""The command ``hpc``: select from a file, ask the planner, fuzz the operator, and time it."""

from __future__ import annotations

import math
import os
import secrets
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from hpc import __version__, _core, fuzz
from hpc._arguments import check_integer
from hpc._files import ArrayFile, FileError, open_array, replacing, require_different, require_kind, require_writable
from hpc._plan import Plan, plan
from hpc._topk import Statistics, _no_torch, topk_numpy
from hpc._verify import is_exact

_BATCH_BYTES = 256 << 20  # scores in memory at a time, and positions beside those of all rows
_ROW_BYTES = 32  # of memory for a row beside its positions: its start, its length and what they are checked with
_PLOT_ROWS = 32
_INTEGERS = ("int32", "int64")


@dataclass
class _Run:
    """What a selection adds up to."""

    plan: Plan
    columns: NDArray[np.int32]
    seconds: float = 0
    statistics: Statistics = field(default_factory=lambda: Statistics(0, 0, 0, 0, 0, 0))
    inexact_rows: list[int] = field(default_factory=list)

    def add(self, statistics: Statistics) -> None:
        self.statistics = Statistics(*(a + b for a, b in zip(self.statistics, statistics, strict=True)))


def _check_cuda() -> None:
    if _no_torch:
        raise FileError(f"--device = cuda: must be cpu: {_no_torch}")
    import torch

    if not torch.cuda.is_available():
        raise FileError("--device = cuda: must be cpu: torch finds no CUDA device")


def _select_cuda(
    scores: NDArray[np.float32], k: int, lengths: NDArray[np.int32], row_starts: NDArray[np.int32], kernel: str
) -> tuple[NDArray[np.int32], Statistics, float]:
    import torch

    on_device = [torch.from_numpy(array).cuda() for array in (scores, lengths, row_starts)]
    torch.cuda.synchronize()
    begin = time.perf_counter()
    columns, statistics = torch.ops.hpc.topk_counted(on_device[0], on_device[1], k, on_device[2], mapping=kernel)
    torch.cuda.synchronize()
    seconds = time.perf_counter() - begin
    return columns.cpu().numpy(), Statistics(*statistics.tolist()), seconds


def _select_cpu(
    scores: NDArray[np.float32],
    k: int,
    lengths: NDArray[np.int32],
    row_starts: NDArray[np.int32],
    kernel: str,
    threads: int,
) -> tuple[NDArray[np.int32], Statistics, float]:
    begin = time.perf_counter()
    columns, statistics = topk_numpy(scores, k, lengths, row_starts=row_starts, kernel=kernel, num_threads=threads)
    return columns, statistics, time.perf_counter() - begin


def _read_counts(option: str, path: Path | None, rows: int, limit: NDArray[np.int64]) -> NDArray[np.int32] | None:
    """An int32 [rows] of values in 0..limit from a file."""
    if path is None:
        return None
    file = open_array(option, path)
    require_kind(file, _INTEGERS, 1, "one for each row of FILE")
    if file.shape != (rows,):
        raise FileError(f"{option}.shape = [{file.shape[0]}]: must be [{rows}], one for each row of FILE")
    values = file.rows(0, rows)
    wrong = np.flatnonzero((values < 0) | (values > limit))
    if wrong.size:
        row = int(wrong[0])
        raise FileError(f"{option}[{row}] = {values[row]}: must be between 0 and {limit[row]}, what is in that row")
    return values.astype(np.int32)


@contextmanager
def _progress(verb: str, total: float, *columns: ProgressColumn) -> Iterator[Any]:
    """Options of a task to update, as a function, behind a progress bar where there is a terminal to show it."""
    console = Console(stderr=True)
    bar = Progress(
        TextColumn(verb), BarColumn(), *columns, console=console, transient=True, disable=not console.is_terminal
    )
    with bar:
        task = bar.add_task("", total=total)
        yield lambda **options: bar.update(task, **options)


def _run_batches(
    scores: ArrayFile,
    k: int,
    lengths: NDArray[np.int32],
    row_starts: NDArray[np.int32],
    *,
    device: str,
    kernel: str,
    threads: int,
    verify: bool,
) -> _Run:
    rows, columns = scores.shape
    batch_rows = max(1, min(rows, _BATCH_BYTES // (4 * max(columns, k))))
    run = _Run(plan(batch_rows, columns, k, device=device, kernel=kernel), np.empty((rows, k), np.int32))
    with _progress("selecting", rows, MofNCompleteColumn(), TextColumn("rows"), TimeRemainingColumn()) as update:
        for begin in range(0, rows, batch_rows):
            end = min(rows, begin + batch_rows)
            batch = np.array(scores.rows(begin, end), order="C")  # in memory, not mapped
            arguments = (batch, k, lengths[begin:end], row_starts[begin:end], kernel)
            # The first batch runs once before it is timed: threads start, pages and kernels are loaded.
            for _ in range(2 if begin == 0 else 1):
                if device == "cuda":
                    selected, statistics, seconds = _select_cuda(*arguments)
                else:
                    selected, statistics, seconds = _select_cpu(*arguments, threads)
            run.columns[begin:end] = selected
            run.seconds += seconds
            run.add(statistics)
            if verify:
                run.inexact_rows += [
                    begin + r
                    for r in range(end - begin)
                    if not is_exact(selected[r], batch[r], k, int(row_starts[begin + r]), int(lengths[begin + r]))
                ]
            update(advance=end - begin)
    return run


def _summary(run: _Run, scores: ArrayFile, k: int, valid: int, device: str, verify: bool) -> Table:
    rows, columns = scores.shape
    statistics = run.statistics
    table = Table(show_header=False, title="hpc select", title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right")

    def rate(amount: float, digits: int) -> str:
        return f"{amount / run.seconds:,.{digits}f}" if run.seconds > 0 and rows else "-"

    def share(count: int, total: int, digits: int) -> str:
        return f"{count / total:,.{digits}f}" if total else "-"

    table.add_row("rows x columns", f"{rows:,} x {columns:,}")
    table.add_row("k", f"{k:,}")
    table.add_row("device", device)
    table.add_row("plan", f"{run.plan.kernel} kernel, {run.plan.problem.num_rows:,} rows a call")
    table.add_row("time", f"{run.seconds * 1e3:,.3f} ms")
    table.add_row("rows/s", rate(rows, 0))
    table.add_row("GB/s of valid scores", rate(4e-9 * valid, 2))
    table.add_row("exact", ("no" if run.inexact_rows else "yes") if verify else "not verified (--verify)")
    table.add_section()
    table.add_row("rows longer than k", f"{statistics.rows:,}")
    table.add_row("candidates per row", share(statistics.candidates, statistics.rows, 1))
    table.add_row("rows rescued", f"{statistics.rescued:,}")
    table.add_row("rows recovered", f"{statistics.recovered:,}")
    table.add_row("buffers tightened", f"{statistics.tightened:,}")
    table.add_row("scores read / valid", share(statistics.scores_read, valid, 3))
    return table


def _plot(temporary: Path, scores: ArrayFile, run: _Run, lengths: NDArray[np.int32]) -> None:
    from hpc._plot import draw

    total = scores.shape[0]
    rows = sorted({int(r) for r in np.linspace(0, total - 1, min(total, _PLOT_ROWS))})
    row = max(rows, key=lambda r: int(lengths[r]))
    draw(temporary, scores=scores.rows(row, row + 1)[0], row=row, selected=run.columns[rows], rows=rows)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="hpc")
@click.pass_context
def cli(context: click.Context) -> None:
    """Exact top-k of long, ragged float32 score rows.

    \b
    Select the 2048 best positions of every row of a matrix, check them and draw them:
      hpc select scores.npy --verify --plot scores.png
    Ask which kernel an H200 would run for 64 rows of 131072 columns, and why:
      hpc plan 64 131072 --k 2048 --device-like h200
    Hold a minute of random calls against a sort:
      hpc fuzz --seconds 60

    Each command has its own --help.
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


_path = click.Path(path_type=Path)


@cli.command()
@click.argument("file", type=_path)
@click.option("--k", default=2048, show_default=True, help=f"Positions to select in each row, 1 to {_core.MAX_K}.")
@click.option("--array", metavar="NAME", help="Which array of a .npz file. Needed where it holds several.")
@click.option("--tensor", metavar="NAME", help="Which tensor of a .safetensors file. Needed where it holds several.")
@click.option("--lengths", type=_path, metavar="FILE", help="Valid scores of each row, integers [rows].")
@click.option("--row-starts", type=_path, metavar="FILE", help="First valid column of each row, integers [rows].")
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default="cpu",
    show_default=True,
    help="Where to run. cuda needs torch.",
)
@click.option("--kernel", type=click.Choice(_core.KERNELS), default="auto", show_default=True, help="Force a kernel.")
@click.option(
    "--threads", type=click.IntRange(0, 2**31 - 1), default=0, help="CPU threads. 0 or left out: every hardware thread."
)
@click.option("--verify", is_flag=True, help="Compare every row with an independent numpy reference.")
@click.option("--out", type=_path, metavar="FILE.npy", help="Write the positions, int32 [rows, k].")
@click.option("--plot", type=_path, metavar="FILE.png", help="Draw the scores and the selected positions.")
def select(
    file: Path,
    k: int,
    array: str | None,
    tensor: str | None,
    lengths: Path | None,
    row_starts: Path | None,
    device: str,
    kernel: str,
    threads: int,
    verify: bool,
    out: Path | None,
    plot: Path | None,
) -> int:
    """Select the k largest scores of every row of FILE.

    FILE holds a float32 matrix [rows, columns]: .npy (memory-mapped, so it may be larger than memory), .npz or
    .safetensors. Rows are selected in batches, and the summary says how fast and how: the kernel that ran, the scores
    that its boundary admitted, and how many rows needed the second boundary (rescued) or the exact one (recovered).
    The time is that of the selection alone, without reading the file.

    \b
    Examples:
      hpc select scores.npy
      hpc select scores.npz --array layer2 --k 512 --verify
      hpc select scores.safetensors --lengths lengths.npy --out positions.npy
      hpc select scores.npy --device cuda --plot scores.png

    Exit code: 0; 1 where --verify finds a row that is not exact; 2 where an argument breaks a rule, which one line on
    stderr names. In both other cases nothing is written.
    """
    names = {".npz": ("--array", array), ".safetensors": ("--tensor", tensor)}
    for suffix, (option, name) in names.items():
        if name is not None and file.suffix != suffix:
            raise FileError(f"{option} = {name}: must come with a {suffix} file, and FILE is {file}")
    scores = open_array("FILE", file, *names.get(file.suffix, ()))
    require_kind(scores, ("float32",), 2, "[rows, columns]")
    rows, columns = scores.shape
    check_integer("k", k, 1, _core.MAX_K)
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if rows * (4 * k + _ROW_BYTES) > memory:
        raise FileError(
            f"FILE.shape = [{rows}, {columns}]: must have at most {memory // (4 * k + _ROW_BYTES)} rows: "
            f"what is kept of each for k = {k} must fit the {memory >> 20} MiB of memory here"
        )
    inputs = {"FILE": file, "--lengths": lengths, "--row-starts": row_starts}
    if out is not None:
        require_writable("--out", out, (".npy",))
        require_different({**inputs, "--out": out})
    if plot is not None:
        require_writable("--plot", plot, (".png", ".pdf", ".svg"))
        require_different({**inputs, "--out": out, "--plot": plot})
        if rows == 0 or columns == 0:
            raise FileError(f"--plot = {plot}: FILE must hold scores to draw, and is [{rows}, {columns}]")
    if device == "cuda":
        _check_cuda()
    starts = _read_counts("--row-starts", row_starts, rows, np.full(rows, columns))
    if starts is None:
        starts = np.zeros(rows, np.int32)
    left = columns - starts.astype(np.int64)
    valid = _read_counts("--lengths", lengths, rows, left)
    if valid is None:
        valid = left.astype(np.int32)

    run = _run_batches(scores, k, valid, starts, device=device, kernel=kernel, threads=threads, verify=verify)
    console = Console()
    console.print(_summary(run, scores, k, int(valid.sum()), device, verify))
    if run.inexact_rows:
        listed = ", ".join(map(str, run.inexact_rows[:8]))
        print(f"hpc: error: {len(run.inexact_rows)} row(s) are not exact: {listed}", file=sys.stderr)
        return 1
    with ExitStack() as files:  # both or none
        if out is not None:
            np.save(files.enter_context(replacing(out, "--out")), run.columns)
        if plot is not None:
            _plot(files.enter_context(replacing(plot, "--plot")), scores, run, valid)
    for path in filter(None, (out, plot)):
        click.echo(f"wrote {path}")
    return 0


@cli.command("plan")
@click.argument("m", type=int)
@click.argument("n", type=int)
@click.option("--k", default=2048, show_default=True, help=f"Positions to select in each row, 1 to {_core.MAX_K}.")
@click.option("--row-stride", type=int, metavar="ELEMENTS", help="Distance of neighbouring rows. Default: N.")
@click.option(
    "--device-like",
    metavar="NAME",
    help="Plan for a100, h20, h100, h200, b200, rtx5090, cpu or cuda:0. Default: the GPU here, else the CPU.",
)
@click.option("--kernel", type=click.Choice(_core.KERNELS), default="auto", show_default=True, help="Force a kernel.")
def plan_command(m: int, n: int, k: int, row_stride: int | None, device_like: str | None, kernel: str) -> int:
    """Show the plan for M rows of N columns: the kernel, why, what it costs and needs, and what was not chosen.

    \b
    Examples:
      hpc plan 64 131072 --k 2048 --device-like h200
      hpc plan 1 1048576 --k 512 --device-like b200 --kernel fallback
    """
    device = None if device_like is None else device_like.lower()
    click.echo(str(plan(m, n, k, row_stride=row_stride, device=device, kernel=kernel)).rstrip())
    return 0


def _fuzz_summary(report: fuzz.Report) -> Table:
    table = Table(show_header=False, title="hpc fuzz", title_justify="left")
    table.add_column(style="bold", no_wrap=True)
    table.add_column(justify="right")
    table.add_row("device", report.device)
    table.add_row("seed", str(report.seed))
    table.add_row("time", f"{report.seconds:,.1f} s")
    table.add_row("cases", f"{report.cases:,}")
    table.add_row("rows", f"{report.rows:,}")
    table.add_row("rows/s", f"{report.rows / report.seconds:,.0f}")
    if report.skipped:
        table.add_row("no memory for", f"{report.skipped:,} cases")
    table.add_row("failures", f"{len(report.failures):,}")
    table.add_section()
    for kernel, (cases, rows) in sorted(report.kernels.items()):
        table.add_row(kernel, f"{cases:,} cases, {rows:,} rows")
    return table


@cli.command("fuzz")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where to run.")
@click.option("--seconds", type=float, help="Stop after this time. Default: 60, without --rows and --case.")
@click.option("--rows", type=int, help="Stop after this many rows.")
@click.option("--seed", type=int, help="What the cases are drawn from. Default: a new one each time.")
@click.option("--case", type=int, metavar="N", help="Only this case: once, or again and again up to a limit.")
@click.option("--verbose", is_flag=True, help="Print each case before it runs: a crash or a hang then shows which.")
def fuzz_command(
    device: str, seconds: float | None, rows: int | None, seed: int | None, case: int | None, verbose: bool
) -> int:
    """Hold random calls against an independent sort of every row.

    Shapes, strides, bases, lengths, starts, row counts, k, kernels and values are drawn, from ordinary scores to those
    that are made to break a selection. Checked are every element of the output, what lies around output and workspace,
    and that the inputs stay as they are. A failure is one line, and ends with the command that runs it again.

    \b
    Examples:
      hpc fuzz
      hpc fuzz --device cuda --rows 10000000
      hpc fuzz --seed 7 --case 123

    Exit code: 0; 1 where a case fails (the run ends after 10); 2 where an argument breaks a rule.
    """
    for option, value, least in (("--rows", rows, 1), ("--seed", seed, 0), ("--case", case, 0)):
        if value is not None and value < least:
            raise ValueError(f"{option} = {value}: must be at least {least}")
    if seconds is not None and not 0 < seconds < math.inf:
        raise ValueError(f"--seconds = {seconds:g}: must be positive and finite")
    if case is not None and seed is None:
        raise ValueError(f"--case = {case}: must come with --seed")
    if device == "cuda":
        _check_cuda()
        plan(1, 1, 1, device=device)  # refuses a build without CUDA
    if seed is None:
        seed = secrets.randbelow(1 << 32)
    if seconds is None and rows is None and case is None:
        seconds = 60
    arrays = fuzz.TorchArrays(device) if device == "cuda" else fuzz.NumpyArrays()
    print("seed", seed, file=sys.stderr, flush=True)
    shown = 0

    def before(number: int, drawn: fuzz.Case) -> None:
        if verbose:
            print(f"case {number}: {drawn}", file=sys.stderr, flush=True)

    with _progress("fuzzing", seconds or rows or 1, TextColumn("{task.description}")) as update:

        def after(report: fuzz.Report) -> None:
            nonlocal shown
            for failure in report.failures[shown:]:
                print("hpc: error:", failure, file=sys.stderr)
            shown = len(report.failures)
            update(completed=report.seconds if seconds else report.rows, description=f"{report.cases:,} cases")

        report = fuzz.run(
            arrays,
            seed,
            seconds=math.inf if seconds is None else seconds,
            rows=math.inf if rows is None else rows,
            case=case,
            before=before,
            after=after,
        )
    Console().print(_fuzz_summary(report))
    return 1 if report.failures else 0


def _benchmark_package() -> Any:
    """The benchmarks' package, which is not installed: on the path, or in `bench` of this folder or one above."""
    if find_spec("hpc_bench") is None:
        here = Path.cwd()
        folder = next((f / "bench" for f in (here, *here.parents) if (f / "bench/hpc_bench/cli.py").is_file()), None)
        if folder is None:
            raise FileError("hpc bench: must run in a checkout of the repository, which holds the benchmarks")
        sys.path.insert(0, str(folder))
    return import_module("hpc_bench.cli")


def _run_benchmark(arguments: list[str]) -> int:
    try:
        return int(_benchmark_package().main(arguments))
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise FileError("hpc bench: needs torch, which is not installed") from None


@cli.command("bench", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench_command(arguments: tuple[str, ...]) -> int:
    """Time the selection on a GPU, beside other selectors, and draw what was measured."""
    return _run_benchmark(list(arguments))


def run(arguments: list[str]) -> int:
    """Run the command with these arguments. Whatever is wrong with them takes one line on stderr and exit code 2."""
    try:
        code = cli.main(arguments, prog_name="hpc", standalone_mode=False)
    except click.ClickException as error:
        message = error.format_message()
    except (FileError, ValueError, OSError, MemoryError) as error:
        message = str(error) or type(error).__name__
    except (click.Abort, KeyboardInterrupt):
        return 130
    else:
        return int(code or 0)
    print("hpc: error:", " ".join(message.split()), file=sys.stderr)
    return 2
