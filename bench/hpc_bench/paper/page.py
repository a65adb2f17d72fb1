# SPDX-License-Identifier: Apache-2.0
"""What docs/evaluation.md shows of committed outcomes: figures and tables between marks, in text that is by hand."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from hpc._files import FileError, replacing

from . import figures
from .experiment import Experiment, Outcome, load

END = "<!-- end -->"


def begin(name: str) -> str:
    """The mark before what is generated for an experiment."""
    return f"<!-- hpc bench paper draw: {name} -->"


def outcomes(experiments: Mapping[str, Experiment], results: Path) -> dict[str, Outcome]:
    """The outcomes that a folder holds, in the order of the experiments."""
    return {name: load(results / f"{name}.json") for name in experiments if (results / f"{name}.json").is_file()}


def draw(
    experiments: Mapping[str, Experiment], found: Mapping[str, Outcome], folder: Path, suffix: str = "png"
) -> list[Path]:
    """Write the figure of each outcome; the files written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, outcome in found.items():
        path = folder / f"{name}.{suffix}"
        figures.save(experiments[name], outcome, path)
        written.append(path)
    return written


def refreshed(
    text: str, experiments: Mapping[str, Experiment], found: Mapping[str, Outcome], folder: str, results: str
) -> str:
    """The page with what lies between its marks made anew.

    Args:
        text: of the page; each experiment has one pair of marks.
        experiments: by name.
        found: outcomes by name.
        folder: of the figures, as the page links to it.
        results: of the outcomes, likewise.

    Raises:
        FileError: the page lacks a pair of marks.
    """
    for name, experiment in experiments.items():
        pattern = re.compile(re.escape(begin(name)) + r"\n.*?" + re.escape(END), re.DOTALL)
        block = "\n".join([begin(name), *_block(experiment, found.get(name), folder, results), END])
        text, count = pattern.subn(block.replace("\\", r"\\"), text)
        if count != 1:
            raise FileError(f"--page: must hold {begin(name)} and {END} once, and holds {count}")
    return text


def _block(experiment: Experiment, outcome: Outcome | None, folder: str, results: str) -> list[str]:
    name = experiment.name
    if outcome is None:
        return ["", f"No result yet: `hpc bench paper {name}` has not been run, it needs a GPU.", ""]
    lines = ["", f"![{experiment.title}]({folder}/{name}.png)", "", *experiment.table(outcome).markdown(), ""]
    if experiment.on_cpu == "the rates" and not outcome.select(part="time"):
        lines += [f"No latency yet: `hpc bench paper {name}` has not been run on a GPU.", ""]
    source = f"[{name}.json]({results}/{name}.json)"
    return [*lines, f"{source}: {figures.origin(outcome)}; `{outcome.provenance['command']}`.", ""]


def refresh(
    page: Path, experiments: Mapping[str, Experiment], found: Mapping[str, Outcome], folder: Path, results: Path
) -> None:
    """Rewrite a page in place."""
    try:
        text = page.read_text(encoding="utf-8")
    except OSError as error:
        raise FileError(f"--page = {page}: must be a page that can be read: {error.strerror or error}") from error
    links = [os.path.relpath(path, page.parent).replace(os.sep, "/") for path in (folder, results)]
    changed = refreshed(text, experiments, found, *links)
    with replacing(page, "--page") as temporary:
        temporary.write_text(changed, encoding="utf-8")
