# SPDX-License-Identifier: Apache-2.0
"""Arrays in files: npy (memory-mapped), npz and safetensors, read a few rows at a time."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

SUFFIXES = (".npy", ".npz", ".safetensors")

# safetensors' names of the dtypes that numpy has.
_SAFETENSORS_DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "I64": "int64", "I32": "int32"}


class FileError(Exception):
    """A file cannot be used. The message is one line that names the argument, its value and the rule."""


@dataclass(frozen=True)
class ArrayFile:
    """An array in a file."""

    argument: str
    """What the user calls it, for messages."""
    shape: tuple[int, ...]
    dtype: str
    rows: Callable[[int, int], NDArray[Any]]
    """Reads rows [begin, end)."""


def _named(argument: str, path: Path, names: list[str], option: str | None, name: str | None) -> str:
    if name is None and len(names) == 1:
        return names[0]
    if option is None:
        raise FileError(f"{argument} = {path}: must hold one array, and holds {', '.join(names) or 'none'}")
    if name not in names:
        raise FileError(f"{option} = {name}: must be one of {', '.join(names) or '(none)'}, what {path} holds")
    return name


def open_array(argument: str, path: Path, option: str | None = None, name: str | None = None) -> ArrayFile:
    """Open an array without reading it.

    Args:
        argument: what the user calls it, for messages.
        path: a .npy, .npz or .safetensors file.
        option: what the user calls `name`, for messages; None: nothing does, and the file holds one array.
        name: which array of a file that can hold several; None: the only one.

    Raises:
        FileError: no such file, not readable, or no such array in it.
    """
    if path.suffix not in SUFFIXES:
        raise FileError(f"{argument} = {path}: must end in {', '.join(SUFFIXES)}")
    opener = _open_safetensors if path.suffix == ".safetensors" else _open_numpy
    try:
        if not path.is_file():
            raise FileError(f"{argument} = {path}: must be a file, and there is none of that name")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return opener(argument, path, option, name)
    except FileError:
        raise
    except Exception as error:  # a damaged file makes the readers raise nearly any
        reason = (str(error) or type(error).__name__).partition("\n")[0]
        raise FileError(f"{argument} = {path}: must be a readable {path.suffix[1:]} file: {reason}") from error


def _open_numpy(argument: str, path: Path, option: str | None, name: str | None) -> ArrayFile:
    loaded = np.load(path, mmap_mode="r", allow_pickle=False)
    if isinstance(loaded, np.ndarray) != (path.suffix == ".npy"):
        raise ValueError(f"it holds {'one array' if isinstance(loaded, np.ndarray) else 'a zip archive'}")
    array = loaded
    if path.suffix == ".npz":
        with loaded:
            member = _named(argument, path, loaded.files, option, name)
            array = loaded[member]
        if not isinstance(array, np.ndarray):
            raise ValueError(f"{member} is not an array")
    return ArrayFile(argument, array.shape, str(array.dtype), lambda begin, end: np.asarray(array[begin:end]))


def _open_safetensors(argument: str, path: Path, option: str | None, name: str | None) -> ArrayFile:
    from safetensors import safe_open

    file = safe_open(path, framework="numpy")
    tensor = file.get_slice(_named(argument, path, sorted(file.keys()), option, name))
    stored = tensor.get_dtype()
    return ArrayFile(
        argument,
        tuple(tensor.get_shape()),
        _SAFETENSORS_DTYPES.get(stored, stored),
        lambda begin, end: np.asarray(tensor[begin:end]),
    )


def require_kind(array: ArrayFile, dtypes: tuple[str, ...], ndim: int, meaning: str) -> None:
    """Refuse an array of another dtype or rank with a FileError."""
    if array.dtype not in dtypes:
        raise FileError(f"{array.argument}.dtype = {array.dtype}: must be {' or '.join(dtypes)}")
    if len(array.shape) != ndim:
        raise FileError(f"{array.argument}.ndim = {len(array.shape)}: must be {ndim}, {meaning}")


def require_writable(argument: str, path: Path, suffixes: tuple[str, ...]) -> None:
    """Refuse a file to write whose name or folder will not do with a FileError."""
    if path.suffix not in suffixes:
        raise FileError(f"{argument} = {path}: must end in {', '.join(suffixes)}")
    try:
        if path.is_dir():
            raise FileError(f"{argument} = {path}: must be a file, and is a folder")
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".hpc-"):
            pass
    except OSError as error:
        reason = error.strerror or error
        raise FileError(f"{argument} = {path}: must be in a folder that exists and can be written: {reason}") from error


def require_different(files: Mapping[str, Path | None]) -> None:
    """Refuse, with a FileError, a last file that is one of those before it, whatever their names say."""
    *others, (argument, path) = [(name, file) for name, file in files.items() if file is not None]
    for other, file in others:
        if path.resolve() == file.resolve() or (path.exists() and file.exists() and path.samefile(file)):
            raise FileError(f"{argument} = {path}: must not be {other}, which it would replace")


@contextlib.contextmanager
def replacing(path: Path, argument: str = "file") -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends well.

    Raises:
        FileError: the system refuses to write, in the block or after it. Nothing is left behind.
    """
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix=".hpc-") as folder:
            temporary = Path(folder) / path.name
            yield temporary
            temporary.replace(path)
    except OSError as error:
        raise FileError(f"{argument} = {path}: cannot be written: {error.strerror or error}") from error
