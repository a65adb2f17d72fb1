# SPDX-License-Identifier: Apache-2.0
"""The fuzzer: it finds nothing in the operator, and finds every fault that is planted."""

import re

import numpy as np
import pytest

from conftest import require_device
from reference import expected_row

pytest.importorskip("click", reason="click is not installed: the command is the extra hpctopk[cli]")
pytest.importorskip("rich", reason="rich is not installed: the command is the extra hpctopk[cli]")
from hpc import _topk, cli, fuzz
from hpc._fuzz_values import Draw

SEED = 20240229


@pytest.fixture
def command(capsys):
    """Run `hpc fuzz`: its exit code, stdout and stderr."""

    def command(*arguments):
        capsys.readouterr()
        code = cli.run(["fuzz", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def count(text, name):
    return int(re.search(rf"{name} +│ +([\d,]+)", text)[1].replace(",", ""))


def test_a_minute_on_the_cpu(command):
    code, out, err = command("--seconds", 60, "--seed", SEED)
    assert (code, err) == (0, f"seed {SEED}\n")
    assert count(out, "failures") == 0
    assert count(out, "cases") > 20
    assert count(out, "rows") > 200
    assert count(out, "cpu") == count(out, "cases")


def test_tensors_on_the_cpu():
    require_device("cpu")
    report = fuzz.run(fuzz.TorchArrays("cpu"), SEED, seconds=3)
    assert report.failures == []
    assert report.rows > 0


def test_a_case_without_memory_is_no_failure(command, monkeypatch):
    whole = fuzz.NumpyArrays.empty

    def empty(self, size, dtype):
        if size > 1 << 18:
            raise MemoryError
        return whole(self, size, dtype)

    monkeypatch.setattr(fuzz.NumpyArrays, "empty", empty)
    code, out, err = command("--seconds", 2, "--seed", SEED)
    assert code == 0, err
    assert count(out, "no memory for") > 0
    assert count(out, "failures") == 0
    assert count(out, "cases") > 0


def test_ten_thousand_rows_on_cuda(command):
    require_device("cuda")
    code, out, err = command("--rows", 10000, "--seed", SEED, "--device", "cuda")
    assert (code, err) == (0, f"seed {SEED}\n")
    assert count(out, "rows") >= 10000


def test_a_case_is_what_its_seed_and_number_say():
    cases = {}
    for limit in ({"rows": 20000}, {"case": 17}, {"case": 3}):
        fuzz.run(
            fuzz.NumpyArrays(),
            SEED,
            **limit,
            before=lambda number, case: cases.setdefault(number, set()).add(str(case)),
        )
    assert len(cases) > 17
    assert all(len(same) == 1 for same in cases.values())
    assert len(set.union(*cases.values())) == len(cases)


@pytest.mark.parametrize("make", fuzz.FAMILIES.values(), ids=fuzz.FAMILIES)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_a_family_fills_any_shape(make, kind):
    if kind == "torch":
        require_device("cpu")
    arrays = fuzz.TorchArrays("cpu") if kind == "torch" else fuzz.NumpyArrays()
    for rows, columns, k in [(3, 1, 1), (2, 9, 4), (4, 3001, 4096), (1, 20000, 2048)]:
        seen = []
        for _ in range(2):
            arrays.seed(4)
            scores = arrays.empty(rows * columns, arrays.xp.float32).reshape(rows, columns)
            scores[...] = make(Draw(arrays, np.random.default_rng(5), rows, columns, k))
            seen.append(arrays.host(scores).view(np.int32).copy())
        np.testing.assert_array_equal(*seen)


# The fault is planted in `_topk.topk_numpy`, the call under test. Each gets the real call and its arguments.


def rows_to_spoil(arguments):
    """The rows longer than k below num_rows."""
    scores, k, lengths = arguments["scores"], arguments["k"], arguments["lengths"]
    rows, columns = scores.shape
    live = rows if arguments["num_rows"] is None else min(max(int(arguments["num_rows"][0]), 0), rows)
    for row in range(live):
        start = 0 if arguments["row_starts"] is None else min(max(int(arguments["row_starts"][row]), 0), columns)
        left = columns - start
        length = left if lengths is None else min(max(int(lengths[row]), 0), left)
        if length > k:
            yield row, start, length


def break_a_tie(call, arguments):
    call(**arguments)
    for row, start, length in rows_to_spoil(arguments):
        scores, out = arguments["scores"][row, start : start + length], arguments["out"][row]
        for slot, column in enumerate(out):
            rivals = np.flatnonzero(scores == arguments["scores"][row, column]) + start
            rivals = rivals[~np.isin(rivals, out)]
            if rivals.size:
                out[slot] = rivals[-1]
                return


def miss_a_row(call, arguments):
    before = arguments["out"].copy()
    call(**arguments)
    for row, _, _ in rows_to_spoil(arguments):
        arguments["out"][row] = before[row]
        return


def miss_a_slot(call, arguments):
    before = arguments["out"].copy()
    call(**arguments)
    for row, _, _ in rows_to_spoil(arguments):
        arguments["out"][row, -1] = before[row, -1]
        return


def select_twice(call, arguments):
    call(**arguments)
    for row, _, _ in rows_to_spoil(arguments):
        arguments["out"][row, 0] = arguments["out"][row, -1]


def reverse_short_rows(call, arguments):
    call(**arguments)
    out = arguments["out"]
    long_rows = [row for row, _, _ in rows_to_spoil(arguments)]
    for row in range(out.shape[0] if arguments["num_rows"] is None else 0):
        if row not in long_rows:
            out[row] = out[row, ::-1].copy()


def write_a_guard(call, arguments):
    call(**arguments)
    arguments["out"].base[0] = 3


def write_padding(call, arguments):
    call(**arguments)
    out = arguments["out"]
    if out.strides[0] > out.itemsize * out.shape[1]:
        np.lib.stride_tricks.as_strided(out, (1, out.shape[1] + 1))[0, -1] = 3


def write_past_num_rows(call, arguments):
    call(**arguments | {"num_rows": None})


def write_the_workspace_guard(call, arguments):
    call(**arguments)
    arguments["workspace"].base[-1] ^= 1


def ignore_lengths(call, arguments):
    call(**arguments | {"lengths": None})


def ignore_row_starts(call, arguments):
    call(**arguments | {"row_starts": None})


def change_scores(call, arguments):
    call(**arguments)
    if arguments["scores"].size:
        arguments["scores"].view(np.int32)[-1, -1] ^= 1


def change_lengths(call, arguments):
    call(**arguments)
    if arguments["lengths"] is not None:
        arguments["lengths"][:1] += 1


def forget_signs_of_zero(call, arguments):
    scores = arguments["scores"]
    bits = scores.view(np.int32)
    call(**arguments | {"scores": np.where(bits == np.iinfo(np.int32).min, np.float32(-1e-45), scores)})


def forget_nan(call, arguments):
    scores = arguments["scores"]
    call(**arguments | {"scores": np.where(np.isnan(scores), np.float32(np.inf), scores)})


remembered = {"out": None, "scores": None}


def remember_the_first_scores(call, arguments):
    if remembered["out"] is not arguments["out"]:
        remembered.update(out=arguments["out"], scores=arguments["scores"].copy())
    call(**arguments | {"scores": remembered["scores"]})


def refuse(call, arguments):
    raise ValueError("k = 3: must be\nsomething else")


FAULTS = {
    break_a_tie: r"row \d+ selects not \[\d+\] but \[\d+\] \(family ",
    miss_a_row: rf"row \d+ selects not .* but \[{fuzz.POISON}\]",
    miss_a_slot: rf"row \d+ selects not \[\d+\] but \[{fuzz.POISON}\]",
    select_twice: r"row \d+ selects not \[\d+\] but \[\]",
    reverse_short_rows: r"row \d+ selects what it should, but in a wrong order",
    write_a_guard: r"writes out\[-\d+, \d+\], which is none of ",
    write_padding: r"writes out\[0, \d+\], which is none of ",
    write_past_num_rows: r"writes out\[\d+, 0\], which is none of ",
    write_the_workspace_guard: r"writes byte \d+ of a workspace of \d+",
    ignore_lengths: r"row \d+ selects not ",
    ignore_row_starts: r"row \d+ selects not ",
    change_scores: r"writes scores, element \d+ of its buffer",
    change_lengths: r"writes lengths, element 0 of its buffer",
    forget_signs_of_zero: r"row \d+ selects not ",
    forget_nan: r"row \d+ selects not ",
    remember_the_first_scores: r"row \d+ selects not .* in the second call",
    refuse: r"raises ValueError: k = 3: must be something else",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_it_catches(fault, command, monkeypatch):
    call = _topk.topk_numpy
    monkeypatch.setattr(fuzz, "MAX_FAILURES", 3)
    monkeypatch.setattr(
        _topk,
        "topk_numpy",
        lambda scores, k, lengths, **options: fault(call, {"scores": scores, "k": k, "lengths": lengths, **options}),
    )
    code, out, err = command("--seconds", 120, "--seed", SEED)
    assert code == 1
    lines = err.splitlines()[1:]
    assert count(out, "failures") == len(lines) == 3
    for line in lines:
        assert re.match(rf"hpc: error: case \d+: {FAULTS[fault]}", line)
    # Each line ends with the command that fails in the same way, and passes where nothing is planted.
    replay = re.search(rf": hpc fuzz( --seed {SEED} --case \d+)$", lines[0])[1].split()
    assert command(*replay)[0::2] == (1, "\n".join([f"seed {SEED}", lines[0], ""]))
    monkeypatch.undo()
    assert command(*replay)[0::2] == (0, f"seed {SEED}\n")


@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_the_reference_itself(kind):
    if kind == "torch":
        require_device("cpu")
    arrays = fuzz.TorchArrays("cpu") if kind == "torch" else fuzz.NumpyArrays()
    rng = np.random.default_rng(6)
    special = np.array([0, -0.0, np.nan, -np.nan, np.inf, -np.inf, 1e-45, -1e-45, 1, -1], np.float32)
    scores = rng.choice(special, (200, 30))
    start = rng.integers(0, 31, 200)
    length = rng.integers(0, 31 - start)
    column = np.arange(30)
    inside = (column >= start[:, None]) & (column < (start + length)[:, None])
    for k in (1, 5, 29, 30, 31):
        best = arrays.host(arrays.best_first(arrays.array(scores), arrays.array(inside), k))
        assert best.shape == (200, min(k, 30))
        for row in range(200):
            want = expected_row(scores[row], k, start[row], length[row])
            valid = min(k, length[row])
            np.testing.assert_array_equal(np.sort(best[row, :valid]), want[:valid])


def test_a_run_ends_with_a_lost_device(command, monkeypatch):
    def lose(*arguments, **options):
        raise RuntimeError("CUDA error:\nan illegal memory access was encountered")

    monkeypatch.setattr(_topk, "topk_numpy", lose)
    code, out, err = command("--seed", SEED)
    assert code == 1
    assert count(out, "cases") == 1
    assert "case 0: raises RuntimeError: CUDA error: an illegal memory access was encountered: kernel " in err


def test_verbose_names_each_case_before_it_runs(command):
    code, _, err = command("--seed", SEED, "--rows", 1, "--verbose")
    assert code == 0
    assert re.match(rf"seed {SEED}\ncase 0: kernel \w+.*, \d+ x \d+, row stride \d+", err)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--rows", 0), "--rows = 0: must be at least 1"),
        (("--seed", -1), "--seed = -1: must be at least 0"),
        (("--seed", 1, "--case", -1), "--case = -1: must be at least 0"),
        (("--case", 3), "--case = 3: must come with --seed"),
        (("--seconds", 0), "--seconds = 0: must be positive and finite"),
        (("--seconds", "nan"), "--seconds = nan: must be positive and finite"),
        (("--seconds", "inf"), "--seconds = inf: must be positive and finite"),
        (("--device", "tpu"), "Invalid value for '--device': 'tpu' is not one of 'cpu', 'cuda'."),
        (("--seed", "x"), "Invalid value for '--seed': 'x' is not a valid integer."),
    ],
)
def test_bad_arguments(command, arguments, message):
    assert command(*arguments) == (2, "", f"hpc: error: {message}\n")


def test_cuda_without_a_device(command):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    code, out, err = command("--device", "cuda")
    assert (code, out) == (2, "")
    assert err.startswith("hpc: error: --device = cuda: must be cpu: ")
