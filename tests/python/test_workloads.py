# SPDX-License-Identifier: Apache-2.0
"""The score rows and call shapes that every benchmark and test asks for by name."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from workloads import (
    DECODE_GRID,
    OPERATOR_GRID,
    TRACE_TOKENS,
    WORKLOADS,
    causal_lengths,
    generate,
    load_sample,
    trace,
)
from workloads.generators import SAMPLE_LENGTHS_PATH, SAMPLE_PATH

N = 16_384
K = 2048


def rows_of(name: str, rows: int = 4, columns: int = N) -> np.ndarray:
    return generate(name, rows, columns, seed=7, k=K)[0]


def top(row: np.ndarray, k: int = K) -> np.ndarray:
    return np.sort(np.argpartition(row, -k)[-k:])


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("columns", [1, 100, 4097, N])
def test_shape_type_and_determinism(name: str, columns: int) -> None:
    scores, lengths = generate(name, 5, columns, seed=3)
    assert scores.shape == (5, columns)
    assert scores.dtype == np.float32
    assert scores.flags.c_contiguous
    assert lengths.shape == (5,)
    assert lengths.dtype == np.int32
    assert ((lengths >= 1) & (lengths <= columns)).all()
    again, lengths_again = generate(name, 5, columns, seed=3)
    assert scores.tobytes() == again.tobytes()
    assert (lengths == lengths_again).all()


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_row_is_the_same_alone(name: str) -> None:
    scores, lengths = generate(name, 9, N, seed=3)
    alone, length = generate(name, 1, N, seed=3, first_row=6)
    assert alone[0].tobytes() == scores[6].tobytes()
    assert length[0] == lengths[6]


@pytest.mark.parametrize("name", sorted(set(WORKLOADS) - {"ascending", "descending"}))
def test_rows_and_seeds_differ(name: str) -> None:
    scores = generate(name, 4, N, seed=3)[0]
    assert len({row.tobytes() for row in scores}) == 4
    assert scores.tobytes() != generate(name, 4, N, seed=4)[0].tobytes()


def test_every_workload_is_described() -> None:
    for workload in WORKLOADS.values():
        assert workload.description
        assert "\n" not in workload.description


def test_no_rows() -> None:
    scores, lengths = generate("normal", 0, N, seed=0)
    assert scores.shape == (0, N)
    assert lengths.shape == (0,)


@pytest.mark.parametrize(
    ("argument", "value"), [("rows", -1), ("columns", 0), ("seed", -1), ("k", 0), ("first_row", -1), ("name", "none")]
)
def test_bad_arguments_are_named(argument: str, value: object) -> None:
    arguments = {"name": "normal", "rows": 1, "columns": 8, "seed": 0, argument: value}
    with pytest.raises(ValueError, match=f"^{argument} is {value!r}, must be"):
        generate(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "mean"), [("normal", 0), ("offset", 100)])
def test_normals(name: str, mean: float) -> None:
    scores = rows_of(name, rows=8).astype(np.float64)
    assert scores.mean() == pytest.approx(mean, abs=0.02)
    assert scores.std() == pytest.approx(1, abs=0.02)


def test_indexer_has_a_sink_recency_and_correlated_neighbours() -> None:
    scores = rows_of("indexer", columns=131_072)
    ends = [np.mean((top(row) < 13_107) | (top(row) >= 131_072 - 13_107)) for row in scores]
    assert min(ends) > 0.4
    assert (scores >= 0).all()
    middle = scores[:, 40_000:90_000].astype(np.float64)
    assert np.corrcoef(middle[:, :-1].ravel(), middle[:, 1:].ravel())[0, 1] > 0.3
    # Without its sink and recency terms: 1.5 relu(w) + relu(z), both of unit variance, mean 2.5 / sqrt(2 pi).
    assert middle.mean() == pytest.approx(2.5 / np.sqrt(2 * np.pi), rel=0.02)


def test_indexer_causal_suffix() -> None:
    scores, lengths = generate("indexer_causal", 3, N, seed=7)
    assert lengths.tolist() == [N, N - 1, N - 2]
    for row, length in zip(scores, lengths, strict=True):
        assert np.isfinite(row[:length]).all()
        assert np.isneginf(row[length:]).all()


def test_relu_plateau_ties_at_zero() -> None:
    scores = rows_of("relu_plateau")
    assert ((scores > 0).sum(axis=1) == K // 4).all()
    assert ((scores == 0).sum(axis=1) == N - K // 4).all()


def test_quantised_values_are_e4m3() -> None:
    scores = rows_of("quantised", rows=8)
    magnitudes = np.unique(np.abs(scores))
    steps = np.arange(8)
    e4m3 = np.concatenate([steps * 2.0**-9, *((8 + steps) * 2.0 ** (exponent - 3) for exponent in range(-6, 9))])
    assert np.isin(magnitudes, e4m3).all()
    assert (np.diff(magnitudes) > 0).all()
    assert np.isin(e4m3[(e4m3 > 0.1) & (e4m3 < 2)], magnitudes).all()
    assert (np.signbit(scores) & (scores == 0)).any()
    nearest = np.abs(scores - rows_of_normals()).max() / np.abs(scores).max()
    assert nearest < 1 / 16


def rows_of_normals() -> np.ndarray:
    """What `quantised` rounds: it draws the same numbers as `normal`."""
    return rows_of("normal", rows=8)


def test_one_bin_range() -> None:
    scores = rows_of("one_bin")
    assert scores.min() >= 1
    assert scores.max() < np.float32(1.03)
    assert scores.max() > 1.0299
    assert np.unique(scores[0]).size > N // 2


def test_monotone_rows() -> None:
    assert (np.diff(rows_of("ascending")) > 0).all()
    assert (np.diff(rows_of("descending")) < 0).all()


@pytest.mark.parametrize("name", ["indexer", "spans"])
def test_spans_are_few_runs(name: str) -> None:
    runs = [1 + np.count_nonzero(np.diff(top(row)) > 1) for row in rows_of(name)]
    if name == "spans":
        assert max(runs) <= 4
    else:
        assert min(runs) > 100


def test_periodic_period() -> None:
    scores = rows_of("periodic")
    assert (np.abs(scores[:, 128:] - scores[:, :-128]) < 0.6).all()
    assert scores[:, :128].std(axis=1).min() > 0.5
    # One phase of a stride-128 sample sees next to nothing of the row.
    assert scores[:, 5::128].std(axis=1).max() < 0.1


def test_text_is_the_sample_from_some_window_on() -> None:
    layers = load_sample()[0].reshape(2, -1)
    scores = generate("text", 4, 600_000, seed=0)[0]
    for r, row in enumerate(scores):
        band = layers[r % 2]
        starts = [s for s in range(0, band.size, 256) if (band[s : s + 64] == row[:64]).all()]
        assert len(starts) == 1
        assert (row == np.resize(np.roll(band, -starts[0]), row.size)).all()


@pytest.mark.parametrize(
    ("path", "sha256"),
    [
        (SAMPLE_PATH, "55b8dd19aeb8e83fbc4d949923e14697ce1ea071d22fe9034a34f08871cbad96"),
        (SAMPLE_LENGTHS_PATH, "871b6e4be71b04ee78b2c107ed6ce27c4d2294e39cc1f8f4af636a76be1231f7"),
    ],
)
def test_sample_files(path: Path, sha256: str) -> None:
    assert hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    assert sha256 in (path.parent / "README.md").read_text(encoding="utf-8")


def test_sample() -> None:
    scores, lengths = load_sample()
    assert scores.shape == (16, 65_536)
    assert scores.dtype == np.float32
    assert np.isfinite(scores).all()
    assert lengths.dtype == np.int32
    assert lengths.tolist() == 2 * list(range(65_529, 65_537))
    zeros = (scores == 0).mean(axis=1)
    assert (zeros > 0.1).all()
    assert (zeros < 0.6).all()
    # The encoder's window shows: a few of its 256 phases hold much more than their share of a row's top-k.
    share = [np.sort(np.bincount(top(row) % 256, minlength=256))[-2:].sum() / K for row in scores[:8]]
    assert min(share) > 10 * 2 / 256


@pytest.mark.parametrize(("tokens", "calls"), [(TRACE_TOKENS[0], 26), (TRACE_TOKENS[1], 71)])
def test_traces_of_the_paper(tokens: int, calls: int) -> None:
    made = trace(tokens)
    assert len(made) == calls
    assert sum(call.rows for call in made) == tokens
    assert (np.concatenate([call.lengths for call in made]) == np.arange(1, tokens + 1)).all()
    for call in made:
        assert call.lengths.dtype == np.int32
        assert call.lengths.shape == (call.rows,)
        assert call.lengths[-1] <= call.columns
        assert call.columns % 65_536 == 0 or call.columns == tokens
        assert call.rows * call.columns * 4 <= 6.25e9
    assert made[0].rows == int(6.25e9 / 4 / 65_536) == 23_841
    assert made[-1].columns == made[-1].lengths[-1] == tokens


def test_trace_bad_arguments() -> None:
    for arguments, match in (
        ({"tokens": 0}, "tokens is 0"),
        ({"tokens": 8, "step": 0}, "step is 0"),
        ({"tokens": 8, "budget_bytes": 31}, "budget_bytes is 31, must be at least 32"),
    ):
        with pytest.raises(ValueError, match=match):
            trace(**arguments)
    assert [call.rows for call in trace(8, budget_bytes=32)] == [1] * 8


def test_grids() -> None:
    assert len(set(OPERATOR_GRID)) == 20
    assert (512, 131_072) in OPERATOR_GRID
    assert (8192, 1_048_576) in OPERATOR_GRID
    assert len(set(DECODE_GRID)) == 9 * 9 * 3
    assert (1, 4096, 512) in DECODE_GRID
    assert (256, 1_048_576, 2048) in DECODE_GRID


def test_causal_lengths() -> None:
    lengths = causal_lengths(3, 10)
    assert lengths.dtype == np.int32
    assert lengths.tolist() == [8, 9, 10]
    assert causal_lengths(4, 2).tolist() == [0, 0, 1, 2]
