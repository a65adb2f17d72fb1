# SPDX-License-Identifier: Apache-2.0
"""The planner against the measured time of every launch that it could choose."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hpc_bench import planner_table
from hpc_bench.planner_table import PlannerTable, Row
from hpc_bench.report import Report, Result, Timing

import hpc
from hpc._files import FileError

RESULTS = Path(__file__).parents[2] / "bench/results"
TABLES = sorted(RESULTS.glob("planner_*.json"))


@pytest.mark.skipif(not TABLES, reason="there is no bench/results/planner_*.json: see bench/README.md, --candidates")
@pytest.mark.parametrize("path", TABLES, ids=lambda path: path.stem)
def test_choices_are_within_3_percent_of_the_best(path):
    table = planner_table.load("table", path)
    lines = planner_table.offenders(table)
    assert not lines, "\n".join(["", *lines, planner_table.summary(table)])


# ----------------------------------------------------------------------------------------------------------------------
# The comparison itself


@pytest.fixture
def table():
    """Two shapes at which the planned launch is the best by far."""
    rows = []
    for m, n, k in ((1, 131_072, 2048), (512, 131_072, 512)):
        plan = hpc.plan(m, n, k, device="h200")
        planned = Row(m, n, k, plan.kernel, plan.ctas_per_row, 10.0)
        rows += [planned, replace(planned, kernel="fallback", ctas_per_row=1, us=100.0)]
    return PlannerTable("h200", [{"revision": "abc"}], rows)


def test_the_best_is_no_offender(table):
    assert planner_table.offenders(table) == []
    assert (
        planner_table.summary(table)
        == "2 shapes, 4 launches: 2 choices within 1.03 times the best, mean 1.000, most 1.000"
    )


@pytest.mark.parametrize(("us", "offends"), [(10 / 1.029, False), (10 / 1.031, True)])
def test_a_choice_that_is_not_the_best(table, us, offends):
    table.rows[1] = replace(table.rows[1], us=us)
    launch = table.rows[0].launch
    line = f"1 x 131072, k 2048: planned {launch} takes 10.00 us, 1.031 times the best: fallback, 1 a row"
    assert [text.partition(" takes 9.70 us")[0] for text in planner_table.offenders(table)] == [line] * offends


def test_a_choice_that_was_not_measured(table):
    planned = table.rows.pop(0)
    assert planner_table.offenders(table) == [
        f"1 x 131072, k 2048: planned {planned.launch} was not measured: fallback, 1 a row takes 100.00 us"
    ]


def test_a_table_survives_its_file(table, tmp_path):
    path = tmp_path / "planner_h200.json"
    table.save(path)
    assert planner_table.load("FILE", path) == table
    lines = path.read_text().splitlines()
    assert sum('"us"' in line for line in lines) == len(table.rows)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "hpctopk-planner-1"}', '{"schema": "other", "rows": []}'])
def test_other_files_are_refused(text, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(FileError, match=f"^FILE = {path}: must be a table of hpc bench table: "):
        planner_table.load("FILE", path)


# ----------------------------------------------------------------------------------------------------------------------
# From reports


def timing(contestant, us, kernel, ctas_per_row=1, **fields):
    plan = {"kernel": kernel, "ctas_per_row": ctas_per_row}
    return Timing(contestant, us=us, **{"verdict": "exact", "plan": plan, **fields})


def report(*timings, workload="normal"):
    return Report({"revision": "abc"}, {}, {}, {}, [Result("decode", workload, 2, 4096, 64, 0, 0, timings=[*timings])])


def test_forced_launches_that_are_right_are_gathered():
    first = report(
        timing("hpc", 1.0, "row_local"),
        timing("hpc paper persistent", 1.0, "persistent"),
        timing("hpc row_local", 2.0, "row_local"),
        timing("hpc persistent", 3.0, "persistent"),
        timing("hpc kv_split 8 a row", 4.0, "kv_split", 8),
        timing("hpc cluster 4 a row", 5.0, "cluster", 4, verdict="ties"),
        timing("torch.topk", 6.0, "", plan=None),
    )
    again = report(timing("hpc row_local", 2.5, "row_local"))
    other = report(timing("hpc row_local", 9.0, "row_local"), workload="text")
    table = planner_table.gather([first, again, other], "h200")
    assert table.rows == [
        Row(2, 4096, 64, "row_local", 1, 2.5),
        Row(2, 4096, 64, "persistent", 1, 3.0),
        Row(2, 4096, 64, "kv_split", 8, 4.0),
    ]
    assert table.provenance == [{"revision": "abc"}] * 3
    with pytest.raises(FileError, match=r"^--device-like = gpu: must be one of"):
        planner_table.gather([first], "gpu")
    with pytest.raises(FileError, match=r"^FILE: must hold exact results of --candidates"):
        planner_table.gather([other], "h200")


def test_the_command(tmp_path, monkeypatch, capsys):
    from hpc import cli

    monkeypatch.chdir(tmp_path)
    report(timing("hpc row_local", 2.0, "row_local"), timing("hpc fallback", 1.0, "fallback")).save(Path("run.json"))
    assert cli.run(["bench", "table", "run.json", "--device-like", "H200", "--out", "planner_h200.json"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith("2 x 4096, k 64: planned ")
    assert out[1].startswith("1 shapes, 2 launches: ")
    assert out[2] == "wrote planner_h200.json"
    assert [row["us"] for row in json.loads(Path("planner_h200.json").read_text())["rows"]] == [2.0, 1.0]
    for arguments, message in (
        (["no.json", "--device-like", "h200", "--out", "a.json"], "FILE = no.json: must be a report of hpc bench"),
        (["run.json", "--device-like", "h200", "--out", "run.json"], "--out = run.json: must not be FILE run.json"),
        (["run.json", "--device-like", "h200", "--out", "a.txt"], "--out = a.txt: must end in .json"),
        (["run.json", "--device-like", "mine", "--out", "a.json"], "--device-like = mine: must be one of"),
    ):
        assert cli.run(["bench", "table", *arguments]) == 2
        assert capsys.readouterr().err.startswith(f"hpc: error: {message}")


# ----------------------------------------------------------------------------------------------------------------------
# What --candidates times


class Native:
    """Stands in for hpc._bench: a planner in which row_local refuses and kv_split and cluster share rows."""

    class Selection:
        def __init__(self, rows, columns, stride, k, *, kernel, policy, changes, ctas_per_row, device):
            assert (rows, columns, stride, k, policy, changes, device) == (2, 4096, 4096, 64, "default", {}, 0)
            most = {"persistent": 1, "kv_split": 8, "cluster": 2, "fallback": 1}.get(kernel)
            if most is None or ctas_per_row > most:
                raise ValueError(f"kernel = {kernel}: no")
            self.plan = {"kernel": kernel, "ctas_per_row": ctas_per_row or most}

        def describe(self):
            return self.plan


def test_every_launch_that_the_planner_can_choose_is_a_candidate():
    pytest.importorskip("torch", reason="torch is not installed")
    from hpc_bench import contestants
    from hpc_bench.grids import Cell

    found = contestants.candidates(Native, Cell("decode", "normal", 2, 4096, 64), 0)
    assert {contestant.name for contestant in found} == {
        *("hpc persistent", "hpc cluster 2 a row", "hpc fallback"),
        *("hpc kv_split 2 a row", "hpc kv_split 4 a row", "hpc kv_split 8 a row"),
    }
    assert len(found) == 6
    assert all(Timing(contestant.name).forced for contestant in found)
