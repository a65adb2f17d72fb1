# SPDX-License-Identifier: Apache-2.0
"""The README's quick starts are the files of examples/, word for word, and those run.

The C++ ones are compiled and run against the installed library by tests/install.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = {".cpp": "cpp", ".py": "python"}
EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in LANGUAGES)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_readme_shows_the_example(example: Path) -> None:
    licence, _, code = example.read_text().partition("\n")
    assert "SPDX-License-Identifier" in licence
    assert f"```{LANGUAGES[example.suffix]}\n{code}```\n" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("example", [e for e in EXAMPLES if e.suffix == ".py"], ids=lambda path: path.name)
def test_python_example_runs(example: Path, tmp_path: Path) -> None:
    if "import torch" in example.read_text():
        pytest.importorskip("torch")
    run = subprocess.run([sys.executable, example], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
