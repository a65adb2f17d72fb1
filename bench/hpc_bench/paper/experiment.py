# SPDX-License-Identifier: Apache-2.0
"""What an experiment is, what it is given and what it leaves: a list of flat records in a JSON file."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpc._files import FileError, replacing

if TYPE_CHECKING:
    import torch
    from matplotlib.figure import Figure

    from .gpu import Gpu
    from .scores import Source

SCHEMA = "hpctopk-paper-1"

Record = dict[str, Any]
Advance = Callable[[float], None]


@dataclass(frozen=True)
class Setup:
    """What every experiment is given.

    Attributes:
        device: where scores are made and counted.
        sources: of score rows.
        k: columns to select in each row.
        seed: of the scores.
        quick: a few rows and shapes.
        one_call: the middle call of a scheduler step is timed, and stands for the step.
        gpu: what times selections; None on the CPU.
    """

    device: torch.device
    sources: tuple[Source, ...]
    k: int
    seed: int
    quick: bool
    one_call: bool = False
    gpu: Gpu | None = None

    @property
    def timed(self) -> Gpu:
        """What times selections, for experiments that only a GPU runs."""
        assert self.gpu is not None
        return self.gpu


@dataclass(frozen=True)
class Step:
    """A part of an experiment, after which its records are written.

    Attributes:
        name: for the progress bar.
        weight: about how long it takes on an H200 or two CPU cores, seconds.
        run: measures and returns records; calls its argument with the share that is done, 0..1.
    """

    name: str
    weight: float
    run: Callable[[Advance], list[Record]]


@dataclass(frozen=True)
class Table:
    """Text in rows under a header."""

    header: tuple[str, ...]
    rows: list[tuple[str, ...]]

    def markdown(self) -> list[str]:
        """Its lines."""
        lines = [self.header, tuple("---" for _ in self.header), *self.rows]
        return ["| " + " | ".join(cells) + " |" for cells in lines]


@dataclass
class Outcome:
    """The records of an experiment and where they come from: its JSON file.

    Attributes:
        experiment: its name.
        provenance: device, versions, source revision, date and command line.
        settings: the options of the run.
        records: flat objects; each experiment's module says what its own hold.
        complete: whether the run came to its end.
    """

    experiment: str
    provenance: dict[str, Any]
    settings: dict[str, Any]
    records: list[Record] = field(default_factory=list)
    complete: bool = False
    schema: str = SCHEMA

    def save(self, path: Path) -> None:
        """Write the file; a reader never sees half of it."""
        fields = asdict(self)
        records = ",\n".join("  " + json.dumps(record) for record in fields.pop("records"))
        head = json.dumps(fields, indent=1).removesuffix("\n}")
        with replacing(path) as temporary:
            temporary.write_text(f'{head},\n "records": [\n{records}\n ]\n}}\n', encoding="utf-8")

    def select(self, **fields: Any) -> list[Record]:
        """The records that hold these values."""
        return [r for r in self.records if all(r.get(name) == value for name, value in fields.items())]

    def values(self, name: str, **fields: Any) -> list[Any]:
        """The different values of a field among those records, in order of appearance."""
        return list(dict.fromkeys(r[name] for r in self.select(**fields) if name in r))


def load(path: Path) -> Outcome:
    """Read an outcome, or refuse the file with a FileError."""
    try:
        fields = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(fields, dict) or fields.get("schema") != SCHEMA:
            raise ValueError(f"its schema is not {SCHEMA}")
        return Outcome(**fields)
    except (OSError, ValueError, TypeError) as error:
        raise FileError(f"{path}: must be written by hpc bench paper: {error}") from error


@dataclass(frozen=True)
class Experiment:
    """One of the paper's experiments.

    Attributes:
        name: what the command and the files are called.
        section: of the paper.
        title: one line.
        on_cpu: what it measures without a GPU, "" if nothing.
        steps: what there is to do.
        draw: the figure of its records.
        table: the paper's numbers beside ours.
        replays: whether saved scores can take the place of generated ones.
        missing: what it needs that is not installed here, "" if nothing.
    """

    name: str
    section: str
    title: str
    on_cpu: str
    steps: Callable[[Setup], list[Step]]
    draw: Callable[[Outcome], Figure]
    table: Callable[[Outcome], Table]
    replays: bool = True
    missing: Callable[[], str] = lambda: ""
