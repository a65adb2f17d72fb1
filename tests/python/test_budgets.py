# SPDX-License-Identifier: Apache-2.0
"""tests/budgets/check_budgets.py: what it reads from ptxas and what it says of a kernel over its limits."""

import json
import runpy
import shutil
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "budgets"
check_budgets = runpy.run_path(str(FOLDER / "check_budgets.py"))

# What nvcc 13.0 says, shortened: a kernel for two architectures, the first with a function that it calls.
PTXAS = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_ZN7hpctopk6detail4scanILNS_4ViewE2ELi512EEEvi' for 'sm_90a'
ptxas info    : Function properties for _ZN7hpctopk6detail4scanILNS_4ViewE2ELi512EEEvi
    88 bytes stack frame, 120 bytes spill stores, 208 bytes spill loads
ptxas info    : Used 64 registers, used 1 barriers, 88 bytes cumulative stack size, 96 bytes smem
ptxas info    : Compile time = 204.215 ms
ptxas info    : Function properties for _ZN7hpctopk6detail6finishEi
    0 bytes stack frame, 32 bytes spill stores, 36 bytes spill loads
ptxas info    : Compiling entry function '_ZN7hpctopk6detail4scanILNS_4ViewE2ELi512EEEvi' for 'sm_80'
ptxas info    : Function properties for _ZN7hpctopk6detail4scanILNS_4ViewE2ELi512EEEvi
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers
"""
FIGURES = {"registers": 64, "spill_bytes": 396, "static_shared_bytes": 96}

pytestmark = pytest.mark.skipif(shutil.which("c++filt") is None, reason="c++filt is not installed")


@pytest.fixture
def run(tmp_path):
    """Runs the script on PTXAS with these limits: the exit code and the table afterwards."""
    (tmp_path / "scan.o.ptxas").write_text(PTXAS)

    def run(kernels, *options, architecture="sm_90a"):
        table = tmp_path / "budgets.json"
        table.write_text(json.dumps({"architecture": architecture, "kernels": kernels}))
        code = check_budgets["main"]([*options, str(table), str(tmp_path / "scan.o")])
        return code, json.loads(table.read_text())["kernels"]

    return run


def test_a_kernel_within_its_limits(run, capsys):
    assert run({"scan<2, 512>": FIGURES})[0] == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", FIGURES)
def test_a_kernel_over_a_limit(run, capsys, name):
    assert run({"scan<2, 512>": {**FIGURES, name: FIGURES[name] - 1}})[0] == 1
    message = f"scan<2, 512>: {name} = {FIGURES[name]}: must be at most {FIGURES[name] - 1}"
    assert capsys.readouterr().err == f"check_budgets: {message} (budgets.json, sm_90a)\n"


def test_every_kernel_has_limits_and_every_limit_a_kernel(run, capsys):
    assert run({"gone": FIGURES})[0] == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("check_budgets: scan<2, 512>: has no limits")
    assert lines[1].startswith("check_budgets: gone: has limits, but there is no such kernel")


def test_update_writes_limits_that_hold(run):
    code, table = run({"gone": FIGURES}, "--update")
    assert code == 0
    assert table == {"scan<2, 512>": {**FIGURES, "spill_bytes": 448}}
    assert run(table)[0] == 0


def test_another_architecture_is_skipped(run):
    assert run({}, architecture="sm_100")[0] == 77


def test_an_object_without_its_figures(run, tmp_path, capsys):
    (tmp_path / "scan.o.ptxas").unlink()
    assert run({})[0] == 2
    assert "scan.o.ptxas" in capsys.readouterr().err


def test_the_committed_table_leaves_shared_memory_to_the_planner():
    table = json.loads((FOLDER / "budgets.json").read_text())
    assert table["kernels"]
    assert all(limits["static_shared_bytes"] == 0 for limits in table["kernels"].values())
