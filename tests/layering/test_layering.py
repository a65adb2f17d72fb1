# SPDX-License-Identifier: Apache-2.0
"""The include rules of docs/architecture.md, read from its table and held against every source file."""

from __future__ import annotations

import re
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
SUFFIXES = {".h", ".cuh", ".inc", ".cpp", ".cu"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
STANDARD = re.compile(r"[a-z_0-9]+")  # headers of the C++ standard library have neither suffix nor folder


class Rule(NamedTuple):
    files: str
    own: list[str]
    others: list[str]


def read_rules(text: str) -> list[Rule]:
    """The table's rows, each with the patterns of its three columns."""
    table = text.partition("| Files |")[2].splitlines()[2:]
    rules = []
    for line in table:
        if not line.startswith("|"):
            break
        files, own, others = (re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|"))
        rules.append(Rule(files[0], own, others))
    return rules


def fits(path: str, pattern: str) -> bool:
    return fnmatchcase(path, pattern + "*" if pattern.endswith("/") else pattern)


def violations(path: str, source: str, rules: list[Rule]) -> list[str]:
    """What `path`, a file of this repository that holds `source`, includes against the rules: one line each."""
    rule = max((rule for rule in rules if fits(path, rule.files)), key=lambda rule: len(rule.files), default=None)
    if rule is None:
        return [f"{path}: no entry of docs/architecture.md fits this file"]
    found = []
    for bracket, header in INCLUDE.findall(source):
        own = [f for f in (header, f"include/{header}", f"python/{header}") if (ROOT / f).is_file()]
        if own:
            allowed = any(fits(own[0], pattern) for pattern in rule.own)
        else:
            allowed = bracket == "<" and (
                STANDARD.fullmatch(header) is not None or any(fits(header, pattern) for pattern in rule.others)
            )
        if not allowed:
            found.append(f"{path}: may not include {header} ({rule.files} in docs/architecture.md)")
    return found


RULES = read_rules((ROOT / "docs/architecture.md").read_text())


def source_files() -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return sorted(f for f in listing.stdout.splitlines() if Path(f).suffix in SUFFIXES and (ROOT / f).is_file())


def test_every_source_file_keeps_the_rules() -> None:
    files = source_files()
    assert "include/hpctopk/topk.h" in files
    broken = [line for f in files for line in violations(f, (ROOT / f).read_text(), RULES)]
    assert not broken, "\n".join(broken)


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("include/hpctopk/topk.h", "<cuda_runtime.h>"),
        ("include/hpctopk/topk.h", '"src/cost_model.h"'),
        ("kernels/persistent.cu", '"src/cost_model.h"'),
        ("kernels/detail/view.h", "<cuda_fp16.h>"),
        ("src/plan.cpp", "<cuda_runtime_api.h>"),
        ("src/plan.cpp", '"kernels/detail/scan.cuh"'),
        ("src/launch.cpp", "<torch/csrc/stable/library.h>"),
        ("python/csrc/torch_ops.cpp", "<torch/torch.h>"),
        ("python/csrc/torch_ops.cpp", '"src/cost_model.h"'),
        ("elsewhere/new.cpp", "<vector>"),
    ],
)
def test_a_broken_rule_is_seen(path: str, include: str) -> None:
    assert len(violations(path, f"#include {include}\n", RULES)) == 1
