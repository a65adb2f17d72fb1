# SPDX-License-Identifier: Apache-2.0
"""Where figures come from: device, driver, versions, source revision, date, command line."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import hpc

ROOT = Path(__file__).resolve().parents[2]


def _output(*command: str) -> str | None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def source(revision: str | None) -> dict[str, Any]:
    """{"revision", "dirty"}: the commit of this tree and whether its files differ; None where it is no checkout.

    Args:
        revision: what to say in place of the commit; for a tree that was copied without its history.
    """
    if revision is not None:
        return {"revision": revision, "dirty": None}
    commit = _output("git", "-C", str(ROOT), "rev-parse", "HEAD")
    changes = _output("git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no")
    return {"revision": commit, "dirty": None if changes is None else bool(changes)}


def software(revision: str | None, arguments: list[str]) -> dict[str, Any]:
    """What does not depend on the device."""
    import torch

    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": shlex.join(["hpc", "bench", *arguments]),
        **source(revision),
        "hpctopk": hpc.__version__,
        "torch": torch.__version__,
        "torch_cuda": torch.version.cuda,
        "python": platform.python_version(),
        "host": f"{platform.system()} {platform.machine()}",
    }


def cpu() -> dict[str, Any]:
    """The processor, where nothing runs on a GPU."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"device": models[0] if models else platform.machine(), "threads": os.cpu_count()}


def device(native: Any, index: int) -> dict[str, Any]:
    """The GPU, its driver and the CUDA runtime that the native module was built with."""
    import torch

    properties = torch.cuda.get_device_properties(index)
    drivers = _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader")  # the same for each GPU
    versions = native.cuda_versions()
    return {
        "device": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "multiprocessors": properties.multi_processor_count,
        "memory_bytes": properties.total_memory,
        "l2_bytes": properties.L2_cache_size,
        "driver": drivers.split()[0] if drivers else "unknown",
        "cuda_driver": _version(versions["driver"]),
        "cuda_runtime": _version(versions["runtime"]),
    }


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def command_line() -> list[str]:
    """The arguments of `hpc bench`, as they were given."""
    arguments = sys.argv[1:]
    return arguments[1:] if arguments[:1] == ["bench"] else arguments
