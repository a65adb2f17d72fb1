# SPDX-License-Identifier: Apache-2.0
"""Bad arguments: hpc.topk and the torch op say the same words, and write nothing."""

import re

import numpy as np
import pytest

import hpc
from conftest import require_device

ROWS, COLUMNS, K = 4, 32, 8
SEVEN = 7


def arguments():
    return {
        "scores": np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS),
        "k": K,
        "lengths": np.full(ROWS, COLUMNS, np.int32),
        "row_starts": np.zeros(ROWS, np.int32),
        "num_rows": np.array([ROWS], np.int32),
        "out": np.full((ROWS, K), SEVEN, np.int32),
        "workspace": np.zeros(1 << 12, np.uint8),
    }


def shared_with(name, view):
    """out in the memory of another argument."""

    def share(made):
        memory = np.full((ROWS, COLUMNS), SEVEN, np.int32)
        return {**made, "out": memory[:, :K], name: view(memory)}

    return share


# What to change, the error of hpc.topk, its message as a regular expression.
BAD = {
    "float64": ({"scores": np.zeros((ROWS, COLUMNS))}, TypeError, r"scores\.dtype = float64: must be float32"),
    "float16": (
        {"scores": np.zeros((ROWS, COLUMNS), np.float16)},
        TypeError,
        r"scores\.dtype = float16: must be float32",
    ),
    "int scores": (
        {"scores": np.zeros((ROWS, COLUMNS), np.int32)},
        TypeError,
        r"scores\.dtype = int32: must be float32",
    ),
    "1-D scores": ({"scores": np.zeros(COLUMNS, np.float32)}, ValueError, r"scores\.ndim = 1: must be 2"),
    "3-D scores": ({"scores": np.zeros((2, 2, 2), np.float32)}, ValueError, r"scores\.ndim = 3: must be 2"),
    "columns apart": (
        {"scores": np.zeros((ROWS, 2 * COLUMNS), np.float32)[:, ::2]},
        ValueError,
        r"scores\.strides\[1\] = 2 elements: must be 1: the last dimension is contiguous",
    ),
    "transposed": (
        {"scores": np.zeros((COLUMNS, ROWS), np.float32).T},
        ValueError,
        r"scores\.strides\[1\] = 4 elements: must be 1: the last dimension is contiguous",
    ),
    "overlapping rows": (
        {"scores": np.lib.stride_tricks.as_strided(np.zeros(64, np.float32), (ROWS, COLUMNS), (40, 4))},
        ValueError,
        r"scores\.strides\[0\] = 10 elements: must be at least the row's 32: rows do not overlap",
    ),
    "k = 0": ({"k": 0}, ValueError, r"k = 0: must be between 1 and 4096"),
    "k < 0": ({"k": -3}, ValueError, r"k = -3: must be between 1 and 4096"),
    "k > 4096": ({"k": 4097}, ValueError, r"k = 4097: must be between 1 and 4096"),
    "k past int32": ({"k": (1 << 32) + 1}, ValueError, r"k = 4294967297: must be between 1 and 4096"),
    "lengths int64": ({"lengths": np.full(ROWS, 3)}, TypeError, r"lengths\.dtype = int64: must be int32"),
    "lengths 2-D": ({"lengths": np.zeros((ROWS, 1), np.int32)}, ValueError, r"lengths\.ndim = 2: must be 1"),
    "lengths short": (
        {"lengths": np.zeros(ROWS - 1, np.int32)},
        ValueError,
        r"lengths\.shape = \[3\]: must be \[4\]: one for each row of scores",
    ),
    "lengths apart": (
        {"lengths": np.zeros(2 * ROWS, np.int32)[::2]},
        ValueError,
        r"lengths\.strides\[0\] = 2 elements: must be 1",
    ),
    "row_starts float": (
        {"row_starts": np.zeros(ROWS, np.float32)},
        TypeError,
        r"row_starts\.dtype = float32: must be int32",
    ),
    "row_starts long": (
        {"row_starts": np.zeros(ROWS + 1, np.int32)},
        ValueError,
        r"row_starts\.shape = \[5\]: must be \[4\]: one for each row of scores",
    ),
    "num_rows int64": ({"num_rows": np.array([1])}, TypeError, r"num_rows\.dtype = int64: must be int32"),
    "num_rows of two": (
        {"num_rows": np.zeros(2, np.int32)},
        ValueError,
        r"num_rows\.shape = \[2\]: must be \[1\]: one count",
    ),
    "num_rows scalar": ({"num_rows": np.array(3, np.int32)}, ValueError, r"num_rows\.ndim = 0: must be 1"),
    "out int64": ({"out": np.full((ROWS, K), SEVEN)}, TypeError, r"out\.dtype = int64: must be int32"),
    "out narrow": (
        {"out": np.full((ROWS, K - 1), SEVEN, np.int32)},
        ValueError,
        r"out\.shape = \[4, 7\]: must be \[4, 8\]: rows of scores by k",
    ),
    "out low": (
        {"out": np.full((ROWS - 1, K), SEVEN, np.int32)},
        ValueError,
        r"out\.shape = \[3, 8\]: must be \[4, 8\]: rows of scores by k",
    ),
    "out apart": (
        {"out": np.full((ROWS, 2 * K), SEVEN, np.int32)[:, ::2]},
        ValueError,
        r"out\.strides\[1\] = 2 elements: must be 1",
    ),
    "workspace dtype": (
        {"workspace": np.zeros(64, np.float32)},
        TypeError,
        r"workspace\.dtype = float32: must be uint8",
    ),
    "workspace 2-D": ({"workspace": np.zeros((4, 4), np.uint8)}, ValueError, r"workspace\.ndim = 2: must be 1"),
    "unknown kernel": (
        {"kernel": "fast"},
        ValueError,
        r"kernel = fast: must be one of auto, persistent, kv_split, row_local, cluster, fallback, cpu",
    ),
    "kernel of another device": ({"kernel": "row_local"}, ValueError, r"kernel = row_local: .*CPU"),
    "row_starts 2-D": ({"row_starts": np.zeros((ROWS, 1), np.int32)}, ValueError, r"row_starts\.ndim = 2: must be 1"),
    "row_starts apart": (
        {"row_starts": np.zeros(2 * ROWS, np.int32)[::2]},
        ValueError,
        r"row_starts\.strides\[0\] = 2 elements: must be 1",
    ),
    "out 1-D": ({"out": np.full(ROWS * K, SEVEN, np.int32)}, ValueError, r"out\.ndim = 1: must be 2"),
    "out wide": (
        {"out": np.full((ROWS, K + 1), SEVEN, np.int32)},
        ValueError,
        r"out\.shape = \[4, 9\]: must be \[4, 8\]: rows of scores by k",
    ),
    "out of overlapping rows": (
        {"out": np.lib.stride_tricks.as_strided(np.full(64, SEVEN, np.int32), (ROWS, K), (16, 4))},
        ValueError,
        r"out\.strides\[0\] = 4 elements: must be at least the row's 8: rows do not overlap",
    ),
    "workspace apart": (
        {"workspace": np.zeros(64, np.uint8)[::2]},
        ValueError,
        r"workspace\.strides\[0\] = 2 elements: must be 1",
    ),
    "out in scores": (
        shared_with("scores", lambda memory: memory.view(np.float32)),
        ValueError,
        r"out = 0x\w+: its \d+ bytes must not overlap the \d+ bytes of scores at",
    ),
    "out in lengths": (
        shared_with("lengths", lambda memory: memory[1, :ROWS]),
        ValueError,
        r"out = 0x\w+: its \d+ bytes must not overlap the 16 bytes of lengths at",
    ),
    "out in row_starts": (
        shared_with("row_starts", lambda memory: memory[0, :ROWS]),
        ValueError,
        r"out = 0x\w+: its \d+ bytes must not overlap the 16 bytes of row_starts at",
    ),
    "out in num_rows": (
        shared_with("num_rows", lambda memory: memory[-1, K - 1 : K]),
        ValueError,
        r"out = 0x\w+: its \d+ bytes must not overlap the 4 bytes of num_rows at",
    ),
}


@pytest.fixture(params=BAD, ids=lambda name: name.replace(" ", "_"))
def bad(request):
    """Arguments of which one is bad, the kind of error and its message."""
    change, kind, message = BAD[request.param]
    made = arguments()
    return change(made) if callable(change) else {**made, **change}, kind, re.compile(message)


def contents(made):
    """What every array holds."""
    return {name: value.tobytes() for name, value in made.items() if isinstance(value, np.ndarray)}


def as_tensors(torch, made):
    return {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in made.items()}


def test_numpy(bad):
    made, kind, message = bad
    before = contents(made)
    with pytest.raises(kind) as error:
        hpc.topk(**made)
    assert message.match(str(error.value))
    assert "\n" not in str(error.value)
    assert contents(made) == before


def test_torch(bad):
    torch = require_device("cpu")
    made, kind, message = bad
    before = contents(made)
    with pytest.raises(kind) as error:
        hpc.topk(**as_tensors(torch, made))
    assert message.match(str(error.value))
    assert contents(made) == before


def test_torch_op(bad):
    torch = require_device("cpu")
    made, _, message = bad
    before = contents(made)
    with pytest.raises(RuntimeError) as error:
        torch.ops.hpc.topk.out(**as_tensors(torch, made))
    assert message.match(str(error.value))
    assert "\n" not in str(error.value)
    assert contents(made) == before


def test_torch_op_that_allocates(bad):
    torch = require_device("cpu")
    made, _, message = bad
    del made["out"], made["workspace"]
    if re.match(r"out|workspace", message.pattern):
        pytest.skip("this form takes no out and no workspace")
    with pytest.raises(RuntimeError) as error:
        torch.ops.hpc.topk(**as_tensors(torch, made))
    assert message.match(str(error.value))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [[1.0, 2.0]]}, "scores = list: must be a numpy array or a torch tensor"),
        ({"scores": None}, "scores = NoneType: must be a numpy array or a torch tensor"),
        ({"lengths": [1, 2, 3, 4]}, "lengths = list: must be a numpy array, as scores is"),
        ({"out": 3}, "out = int: must be a numpy array, as scores is"),
        ({"k": 2.5}, "k = 2.5: must be an integer"),
        ({"k": "8"}, "k = '8': must be an integer"),
        ({"kernel": None}, "kernel = None: must be a str"),
        ({"kernel": 1.5}, "kernel = 1.5: must be a str"),
        ({"k": np.zeros((2, 2))}, "k = array([[0., 0... [0., 0.]]): must be an integer"),
        (
            {"scores": np.ma.masked_array(np.zeros((ROWS, COLUMNS), np.float32))},
            "scores = MaskedArray: must be an array without a mask: rows are cut by lengths",
        ),
        (
            {"lengths": np.ma.masked_array(np.zeros(ROWS, np.int32))},
            "lengths = MaskedArray: must be an array without a mask: rows are cut by lengths",
        ),
        ({"scores": np.zeros((ROWS, COLUMNS), ">f4")}, "scores.dtype = >f4: must be float32"),
    ],
)
def test_other_types(change, message):
    with pytest.raises(TypeError) as error:
        hpc.topk(**{**arguments(), **change})
    assert str(error.value) == message


def test_k_past_int64():
    for k in (1 << 63, -(1 << 70)):
        with pytest.raises(ValueError, match=rf"^k = {k}: must be between 1 and 4096$"):
            hpc.topk(**{**arguments(), "k": k})


@pytest.mark.parametrize(("kernel", "text"), [("a\nb", r"'a\nb'"), ("cpu\0", r"'cpu\x00'"), ("\ud800", r"'\ud800'")])
def test_kernels_that_do_not_print(kernel, text):
    with pytest.raises(ValueError, match="kernel = ") as error:
        hpc.topk(**{**arguments(), "kernel": kernel})
    assert str(error.value) == f"kernel = {text}: must be one of {', '.join(hpc._core.KERNELS)}"


def test_torch_op_with_a_kernel_of_two_lines():
    torch = require_device("cpu")
    with pytest.raises(RuntimeError, match=r"^kernel = a\?b: must be one of auto") as error:
        torch.ops.hpc.topk(torch.zeros(2, 3), None, 1, kernel="a\nb")
    assert "\n" not in str(error.value)


def test_numpy_beside_torch():
    torch = require_device("cpu")
    with pytest.raises(TypeError, match=r"lengths = ndarray: must be a torch tensor, as scores is"):
        hpc.topk(torch.zeros(2, 3), 1, np.zeros(2, np.int32))
    with pytest.raises(TypeError, match=r"lengths = Tensor: must be a numpy array, as scores is"):
        hpc.topk(np.zeros((2, 3), np.float32), 1, torch.zeros(2, dtype=torch.int32))


def test_read_only_out():
    made = arguments()
    before = contents(made)
    made["out"].flags.writeable = False
    with pytest.raises(ValueError, match=r"out\.flags\.writeable = False: must be True"):
        hpc.topk(**made)
    assert contents(made) == before


def test_strides_that_are_no_whole_elements():
    packed = np.zeros(ROWS, np.dtype([("scores", np.float32, COLUMNS), ("tag", np.uint8)]))
    with pytest.raises(ValueError, match=r"scores\.strides\[0\] = 129 bytes: must be a multiple of 4"):
        hpc.topk(packed["scores"], K)


def test_misaligned_scores():
    scores = np.zeros(4 * ROWS * COLUMNS + 1, np.uint8)[1:].view(np.float32).reshape(ROWS, COLUMNS)
    with pytest.raises(ValueError, match=r"scores = 0x\w+: must be aligned to 4 bytes"):
        hpc.topk(scores, K)


def test_operands_on_another_device():
    torch = require_device("cuda")
    scores = torch.zeros(ROWS, COLUMNS, device="cuda")
    lengths = torch.zeros(ROWS, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"lengths\.device = cpu: must be cuda:0, that of scores"):
        hpc.topk(scores, K, lengths)
    with pytest.raises(RuntimeError, match=r"lengths\.device = cuda:0: must be cpu, that of scores"):
        torch.ops.hpc.topk(scores.cpu(), lengths.cuda(), K)
    out = torch.full((ROWS, K), SEVEN, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"out\.device = cpu: must be cuda:0, that of scores"):
        hpc.topk(scores, K, out=out)
    assert (out == SEVEN).all()


def test_a_workspace_that_will_not_do():
    torch = require_device("cuda")
    shape = 1, 1 << 20, 2048
    plan = hpc.plan(*shape, device="cuda", kernel="kv_split")
    if plan.workspace_bytes == 0:
        pytest.skip("this kernel needs no workspace here")
    scores = torch.zeros(shape[:2], device="cuda")
    out = torch.full((1, shape[2]), SEVEN, dtype=torch.int32, device="cuda")
    workspace = torch.zeros(plan.workspace_bytes + 16, dtype=torch.uint8, device="cuda")
    for bad, message in [
        (workspace[: plan.workspace_bytes - 1], rf"workspace_bytes = \d+: .* {plan.workspace_bytes}"),
        (workspace[1:], r"workspace = 0x\w+: must be aligned to 16 bytes"),
        (scores.view(-1).view(torch.uint8), r"workspace = 0x\w+: its \d+ bytes must not overlap"),
    ]:
        with pytest.raises(ValueError, match=message):
            hpc.topk(scores, shape[2], out=out, workspace=bad, kernel="kv_split")
        with pytest.raises(RuntimeError, match=message):
            torch.ops.hpc.topk.out(scores, None, shape[2], kernel="kv_split", out=out, workspace=bad)
    assert (out == SEVEN).all()
    assert (scores == 0).all()


def test_a_kernel_of_the_cpu_on_cuda():
    torch = require_device("cuda")
    with pytest.raises(ValueError, match=r"kernel = cpu: "):
        hpc.topk(torch.zeros(ROWS, COLUMNS, device="cuda"), K, kernel="cpu")


@pytest.mark.parametrize("name", ["lengths", "row_starts", "num_rows", "out", "workspace"])
def test_an_operand_on_a_device_without_memory(name):
    torch = require_device("cpu")
    made = arguments()
    before = contents(made)
    tensors = as_tensors(torch, made)
    tensors[name] = tensors[name].to("meta")
    message = rf"{name}\.device = meta: must be cpu, that of scores"
    with pytest.raises(ValueError, match=message):
        hpc.topk(**tensors)
    with pytest.raises(RuntimeError, match=message):
        torch.ops.hpc.topk.out(**tensors)
    assert contents(made) == before
    if name in ("lengths", "row_starts", "num_rows"):
        with pytest.raises(ValueError, match=message):
            hpc.topk(**{n: tensor for n, tensor in tensors.items() if n not in ("out", "workspace")})


def test_dtypes_that_numpy_lacks():
    torch = require_device("cpu")
    with pytest.raises(TypeError, match=r"scores\.dtype = bfloat16: must be float32"):
        hpc.topk(torch.zeros(ROWS, COLUMNS, dtype=torch.bfloat16), K)


def test_a_device_that_hpc_does_not_serve():
    torch = require_device("cpu")
    with pytest.raises(RuntimeError):
        hpc.topk(torch.zeros(2, 3).to_sparse(), 1)
