# SPDX-License-Identifier: Apache-2.0
"""hpc.plan and hpc.workspace_size."""

import dataclasses

import pytest

import hpc

DEVICES = ["a100", "h20", "h100", "h200", "b200", "rtx5090"]
MIB = 1 << 20


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("m", [0, 1, 3, 512, 8192])
@pytest.mark.parametrize("n", [0, 1, 2048, 131072, 1048576])
def test_every_gpu_has_a_plan(device, m, n):
    plan = hpc.plan(m, n, 2048, device=device)
    assert plan.problem == hpc.Problem(num_rows=m, num_columns=n, row_stride=n, k=2048)
    assert plan.kernel in {"persistent", "kv_split", "row_local", "cluster", "fallback"}
    assert 0 <= plan.workspace_bytes <= hpc.workspace_size(m, n, 2048, device=device) <= 16 * MIB
    chosen = [c for c in plan.candidates if c.kernel == plan.kernel]
    assert [c.feasible for c in chosen] == [True]
    assert chosen[0].cost_us == min(c.cost_us for c in plan.candidates if c.feasible)
    assert all(c.note for c in plan.candidates)


def test_the_cpu_is_planned_for():
    plan = hpc.plan(64, 131072, 2048, device="cpu")
    assert plan.kernel == "cpu"
    assert plan.policy.sample.view in {"none", "strided", "hashed"}


def test_a_plan_prints_what_was_chosen_and_why():
    plan = hpc.plan(64, 131072, 2048, device="h200")
    text = str(plan)
    assert plan.kernel in text
    assert "131072" in text
    for candidate in plan.candidates:
        assert candidate.kernel in text
        assert candidate.note in text


def test_a_plan_is_a_value():
    plan = hpc.plan(64, 131072, 2048, device="h200")
    assert plan == hpc.plan(64, 131072, 2048, device="h200")
    assert plan != hpc.plan(65, 131072, 2048, device="h200")
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.kernel = "cpu"


def test_row_stride_and_kernel_are_arguments():
    plan = hpc.plan(64, 900_000, 2048, row_stride=900_096, device="h200", kernel="fallback")
    assert plan.problem.row_stride == 900_096
    assert plan.kernel == "fallback"


def test_without_a_device_it_is_the_one_here():
    here = hpc.plan(4, 5000, 16)
    try:
        assert here == hpc.plan(4, 5000, 16, device="cuda")
    except ValueError:
        assert here == hpc.plan(4, 5000, 16, device="cpu")


def test_a_torch_device_is_a_device():
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert hpc.plan(4, 5000, 16, device=torch.device("cpu")) == hpc.plan(4, 5000, 16, device="cpu")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "k = 0: must be between 1 and 4096"),
        ({"k": 4097}, "k = 4097: must be between 1 and 4096"),
        ({"k": 1 << 40}, "k = 1099511627776: must be between 1 and 4096"),
        ({"m": -1}, "num_rows = -1: must be between 0 and 9223372036854775807"),
        ({"m": 1 << 63}, "num_rows = 9223372036854775808: must be between 0 and 9223372036854775807"),
        ({"n": 1 << 63}, "num_columns = 9223372036854775808: must be between 0 and 2147483647"),
        ({"k": 1 << 63}, "k = 9223372036854775808: must be between 1 and 4096"),
        ({"row_stride": 1 << 63}, "row_stride = 9223372036854775808: must be between"),
        ({"row_stride": 0}, "row_stride = 0: must be at least num_columns = 100"),
        ({"device": "cuda:99999999999"}, "device = cuda:99999999999: must be a CUDA device of this machine"),
        ({"device": "h200\0"}, r"device = 'h200\x00': must be one of a100"),
        ({"device": "\udc80"}, r"device = '\udc80': must be one of a100"),
        ({"kernel": "fallback\0"}, r"kernel = 'fallback\x00': must be one of auto, persistent"),
        ({"kernel": "a\nb"}, r"kernel = 'a\nb': must be one of auto, persistent"),
        ({"kernel": "\ud800"}, r"kernel = '\ud800': must be one of auto, persistent"),
        ({"n": -1}, "num_columns = -1: must be between 0 and 2147483647"),
        ({"n": 1 << 31}, "num_columns = 2147483648: must be between 0 and 2147483647"),
        ({"row_stride": 99}, "row_stride = 99: must be at least num_columns = 100"),
        ({"device": "h900"}, "device = h900: must be one of a100, h20, h100, h200, b200, rtx5090, cpu"),
        ({"kernel": "fast"}, "kernel = fast: must be one of auto, persistent, kv_split, row_local, cluster, fallback"),
        ({"kernel": "cpu"}, "kernel = cpu: "),
        ({"kernel": "row_local", "device": "cpu"}, "kernel = row_local: "),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        hpc.plan(**{"m": 10, "n": 100, "k": 5, "device": "h200", **arguments})
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"m": 1.5}, "num_rows = 1.5: must be an integer"),
        ({"n": None}, "num_columns = None: must be an integer"),
        ({"k": "8"}, "k = '8': must be an integer"),
        ({"row_stride": 100.0}, "row_stride = 100.0: must be an integer"),
        ({"device": 1.5}, "device = 1.5: must be a str or a torch.device"),
        ({"kernel": None}, "kernel = None: must be a str"),
        ({"kernel": 1.5}, "kernel = 1.5: must be a str"),
    ],
)
def test_bad_types(arguments, message):
    with pytest.raises(TypeError) as error:
        hpc.plan(**{"m": 10, "n": 100, "k": 5, "device": "h200", **arguments})
    assert str(error.value) == message


def test_a_gpu_that_is_not_there():
    with pytest.raises(ValueError, match=r"^device = cuda:1000: must be a CUDA device of this machine: .+$"):
        hpc.plan(1, 1, 1, device="cuda:1000")


def test_workspace_size_refuses_too():
    with pytest.raises(ValueError, match=r"k = 5000: must be between 1 and 4096"):
        hpc.workspace_size(1, 1, 5000, device="h200")
    with pytest.raises(ValueError, match=r"num_rows = 9223372036854775808: must be between 0 and"):
        hpc.workspace_size(1 << 63, 1, 5, device="h200")
