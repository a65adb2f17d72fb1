# SPDX-License-Identifier: Apache-2.0
"""The command, as a user runs it: what it prints, its exit code, and what it writes."""

import io
import os
import re
import resource
import subprocess
import sys
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest

from conftest import require_device
from reference import canonical, expected

pytest.importorskip("click", reason="click is not installed: the command is the extra hpctopk[cli]")
pytest.importorskip("rich", reason="rich is not installed: the command is the extra hpctopk[cli]")
from hpc import cli
from hpc._verify import is_exact

ROWS, COLUMNS = 5, 3000


@pytest.fixture
def scores():
    return np.random.default_rng(0).standard_normal((ROWS, COLUMNS), dtype=np.float32)


@pytest.fixture
def folder(tmp_path, scores, monkeypatch):
    """A folder with the files that the tests name, and the current one."""
    monkeypatch.chdir(tmp_path)
    np.save("scores.npy", scores)
    np.savez("one.npz", scores=scores)
    np.savez("two.npz", a=scores, b=scores[:, :100])
    np.save("lengths.npy", np.array([COLUMNS, 100, 0, 2500, 64]))
    np.save("starts.npy", np.array([0, 7, 3000, 500, 10], np.int32))
    np.save("double.npy", scores.astype(np.float64))
    np.save("row.npy", scores[0])
    return tmp_path


@pytest.fixture
def run(folder, capsys):
    """Run the command: its exit code, stdout and stderr."""

    def run(*arguments):
        capsys.readouterr()
        code = cli.run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def field(text, name):
    """What the summary says beside `name`."""
    return re.search(rf"{re.escape(name)} +│ +(.*?) +│", text)[1]


def test_the_summary(run):
    code, out, err = run("select", "scores.npy", "--k", 64, "--verify")
    assert (code, err) == (0, "")
    assert field(out, "rows x columns") == "5 x 3,000"
    assert field(out, "k") == "64"
    assert field(out, "device") == "cpu"
    assert field(out, "plan") == "cpu kernel, 5 rows a call"
    assert field(out, "exact") == "yes"
    assert field(out, "rows longer than k") == "5"
    assert float(field(out, "candidates per row")) >= 64
    assert float(field(out, "scores read / valid")) >= 1
    for name in ("rows/s", "GB/s of valid scores", "rows rescued", "rows recovered", "buffers tightened"):
        assert re.fullmatch(r"[\d,.]+", field(out, name))
    assert field(run("select", "scores.npy", "--k", 64)[1], "exact") == "not verified (--verify)"


@pytest.mark.parametrize("arguments", [("scores.npy",), ("one.npz",), ("two.npz", "--array", "a")])
def test_the_positions_it_writes(run, folder, scores, arguments):
    code, out, _ = run("select", *arguments, "--k", 50, "--out", "positions.npy")
    assert code == 0
    assert "wrote positions.npy" in out
    positions = np.load("positions.npy")
    assert positions.dtype == np.int32
    np.testing.assert_array_equal(canonical(positions, scores), expected(scores, 50))


def test_safetensors(run, scores):
    numpy = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    numpy.save_file({"a": scores, "b": scores[:2], "h": scores.astype(np.float16)}, "scores.safetensors")
    code, _, _ = run("select", "scores.safetensors", "--tensor", "b", "--k", 50, "--out", "positions.npy", "--verify")
    assert code == 0
    np.testing.assert_array_equal(canonical(np.load("positions.npy"), scores[:2]), expected(scores[:2], 50))
    for arguments, message in [
        ((), "--tensor = None: must be one of a, b, h, what scores.safetensors holds"),
        (("--tensor", "z"), "--tensor = z: must be one of a, b, h, what scores.safetensors holds"),
        (("--tensor", "h"), "FILE.dtype = float16: must be float32"),
    ]:
        assert run("select", "scores.safetensors", *arguments) == (2, "", f"hpc: error: {message}\n")


def test_lengths_and_row_starts(run, scores):
    run("select", "scores.npy", "--k", 64, "--lengths", "lengths.npy", "--out", "a.npy", "--verify")
    lengths = np.array([COLUMNS, 100, 0, 2500, 64], np.int32)
    np.testing.assert_array_equal(canonical(np.load("a.npy"), scores, lengths), expected(scores, 64, lengths))
    code, out, _ = run(
        "select", "scores.npy", "--k", 64, "--row-starts", "starts.npy", "--out", "b.npy", "--verify", "--threads", 1
    )
    assert code == 0
    assert field(out, "rows longer than k") == "4"
    starts = np.array([0, 7, 3000, 500, 10], np.int32)
    np.testing.assert_array_equal(canonical(np.load("b.npy"), scores, None, starts), expected(scores, 64, None, starts))


def test_many_batches(run, scores, monkeypatch):
    monkeypatch.setattr(cli, "_BATCH_BYTES", 2 * 4 * COLUMNS)
    code, out, _ = run("select", "scores.npy", "--k", 64, "--lengths", "lengths.npy", "--out", "a.npy", "--verify")
    assert code == 0
    assert field(out, "plan") == "cpu kernel, 2 rows a call"
    assert field(out, "rows longer than k") == "3"
    lengths = np.array([COLUMNS, 100, 0, 2500, 64], np.int32)
    np.testing.assert_array_equal(canonical(np.load("a.npy"), scores, lengths), expected(scores, 64, lengths))


def test_a_matrix_without_scores(run):
    for shape in ((0, 10), (3, 0)):
        np.save("empty.npy", np.zeros(shape, np.float32))
        code, _, err = run("select", "empty.npy", "--k", 4, "--verify", "--out", "positions.npy")
        assert (code, err) == (0, "")
        np.testing.assert_array_equal(np.load("positions.npy"), np.full((shape[0], 4), -1))


def test_the_picture(run, folder):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed")
    code, out, _ = run("select", "scores.npy", "--k", 64, "--plot", "scores.png")
    assert code == 0
    assert "wrote scores.png" in out
    assert (folder / "scores.png").read_bytes().startswith(b"\x89PNG")


def test_on_cuda(run, scores):
    require_device("cuda")
    code, out, err = run("select", "scores.npy", "--k", 64, "--device", "cuda", "--verify", "--out", "positions.npy")
    assert (code, err) == (0, "")
    assert field(out, "device") == "cuda"
    assert field(out, "exact") == "yes"
    assert field(out, "rows longer than k") == "5"
    np.testing.assert_array_equal(canonical(np.load("positions.npy"), scores), expected(scores, 64))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["missing.npy"], "FILE = missing.npy: must be a file, and there is none of that name"),
        (["scores.txt"], "FILE = scores.txt: must end in .npy, .npz, .safetensors"),
        (["double.npy"], "FILE.dtype = float64: must be float32"),
        (["row.npy"], "FILE.ndim = 1: must be 2, [rows, columns]"),
        (["two.npz"], "--array = None: must be one of a, b, what two.npz holds"),
        (["two.npz", "--array", "c"], "--array = c: must be one of a, b, what two.npz holds"),
        (["broken.npy"], "FILE = broken.npy: must be a readable npy file: "),
        (["broken.npz"], "FILE = broken.npz: must be a readable npz file: "),
        (["broken.safetensors"], "FILE = broken.safetensors: must be a readable safetensors file: "),
        (["scores.npy", "--k", "0"], "k = 0: must be between 1 and 4096"),
        (["scores.npy", "--k", "4097"], "k = 4097: must be between 1 and 4096"),
        (["scores.npy", "--k", "many"], "Invalid value for '--k': 'many' is not a valid integer."),
        (["scores.npy", "--lengths", "none.npy"], "--lengths = none.npy: must be a file, and there is none"),
        (["scores.npy", "--lengths", "double.npy"], "--lengths.dtype = float64: must be int32 or int64"),
        (["scores.npy", "--lengths", "four.npy"], "--lengths.shape = [4]: must be [5], one for each row of FILE"),
        (["scores.npy", "--lengths", "long.npy"], "--lengths[3] = 3001: must be between 0 and 3000"),
        (["scores.npy", "--lengths", "negative.npy"], "--lengths[1] = -1: must be between 0 and 3000"),
        (
            ["scores.npy", "--lengths", "lengths.npy", "--row-starts", "starts.npy"],
            "--lengths[3] = 2501: must be between 0 and 2500",
        ),
        (["scores.npy", "--row-starts", "long.npy"], "--row-starts[3] = 3001: must be between 0 and 3000"),
        (["scores.npy", "--kernel", "row_local"], "kernel = row_local: "),
        (["scores.npy", "--kernel", "fast"], "Invalid value for '--kernel': 'fast' is not one of"),
        (["scores.npy", "--device", "tpu"], "Invalid value for '--device': 'tpu' is not one of"),
        (["scores.npy", "--k", "99999999999999999999"], "k = 99999999999999999999: must be between 1 and 4096"),
        (["scores.npy", "--threads", "-1"], "Invalid value for '--threads': -1 is not in the range 0<=x<=2147483647"),
        (
            ["scores.npy", "--threads", "99999999999"],
            "Invalid value for '--threads': 99999999999 is not in the range 0<=x<=2147483647",
        ),
        (["scores.npy", "--array", "a"], "--array = a: must come with a .npz file, and FILE is scores.npy"),
        (["one.npz", "--tensor", "a"], "--tensor = a: must come with a .safetensors file, and FILE is one.npz"),
        (["scores.npy", "--lengths", "two.npz"], "--lengths = two.npz: must hold one array, and holds a, b\n"),
        ([f"{'a' * 300}.npy"], f"FILE = {'a' * 300}.npy: must be a readable npy file: [Errno 36] File name too long"),
        (["scores.npy", "--plot", f"{'a' * 300}.png"], f"--plot = {'a' * 300}.png: must be in a folder that exists"),
        (["rows.npy", "--k", "1"], "FILE.shape = [2000000000000, 0]: must have at most "),
        (["scores.npy", "--plot", "scores.txt"], "--plot = scores.txt: must end in .png, .pdf, .svg"),
        (["scores.npy", "--plot", "none/a.png"], "--plot = none/a.png: must be in a folder that exists"),
        (["empty.npy", "--plot", "a.png"], "--plot = a.png: FILE must hold scores to draw, and is [0, 10]"),
        ([], "Missing argument 'FILE'."),
        (["scores.npy", "--fast"], "No such option"),
    ],
)
def test_what_is_refused(run, folder, arguments, message):
    for name in ("broken.npy", "broken.npz", "broken.safetensors"):
        (folder / name).write_bytes(b"not that")
    np.save("four.npy", np.zeros(4, np.int32))
    np.save("long.npy", np.array([0, 0, 0, 3001, 0]))
    np.save("negative.npy", np.array([0, -1, 0, 0, 0]))
    np.save("empty.npy", np.zeros((0, 10), np.float32))
    (folder / "rows.npy").write_bytes(npy((2_000_000_000_000, 0)))
    if message.startswith("--lengths[3] = 2501"):
        np.save("lengths.npy", np.array([0, 0, 0, 2501, 0]))
    before = sorted(folder.iterdir())
    code, out, err = run("select", *arguments, "--out", "positions.npy")
    assert code == 2
    assert out == ""
    assert err.startswith(f"hpc: error: {message}")
    assert err.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def npy(shape, descr="<f4", data=b""):
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + data


def zipped(content, **member):
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w") as archive:
        archive.writestr("scores.npy", content)
    data = bytearray(memory.getvalue())
    for field, value in member.items():  # in the local and the central header
        local, central = {"flags": (6, 8), "compression": (8, 10)}[field]
        start = data.index(b"PK\x01\x02")
        data[local], data[start + central] = value, value
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.npy", zipped(npy((1, 1), data=b"1234")), "it holds a zip archive"),
        ("a.npz", npy((1, 1), data=b"1234"), "it holds one array"),
        ("a.npz", zipped(b"only text"), "scores is not an array"),
        ("a.npz", zipped(npy((1, 1), data=b"1234"), flags=1), "File 'scores.npy' is encrypted"),
        ("a.npz", zipped(npy((1, 1), data=b"1234"), compression=77), "That compression method is not supported"),
        ("a.npz", zipped(b"\xff" * 200, compression=8), "Error -3 while decompressing data"),
        ("a.npz", zipped(npy((1 << 30, 1 << 31))), ""),
        ("a.npz", zipped(npy((1 << 70, 1))), ""),
        ("a.npy", npy((1 << 70, 1)), ""),
        ("a.npy", npy((1 << 40, 1)), ""),
        ("a.npy", npy((-1, 3)), ""),
        ("a.npy", npy((3, 3)).replace(b"{", b"("), ""),
        ("a.npy", npy((3, 3), descr="|O"), ""),
        ("a.npy", npy((3, 3))[:40], ""),
        ("a.npy", b"", ""),
        ("a.npz", b"", ""),
    ],
)
def test_damaged_files(run, folder, name, content, reason):
    (folder / name).write_bytes(content)
    for option in ((), ("scores.npy", "--lengths")):
        code, out, err = run("select", *option, name)
        assert (code, out, err.count("\n")) == (2, "", 1)
        argument = "--lengths" if option else "FILE"
        assert err.startswith(f"hpc: error: {argument} = {name}: must be a readable {name[2:]} file: {reason}")


def hpc_process(*arguments, **options):
    options = {"stdout": subprocess.PIPE, **options}
    return subprocess.run(
        [sys.executable, "-m", "hpc", *arguments], stderr=subprocess.PIPE, text=True, check=False, **options
    )


def test_writing_that_fails_midway(folder):
    before = sorted(folder.iterdir())
    done = hpc_process(
        *("select", "scores.npy", "--k", "4096", "--out", "positions.npy"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert done.returncode == 2
    assert done.stderr.startswith("hpc: error: --out = positions.npy: cannot be written: ")
    assert done.stderr.count("\n") == 1
    assert sorted(folder.iterdir()) == before


def test_a_picture_that_fails_leaves_no_positions(run, folder, monkeypatch):
    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cli, "_plot", fail)
    before = sorted(folder.iterdir())
    code, _, err = run("select", "scores.npy", "--out", "positions.npy", "--plot", "a.png")
    assert (code, err) == (2, "hpc: error: --plot = a.png: cannot be written: No space left on device\n")
    assert sorted(folder.iterdir()) == before


def test_memory_that_is_not_there(run, folder, monkeypatch):
    def fail(*_, **__):
        raise MemoryError("Unable to allocate 16 TiB")

    monkeypatch.setattr(cli, "topk_numpy", fail)
    assert run("select", "scores.npy", "--out", "a.npy") == (2, "", "hpc: error: Unable to allocate 16 TiB\n")
    assert not (folder / "a.npy").exists()


def test_proc_cannot_be_written(run):
    code, out, err = run("select", "scores.npy", "--out", "/proc/self/a.npy")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith("hpc: error: --out = /proc/self/a.npy: must be in a folder that exists and can be written")


@pytest.mark.parametrize("arguments", [("--help",), ("plan", "1", "5"), ("select", "scores.npy", "--out", "a.npy")])
def test_stdout_that_is_full(folder, arguments):
    with Path("/dev/full").open("w") as full:
        done = hpc_process(*arguments, stdout=full)
    assert done.returncode == 2
    assert done.stderr.count("\n") <= 1
    assert not (folder / "a.npy").exists()


@pytest.mark.parametrize("arguments", [("--help",), ("plan", "1", "5"), ("select", "scores.npy")])
def test_stdout_that_nobody_reads(folder, arguments):
    reader, writer = os.pipe()
    os.close(reader)
    done = hpc_process(*arguments, stdout=writer)
    os.close(writer)
    assert done.returncode != 0
    assert done.stderr.count("\n") <= 1
    assert "Traceback" not in done.stderr


def test_signalling_nans_are_verified_without_a_warning(run, scores):
    scores.view(np.uint32)[:, ::7] = 0x7F800001
    np.save("nans.npy", scores)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        code, _, err = run("select", "nans.npy", "--k", 64, "--verify")
    assert (code, err) == (0, "")


def test_an_output_is_never_an_input(run, folder, scores):
    Path("link.npy").symlink_to("scores.npy")
    for out, owner in [
        ("scores.npy", "FILE"),
        ("./scores.npy", "FILE"),
        ("link.npy", "FILE"),
        ("lengths.npy", "--lengths"),
    ]:
        code, _, err = run("select", "scores.npy", "--lengths", "lengths.npy", "--k", 5, "--out", out)
        assert (code, err) == (2, f"hpc: error: --out = {Path(out)}: must not be {owner}, which it would replace\n")
    assert np.array_equal(np.load("scores.npy"), scores)


def test_an_output_that_cannot_be_written(run, folder):
    code, _, err = run("select", "scores.npy", "--out", "none/positions.npy")
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith("hpc: error: --out = none/positions.npy: must be in a folder that exists and can be written")
    assert run("select", "scores.npy", "--out", "positions.txt")[2].startswith(
        "hpc: error: --out = positions.txt: must"
    )


def test_cuda_that_is_not_there(run):
    try:
        require_device("cuda")
    except pytest.skip.Exception:
        code, out, err = run("select", "scores.npy", "--device", "cuda")
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith("hpc: error: --device = cuda: must be cpu: ")
    else:
        pytest.skip("there is a CUDA device")


def test_a_row_that_is_not_exact_is_reported(run, folder, monkeypatch):
    monkeypatch.setattr(cli, "is_exact", lambda selected, row, k, start, length: False)
    code, out, err = run("select", "scores.npy", "--k", 64, "--verify", "--out", "positions.npy")
    assert code == 1
    assert field(out, "exact") == "no"
    assert err == "hpc: error: 5 row(s) are not exact: 0, 1, 2, 3, 4\n"
    assert not (folder / "positions.npy").exists()


def test_the_verifier_sees_every_kind_of_mistake():
    row = np.array([5, 1, 5, np.nan, 0.0, -0.0, -np.inf, 5], np.float32)
    right = np.array([0, 2, 3], np.int32)
    assert is_exact(right, row, 3, 0, 8)
    assert is_exact(right[::-1], row, 3, 0, 8)
    for wrong in ([0, 7, 3], [0, 0, 3], [0, 1, 3], [0, 2, -1], [0, 2, 8]):
        assert not is_exact(np.array(wrong, np.int32), row, 3, 0, 8)
    assert is_exact(np.array([4, 5, -1], np.int32), row, 3, 4, 2)
    assert not is_exact(np.array([5, 4, -1], np.int32), row, 3, 4, 2)
    rng = np.random.default_rng(1)
    for _ in range(50):
        row = rng.integers(-3, 3, 60).astype(np.float32) * np.float32(0.5)
        row[rng.random(60) < 0.1] = rng.choice([np.nan, np.inf, -np.inf])
        k, start, length = rng.integers(1, 20), rng.integers(0, 60), rng.integers(0, 60)
        want = expected(row[None], k, np.array([length]), np.array([start]))[0]
        assert is_exact(want, row, k, start, length)


def test_plan(run):
    code, out, err = run("plan", 64, 131072, "--k", 2048, "--device-like", "h200")
    assert (code, err) == (0, "")
    assert "131072" in out
    assert re.search(r"kernel +\w+", out)
    assert run("plan", 64, 131072, "--device-like", "h200", "--kernel", "fallback")[0] == 0
    for arguments, message in [
        ((64, 131072, "--device-like", "h900"), "device = h900: must be one of"),
        ((64, 131072, "--k", 9999), "k = 9999: must be between 1 and 4096"),
        ((64, 100, "--row-stride", 99), "row_stride = 99: must be at least num_columns = 100"),
        ((64,), "Missing argument 'N'."),
        (("99999999999999999999", 5), "num_rows = 99999999999999999999: must be between 0 and"),
        ((1, 5, "--k", "99999999999999999999"), "k = 99999999999999999999: must be between 1 and 4096"),
        ((1, 5, "--device-like", "cuda:99999999999"), "device = cuda:99999999999: must be a CUDA device of this"),
        ((1, 5, "--device-like", "cuda:1000"), "device = cuda:1000: must be a CUDA device of this machine"),
        ((1, 5, "--row-stride", 0), "row_stride = 0: must be at least num_columns = 5"),
    ]:
        code, out, err = run("plan", *arguments)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"hpc: error: {message}")


def test_help_teaches(run):
    for arguments in ((), ("--help",)):
        code, out, _ = run(*arguments)
        assert code == 0
        assert "hpc plan 64 131072 --k 2048 --device-like h200" in out
    code, out, _ = run("select", "--help")
    assert code == 0
    assert "hpc select scores.npz --array layer2 --k 512 --verify" in out
    for option in ("--k", "--lengths", "--row-starts", "--device", "--verify", "--out", "--plot"):
        assert option in out
    assert run("--version")[1].startswith("hpc, version ")


def test_python_dash_m(folder):
    done = subprocess.run(
        [sys.executable, "-m", "hpc", "select", "scores.npy", "--k", "9999"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "hpc: error: k = 9999: must be between 1 and 4096\n"
