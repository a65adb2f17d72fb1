#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the C++ GPU suite: many tests a process (a shard), since most of a process is its start, then the stress tests.

    tests/gpu/run_shards.py BUILD_DIR LOG_DIR [LIMIT_S]     LIMIT_S: of a shard, 180 if absent

The tests of a shard that failed, crashed or took too long run again through ctest, one a process, so that the one at
fault is named. The run has failed even if they pass there. Logs and JUnit files go to LOG_DIR. Exit code 0: all passed
or skipped.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

if len(sys.argv) not in (3, 4):
    sys.exit(f"usage: {sys.argv[0]} BUILD_DIR LOG_DIR [LIMIT_S]")
BUILD, LOGS = (Path(argument).resolve() for argument in sys.argv[1:3])
LIMIT_S = sys.argv[3] if len(sys.argv) == 4 else "180"
BINARY = str(BUILD / "tests/gpu/hpctopk_gpu_tests")
SHARDS = max((os.cpu_count() or 1) - 2, 1)


def tests_of(test_filter: str) -> list[str]:
    """The full names, in the order in which they run."""
    command = [BINARY, "--gtest_list_tests", f"--gtest_filter={test_filter}"]
    names, suite = [], ""
    for line in subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  "):
            names.append(suite + name.strip())
        elif name.endswith("."):
            suite = name
    return names


def results_of(report: Path) -> dict[str, str]:
    """Passed, failed or skipped for each test of a JUnit file, GoogleTest's or ctest's."""
    results = {}
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        name = case.get("name", "")
        suite = case.get("classname", "")  # ctest's is the name again
        name = name.removeprefix("gpu.") if suite == name else f"{suite}.{name}"
        failed = case.find("failure") is not None or case.get("status") == "fail"
        skipped = case.find("skipped") is not None or case.get("result") == "skipped"
        results[name] = "failed" if failed else "skipped" if skipped else "passed"
    return results


def run_shard(name: str, tests: list[str]) -> tuple[bool, dict[str, str]]:
    """Whether all is well, and the results, which are none where the process did not come to its end."""
    log, report = LOGS / f"{name}.log", LOGS / f"{name}.xml"
    report.unlink(missing_ok=True)
    command = ["timeout", "--kill-after=10", LIMIT_S, BINARY, f"--gtest_output=xml:{report}"]
    with log.open("w") as output:
        code = subprocess.run([*command, f"--gtest_filter={':'.join(tests)}"], stdout=output, stderr=output).returncode
    results = results_of(report)
    if code == 0 and set(results) == set(tests) and "failed" not in results.values():
        return True, results
    print(f"{name}: exit code {code}{' (timeout)' if code in (124, 137) else ''}, see {log}", flush=True)
    return False, results


def run_alone(name: str, tests: list[str]) -> dict[str, str]:
    """The results of the tests through ctest, one a process."""
    report = LOGS / f"{name}.xml"
    report.unlink(missing_ok=True)
    pattern = "^gpu\\.(" + "|".join(map(re.escape, tests)) + ")$"
    command = [
        "ctest",
        "--test-dir",
        str(BUILD),
        f"-j{min(SHARDS, 12)}",
        "--output-on-failure",
        "--output-junit",
        str(report),
    ]
    subprocess.run([*command, "-R", pattern])
    results = results_of(report)
    return {test: results.get(test, "failed") for test in tests}


def main() -> int:
    """Prints a summary in the words of ctest's."""
    begin = time.monotonic()
    LOGS.mkdir(parents=True, exist_ok=True)
    tests = tests_of("-*StressTest*:*DISABLED_*")
    shards = {f"shard-{i}": tests[i::SHARDS] for i in range(min(SHARDS, len(tests)))}
    # Not beside other tests: they have a time limit of their own, and one holds most of the GPU.
    stress = {"stress": tests_of("*StressTest*:-*DISABLED_*")}
    results: dict[str, str] = {}
    unwell = {}
    for batch in (shards, stress):
        with ThreadPoolExecutor(SHARDS) as pool:
            outcomes = list(pool.map(run_shard, batch.keys(), batch.values()))
        for name, (well, found) in zip(batch, outcomes, strict=True):
            results |= found
            if not well:
                unwell[name] = batch[name]
    for name, names in unwell.items():
        alone = run_alone(f"{name}-alone", names)
        results |= {test: result for test, result in alone.items() if results.get(test) != "failed"}
    failed = sorted(test for test, result in results.items() if result == "failed")
    for test in failed:
        print(f"{test} ***Failed")
    for name, names in unwell.items():
        if not set(names) & set(failed):
            print(f"{name} ***Failed, but each of its tests passed alone")
    skipped = sum(result == "skipped" for result in results.values())
    percent = 100 * (len(results) - len(failed)) // max(len(results), 1)
    print(f"\n{percent}% tests passed, {len(failed)} tests failed out of {len(results)}, {skipped} skipped")
    print(f"Total Test time (real) = {time.monotonic() - begin:.2f} sec")
    return 1 if failed or unwell or not results else 0


if __name__ == "__main__":
    sys.exit(main())
