#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds what ptxas gave each kernel against a table of limits.

Usage: check_budgets.py [--update] BUDGETS.json OBJECT...

Reads what keep_ptxas.sh left beside each object. `--update` makes the figures the table's limits, spills rounded up.
Exit code: 0; 1 where a kernel is over its limits, has none, or a limit has no kernel; 2 where a file cannot be read;
77 where the objects hold nothing for the table's architecture.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from pathlib import Path

SKIPPED = 77
SPILL_STEP = 64  # bytes: what a small change of the code or of the compiler may add


@dataclass
class Usage:
    """What a kernel takes, or may take.

    Attributes:
        registers: of a thread.
        spill_bytes: stored and loaded, by the kernel and the functions that it calls.
        static_shared_bytes: of a CTA. The planner gives out all of a block's shared memory (227 KiB) as dynamic and
            tests/cpp/plan_test.cpp holds it to that, so what a kernel takes beside it must be nothing.
    """

    registers: int = 0
    spill_bytes: int = 0
    static_shared_bytes: int = 0

    def raise_to(self, other: Usage) -> None:
        """Each figure becomes the larger one."""
        for f in fields(Usage):
            setattr(self, f.name, max(getattr(self, f.name), getattr(other, f.name)))


def usages(text: str, architecture: str) -> dict[str, Usage]:
    """What `ptxas -v` says of each kernel for an architecture ("sm_90a"), by the kernel's name as it says it."""
    found: dict[str, Usage] = {}
    usage = Usage()
    for line in text.splitlines():
        if entry := re.search(r"Compiling entry function '(.+)' for '(\w+)'", line):
            usage = Usage()  # of no matter, unless it is for this architecture
            if entry[2] == architecture:
                found[entry[1]] = usage
        elif spills := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            usage.spill_bytes += int(spills[1]) + int(spills[2])
        elif registers := re.search(r"Used (\d+) registers", line):
            shared = re.search(r"(\d+) bytes smem", line)
            usage.raise_to(Usage(int(registers[1]), 0, int(shared[1]) if shared else 0))
    return found


def short_name(demangled: str) -> str:
    """A kernel's name and template arguments, without its namespaces, its parameters and the enumerations' names."""
    name = re.sub(r"\((?:\w+::)*[A-Z]\w*\)(?=\d)", "", demangled).replace("(anonymous namespace)::", "")
    return re.sub(r"^void |(?:\w+::)+(?=\w+(?:<|$))", "", name.partition("(")[0])


def faults(measured: dict[str, Usage], limits: dict[str, Usage]) -> list[str]:
    """One line for each kernel and figure that is over its limit, kernel without limits and limit without kernel."""
    lines = []
    for kernel, usage in sorted(measured.items()):
        limit = limits.get(kernel)
        if limit is None:
            lines.append(f"{kernel}: has no limits")
            continue
        for name, most in asdict(limit).items():
            if (value := getattr(usage, name)) > most:
                lines.append(f"{kernel}: {name} = {value}: must be at most {most}")
    lines += [f"{kernel}: has limits, but there is no such kernel" for kernel in limits if kernel not in measured]
    return lines


def demangled(names: Iterable[str]) -> list[str]:
    """The names as C++ has them, by c++filt."""
    answer = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True)
    return answer.stdout.splitlines()


def write(path: Path, architecture: str, limits: dict[str, Usage]) -> None:
    """Write the table, a line for each kernel."""
    rows = ",\n".join(f"  {json.dumps(kernel)}: {json.dumps(asdict(u))}" for kernel, u in sorted(limits.items()))
    path.write_text(f'{{\n "architecture": "{architecture}",\n "kernels": {{\n{rows}\n }}\n}}\n', encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Run the command; the exit code."""
    update = arguments[:1] == ["--update"]
    table, *objects = map(Path, arguments[1 if update else 0 :])
    try:
        fields_of = json.loads(table.read_text(encoding="utf-8"))
        architecture = fields_of["architecture"]
        limits = {kernel: Usage(**limit) for kernel, limit in fields_of["kernels"].items()}
        by_symbol: dict[str, Usage] = {}
        for path in objects:
            by_symbol |= usages(Path(f"{path}.ptxas").read_text(encoding="utf-8"), architecture)
        measured = {short_name(n): u for n, u in zip(demangled(by_symbol), by_symbol.values(), strict=True)}
    except (OSError, ValueError, TypeError, KeyError) as error:
        print(f"check_budgets: {error}", file=sys.stderr)
        return 2
    if not measured:
        print(f"nothing was compiled for {architecture}")
        return SKIPPED
    if update:
        for usage in measured.values():
            usage.spill_bytes = -(-usage.spill_bytes // SPILL_STEP) * SPILL_STEP
        write(table, architecture, measured)
        return 0
    for kernel, usage in sorted(measured.items()):
        print(f"{kernel}: {', '.join(f'{name} {value}' for name, value in asdict(usage).items())}")
    found = faults(measured, limits)
    for line in found:
        print(f"check_budgets: {line} ({table.name}, {architecture})", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
