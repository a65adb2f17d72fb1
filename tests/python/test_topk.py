# SPDX-License-Identifier: Apache-2.0
"""What hpc.topk gives, on numpy arrays and on torch tensors of every device here."""

import threading

import numpy as np
import pytest

import hpc
from reference import GUARD, POISON, canonical, expected, poisoned_buffer


def check(select, scores, k, lengths=None, row_starts=None, **options):
    """Both forms of the call against the reference, with a poisoned output whose guard columns must stay."""
    want = expected(scores, k, lengths, row_starts)
    got = select(scores, k, lengths, row_starts=row_starts, **options)
    assert got.shape == (scores.shape[0], k)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(canonical(got, scores, lengths, row_starts), want)
    buffer = poisoned_buffer(scores.shape[0], k)
    select(scores, k, lengths, row_starts=row_starts, out=buffer[:, :k], **options)
    np.testing.assert_array_equal(canonical(buffer[:, :k], scores, lengths, row_starts), want)
    assert (buffer[:, k:] == POISON).all()


@pytest.mark.parametrize("seed", range(24))
def test_random_shapes_windows_and_strides(select, seed):
    rng = np.random.default_rng(seed)
    rows, columns = int(rng.integers(1, 9)), int(rng.integers(1, [40, 700, 9000][seed % 3]))
    k = int(rng.integers(1, columns + 2))
    shift, gap = int(rng.integers(0, 4)), int(rng.integers(0, 9))
    buffer = rng.standard_normal(shift + rows * (columns + gap), dtype=np.float32).round(int(rng.integers(0, 4)))
    scores = buffer[shift:].reshape(rows, columns + gap)[:, :columns]
    lengths = rng.integers(-2, columns + 3, rows, dtype=np.int32) if seed % 4 else None
    starts = rng.integers(-2, columns + 3, rows, dtype=np.int32) if seed % 2 else None
    check(select, scores, min(k, 4096), lengths, starts)


@pytest.mark.parametrize("k", [1, 7, 705, 1000, 2047, 2048, 4096])
def test_every_k(select, k):
    scores = np.random.default_rng(k).standard_normal((3, 10_007), dtype=np.float32)
    check(select, scores, k)


def test_more_asked_than_there_is(select):
    scores = np.random.default_rng(1).standard_normal((2, 5), dtype=np.float32)
    np.testing.assert_array_equal(select(scores, 8), [[0, 1, 2, 3, 4, -1, -1, -1]] * 2)
    np.testing.assert_array_equal(select(scores, 5), [[0, 1, 2, 3, 4]] * 2)


@pytest.mark.parametrize(("rows", "columns"), [(0, 16), (3, 0), (0, 0)])
def test_nothing_to_select_from(select, rows, columns):
    got = select(np.zeros((rows, columns), np.float32), 4)
    np.testing.assert_array_equal(got, np.full((rows, 4), -1))


def test_out_is_returned_and_takes_any_workspace():
    scores = np.random.default_rng(2).standard_normal((4, 3000), dtype=np.float32)
    out = np.empty((4, 100), np.int32)
    workspace = np.full(hpc.workspace_size(4, 3000, 100, device="cpu") + 32, 255, np.uint8)
    assert hpc.topk(scores, 100, out=out, workspace=workspace) is out
    np.testing.assert_array_equal(canonical(out, scores), expected(scores, 100))


@pytest.mark.parametrize("count", [-1, 0, 1, 4, 9])
def test_rows_past_num_rows_are_not_touched(select, count):
    scores = np.random.default_rng(3).standard_normal((4, 600), dtype=np.float32)
    num_rows = np.array([count], np.int32)
    live = min(max(count, 0), 4)
    want = expected(scores, 50)
    want[live:] = -1
    got = select(scores, 50, num_rows=num_rows)
    np.testing.assert_array_equal(canonical(got, scores), want)
    buffer = poisoned_buffer(4, 50)
    select(scores, 50, num_rows=num_rows, out=buffer[:, :50])
    np.testing.assert_array_equal(canonical(buffer[:live, :50], scores[:live]), want[:live])
    assert (buffer[live:] == POISON).all()
    assert (buffer[:, -GUARD:] == POISON).all()


def test_inputs_are_only_read(select):
    scores = np.random.default_rng(4).standard_normal((2, 5000), dtype=np.float32)
    lengths = np.array([5000, 4000], np.int32)
    copies = scores.copy(), lengths.copy()
    select(scores, 64, lengths)
    np.testing.assert_array_equal(scores, copies[0])
    np.testing.assert_array_equal(lengths, copies[1])


def test_read_only_and_memory_mapped_scores(tmp_path):
    scores = np.random.default_rng(5).standard_normal((3, 4000), dtype=np.float32)
    np.save(tmp_path / "scores.npy", scores)
    mapped = np.load(tmp_path / "scores.npy", mmap_mode="r")
    np.testing.assert_array_equal(canonical(hpc.topk(mapped, 99), scores), expected(scores, 99))


def test_calls_from_several_threads():
    rng = np.random.default_rng(6)
    inputs = [rng.standard_normal((8, 20_000), dtype=np.float32) for _ in range(4)]
    results: list[np.ndarray | None] = [None] * len(inputs)

    def work(i):
        for _ in range(5):
            results[i] = hpc.topk(inputs[i], 512)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(inputs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for scores, got in zip(inputs, results, strict=True):
        np.testing.assert_array_equal(canonical(got, scores), expected(scores, 512))


def test_number_of_threads_changes_nothing():
    from hpc._topk import topk_numpy

    scores = np.random.default_rng(7).standard_normal((2, 200_000), dtype=np.float32).round(2)
    want = expected(scores, 2048)
    for threads in (1, 2, 3, 8):
        columns, statistics = topk_numpy(scores, 2048, num_threads=threads)
        np.testing.assert_array_equal(canonical(columns, scores), want)
        assert statistics.rows == 2
        assert statistics.candidates >= 2 * 2048
        assert statistics.scores_read >= scores.size


def test_statistics_leave_out_rows_that_need_no_selection():
    from hpc._topk import topk_numpy

    scores = np.random.default_rng(8).standard_normal((3, 500), dtype=np.float32)
    _, statistics = topk_numpy(scores, 100, np.array([100, 101, 0], np.int32))
    assert statistics.rows == 1
