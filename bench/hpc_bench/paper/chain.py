# SPDX-License-Identifier: Apache-2.0
"""Score and select (section 6.3): a score producer and the selection in one CUDA graph.

The scores are sum_j w_j relu(q_j . k), written with library matrix products, in fp8 where the device has it. The
paper's producer is a fused kernel, DeepGEMM's: ours takes longer, so the selection's share of the chain is smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median

import numpy as np
import torch
from matplotlib.figure import Figure
from peers import Call, UnsupportedError

from ..check import check
from ..contestants import Contestant
from ..inputs import row_stride
from . import figures, gpu
from .experiment import Advance, Experiment, Outcome, Record, Setup, Step, Table
from .scores import LastStep, Source, last_steps

HEADS, DIMENSION = 64, 128  # of a DeepSeek indexer
BLOCK_ROWS, BLOCK_COLUMNS = 64, 4096  # of scores made together: the heads' products, 32 MiB of bf16, stay in L2
QUICK_ROWS = 512  # of the call that stands for a step
SCALE = DIMENSION**-0.25  # of q and k, so that their products have a variance of one
# ms, 245K and 430K tokens: segment with the best peer and with HPC-Ops, chain likewise.
PAPER_CHAIN = {244_650: (27.41, 18.15, 339.99, 330.84), 430_000: (38.01, 24.06, 488.01, 474.70)}


@dataclass(frozen=True)
class Producer:
    """Makes the scores of M queries against N keys.

    Attributes:
        queries: [M, HEADS, DIMENSION], float8_e4m3fn or bfloat16.
        keys: [N padded, DIMENSION], likewise.
        weights: bfloat16 [M, 1, HEADS].
        one: float32 [], the scale of fp8 operands.
        scores: float32 [M, N padded], written.
    """

    queries: torch.Tensor
    keys: torch.Tensor
    weights: torch.Tensor
    one: torch.Tensor
    scores: torch.Tensor

    def run(self) -> None:
        """Enqueue it."""
        heads = self.queries.shape[1]
        rows, columns = self.scores.shape
        for top in range(0, rows, BLOCK_ROWS):
            block = slice(top, min(rows, top + BLOCK_ROWS))
            flat = self.queries[block].flatten(0, 1)
            for left in range(0, columns, BLOCK_COLUMNS):
                part = slice(left, min(columns, left + BLOCK_COLUMNS))
                if flat.dtype is torch.float8_e4m3fn:
                    products = torch._scaled_mm(flat, self.keys[part].t(), self.one, self.one, out_dtype=torch.bfloat16)
                else:
                    products = flat @ self.keys[part].t()
                products = products.relu_().view(-1, heads, products.shape[1])
                self.scores[block, part] = _float32_product(self.weights[block], products)[:, 0]


def _float32_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """The product of batches of bfloat16 matrices, in float32."""
    if left.device.type == "cuda":
        return torch.bmm(left, right, out_dtype=torch.float32)
    return torch.bmm(left.float(), right.float())


def has_fp8(device: torch.device) -> bool:
    """Whether the device multiplies fp8 matrices."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def make_producer(rows: int, columns: int, seed: int, device: torch.device, heads: int = HEADS) -> Producer:
    """A producer of random queries, keys and weights."""
    rng = torch.Generator(device).manual_seed(seed)
    kind = torch.float8_e4m3fn if has_fp8(device) else torch.bfloat16
    width = row_stride(columns)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng, device=device)

    return Producer(
        (SCALE * normal(rows, heads, DIMENSION)).to(kind),
        (SCALE * normal(width, DIMENSION)).to(kind),
        normal(rows, 1, heads).to(torch.bfloat16),
        torch.ones((), device=device),
        torch.empty(rows, width, device=device),
    )


def _contestants(setup: Setup) -> list[Contestant]:
    return [setup.timed.ours(), setup.timed.ours("hpc paper", "paper"), *setup.timed.others()]


def _measure(setup: Setup, source: str, step: LastStep, rows: int, advance: Advance) -> list[Record]:
    """The score producer alone, each selection alone on its scores, and both in one graph; one call for the step."""
    cell, device = step.cells[0], setup.device
    producer = make_producer(rows, cell.columns, setup.seed, device)
    # Causal lengths that end at the request's; the suffix stays as it is: those that take no lengths are not right.
    lengths = torch.from_numpy(np.arange(cell.columns - rows + 1, cell.columns + 1, dtype=np.int32)).to(device)
    call = Call(producer.scores[:, : cell.columns], lengths, setup.k)
    stopwatch, rounds = setup.timed.stopwatch, setup.timed.rounds

    def score() -> torch.Tensor:
        producer.run()
        return lengths.clone()  # a stopwatch overwrites what a launch returns

    stopwatch.run(score)
    score_us = median(stopwatch.time([score], rounds)[0])
    contestants = _contestants(setup)
    records: list[Record] = []
    share = sum(w * c.rows for w, c in zip(step.weights, step.cells, strict=True)) / rows
    for done, contestant in enumerate(contestants):
        advance(done / len(contestants))
        record: Record = {
            "part": "time",
            "source": source,
            "tokens": step.tokens,
            "rows": rows,
            "columns": cell.columns,
            "weight": share,
            "heads": HEADS,
            "fp8": has_fp8(device),
            "contestant": contestant.name,
            "score_us": round(score_us, 3),
        }
        try:
            select = contestant.prepare([call]).runs[0]
            record |= _both(setup, call, contestant, score, select)
        except UnsupportedError as error:
            record |= {"status": "unsupported", "note": str(error)}
        except Exception as error:  # whatever a peer raises is its result
            record |= {"status": "failed", "verdict": None, "note": str(error).partition("\n")[0], "right": False}
        records.append(record)
        gpu.synchronize(device)
    return records


def _both(
    setup: Setup,
    call: Call,
    contestant: Contestant,
    score: Callable[[], torch.Tensor],
    select: Callable[[], torch.Tensor],
) -> Record:
    stopwatch, rounds = setup.timed.stopwatch, setup.timed.rounds

    def chain() -> torch.Tensor:
        score()
        return select()

    stopwatch.run(select)
    select_us = median(stopwatch.time([select], rounds)[0])
    samples, (columns,) = stopwatch.time([chain], rounds)
    verdict = check(call.scores, call.lengths, columns, call.k, contract=contestant.ours)
    right = verdict.text == "exact" or (verdict.text == "ties" and not contestant.ours)
    return {
        "us": round(select_us, 3),
        "chain_us": round(median(samples), 3),
        "status": "ok",
        "verdict": verdict.text,
        "note": verdict.note,
        "right": right,
    }


def _steps(setup: Setup) -> list[Step]:
    source = Source("scores of a producer")
    steps = []
    for step in last_steps(setup, source):
        rows = min(QUICK_ROWS, step.cells[0].rows) if setup.quick else step.cells[0].rows
        weight = 2 + 2e-9 * rows * step.cells[0].columns * len(_contestants(setup))
        run = partial(_measure, setup, source.name, step, rows)
        steps.append(Step(f"chain, {step.tokens:,} tokens", weight, run))
    return steps


def _total(outcome: Outcome, tokens: int, name: str, field: str = "us") -> float | None:
    records = outcome.select(tokens=tokens, contestant=name)
    return gpu.total_ms([{**r, "us": r.get(field)} for r in records])


def _rows(outcome: Outcome, tokens: int) -> list[tuple[str, float, float]]:
    """(contestant, segment ms, chain ms) of those that are right."""
    found = []
    for name in outcome.values("contestant"):
        segment, whole = _total(outcome, tokens, name), _total(outcome, tokens, name, "chain_us")
        if segment and whole:
            found.append((name, segment, whole))
    return found


def _draw(outcome: Outcome) -> Figure:
    requests = outcome.values("tokens")
    figure, axes = figures.panels(outcome, 2, len(requests), (5.2, 2.8))
    for column, tokens in enumerate(requests):
        bars = [(name, segment, whole, figures.colour(2)) for name, segment, whole in _rows(outcome, tokens)]
        if tokens in PAPER_CHAIN:
            before, after, chain_before, chain_after = PAPER_CHAIN[tokens]
            bars += [("paper: HPC-Ops, H20", after, chain_after, figures.PAPER)]
            bars += [("paper: SGLang, H20", before, chain_before, figures.PAPER)]
        names = [name for name, *_ in bars]
        parts = ([segment for _, segment, *_ in bars], [whole for *_, whole, _ in bars])
        for row, (label, values) in enumerate(zip(("selection", "score and select"), parts, strict=True)):
            axis = axes[row][column]
            axis.grid(False)
            longest = figures.longest_bar(names, values)
            for y, (value, (*_, paint)) in enumerate(zip(values, bars, strict=True)):
                whose = "paper" if paint == figures.PAPER else "here"
                axis.barh(y, min(value, longest), color=paint, label=whose)
            figures.bars(axis, names, values, longest)
            axis.set_xlabel("last step, ms")
            axis.set_title(f"{tokens:,} tokens: {label}")
    return figures.finish(figure, axes, "Score and select in one graph (section 6.3)")


def _table(outcome: Outcome) -> Table:
    rows = []
    for tokens in outcome.values("tokens"):
        found = {name: (segment, whole) for name, segment, whole in _rows(outcome, tokens)}
        before, after, chain_before, chain_after = PAPER_CHAIN.get(tokens, (0, 0, 0, 0))
        others = {name: both for name, both in found.items() if name.partition(" ")[0] != "hpc"}
        best = min(others, key=lambda name: others[name][0], default=None)
        own = found.get("hpc")
        for i, label, paper in ((0, "selection", (before, after)), (1, "chain", (chain_before, chain_after))):
            cells = [f"{found[name][i]:.2f}" if name in found else "-" for name in ("hpc", "hpc paper")]
            cells.append(f"{others[best][i]:.2f} ({best})" if best else "none right")
            cells.append(f"{others[best][i] / own[i]:.2f} x" if best and own else "-")
            stated = f"{paper[0]:.2f} to {paper[1]:.2f}, {paper[0] / paper[1]:.2f} x" if paper[0] else "-"
            rows.append((f"{tokens:,} tokens: {label}, ms", stated, *cells))
    return Table(("", "paper, H20: SGLang to HPC-Ops", "hpc", "hpc paper", "best peer", "best peer / hpc"), rows)


CHAIN = Experiment(
    "chain",
    "6.3, score-and-select integration",
    "A score producer and the selection in one CUDA graph: the segment and the whole chain, before and after",
    "",
    _steps,
    _draw,
    _table,
    replays=False,
)
