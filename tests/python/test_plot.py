# SPDX-License-Identifier: Apache-2.0
"""What the picture shows of ordinary and of degenerate rows."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="matplotlib is not installed")

from hpc._plot import draw, figure


def parts(scores, k):
    """Upper axes, its legend, its note and the colour bar's axes, of the k largest scores of one row."""
    scores = np.asarray(scores, np.float32)
    keys = np.where(np.isnan(scores), np.inf, scores)
    selected = np.argsort(-keys, kind="stable")[:k].astype(np.int32)
    drawn = figure(scores=scores, row=3, selected=selected[None], rows=[3])
    drawn.canvas.draw()
    above, _, bar = drawn.axes
    return above, [text.get_text() for text in above.get_legend().get_texts()], above.get_title("right"), bar


def dashed(axes):
    return [line for line in axes.lines if line.get_linestyle() == "--"]


def test_a_few_low_scores_do_not_flatten_the_selected():
    scores = np.linspace(-1, 1, 4096)
    scores[::256] = -1000
    above, legend, note, _ = parts(scores, 512)
    low, high = above.get_ylim()
    boundary = np.sort(scores)[-512]
    assert legend[-1] == f"boundary {boundary:.4g}"
    assert note == "lower scores not shown"
    assert low < boundary < 1 < high
    assert (1 - boundary) / (high - low) > 0.35


def test_every_score_is_shown_where_there_is_room():
    above, _, note, _ = parts(np.linspace(0, 1, 4096), 2048)
    low, high = above.get_ylim()
    assert low < 0 < 1 < high
    assert note == ""


@pytest.mark.parametrize("value", [0.0, 2.5, -3e38])
def test_a_constant_row(value):
    above, legend, note, _ = parts(np.full(1000, value), 100)
    low, high = above.get_ylim()
    assert low < np.float32(value) < high
    assert legend == ["scores", "selected", f"boundary {value:.4g}"]
    assert note == ""
    assert len(dashed(above)) == 1


@pytest.mark.parametrize(
    ("scores", "boundary", "hidden"),
    [
        ([1.0, 2.0] + [-np.inf] * 98, "-inf", 8),
        ([-np.inf] * 100, "-inf", 10),
        ([np.inf] * 100, "inf", 10),
        ([np.nan] * 100, "nan", 10),
    ],
)
def test_a_boundary_that_is_not_finite(scores, boundary, hidden):
    above, legend, note, _ = parts(scores, 10)
    assert legend[-1] == f"boundary {boundary}"
    assert note == f"{hidden} of the selected are not finite: not shown"
    assert not dashed(above)
    assert np.isfinite(above.get_ylim()).all()


def test_nan_does_not_hide_the_boundary():
    above, legend, _, _ = parts([np.nan, np.inf, 3.0, 2.0, 1.0], 3)
    assert legend[-1] == "boundary 3"
    assert len(dashed(above)) == 1


@pytest.mark.parametrize("k", [1, 20, 400, 4096])
def test_no_two_ticks_of_the_colour_bar_read_the_same(k):
    *_, bar = parts(np.random.default_rng(k).standard_normal(1 << 20), k)
    low, high = bar.get_ylim()
    ticks = [t.get_text() for t, y in zip(bar.get_yticklabels(), bar.get_yticks(), strict=True) if low <= y <= high]
    assert len(ticks) > 2
    assert len(ticks) == len(set(ticks))
    assert bar.get_ylabel() == "selected, % of 4,096 positions"


def test_nothing_selected(tmp_path):
    draw(tmp_path / "a.svg", scores=np.ones(10, np.float32), row=0, selected=np.full((1, 4), -1, np.int32), rows=[0])
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
