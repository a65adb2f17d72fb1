# SPDX-License-Identifier: Apache-2.0
"""The paper's experiments: what they count, their files, figures and tables, the page that shows them, the command."""

import json
import math
import shutil
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("click", reason="click is not installed: the command is the extra hpctopk[cli]")
pytest.importorskip("matplotlib", reason="matplotlib is not installed: it is part of the extra hpctopk[cli]")
pytest.importorskip("torch", reason="torch is not installed")

import torch
from hpc_bench import cli as bench_cli
from hpc_bench import contestants, grids, run
from hpc_bench.inputs import mask
from hpc_bench.paper import chain, command, experiment, gpu, latency, observations, page, policies, ranks, traffic
from hpc_bench.paper import scores as paper_scores
from hpc_bench.paper.registry import EXPERIMENTS
from workloads import generate, load_sample, on_device, trace

import hpc
from hpc import cli
from hpc._files import FileError

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench/results/paper"
PAGE = ROOT / "docs/evaluation.md"
HAS_GPU = torch.cuda.is_available()
CPU = torch.device("cpu")


def setup_of(source, k, quick=True):
    return experiment.Setup(CPU, (source,), k, 0, quick, one_call=quick)


def ignore(share):
    assert 0 <= share <= 1


# ----------------------------------------------------------------------------------------------------------------------
# Ranks of views


@pytest.mark.parametrize("stride", [1, 3, 16])
def test_strided_views_are_all_phases(stride):
    scores = torch.randn(3, 100)
    scores[1, 60:] = -torch.inf
    wanted = [1, 2, 5]
    found = ranks.strided(scores, stride, wanted)
    assert found.shape == (3, stride, 3)
    for row in range(3):
        for phase in range(stride):
            sample = np.sort(scores[row, phase::stride].numpy())[::-1]
            assert found[row, phase].tolist() == [sample[rank - 1] for rank in wanted]
    assert ranks.strided(scores, 50, [3])[0, 0].item() == -torch.inf  # a phase holds 2


def mix(a, b):
    x = (a * 0x9E3779B9 + b * 0x85EBCA6B) % 2**32
    x = (x ^ (x >> 16)) * 0x7FEB352D % 2**32
    x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
    return x ^ (x >> 16)


@pytest.mark.parametrize(("length", "stride", "chunk", "most"), [(10_007, 32, 8, 99_999), (65_536, 16, 32, 1000)])
def test_hashed_views_are_those_of_the_kernels(length, stride, chunk, most):
    seeds = torch.tensor([0, 7, 2**31 - 1])
    found = ranks.hashed_columns(length, stride, chunk, seeds, most)
    chunks = min(length // stride, most) // chunk
    assert found.shape == (3, chunks * chunk)
    stratum = length // 4 // chunks
    for seed, columns in zip(seeds.tolist(), found.tolist(), strict=True):
        for i in (0, 1, chunks - 1):
            place = mix(seed, i) * (stratum - chunk // 4 + 1) >> 32
            first = 4 * (i * stratum + place)
            assert columns[i * chunk : (i + 1) * chunk] == list(range(first, first + chunk))
        assert max(columns) < length
        assert len(set(columns)) == len(columns)


def test_coarse_floors_are_the_lowest_scores_of_their_bins():
    """Against equation 7 on the fp16 grid: sign, 5 exponent and 5 mantissa bits, truncated towards zero."""

    def bin_of(score):
        if abs(score) >= 2.0**16:
            magnitude = 992
        elif abs(score) >= 2.0**-14:
            exponent = math.floor(math.log2(abs(score)))
            magnitude = 32 * (exponent + 15) + math.floor((abs(score) / 2.0**exponent - 1) * 32)
        else:
            magnitude = math.floor(abs(score) * 2.0**19)
        return magnitude if score >= 0 else -1 - magnitude

    scores = torch.cat(
        [torch.randn(200), torch.randn(50) * 1e-5, torch.randn(50) * 1e5, torch.tensor([0.0, 1.0, -1.0])]
    )
    floors = ranks.coarse_floor(scores)
    for score, floor in zip(scores.tolist(), floors.tolist(), strict=True):
        assert floor <= score
        if math.isfinite(floor):
            assert bin_of(floor) == bin_of(score)
            assert bin_of(np.nextafter(np.float32(floor), np.float32(-np.inf))) < bin_of(score)


def test_counts_and_margins():
    ordered = ranks.ascending(torch.tensor([[3.0, 1.0, 2.0, 2.0, -torch.inf]]))
    assert ranks.count_at_least(ordered, torch.tensor([[[2.0, 2.5], [0.0, 9.0]]])).tolist() == [[[3, 1], [4, 0]]]
    assert ranks.rank_with_margin(100, 0) == 100
    assert ranks.rank_with_margin(100, 4) == math.ceil((2 + math.sqrt(104)) ** 2)


def test_exchangeable_ranks_are_those_of_random_samples():
    rng = np.random.default_rng(0)
    length, samples, rank = 1000, 50, 7
    found = [np.sort(rng.choice(length, samples, replace=False))[rank - 1] + 1 for _ in range(4000)]
    size = np.array([float(length)]), np.array([float(samples)])
    assert np.mean(found) == pytest.approx(ranks.exchangeable_mean(*size, rank)[0], rel=0.03)
    assert np.var(found) == pytest.approx(ranks.exchangeable_variance(*size, rank)[0], rel=0.1)


# ----------------------------------------------------------------------------------------------------------------------
# Score rows


@pytest.fixture
def saved(tmp_path):
    """A saved matrix of 6 rows of 3000 scores, the last two short, and what opens it."""
    scores, lengths = generate("normal", 6, 3000, seed=5)
    lengths[4:] = 40
    np.save(tmp_path / "scores.npy", scores)
    np.save(tmp_path / "lengths.npy", lengths)
    return tmp_path / "scores.npy", tmp_path / "lengths.npy", scores


def test_a_saved_matrix_is_replayed(saved):
    source = paper_scores.open_source(*saved[:2])
    cell = grids.Cell("saved", source.name, 6, 3000, 64)
    buffer = torch.zeros(12, 3000)
    lengths = source.fill(buffer, np.full(12, 3000, np.int32), cell, 0)
    assert (buffer.numpy() == np.tile(saved[2], (2, 1))).all()
    assert lengths.tolist() == [3000, 3000, 3000, 3000, 40, 40] * 2
    ((tokens, counted, numbers),) = paper_scores.last_rows(setup_of(source, 64), source, 3)
    assert (tokens, counted.tolist(), numbers.tolist()) == (3000, [3000] * 3, [0, 1, 3])
    rows = source.rows(setup_of(source, 64), counted - 1, numbers)
    assert (rows.numpy() == saved[2][numbers, :2999]).all()


def test_last_steps_are_those_of_the_requests():
    source = paper_scores.Source("normal")
    full = paper_scores.last_steps(setup_of(source, 2048, quick=False), source)
    assert [(step.tokens, len(step.cells), set(step.weights)) for step in full] == [
        (244_650, 8, {1}),
        (430_000, 11, {1}),
    ]
    for quick, whole in zip(paper_scores.last_steps(setup_of(source, 2048), source), full, strict=True):
        assert len(quick.cells) == 1
        assert quick.weights[0] * quick.cells[0].rows == pytest.approx(sum(cell.rows for cell in whole.cells))


@pytest.mark.parametrize("name", ["normal", "indexer"])
def test_rows_made_by_torch_are_like_the_generators(name):
    lengths = np.full(8, 65_536, np.int32)
    made = torch.empty(8, 65_536)
    on_device.fill(name, made, lengths, seed=3)
    reference = generate(name, 8, 65_536, seed=3)[0]
    levels = (0.1, 0.25, 0.5, 0.75, 0.9)
    spread = np.quantile(reference, 0.97) - np.quantile(reference, 0.25)
    assert np.quantile(made.numpy(), levels) == pytest.approx(np.quantile(reference, levels), abs=float(0.06 * spread))
    again = torch.empty(8, 65_536)
    on_device.fill(name, again, lengths, seed=3)
    assert (made == again).all()


def test_recency_follows_the_length():
    made = torch.empty(64, 4096)
    on_device.fill("indexer", made, np.full(64, 2048, np.int32), seed=0)
    assert made[:, 2000:2048].mean() > made[:, 900:1100].mean() + 1
    text = torch.empty(2, 4096)
    on_device.fill("text", text, np.full(2, 4096, np.int32), seed=0)
    bands = load_sample()[0].reshape(2, -1)
    for row, band in zip(text.numpy(), bands, strict=True):
        (start,) = [s for s in range(0, band.size, 256) if band[s] == row[0] and band[(s + 99) % band.size] == row[99]]
        assert (row == np.roll(band, -start)[:4096]).all()


# ----------------------------------------------------------------------------------------------------------------------
# What is counted


def test_tolerance_of_evenly_spaced_scores(tmp_path):
    """Without noise a boundary of e gaps keeps e scores more."""
    np.save(tmp_path / "a.npy", -np.arange(20_000, dtype=np.float32)[None])
    source = paper_scores.open_source(tmp_path / "a.npy", None)
    setup = setup_of(source, 1000)
    (step,) = EXPERIMENTS["tolerance"].steps(setup)
    whole = next(r for r in step.run(ignore) if r["capture"] == observations.ALL)
    assert whole["omitted"] == 0
    for gap, median in zip(whole["gaps"], whole["median"], strict=True):
        assert median == pytest.approx((1000 + math.floor(gap + 1e-6)) / 1000, abs=1.1e-3)


def test_views_of_shuffled_scores_are_calibrated():
    source = paper_scores.Source("normal")
    setup = setup_of(source, 256)
    views = {step.name: step for step in EXPERIMENTS["views"].steps(setup)}
    small = [(0, np.full(12, 20_000, np.int32), np.arange(12))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observations, "_captures", lambda *_: small)
        records = views["views, normal"].run(ignore)
    for record in records:
        if record["part"] == "view" and record["margin"] == 1.5 and record["stride"] <= 64:
            assert record["median"] == pytest.approx(1.5, rel=0.12)
            assert record["rms"] == pytest.approx(record["exchangeable_rms"], rel=0.4)


def test_rates_fall_with_the_margin_and_rise_with_the_stride(monkeypatch):
    source = paper_scores.Source("normal")
    rows = [(60_000, np.full(8, 60_000, np.int32), np.arange(8))]
    monkeypatch.setattr(policies, "last_rows", lambda *_: rows)
    by = {}
    for name in ("margin", "stride", "rescue"):
        (step,) = EXPERIMENTS[name].steps(setup_of(source, 2048))
        by[name] = step.run(ignore)
    strided = [r for r in by["margin"] if r["view"] == policies.STRIDED]
    rates = [r["recovered"] for r in strided]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] > 0.2
    assert rates[-1] < 0.01
    assert [r["boundaries"] for r in strided] == [8 * 128] * 5
    found = {r["stride"]: r["recovered"] for r in by["stride"] if r["view"] == policies.STRIDED}
    assert found[16] == 0 < found[256]
    for record in by["rescue"]:
        assert record["recovered"] <= record["underfilled"]
    default = next(r for r in by["rescue"] if r["view"] == policies.DEFAULT)
    assert default["underfilled"] == 0
    assert default["r_eq"] == pytest.approx(1 + 60_000 // 32 // 16 * 16 / 60_000, abs=1e-4)


def test_the_default_view_is_the_default_policy_s():
    sample = hpc.plan(1, 131_072, 2048, device="h200").policy.sample
    assert sample.chunk == policies.CHUNKS[0] == observations.CHUNK
    margins = f"{sample.sigmas:g} and {1.5 * sample.sigmas:g} sigmas or more"
    assert f"hpc default: 1 in {sample.stride}, at most 16384, {margins}" == policies.DEFAULT


def test_a_period_aliases_with_the_stride_only(monkeypatch):
    scores, _ = generate("periodic", 4, 65_536, seed=0)
    monkeypatch.setattr(paper_scores.Source, "rows", lambda self, setup, lengths, numbers: torch.from_numpy(scores))
    rows = [(65_536, np.full(4, 65_536, np.int32), np.arange(4))]
    monkeypatch.setattr(policies, "last_rows", lambda *_: rows)
    (step,) = EXPERIMENTS["margin"].steps(setup_of(paper_scores.Source("normal"), 2048))
    found = {(r["view"], r["margin"]): r["recovered"] for r in step.run(ignore)}
    assert found[policies.STRIDED, 2.0] > 0.02
    assert found[policies.hashed_name(policies.CHUNKS[0]), 2.0] < 0.5 * found[policies.STRIDED, 1.0] + 0.3


# ----------------------------------------------------------------------------------------------------------------------
# The score producer, the counters of ncu


@pytest.mark.parametrize("fp8", [False, True])
def test_the_producer_makes_the_scores_of_an_indexer(monkeypatch, fp8):
    monkeypatch.setattr(chain, "has_fp8", lambda device: fp8)
    monkeypatch.setattr(chain, "BLOCK_ROWS", 2)
    monkeypatch.setattr(chain, "BLOCK_COLUMNS", 96)
    producer = chain.make_producer(5, 250, 0, CPU, heads=4)
    producer.run()
    assert producer.scores.shape == (5, 256)
    assert producer.keys.dtype is (torch.float8_e4m3fn if fp8 else torch.bfloat16)
    products = torch.einsum("mhd,nd->mhn", producer.queries.float(), producer.keys.float()).relu()
    expected = torch.einsum("mh,mhn->mn", producer.weights[:, 0].float(), products)
    assert torch.allclose(producer.scores, expected, atol=0.05, rtol=0.02)
    assert 0.3 < products.square().mean() < 0.8  # half the variance of one


NCU = """==PROF== Connected to process 1
==PROF== Profiling "scan" - 0: 0%....50%....100% - 1 pass
==PROF== Disconnected from process 1
"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","1","add<float>(int)","dram__bytes_read.sum","byte","999"
"1","1","scan","dram__bytes_read.sum","byte","1,010"
"2","1","merge","dram__bytes_read.sum","byte","15"
"3","1","add<float>(int)","dram__bytes_read.sum","byte","999"
"4","1","scan","dram__bytes_read.sum","byte","2080"
==WARNING== Profiled on a machine without names
"""


def said(policy, rows, columns, valid_bytes):
    own = {"policy": policy, "rows": rows, "columns": columns, "kernel": "persistent"}
    return {**own, "valid_bytes": valid_bytes, "statistics": {"scores_read": 252}}


def test_a_report_of_ncu():
    """Kernels belong to the selection whose mark came before them; what did not run has no mark."""
    too_large = {"policy": "default", "rows": 9, "columns": 9, "status": "unsupported", "note": "does not fit"}
    first, none, second = traffic.read_report(
        [said("default", 1, 2, 1000), too_large, said("paper", 3, 4, 2000), said("paper", 5, 6, 1)], NCU
    )
    assert none == {**too_large, "verdict": None, "right": False}
    assert {**first, **said("default", 1, 2, 1000)} == first
    assert (first["kernels"], first["dram_bytes"], first["r_eq"], first["r_eq_scores"]) == (2, 1025, 1.025, 1.008)
    assert (second["kernels"], second["dram_bytes"], second["r_eq"]) == (1, 2080, 1.04)
    for report in ("", NCU.partition('"ID"')[0], NCU.replace("dram__bytes_read.sum", "other")):
        assert traffic.read_report([said("default", 1, 2, 1000)], report) == []


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """Puts a stand-in for ncu on PATH: it says what a profiled process would of some selections, and reports."""

    def install(selections, report, error=""):
        lines = "\n".join(traffic.SAID + json.dumps(own) for own in selections)
        script = tmp_path / "bin/ncu"
        script.parent.mkdir(exist_ok=True)
        script.write_text(
            f"#!{sys.executable}\nimport sys\n"
            f"log = sys.argv[sys.argv.index('--log-file') + 1]\n"
            f"open(log, 'w').write({report!r})\nprint({lines!r})\nprint({error!r}, file=sys.stderr)\n"
        )
        script.chmod(0o755)
        monkeypatch.setenv("PATH", str(script.parent), prepend=":")

    return install


def traffic_of(source):
    outcome = experiment.Outcome("traffic", {"revision": None, "dirty": None, "device": "x", "date": ""}, {})
    (step,) = EXPERIMENTS["traffic"].steps(setup_of(source, 2048))
    outcome.records = step.run(ignore)
    return outcome


def test_traffic_by_a_stand_in_for_ncu(ncu):
    (m, n), _ = traffic.QUICK_SHAPES
    ncu([said("default", m, n, 1000), said("paper", m, n, 2000)], NCU, "out of breath")
    outcome = traffic_of(paper_scores.Source("indexer"))
    assert [(r["policy"], r["rows"], r["columns"]) for r in outcome.records] == [
        (policy, *shape) for shape in traffic.QUICK_SHAPES for policy in traffic.POLICIES
    ]
    assert [r.get("r_eq") for r in outcome.records] == [1.025, 1.04, None, None]
    why = "at traffic, indexer 512 x 1048576: failed ncu gave no figures: out of breath"
    assert gpu.failures(outcome) == [f"hpc {why}", f"hpc paper {why}"]
    rows = dict((label, values) for label, _, *values in EXPERIMENTS["traffic"].table(outcome).rows)
    assert rows["default policy: bytes read / row bytes, ncu"] == ["1.025..1.025"]
    assert rows["default policy: shapes with at most 1.03 by ncu"] == ["1 of 1"]
    assert rows["paper policy: bytes read / row bytes, ncu"] == ["1.040..1.040"]


def test_traffic_where_ncu_may_not_count(ncu):
    ncu([], "==ERROR== ERR_NVGPUCTRPERM: no permission\n", "other text")
    outcome = traffic_of(paper_scores.Source("indexer"))
    why = "failed ncu gave no figures: ==ERROR== ERR_NVGPUCTRPERM: no permission"
    assert gpu.failures(outcome)[0] == f"hpc at traffic, indexer 512 x 131072 and 1 more: {why}"


def test_ncu_that_hangs_is_ended(tmp_path, monkeypatch):
    script = tmp_path / "ncu"
    script.write_text("#!/bin/sh\nsleep 60\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(traffic, "MOST_SECONDS", 0.2)
    assert gpu.failures(traffic_of(paper_scores.Source("indexer")))[0].endswith("ended by signal 9; it may take 0.2 s")


def test_a_saved_matrix_is_what_ncu_sees(ncu, saved):
    ncu([said("default", 6, 3000, 1000)], NCU)
    outcome = traffic_of(paper_scores.open_source(*saved[:2]))
    assert [(r["rows"], r["columns"], r.get("r_eq")) for r in outcome.records] == [(6, 3000, 1.025), (6, 3000, None)]


def test_what_ncu_runs(capsys, monkeypatch, saved):
    """On the CPU, with a stand-in for the library and for torch's device."""
    counted = dict.fromkeys(contestants.STATISTICS, 7)
    seen = []

    def ours(native, policy, kernel, ctas_per_row):
        def prepare(calls):
            seen.append((policy, calls[0].scores.shape, calls[0].lengths.tolist()))
            if policy == "paper":
                raise torch.OutOfMemoryError
            return contestants.Prepared([lambda: None], {"kernel": "persistent"}, lambda: counted)

        return contestants.Contestant("hpc", True, prepare)

    monkeypatch.setattr(traffic, "ours", ours)
    monkeypatch.setattr(traffic, "import_module", lambda name: None)
    monkeypatch.setattr(torch, "device", lambda *_: CPU)
    for owner, name in ((torch.cuda, "synchronize"), (torch.cuda, "current_device"), (torch.cuda, "empty_cache")):
        monkeypatch.setattr(owner, name, lambda: 0)
    monkeypatch.setattr(torch.cuda, "profiler", SimpleNamespace(start=lambda: None, stop=lambda: None))
    files = [str(path) for path in saved[:2]]
    traffic.profiled({"source": "scores.npy", "files": files, "shapes": [[6, 3000]], "k": 64, "seed": 0})
    first, second = (json.loads(line.removeprefix(traffic.SAID)) for line in capsys.readouterr().out.splitlines())
    assert first["statistics"] == counted
    assert first["valid_bytes"] == 4 * (4 * 3000 + 2 * 40)
    assert (second["policy"], second["status"]) == ("paper", "unsupported")
    assert seen[0] == ("default", (6, 3000), [3000] * 4 + [40] * 2)


# ----------------------------------------------------------------------------------------------------------------------
# The command


@pytest.fixture
def paper(capsys, monkeypatch, tmp_path):
    """Run `hpc bench paper` in an empty folder: its exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)

    def paper(*arguments):
        capsys.readouterr()
        code = cli.run(["bench", "paper", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return paper


def test_the_lists_of_the_command_are_complete(paper):
    assert tuple(EXPERIMENTS) == command.NAMES
    assert command.GENERATORS == paper_scores.GENERATORS
    code, out, err = paper("--help")
    assert (code, err) == (0, "")
    for word in (*EXPERIMENTS, "all", "draw", "--quick", "--scores", "--device"):
        assert word in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "Invalid value for 'NAME...': 'nothing' is not one of"),
        (("views", "--lengths", "a.npy"), "--lengths = a.npy: must come with --scores"),
        (("views", "--scores", "a.npy", "--workload", "text"), "--workload = text: must not come with --scores"),
        (("views", "--scores", "a.npy"), "--scores = a.npy: must be a file"),
        (("views", "--out", "no/a"), "--out = no/a.json: must be in a folder that exists"),
        (("views", "--peers", "me"), "--peers = me: must be all, none, or of"),
        (("operator", "--device", "cpu"), "NAME = operator: needs an NVIDIA GPU"),
        (("draw", "--results", "no"), "--results = no: must be a folder that exists"),
        (("draw", "--out", "no/a"), "--out = no: must be a folder that exists"),
    ],
)
def test_bad_arguments(paper, tmp_path, arguments, message):
    code, out, err = paper(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"hpc: error: {message}")
    assert err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU here")
def test_without_a_gpu(paper):
    code, out, err = paper("views", "--device", "cuda")
    assert (code, out) == (2, "")
    assert err == "hpc: error: hpc bench: needs an NVIDIA GPU: torch finds no CUDA device\n"


def test_a_saved_matrix_without_long_rows_is_refused(paper, saved):
    code, _, err = paper("views", "--device", "cpu", "--scores", saved[0])
    assert code == 2
    assert err.endswith("--scores = scores.npy: must hold a row of at least 8192 scores\n")


def test_all_on_a_saved_matrix_on_the_cpu(paper, saved, tmp_path):
    code, out, err = paper(
        *("all", "--quick", "--device", "cpu", "--scores", saved[0], "--lengths", saved[1], "--k", 256),
        *("--revision", "abc", "--format", "svg"),
    )
    assert code == 0, err
    assert "operator: left out, needs an NVIDIA GPU" in err
    on_cpu = [name for name, e in EXPERIMENTS.items() if e.on_cpu]
    assert {path.name for path in (tmp_path / "paper").iterdir()} == {
        f"{name}.{suffix}" for name in on_cpu for suffix in ("json", "svg")
    }
    for name in on_cpu:
        outcome = experiment.load(tmp_path / "paper" / f"{name}.json")
        assert outcome.complete
        assert outcome.provenance["revision"] == "abc"
        assert outcome.settings["sources"] == ["scores.npy"]
        assert {r["source"] for r in outcome.records} == {"scores.npy"}
        assert f"wrote paper/{name}.svg" in out


class Stopwatch:
    """Runs launches where they are; a launch takes longer the more there are."""

    def __init__(self, native, device, *, warm):
        self.launches = 0

    def run(self, launch):
        return launch()

    def time(self, launches, rounds):
        self.launches += len(launches)
        return [10.0 + self.launches] * rounds, [launch() for launch in launches]

    def read_ceiling(self):
        return {"gbps": 1000.0}


@pytest.fixture
def made_up_gpu(monkeypatch):
    """The command as on a GPU, with small shapes on the CPU, and a sort in place of the library."""

    def select(call):
        scores = call.scores.clone()
        mask(scores, call.lengths)
        best = scores.sort(dim=1, descending=True, stable=True).indices[:, : call.k].clone()
        columns = torch.arange(call.k)
        for row, length in zip(best, call.lengths.tolist(), strict=True):
            if length <= call.k:
                row[:] = torch.where(columns < length, columns, -1)
        return best

    def ours(native, policy, kernel, ctas_per_row, *, name=None, changes=None):
        def prepare(calls):
            counted = dict.fromkeys(contestants.STATISTICS, 3)
            plan = {"kernel": "persistent" if kernel == "auto" else kernel}
            return contestants.Prepared([partial(select, call) for call in calls], plan, lambda: counted)

        return contestants.Contestant(name or contestants.ours_name(policy, kernel, ctas_per_row), True, prepare)

    small_trace = partial(trace, step=500, budget_bytes=4 * 700 * 120)
    monkeypatch.setattr(bench_cli, "_require_gpu", lambda: (None, CPU))
    monkeypatch.setattr("hpc_bench.timer.Timer", Stopwatch)
    monkeypatch.setattr("hpc_bench.provenance.device", lambda native, index: {"device": "none"})
    monkeypatch.setattr(gpu, "ours", ours)
    monkeypatch.setattr(run, "MOST_LAUNCHES", 2)
    monkeypatch.setattr(grids, "trace", small_trace)
    monkeypatch.setattr(paper_scores, "trace", small_trace)
    grids._trace.cache_clear()
    monkeypatch.setattr(paper_scores, "TRACE_TOKENS", (600, 700))
    monkeypatch.setattr(latency, "PAPER_TRACES", {600: (2.0, 1.0), 700: (3.0, 2.0)})
    monkeypatch.setattr(latency, "OPERATOR_GRID", ((2, 1024), (3, 2048)))
    monkeypatch.setattr(latency, "CROSSOVER_ROWS", (1, 2))
    monkeypatch.setattr(latency, "CROSSOVER_COLUMNS", (512, 1024))
    monkeypatch.setattr(chain, "HEADS", 2)
    monkeypatch.setattr(policies, "ROWS", 2)
    yield
    grids._trace.cache_clear()


TIMED = ("operator", "traces", "chain", "margin", "stride", "rescue", "mechanism", "crossover")


def test_timed_experiments(paper, made_up_gpu, tmp_path):
    code, out, err = paper(*TIMED, "--device", "cuda", "--k", 64, "--workload", "normal", "--peers", "torch.topk")
    assert code == 0, err[-2000:]
    found = {name: experiment.load(tmp_path / "paper" / f"{name}.json") for name in TIMED}
    for name, outcome in found.items():
        assert outcome.complete
        assert (tmp_path / "paper" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert outcome.provenance["device"] == "none"
        if name != "chain":  # its scores go on past the lengths, which torch.topk does not take
            assert all(r["right"] for r in outcome.select(part="time")), name
    operator = found["operator"]
    assert operator.values("contestant") == ["hpc", "hpc paper", "torch.topk"]
    assert len(operator.records) == 6
    assert [len(found["traces"].select(tokens=tokens, contestant="hpc")) for tokens in (600, 700)] == [
        len(trace(tokens, 500, 4 * 700 * 120)) for tokens in (600, 700)
    ]
    margins = found["margin"].select(part="time", contestant="hpc paper, margin 1.25")
    assert {r["margin"] for r in margins} == {1.25}
    assert {r["tokens"] for r in margins} == {600, 700}
    assert found["margin"].select(part="rate")
    assert len(found["stride"].values("contestant", part="time")) == 2 * 5 + 2
    assert found["mechanism"].values("contestant") == list(latency.MECHANISM)
    assert len(found["crossover"].records) == 4 * 6
    ours = found["chain"].select(contestant="hpc")
    assert {r["fp8"] for r in ours} == {False}
    assert {r["right"] for r in found["chain"].select(contestant="torch.topk")} == {False}
    assert all(r["chain_us"] > r["us"] > r["score_us"] for r in ours)
    assert "times faster" in out


def test_quick_takes_a_call_for_each_step(paper, made_up_gpu, tmp_path):
    code, _, err = paper("traces", "--device", "cuda", "--quick", "--k", 64, "--peers", "none")
    assert code == 0, err
    outcome = experiment.load(tmp_path / "paper/traces.json")
    assert outcome.settings["sources"] == ["indexer"]
    for tokens in (600, 700):
        calls = outcome.select(tokens=tokens, contestant="hpc")
        assert [r["columns"] for r in calls] == [500, tokens]
        assert calls[0]["call"] == 1  # in the middle of three: 120 rows of 700 scores fit, or 168 of 500
        assert sum(r["weight"] * r["rows"] for r in calls) == pytest.approx(tokens)


def test_a_saved_matrix_on_a_gpu(paper, made_up_gpu, saved, tmp_path):
    arguments = ("--device", "cuda", "--k", 64, "--scores", saved[0], "--peers", "none")
    code, _, err = paper("operator", "traces", "mechanism", "rescue", "crossover", *arguments)
    assert code == 0, err
    for name in ("operator", "traces", "mechanism"):
        outcome = experiment.load(tmp_path / "paper" / f"{name}.json")
        assert {(r["rows"], r["columns"]) for r in outcome.records} == {(6, 3000)}
    assert paper("chain", *arguments)[2] == ("hpc: error: NAME = chain: makes its own scores and takes no --scores\n")


def test_all_on_a_gpu_names_what_is_not_installed(paper, made_up_gpu, monkeypatch, tmp_path):
    """One command runs all; a peer or a tool that is not there is named, and the rest goes on."""
    monkeypatch.setattr(latency, "QUICK_SHAPES", ((2, 1024),))
    monkeypatch.setattr(latency, "QUICK_ROWS", (2,))
    monkeypatch.setattr(latency, "QUICK_COLUMNS", (512,))
    monkeypatch.setattr(policies, "QUICK_ROWS", 2)
    monkeypatch.setattr(observations, "QUICK_ROWS", 2)
    monkeypatch.setattr(chain, "QUICK_ROWS", 8)
    monkeypatch.setattr(traffic.shutil, "which", lambda name: None)
    code, _, err = paper("all", "--quick", "--device", "cuda", "--k", 64)
    assert code == 0, err[-2000:]
    assert "traffic: left out, needs ncu, of NVIDIA Nsight Compute, on PATH" in err
    assert f"peer torch.topk: {torch.__version__}" in err
    assert "peer sglang: not installed: " in err
    assert "cub-sort" not in err
    assert "s left" in err.partition("[2/")[0]
    left = set(EXPERIMENTS) - {"traffic"}
    assert {path.name for path in (tmp_path / "paper").iterdir()} == {
        f"{name}.{suffix}" for name in left for suffix in ("json", "png")
    }
    assert paper("traffic", "--device", "cuda")[2].startswith("hpc: error: NAME = traffic: needs ncu")


def test_an_inexact_result_fails_the_run(paper, made_up_gpu, monkeypatch):
    def wrong(native, policy, kernel, ctas_per_row, *, name=None, changes=None):
        def prepare(calls):
            return contestants.Prepared([lambda: torch.zeros(2, 64, dtype=torch.int32) for _ in calls])

        return contestants.Contestant(name or "hpc paper", True, prepare)

    monkeypatch.setattr(gpu, "ours", wrong)
    code, _, err = paper("operator", "--device", "cuda", "--k", 64, "--workload", "normal", "--peers", "none")
    assert code == 1
    assert "hpc: error: hpc paper at operator, normal 2 x 1024 and 1 more: wrong" in err


def test_a_lost_device_ends_the_run(paper, made_up_gpu, monkeypatch, tmp_path):
    def measure(cell, *arguments):
        raise run.DeviceLostError(run.blank(cell), "hpc: CUDA error")

    monkeypatch.setattr(run, "measure", measure)
    code, _, err = paper("operator", "traces", "--device", "cuda", "--k", 64, "--workload", "normal")
    assert code == 1
    assert "the device was lost at operator, normal, 2 x 1K, the run ends early: hpc: CUDA error" in err
    assert not experiment.load(tmp_path / "paper/operator.json").complete


# ----------------------------------------------------------------------------------------------------------------------
# Files and the page


def test_an_outcome_survives_its_file(tmp_path):
    outcome = experiment.Outcome("views", {"device": "x"}, {"k": 1}, [{"a": 1}, {"a": [1.5, None], "b": "c"}], True)
    outcome.save(tmp_path / "a.json")
    assert experiment.load(tmp_path / "a.json") == outcome
    outcome.records = []
    outcome.save(tmp_path / "a.json")
    assert experiment.load(tmp_path / "a.json") == outcome
    for text in ("", "[]", '{"schema": "other"}', '{"schema": "hpctopk-paper-1"}'):
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(FileError, match="must be written by hpc bench paper"):
            experiment.load(tmp_path / "a.json")


def test_the_page_is_drawn_from_the_committed_outcomes(paper, tmp_path):
    """The command makes every figure, and the committed page says what the committed outcomes say."""
    (tmp_path / "docs").mkdir()
    shutil.copy(PAGE, tmp_path / "docs/evaluation.md")
    committed = sorted(path.stem for path in RESULTS.glob("*.json"))
    assert set(committed) <= set(EXPERIMENTS)
    assert {"tolerance", "views", "margin", "stride", "rescue"} <= set(committed)
    code, out, err = paper("draw", "--out", "docs/figures", "--page", "docs/evaluation.md")
    assert (code, err) == (0, "")
    drawn = tmp_path / "docs/figures"
    assert sorted(path.stem for path in drawn.iterdir()) == committed
    for path in drawn.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 20_000
        assert f"wrote docs/figures/{path.name}" in out
        assert (ROOT / "docs/images/evaluation" / path.name).is_file()
    found = page.outcomes(EXPERIMENTS, RESULTS)
    text = PAGE.read_text(encoding="utf-8")
    fresh = page.refreshed(text, EXPERIMENTS, found, "images/evaluation", "../bench/results/paper")
    assert fresh == text, "docs/evaluation.md is not what hpc bench paper draw makes of bench/results/paper"
    for name in set(EXPERIMENTS) - set(committed):
        assert f"No result yet: `hpc bench paper {name}` has not been run" in text


def test_committed_outcomes_say_where_they_are_from():
    for path in RESULTS.glob("*.json"):
        outcome = experiment.load(path)
        assert outcome.experiment == path.stem
        assert outcome.complete
        assert {"date", "command", "revision", "dirty", "device", "torch"} <= set(outcome.provenance)
        assert outcome.provenance["dirty"] is not True
        assert json.loads(path.read_text())["schema"] == experiment.SCHEMA


def test_a_page_without_marks_is_refused():
    with pytest.raises(FileError, match=r"--page: must hold <!-- hpc bench paper draw: operator --> and .* holds 0"):
        page.refreshed("text", EXPERIMENTS, {}, "a", "b")
