# SPDX-License-Identifier: Apache-2.0
"""What the package needs, and says where that is not there."""

import subprocess
import sys
from importlib import resources

import pytest

import hpc


def python(code, missing=()):
    """Run code in a fresh interpreter that cannot import the packages `missing`."""
    block = f"import sys\nfor name in {list(missing)}: sys.modules[name] = None\n"
    return subprocess.run([sys.executable, "-c", block + code], capture_output=True, text=True, check=False)


OPTIONAL = ("torch", "click", "rich", "safetensors", "matplotlib")


def test_numpy_is_all_that_it_needs():
    code = """
import numpy as np, hpc
scores = np.arange(12, dtype=np.float32).reshape(2, 6)
assert sorted(hpc.topk(scores, 2)[1].tolist()) == [4, 5]
assert hpc.plan(2, 6, 2, device="h200").kernel
assert hpc.workspace_size(2, 6, 2, device="cpu") >= 0
"""
    done = python(code, OPTIONAL)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_it_imports_none_of_the_command():
    code = "import hpc\nprint([name for name in ('click', 'rich', 'safetensors', 'matplotlib') if name in sys.modules])"
    assert python(code, ("torch",)).stdout == "[]\n"


@pytest.mark.parametrize("name", ["click", "rich"])
def test_the_command_names_what_it_misses(name):
    done = python(
        "from hpc.__main__ import main\nsys.argv = ['hpc', 'plan', '1', '2']\nsys.exit(main())", [name, "torch"]
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"hpc: error: the command needs {name}: pip install 'hpctopk[cli]'\n"


def test_a_torch_tensor_without_the_torch_op():
    code = """
class Tensor: pass
Tensor.__module__ = "torch"
import hpc
try:
    hpc.topk(Tensor(), 1)
except RuntimeError as error:
    print(error)
"""
    assert python(code, ("torch",)).stdout.startswith("scores = Tensor: torch cannot be imported")


def test_the_op_is_there_whatever_is_imported_first():
    pytest.importorskip("torch", reason="torch is not installed")
    if hpc._topk._no_torch:
        pytest.skip(hpc._topk._no_torch)
    for order in ("import torch, hpc", "import hpc, torch"):
        assert python(order + "\nprint(torch.ops.hpc.topk.default)").stdout == "hpc.topk.default\n"


def test_it_is_typed_and_documented():
    assert (resources.files("hpc") / "py.typed").is_file()
    for name in hpc.__all__:
        if not name.startswith("_"):
            assert getattr(hpc, name).__doc__


def test_it_has_a_version():
    assert hpc.__version__.count(".") == 2
