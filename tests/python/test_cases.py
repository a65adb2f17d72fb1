# SPDX-License-Identifier: Apache-2.0
"""Inputs that broke other top-k operators. Each is made small here: what matters is the kind of its values."""

from collections.abc import Callable
from functools import lru_cache, partial

import numpy as np
import pytest

from reference import POISON, canonical, expected, poisoned_buffer

CASES: dict[str, Callable[[], tuple]] = {}


def case(name, *variants):
    """Register a function that makes (scores, k[, lengths]) once for each variant of its arguments."""

    def register(make):
        for variant in variants or ((),):
            arguments = variant if isinstance(variant, tuple) else (variant,)
            CASES["-".join([name, *map(str, arguments)])] = partial(make, np.random.default_rng(17), *arguments)
        return make

    return register


def bits(pattern):
    return np.asarray(pattern, np.uint32).view(np.float32)


# Many values in one coarse bin, candidate buffers that overflow.


@case("one_bin", *[(n, k) for n in (16384, 16385, 16512) for k in (512, 1024, 2048)])
def one_bin(rng, n, k):
    return rng.uniform(1.0, 1.245, (5, n)).astype(np.float32), k


@case(
    "boundary_bin_population",
    *[
        (n, cap + d)
        for cap in (2048, 4096, 8192, 16384)
        for d in (-1, 0, 1, cap)
        for n in (32768, 131072)
        if cap + d < n
    ],
)
def boundary_bin_population(rng, n, population):
    scores = rng.uniform(-1, 0, (1, n)).astype(np.float32)
    where = rng.permutation(n)[: population + 100]
    scores[0, where[:100]] = 3
    scores[0, where[100:]] = bits(0x3F900000 | rng.integers(0, 1 << 12, population))
    return scores, 2048


@case("normal", (4, 65536), (2, 262144), (1, 1048576))
def normal(rng, m, n):
    return rng.standard_normal((m, n), dtype=np.float32), 2048


@case("uniform", (4, 65536), (2, 262144), (1, 1048576))
def uniform(rng, m, n):
    return rng.random((m, n), dtype=np.float32), 2048


@case("half_in_one_bin", (30938, 16000), (65504, 34000))
def half_in_one_bin(rng, n, population):
    scores = rng.standard_normal((2, n), dtype=np.float32)
    scores[:, rng.permutation(n)[:population]] = bits(0x40400000 | rng.integers(0, 1 << 8, population))
    return scores, 512


@case("ascending", 16384, 16448, 131072)
def ascending(rng, n):
    return np.arange(n, dtype=np.float32)[None].repeat(2, 0), 2048


@case("descending", 16384, 16448, 131072)
def descending(rng, n):
    return -np.arange(n, dtype=np.float32)[None].repeat(2, 0), 2048


@case("same_top_16_bits", (8192, 4000), (131072, 60000))
def same_top_16_bits(rng, n, population):
    scores = rng.uniform(-1, 0, (2, n)).astype(np.float32)
    scores[:, :population] = bits(0x41230000 | rng.permutation(1 << 16)[:population])
    return scores, 2048


@case("low_10_bits", 4096, 50000)
def low_10_bits(rng, n):
    return bits(0x3F900000 | rng.integers(0, 1 << 10, (3, n))), 2048


# Ties and plateaus.


@case("few_positives", (8320, 100), (4096, 3), (131072, 3))
def few_positives(rng, n, positives):
    scores = np.zeros((3, n), np.float32)
    for row in scores:
        row[rng.permutation(n)[:positives]] = rng.uniform(0.5, 2, positives)
    return scores, 2048


@case("tie_group_larger_than_k", 6000, 70000)
def tie_group_larger_than_k(rng, n):
    scores = rng.uniform(-1, 0, (2, n)).astype(np.float32)
    where = rng.permutation(n)
    scores[:, where[:500]] = rng.uniform(2, 3, 500)
    scores[:, where[500:5500]] = 1.25
    return scores, 2048


@case("all_equal", *[(n, k) for n in (2048, 2049, 32768, 1048576) for k in (512, 2048)])
def all_equal(rng, n, k):
    return np.full((1, n), 0.75, np.float32), k


@case("repeated_4_times", 8192, 99999)
def repeated_4_times(rng, n):
    return rng.permutation(n).astype(np.float32)[None].repeat(4, 1)[:, :n], 2046


@case("quantised", 40000)
def quantised(rng, n):
    return (rng.standard_normal((4, n)).round(1)).astype(np.float32), 2048


@case("periodic", *[(n, period) for n in (65536, 262144) for period in (32, 64, 128, 256)])
def periodic(rng, n, period):
    scores = rng.uniform(0, 1, (2, n)).astype(np.float32)
    scores[:, ::period] += 5
    return scores, 2048


@case("spans", 131072)
def spans(rng, n):
    scores = rng.standard_normal((2, n), dtype=np.float32)
    for begin in rng.integers(0, n - 700, 3):
        scores[:, begin : begin + 700] += 20
    return scores, 2048


# Infinities, NaN, zeros.


@case("mostly_minus_infinity", (2045, 600, 1024), (51, 3, 16), (70000, 600, 2048))
def mostly_minus_infinity(rng, n, finite, k):
    scores = np.full((4, n), -np.inf, np.float32)
    for row in scores:
        row[rng.permutation(n)[:finite]] = rng.standard_normal(finite)
    return scores, k


@case("one_plus_infinity", 32768)
def one_plus_infinity(rng, n):
    scores = rng.standard_normal((4, n), dtype=np.float32)
    scores[:, 12345] = np.inf
    return scores, 1024


@case("infinite", np.inf, -np.inf)
def infinite(rng, value):
    return np.full((2, 32768), value, np.float32), 1024


@case("beyond_fp16", 50001)
def beyond_fp16(rng, n):
    return (-65504 - 1e6 * rng.random((5, n))).astype(np.float32), 2048


@case("nan", 0.5, 0.83, 1.0)
def nan(rng, share):
    scores = rng.standard_normal((20, 1243), dtype=np.float32)
    mask = rng.random(scores.shape) < share
    scores[mask] = bits(0x7FC00000 | (rng.integers(0, 2, mask.sum()) << 31) | rng.integers(0, 1 << 22, mask.sum()))
    return scores, 512


@case("one_nan", 0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF)
def one_nan(rng, pattern):
    scores = rng.standard_normal((2, 40000), dtype=np.float32)
    scores[:, 39998:39999] = bits([pattern])
    return scores, 7


@case("signed_zeros")
def signed_zeros(rng):
    scores = np.where(rng.random((3, 9000)) < 0.5, np.float32(0), np.float32(-0.0))
    scores[:, ::17] = rng.standard_normal((3, scores[:, ::17].shape[1]))
    return scores, 1000


@case("denormal")
def denormal(rng):
    return bits(rng.integers(0, 5000, (3, 20000)) | (rng.integers(0, 2, (3, 20000)) << 31)), 2048


@case("extremes")
def extremes(rng):
    limit = np.finfo(np.float32).max
    return rng.choice(np.array([limit, -limit, 0, 1, np.inf, -np.inf], np.float32), (3, 30000)), 2048


# Lengths, windows, strides.


@case("odd_lengths")
def odd_lengths(rng):
    scores = rng.standard_normal((8, 9000), dtype=np.float32)
    return scores, 1024, np.array([0, -5, 9001, 1 << 30, -(1 << 31), 1023, 1024, 1025], np.int32)


@case("short_beside_long")
def short_beside_long(rng):
    scores = rng.standard_normal((400, 3000), dtype=np.float32)
    return scores, 64, np.where(np.arange(400) % 2 == 0, 65, 3000).astype(np.int32)


@case("wide_but_short")
def wide_but_short(rng):
    return rng.standard_normal((8, 131072), dtype=np.float32), 2048, np.full(8, 4096, np.int32)


@case("narrower_than_k", 64)
def narrower_than_k(rng, n):
    return rng.standard_normal((3, n), dtype=np.float32), 2048


@case("strided", (900000, 900096))
def strided(rng, n, stride):
    return rng.standard_normal((1, stride), dtype=np.float32).repeat(2, 0)[:, :n], 2048


@case("shifted_base", *[(shift, n) for shift in (0, 1, 2, 3) for n in (8193, 8194, 8195)])
def shifted_base(rng, shift, n):
    buffer = rng.standard_normal(shift + 3 * (n + 2), dtype=np.float32)
    return buffer[shift:].reshape(3, n + 2)[:, :n], 512


@lru_cache(maxsize=1)
def built(name):
    scores, k, *lengths = CASES[name]()
    lengths = lengths[0] if lengths else None
    return scores, k, lengths, expected(scores, k, lengths)


# By case first, so that each is made and sorted once for all the back ends.
def pytest_generate_tests(metafunc):
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", CASES, scope="module")


def test_case(name, select):
    scores, k, lengths, want = built(name)
    buffer = poisoned_buffer(scores.shape[0], k)
    select(scores, k, lengths, out=buffer[:, :k])
    np.testing.assert_array_equal(canonical(buffer[:, :k], scores, lengths), want)
    assert (buffer[:, k:] == POISON).all()


def test_offsets_past_two_to_the_32_bytes(select, request):
    if "cuda" in request.node.name:
        pytest.skip("the rows between would fill GPU memory; the GPU suite has its own")
    buffer = np.empty((3, 1 << 30), np.float32)  # 12 GiB of addresses, of which a few pages are touched
    scores = buffer[:, :5000]
    scores[:] = np.random.default_rng(3).standard_normal((3, 5000), dtype=np.float32)
    np.testing.assert_array_equal(canonical(select(scores, 700), scores), expected(scores, 700))


def test_a_boundary_tie_is_decided_the_same_every_time(select):
    scores = np.random.default_rng(4).integers(0, 40, (2, 60_000)).astype(np.float32)
    want = expected(scores, 2048)
    for _ in range(50):
        np.testing.assert_array_equal(canonical(select(scores, 2048), scores), want)


def test_a_row_does_not_depend_on_its_neighbours(select):
    scores = np.random.default_rng(5).integers(0, 300, (33, 20_000)).astype(np.float32)
    whole = canonical(select(scores, 512), scores)
    for r in (0, 16, 32):
        np.testing.assert_array_equal(canonical(select(scores[r : r + 1], 512), scores[r : r + 1])[0], whole[r])
