"""What the options of the command lines may be, and how a command says that something is wrong."""

from __future__ import annotations

import math
import os
import re
from argparse import ArgumentTypeError
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tnshare.errors import TnshareError

_MOST = 2**20  # GiB


@contextmanager
def told() -> Iterator[None]:
    """End the program with the text of an error that the user can do something about."""
    try:
        yield
    except TnshareError as error:
        raise SystemExit(f"error: {error}") from None


def positive(text: str) -> float:
    """A finite number of more than 0."""
    number = _number(text)
    if not 0 < number < math.inf:
        raise ArgumentTypeError(f"must be a finite number of more than 0: found {text}")
    return number


def gibibytes(text: str) -> float:
    """Room in memory: more than nothing, and no more than a machine could have."""
    number = positive(text)
    if number > _MOST:
        raise ArgumentTypeError(f"must be at most {_MOST} GiB: found {text}")
    return number


def folder(text: str) -> Path:
    """A folder, or where one can be made."""
    path = Path(text)
    for part in (path, *path.parents):
        if part.exists() and not part.is_dir():
            raise ArgumentTypeError(f"must be a folder: found {text!r}, a file")
    return path


def share(text: str) -> float:
    """A part of a whole, as 0.01."""
    number = _number(text)
    if not 0 < number <= 1:
        raise ArgumentTypeError(f"must be a number with 0 < number <= 1: found {text}")
    return number


def error(text: str) -> float:
    """A relative error."""
    number = _number(text)
    if not 0 <= number < 1:
        raise ArgumentTypeError(f"must be a number with 0 <= number < 1: found {text}")
    return number


def count(text: str) -> int:
    """A whole number of at least 1."""
    return _whole(text, 1)


def seed(text: str) -> int:
    """A whole number of at least 0, of 32 bits, as every framework takes it."""
    number = _whole(text, 0)
    if number >= 2**32:
        raise ArgumentTypeError(f"must be less than 2^32: found {text}")
    return number


def threads(text: str) -> int:
    """As many threads as the machine has cores, or fewer: with a million, torch takes the machine down."""
    number, cores = count(text), os.cpu_count() or 1
    if number > cores:
        raise ArgumentTypeError(f"must be at most {cores}, the cores of this machine: found {text}")
    return number


def device(text: str) -> str:
    """``cpu``, ``cuda`` or one of several, ``cuda:1``."""
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise ArgumentTypeError(f"must be cpu, cuda, or one of several as cuda:1: found {text!r}")
    return text


def ranks(text: str) -> tuple[int, ...]:
    """Whole numbers with commas between."""
    return tuple(count(part) for part in text.split(","))


def pattern(text: str) -> str:
    """A regular expression."""
    try:
        re.compile(text)
    except re.error as wrong:
        raise ArgumentTypeError(f"must be a regular expression: found {text!r}, {wrong}") from None
    return text


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _whole(text: str, least: int) -> int:
    if not re.fullmatch(r"[0-9]+", text) or int(text) < least:
        raise ArgumentTypeError(f"must be a whole number of at least {least}: found {text}")
    return int(text)
