# SPDX-License-Identifier: Apache-2.0
"""The benchmark harness: what it measures, what it calls exact, its files, its pictures and its command."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from reference import expected

pytest.importorskip("click", reason="click is not installed: the command is the extra hpctopk[cli]")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: it is part of the extra hpctopk[cli]")
pytest.importorskip("torch", reason="torch is not installed")

import torch
from hpc_bench import cli as bench_cli
from hpc_bench import contestants, grids, inputs, plots, report, run, summary
from hpc_bench.check import check
from peers import Peer, UnsupportedError, all_peers, probe
from rich.console import Console
from workloads import WORKLOADS, trace

from hpc import cli
from hpc._files import FileError

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench/results"
REPORT = Path(__file__).parent / "data" / "bench_report.json"
HAS_GPU = torch.cuda.is_available()


# ----------------------------------------------------------------------------------------------------------------------
# What is measured


def test_the_grids_have_the_cells_of_the_paper():
    prefill = grids.cells(["prefill"], ["normal"], [2048])
    assert len(prefill) == 20
    assert (prefill[0].rows, prefill[0].columns) == (512, 131_072)
    decode = grids.cells(["decode"], ["normal"], [512, 1024])
    assert [sum(cell.k == k for cell in decode) for k in (512, 1024)] == [81, 81]
    traces = grids.cells(["traces"], ["normal"], [2048])
    assert [sum(cell.tokens == tokens for cell in traces) for tokens in (244_650, 430_000)] == [26, 71]
    cliffs = grids.cells(["cliffs"], ["text"], [2048])
    assert len(cliffs) == 4 * len(WORKLOADS)
    assert {(cell.rows, cell.columns) for cell in cliffs} == {
        (512, 131_072),
        (64, 131_072),
        (8, 262_144),
        (1, 1_048_576),
    }
    assert cliffs[0].workload == "normal"


def test_filters_and_quick_leave_some_cells():
    cells = grids.cells(["prefill", "decode"], ["normal", "text"], [2048], rows=[512, 16], columns=[131_072])
    assert {(c.grid, c.workload, c.rows, c.columns) for c in cells} == {
        (grid, workload, rows, 131_072)
        for grid, rows in (("prefill", 512), ("decode", 16))
        for workload in ("normal", "text")
    }
    for grid in grids.GRIDS:
        every = grids.cells([grid], ["normal"], [2048])
        some = grids.cells([grid], ["normal"], [2048], quick=True)
        assert 0 < len(some) < len(every) / 2
        assert set(some) < set(every)
        assert len(set(every)) == len(every)
    assert grids.cells(["prefill"], ["normal"], [2048], rows=[7]) == []


@pytest.mark.parametrize("grid", grids.GRIDS)
def test_lengths(grid):
    for cell in grids.cells([grid], ["normal"], [2048], quick=True):
        lengths = grids.lengths_of(cell, seed=1)
        assert lengths.shape == (cell.rows,)
        assert lengths.dtype == np.int32
        assert ((lengths >= 1) & (lengths <= cell.columns)).all()
        assert (lengths == grids.lengths_of(cell, seed=1)).all()
        if grid == "prefill":
            assert lengths[0] == cell.columns - cell.rows + 1
            assert lengths[-1] == cell.columns
        if grid == "decode":
            assert lengths.min() >= cell.columns - cell.columns // 64
        if grid == "cliffs":
            assert (lengths == cell.columns).all()
        if grid == "traces":
            assert (lengths == trace(cell.tokens)[cell.call].lengths).all()


def test_launches_and_inputs_keep_l2_cold():
    assert run.launches_of(0.004) == 64
    assert run.launches_of(7500) == 3
    small, large = (grids.Cell("decode", "normal", m, n, 2048) for m, n in ((1, 4096), (64, 131_072)))
    assert inputs.count(small, 64, warm=False) == 64
    assert inputs.count(large, 54, warm=False) * inputs.matrix_bytes(large) >= 400e6
    assert inputs.count(large, 54, warm=True) == 1
    assert inputs.count(grids.Cell("prefill", "normal", 512, 131_072, 2048), 7, warm=False) == 1


def test_inputs(monkeypatch):
    monkeypatch.setattr(inputs, "GENERATED_BYTES", 4 * 1000 * 5)  # 5 distinct rows
    cell = grids.Cell("decode", "indexer_causal", 4, 1000, 10)
    made = inputs.make(cell, 3, seed=0, device=torch.device("cpu"))
    assert len(made.calls) == 3
    assert made.row_stride == 1024
    scores = torch.cat([call.scores for call in made.calls])
    lengths = torch.cat([call.lengths for call in made.calls])
    assert made.calls[0].scores.stride() == (1024, 1)
    assert made.valid_bytes == 4 * int(lengths.sum()) // 3
    # Row 5 repeats row 0; the causal suffix of the workload shortens rows further than the grid does.
    for row in range(12):
        assert torch.isfinite(scores[row, : lengths[row]]).all()
        assert (scores[row, lengths[row] :] == -torch.inf).all()
        assert lengths[row] <= 1000 - row % 5
    shared = min(lengths[0], lengths[5])
    assert (scores[0, :shared] == scores[5, :shared]).all()
    assert not (scores[0, :shared] == scores[1, :shared]).all()


# ----------------------------------------------------------------------------------------------------------------------
# What is exact


def verdict(scores, columns, k, lengths=None, contract=True):
    scores = torch.as_tensor(np.asarray(scores, np.float32))
    lengths = torch.full((scores.shape[0],), scores.shape[1]) if lengths is None else torch.tensor(lengths)
    return check(scores, lengths, torch.as_tensor(np.asarray(columns)), k, contract=contract).text


@pytest.mark.parametrize("workload", ["normal", "quantised", "relu_plateau", "ascending"])
@pytest.mark.parametrize("k", [1, 7, 64, 300])
def test_the_definition_is_exact(workload, k):
    from workloads import generate

    scores, _ = generate(workload, 6, 500, seed=1, k=k)
    scores[0, :3] = np.nan, -np.nan, np.inf
    scores[1, ::7] = -np.inf
    lengths = np.array([500, 499, 301, 64, 5, 0], np.int32)
    best = np.asarray(expected(scores, k, lengths))
    assert verdict(scores, best, k, lengths.tolist()) == "exact"
    shuffled = best.copy()
    shuffled[:3] = shuffled[:3, ::-1]
    assert verdict(scores, shuffled, k, lengths.tolist()) == ("exact" if k < 301 else verdict(scores, best, k, lengths))
    # Any other column of a row longer than k is seen.
    for row in range(6):
        if lengths[row] <= k:
            continue
        absent = sorted(set(range(lengths[row])) - set(best[row].tolist()))
        for column in (absent[0], absent[-1]):
            other = best.copy()
            other[row, -1] = column
            assert verdict(scores, other, k, lengths.tolist()) in ("wrong", "ties")


def test_verdicts():
    row = [[3.0, 1.0, 2.0, 2.0, 2.0, 0.0]]
    assert verdict(row, [[0, 2, 3]], 3) == "exact"
    assert verdict(row, [[3, 0, 2]], 3) == "exact"
    assert verdict(row, [[0, 2, 4]], 3) == "ties"
    assert verdict(row, [[0, 3, 4]], 3) == "ties"
    assert verdict(row, [[0, 1, 2]], 3) == "wrong"
    assert verdict(row, [[2, 3, 4]], 3) == "wrong"
    assert verdict(row, [[0, 2, 2]], 3) == "wrong"
    assert verdict(row, [[0, 2, -1]], 3) == "wrong"
    assert verdict(row, [[0, 2, 6]], 3) == "wrong"
    assert verdict(row, [[0, 2]], 3) == "wrong"
    assert verdict([[0.0, -0.0, -1.0]], [[0]], 1) == "exact"
    assert verdict([[0.0, -0.0, -1.0]], [[1]], 1) == "ties"
    assert verdict([[np.inf, -np.nan, np.nan]], [[1]], 1) == "exact"
    assert verdict([[np.inf, -np.nan, np.nan]], [[0]], 1) == "wrong"
    # Past its length a row holds nothing.
    assert verdict([[1.0, 2.0, 9.0]], [[1]], 1, [2]) == "exact"
    assert verdict([[1.0, 2.0, 9.0]], [[2]], 1, [2]) == "wrong"


def test_short_rows():
    scores = [[5.0, 4.0, 3.0, 2.0]]
    assert verdict(scores, [[0, 1, -1]], 3, [2]) == "exact"
    assert verdict(scores, [[1, 0, -1]], 3, [2]) == "wrong"
    assert verdict(scores, [[0, 1, 7]], 3, [2]) == "wrong"
    assert verdict(scores, [[1, 3, 0]], 3, [2], contract=False) == "exact"
    assert verdict(scores, [[1, 3, 1]], 3, [2], contract=False) == "wrong"
    assert verdict(scores, [[0, 0, 1]], 3, [2], contract=False) == "wrong"
    assert verdict(scores, [[-1, -1, -1]], 3, [0]) == "exact"


def test_a_wrong_row_of_many_is_named(monkeypatch):
    monkeypatch.setattr("hpc_bench.check._CHUNK", 300)
    scores = torch.randn(20, 100)
    columns = scores.topk(5).indices
    lengths = torch.full((20,), 100)
    assert check(scores, lengths, columns, 5, contract=False).text == "exact"
    columns[17, 0] = scores[17].argmin()
    found = check(scores, lengths, columns, 5, contract=False)
    assert (found.text, found.note) == ("wrong", "row 17")


# ----------------------------------------------------------------------------------------------------------------------
# Measuring, with a stopwatch that stands in for the GPU's


class Stopwatch:
    """Runs launches where they are, and says that the i-th replay took 10 i."""

    def run(self, launch):
        return launch()

    def time(self, launches, rounds):
        return [10.0 * (i + 1) for i in range(rounds)], [launch() for launch in launches]


def selector(select):
    return lambda calls: [lambda call=call: select(call) for call in calls]


def peer(name, select):
    return contestants.of_peer(Peer(name, lambda: "1", selector(select)))


def stable(call):
    return call.scores.sort(dim=1, descending=True, stable=True).indices[:, : call.k]


def raising(error):
    def select(call):
        raise error

    return select


@pytest.fixture
def result():
    cell = grids.Cell("decode", "quantised", 2, 4096, 64)

    def ours(calls):
        return contestants.Prepared(selector(stable)(calls), {"kernel": "row_local"}, lambda: {"rows": 2})

    taking_part = [
        contestants.Contestant("hpc", True, ours),
        contestants.Contestant("hpc paper", True, lambda calls: contestants.Prepared(selector(last_ties)(calls))),
        peer("last ties", last_ties),
        peer("first columns", lambda call: torch.arange(call.k).expand(2, -1)),
        peer("not for it", raising(UnsupportedError("k = 64 is none of 512"))),
        peer("broken", raising(RuntimeError("CUDA error: misaligned address\nmore"))),
    ]
    seen = []
    measured = run.measure(
        cell, taking_part, Stopwatch(), 1000.0, run.Settings(5, 0, False), torch.device("cpu"), seen.append
    )
    assert seen == [contestant.name for contestant in taking_part]
    return measured


def last_ties(call):
    order = call.scores.flip(1).sort(dim=1, descending=True, stable=True).indices[:, : call.k]
    return call.scores.shape[1] - 1 - order


def test_every_contestant_is_timed_and_checked(result):
    assert (result.launches, result.inputs, result.cold) == (64, 64, True)
    assert result.limit_us == pytest.approx(result.valid_bytes / 1e6)
    assert [(t.contestant, t.status, t.verdict) for t in result.timings] == [
        ("hpc", "ok", "exact"),
        ("hpc paper", "ok", "ties"),
        ("last ties", "ok", "ties"),
        ("first columns", "ok", "wrong"),
        ("not for it", "unsupported", None),
        ("broken", "failed", None),
    ]
    ours = result.timing("hpc")
    assert ours.us == 30
    assert ours.samples_us == [10, 20, 30, 40, 50]
    assert ours.plan == {"kernel": "row_local"}
    assert ours.statistics == {"rows": 2}
    assert result.timing("first columns").note == "input 0, row 0"
    assert result.timing("broken").note == "CUDA error: misaligned address"


def test_only_right_results_count(result):
    assert result.right_us("hpc") == 30
    assert result.right_us("hpc paper") is None  # ours keeps to the contract
    assert result.right_us("last ties") == 30
    assert result.right_us("first columns") is None
    assert result.reach("hpc") == pytest.approx(result.limit_us / 30)
    assert report.ratios([result], "last ties", "hpc") == [1]
    assert report.ratios([result], "first columns", "hpc") == []
    found = summary.failures(report.Report({}, {}, {}, {}, [result]))
    assert found == ["hpc paper is not exact at decode quantised 2 x 4096, k 64: ties, "]


def test_scores_that_do_not_fit_are_no_failure():
    def make(cell, count, seed, device):
        raise torch.OutOfMemoryError("no")

    cell = grids.Cell("prefill", "normal", 512, 131_072, 2048)
    result = run.measure(cell, [], Stopwatch(), 1e3, run.Settings(9, 0, False), torch.device("cpu"), make=make)
    assert result.timings == []
    assert "do not fit" in result.note


def test_names_of_ours():
    assert contestants.ours_name("default", "auto", 0) == "hpc"
    assert contestants.ours_name("paper", "auto", 0) == "hpc paper"
    assert contestants.ours_name("paper", "kv_split", 8) == "hpc paper kv_split 8 a row"


def test_peers_that_are_not_installed_say_so():
    peers = all_peers()
    assert {"torch.topk", "flashinfer", "sglang", "vllm-persistent", "cub-sort"} <= set(peers)
    assert probe(peers["torch.topk"]) == (torch.__version__, True)
    for peer in peers.values():
        version, usable = probe(peer)
        assert usable or version.startswith("not installed: ")
        assert "\n" not in version


def test_torch_topk_as_a_peer():
    cell = grids.Cell("decode", "normal", 3, 4096, 100)
    made = inputs.make(cell, 2, seed=0, device=torch.device("cpu"))
    prepare = all_peers()["torch.topk"].prepare
    for call, select in zip(made.calls, prepare(made.calls), strict=True):
        assert check(call.scores, call.lengths, select(), 100, contract=False).text == "exact"
    with pytest.raises(UnsupportedError, match="k = 4097 is more than the 4096 columns"):
        prepare(inputs.make(grids.Cell("decode", "normal", 3, 4096, 4097), 1, 0, torch.device("cpu")).calls)


# ----------------------------------------------------------------------------------------------------------------------
# Files


def test_a_report_survives_its_file(result, tmp_path):
    measured = report.Report({"device": "x"}, {"seed": 0}, {"gbps": 1.0}, {"sglang": "not installed: y"}, [result])
    measured.save(tmp_path / "a.json")
    assert report.load("FILE", tmp_path / "a.json") == measured
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_the_schema_of_a_report():
    fields = json.loads(REPORT.read_text())
    assert fields["schema"] == report.SCHEMA == "hpctopk-bench-1"
    assert set(fields) == {"provenance", "settings", "ceiling", "peers", "results", "complete", "schema"}
    assert {"date", "command", "revision", "dirty", "device", "driver", "cuda_runtime", "torch"} <= set(
        fields["provenance"]
    )
    for entry in fields["results"]:
        assert {"grid", "workload", "rows", "columns", "k", "valid_bytes", "limit_us", "timings"} <= set(entry)
        for timing in entry["timings"]:
            assert timing["status"] in ("ok", "unsupported", "failed")
            assert timing["verdict"] in (*report.RIGHT, "wrong", None)
            assert (timing["us"] is None) == (timing["status"] != "ok")


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schema": "hpctopk-bench-1"}', '{"schema": "other", "results": []}']
)
def test_other_files_are_refused(text, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(FileError, match=f"^FILE = {path}: must be a report of hpc bench"):
        report.load("FILE", path)


def test_baseline(tmp_path):
    path = tmp_path / "a.json"
    entry = {"M": 512, "N": 131_072, "best_peer": "some", "best_us": 120.8, "us": {"some": 120.8}}
    path.write_text(json.dumps({"gpu": "x", "prefill_K2048": [entry], "prefill_indexer_K512": []}))
    recorded = report.load_baseline("--baseline", path)
    assert recorded == {
        "prefill_K2048": {(512, 131_072): {"peer": "some", "us": 120.8}},
        "prefill_indexer_K512": {},
    }
    assert report.baseline_name("prefill", "normal", 2048) == "prefill_K2048"
    assert report.baseline_name("prefill", "indexer", 512) == "prefill_indexer_K512"
    for text in ("", "[1]", '{"a": [{"M": 1}]}', '{"a": [1]}'):
        path.write_text(text)
        with pytest.raises(FileError, match=f"^--baseline = {path}: must hold"):
            report.load_baseline("--baseline", path)


# ----------------------------------------------------------------------------------------------------------------------
# Tables and pictures of made-up figures


@pytest.fixture
def made_up():
    return report.load("FILE", REPORT)


def test_groups_and_contestants(made_up):
    assert made_up.contestants() == ["hpc", "hpc paper", "torch.topk", "flashinfer"]
    assert [(group, len(results)) for group, results in made_up.groups()] == [
        (("cliffs", "", 2048), 6),
        (("decode", "normal", 2048), 9),
        (("prefill", "normal", 2048), 4),
        (("traces", "normal", 2048), 4),
    ]


def test_costs_of_value_families(made_up):
    cliffs = [r for r in made_up.results if r.grid == "cliffs"]
    costs = report.family_costs(cliffs, "hpc")
    assert costs["normal", 512, 131_072] == 1
    assert costs["one_bin", 512, 131_072] == pytest.approx(1.3, abs=0.01)
    assert ("one_bin", 512, 131_072) not in report.family_costs(cliffs, "flashinfer")  # it is wrong there
    assert summary.failures(made_up) == []
    next(r for r in cliffs if r.workload == "one_bin").timing("hpc").us *= 2
    assert summary.failures(made_up) == ["hpc takes 2.60 times normal rows' time on one_bin 512 x 131072, k 2048"]


def test_tables(made_up):
    console = Console(width=200, record=True, file=io.StringIO())
    for table in summary.tables(made_up):
        console.print(table)
    text = console.export_text()
    assert re.search(r"hpc +│ +0.900 │", text)
    assert re.search(r"best on record .*1.44", text)
    assert re.search(r"flashinfer: one_bin .*2 WRONG", text)
    assert re.search(r"hpc +│ 430,000 │ 2 of 2 │", text)


def test_as_markdown(made_up):
    page = summary.markdown(made_up)
    assert "made-up figures, driver 0, CUDA 13.0, torch 2.11.0" in page
    assert f"source {'0' * 40}" in page
    assert "| hpc | 512 x 131072 | 1 x 1048576 |" in page
    assert "| one_bin | 86.2 (1.30) | 3.9 (1.30) |" in page
    assert "(5.00!)" in page
    assert "165.7 wrong" in page
    assert "cells are missing" not in page
    made_up.complete = False
    assert "cells are missing" in summary.markdown(made_up)


@pytest.mark.parametrize("committed", sorted(RESULTS.glob("*.json")), ids=lambda path: path.stem)
def test_committed_pages_say_what_was_measured(committed):
    measured = report.load("FILE", committed)
    assert measured.complete
    assert not summary.failures(measured)
    assert committed.with_suffix(".md").read_text(encoding="utf-8") == summary.markdown(measured)


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_pictures(made_up, tmp_path, suffix, magic):
    written = plots.draw(made_up, tmp_path / "pictures", [suffix])
    assert {path.name for path in written} == {
        f"{name}.{suffix}"
        for name in (
            "cliffs_k2048",
            "decode_normal_k2048_latency",
            "decode_normal_k2048_reach",
            "decode_normal_k2048_speed",
            "prefill_normal_k2048_reach",
            "prefill_normal_k2048_speed",
            "traces_normal_k2048",
        )
    }
    for path in written:
        assert path.read_bytes().startswith(magic)
        assert path.stat().st_size > 5000


def test_pictures_of_cells_without_timings(tmp_path):
    results = [run.blank(cell, "does not fit") for grid in grids.GRIDS for cell in grids.cells([grid], ["normal"], [1])]
    empty = report.Report(
        {"device": "x", "revision": None, "dirty": None, "date": "2026-01-01"}, {}, {"gbps": 1.0}, {}, results
    )
    assert plots.draw(empty, tmp_path, ["png"]) == []


# ----------------------------------------------------------------------------------------------------------------------
# The command


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    """Run `hpc bench` in an empty folder: its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def command(*arguments):
        capsys.readouterr()
        code = cli.run(["bench", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


def test_help(command):
    for arguments in ((), ("--help",), ("-h",)):
        code, out, err = command(*arguments)
        assert (code, err) == (0, "")
        for word in (*grids.GRIDS, "--out", "--policy", "--peers", "--baseline", "--warm", "plot"):
            assert word in out
    assert "--format" in command("plot", "--help")[1]
    assert command("decode", "--help")[0] == 0


def one_line(err):
    assert err.startswith("hpc: error: ")
    assert err.count("\n") == 1
    return err[len("hpc: error: ") : -1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("prefill",), "Missing option '--out'."),
        (("nothing", "--out", "a.json"), "Invalid value for 'GRID...': 'nothing' is not one of"),
        (("prefill", "--out", "a.txt"), "--out = a.txt: must end in .json"),
        (("prefill", "--out", "no/a.json"), "--out = no/a.json: must be in a folder that exists"),
        (
            ("prefill", "--out", "a.json", "--k", "4097"),
            "Invalid value for '--k': 4097 is not in the range 1<=x<=4096.",
        ),
        (("prefill", "--out", "a.json", "--rounds", "8"), "Invalid value for '--rounds': 8 is not in the range x>=9."),
        (("prefill", "--out", "a.json", "--peers", "me"), "--peers = me: must be all, none, or of torch.topk, "),
        (("prefill", "--out", "a.json", "--rows", "1x"), "Invalid value for '--rows': '1x': must be numbers"),
        (("prefill", "--out", "a.json", "--rows", "7"), "GRID = prefill: --rows and --columns leave no cell of it"),
        (("prefill", "--out", "a.json", "--baseline", "b"), "--baseline = b: must hold lists of M, N"),
        (
            ("decode", "--out", "a.json", "--candidates", "--kernel", "cluster"),
            "--candidates: must be without --policy",
        ),
        (("plot", "a.json", "--out", "pictures"), "FILE = a.json: must be a report of hpc bench"),
        (("plot", REPORT, "--out", "no/pictures"), "--out = no/pictures: must be in a folder that exists"),
        (("plot", REPORT, "--out", "p", "--format", "gif"), "Invalid value for '--format': 'gif' is not one of"),
    ],
)
def test_bad_arguments(command, tmp_path, arguments, message):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert one_line(err).startswith(message)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU here")
def test_without_a_gpu(command, tmp_path):
    code, out, err = command("--quick", "prefill", "decode", "--k", "512", "--rows", "512,1K", "--out", "a.json")
    assert (code, out) == (2, "")
    assert one_line(err) == "hpc bench: needs an NVIDIA GPU: torch finds no CUDA device"
    assert list(tmp_path.iterdir()) == []


def test_plot_writes_what_it_says(command, tmp_path):
    code, out, err = command("plot", REPORT, "--out", "pictures", "--format", "svg")
    assert (code, err) == (0, "")
    written = [line.removeprefix("wrote ") for line in out.splitlines()]
    assert len(written) == 7
    assert {tmp_path / name for name in written} == set((tmp_path / "pictures").iterdir())


@pytest.mark.parametrize(("folder", "code"), [(ROOT, 0), (ROOT / "docs", 0), (ROOT.anchor, 2)])
def test_a_checkout_is_needed(folder, code):
    done = subprocess.run(
        [sys.executable, "-m", "hpc", "bench", "--help"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    if code:
        assert (
            one_line(done.stderr) == "hpc bench: must run in a checkout of the repository, which holds the benchmarks"
        )


def test_torch_is_needed():
    script = "import sys; sys.modules['torch'] = None; from hpc import cli; sys.exit(cli.run(sys.argv[1:]))"
    command = [sys.executable, "-c", script, "bench", "cliffs", "--out", "a.json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert one_line(done.stderr) == "hpc bench: needs torch, which is not installed"


class WholeStopwatch(Stopwatch):
    """A stopwatch for the command itself."""

    def __init__(self, native, device, *, warm):
        assert not warm

    def read_ceiling(self):
        return {"gbps": 1000.0}


@pytest.fixture
def without_gpu(monkeypatch):
    """The command on small cells on the CPU, with `stable` in place of the library. Returns what it selects with."""
    select = {"hpc": stable, "hpc paper": stable}

    def ours(native, policy, kernel, ctas_per_row):
        name = contestants.ours_name(policy, kernel, ctas_per_row)
        return contestants.Contestant(
            name, True, lambda calls: contestants.Prepared(selector(lambda call: select[name](call))(calls))
        )

    device = {"device": "none", "driver": "0", "cuda_runtime": "0"}
    monkeypatch.setattr(bench_cli, "_require_gpu", lambda: (None, torch.device("cpu")))
    monkeypatch.setattr("hpc_bench.timer.Timer", WholeStopwatch)
    monkeypatch.setattr("hpc_bench.provenance.device", lambda native, index: device)
    monkeypatch.setattr(contestants, "ours", ours)
    monkeypatch.setattr(grids, "CLIFF_SHAPES", ((2, 4096), (3, 8192)))
    monkeypatch.setattr(run, "MOST_LAUNCHES", 3)
    return select


def test_a_whole_run(command, tmp_path, without_gpu):
    baseline = {"decode_K64": [{"M": 2, "N": 4096, "best_us": 7.5, "best_peer": "some"}]}
    (tmp_path / "baseline.json").write_text(json.dumps(baseline))
    code, out, err = command(
        *("cliffs", "decode", "--rows", "2,3", "--columns", "4K,8K", "--k", "64", "--out", "a.json"),
        *("--baseline", "baseline.json", "--peers", "torch.topk,sglang", "--revision", "abc"),
    )
    assert code == 0, err
    measured = report.load("FILE", tmp_path / "a.json")
    assert measured.complete
    assert len(measured.results) == 2 * len(WORKLOADS) + 2
    assert measured.ceiling == {"gbps": 1000, "gbps_at_the_end": 1000}
    assert measured.provenance["revision"] == "abc"
    assert measured.provenance["device"] == "none"
    assert measured.peers["torch.topk"] == torch.__version__
    assert measured.contestants() == ["hpc", "hpc paper", "torch.topk"] + (["sglang"] if "sglang" in out else [])
    assert [r.baseline for r in measured.results[-2:]] == [{"peer": "some", "us": 7.5}, None]
    assert (tmp_path / "a.md").read_text() == summary.markdown(measured)
    assert "wrote a.json" in out
    assert "wrote a.md" in out
    assert "best on record" in out
    assert f"[{len(measured.results)}/{len(measured.results)}] decode normal 2 x 8192, k 64: hpc 80.0 us, " in err


def test_a_run_with_candidates(command, tmp_path, without_gpu, monkeypatch):
    def candidates(native, cell, device):
        return [contestants.ours(native, "default", "cluster", parts) for parts in (2, 4) if parts <= cell.rows]

    monkeypatch.setattr(contestants, "candidates", candidates)
    without_gpu["hpc cluster 2 a row"] = without_gpu["hpc cluster 4 a row"] = stable
    code, out, err = command(
        *("decode", "--rows", "2,4", "--columns", "4K", "--k", "64", "--peers", "none", "--candidates"),
        *("--out", "a.json"),
    )
    assert code == 0, err
    names = [[t.contestant for t in r.timings] for r in report.load("FILE", tmp_path / "a.json").results]
    assert names == [["hpc", "hpc cluster 2 a row"], ["hpc", "hpc cluster 2 a row", "hpc cluster 4 a row"]]
    assert "hpc cluster 4 a row" in out


def test_an_inexact_result_fails_the_run(command, without_gpu):
    without_gpu["hpc paper"] = last_ties
    code, _, err = command(
        *("decode", "--rows", "2", "--columns", "4K", "--k", "64", "--workload", "quantised", "--peers", "none"),
        *("--out", "a.json"),
    )
    assert code == 1
    assert "hpc: error: hpc paper is not exact at decode quantised 2 x 4096, k 64: ties" in err


def test_a_lost_device_ends_the_run(command, tmp_path, without_gpu, monkeypatch):
    measure = run.measure

    def lose(cell, *arguments):
        result = measure(cell, *arguments)
        if cell.columns == 8192:
            raise run.DeviceLostError(result, "hpc paper: illegal memory access")
        return result

    monkeypatch.setattr(run, "measure", lose)
    code, _, err = command("decode", "--rows", "2", "--k", "64", "--peers", "none", "--out", "a.json")
    assert code == 1
    assert err.endswith("hpc: error: the device was lost, the run ends early: hpc paper: illegal memory access\n")
    measured = report.load("FILE", tmp_path / "a.json")
    assert not measured.complete
    assert [r.columns for r in measured.results] == [4096, 8192]


def test_numbers():
    assert bench_cli.numbers("512, 128K,1M") == (512, 131_072, 1_048_576)


# ----------------------------------------------------------------------------------------------------------------------
# On a GPU


@pytest.mark.skipif(not HAS_GPU, reason="needs an NVIDIA GPU: torch finds none")
@pytest.mark.parametrize("options", [(), ("--warm",)])
def test_on_a_gpu(command, tmp_path, options):
    pytest.importorskip("hpc._bench", reason="this build has no hpc._bench: -DHPCTOPK_BUILD_BENCHMARKS=ON")
    code, out, err = command(
        *("decode", "prefill", "--quick", "--rows", "1,16,512", "--columns", "4K,64K,128K", "--out", "a.json"),
        *("--peers", "torch.topk,cub-sort", *options),
    )
    assert code == 0, err
    measured = report.load("FILE", tmp_path / "a.json")
    assert measured.complete
    assert measured.ceiling["gbps"] > 100
    assert len(measured.results) == 5
    for result in measured.results:
        assert [t.contestant for t in result.timings] == ["hpc", "hpc paper", "torch.topk", "cub-sort"]
        for timing in result.timings:
            assert timing.right_us is not None, timing
            assert timing.us > 0.5 * result.limit_us
            assert len(timing.samples_us) == 9
        assert result.timing("hpc").statistics["rows"] == result.rows
    assert "reach" in out
