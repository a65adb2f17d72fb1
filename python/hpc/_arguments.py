# SPDX-License-Identifier: Apache-2.0
"""Rules of arguments that are checked before they become C++ values. A message is one line: "name = value: must be"."""

from __future__ import annotations

import reprlib
from collections.abc import Sequence

import numpy as np


def _short_repr(value: object) -> str:
    return " ".join(reprlib.repr(value).split())


def shown(value: object) -> str:
    """A value for a message: text as it is where it can be printed, else a short repr on one line."""
    printable = isinstance(value, str) and value.isprintable() and len(value) <= 64
    return str(value) if printable else _short_repr(value)


def check_integer(name: str, value: object, least: int, most: int) -> int:
    """The value as an int: a TypeError if it is no integer, a ValueError outside of [least, most]."""
    if not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} = {_short_repr(value)}: must be an integer")
    if not least <= value <= most:
        raise ValueError(f"{name} = {value}: must be between {least} and {most}")
    return int(value)


def check_choice(name: str, value: object, choices: Sequence[str]) -> str:
    """The value: a TypeError if it is no str, a ValueError if it is none of the choices."""
    if not isinstance(value, str):
        raise TypeError(f"{name} = {shown(value)}: must be a str")
    if value not in choices:
        raise ValueError(f"{name} = {shown(value)}: must be one of {', '.join(choices)}")
    return value
