"""Checks of what a user gives that several rooms need."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from .errors import TnshareError


def is_whole(value: Any) -> bool:
    """Whether something is a whole number; True and False are not, nor are arrays of several."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool | np.bool_)


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least ``least``, which ``name`` is called in the error if it is not."""
    if not is_whole(value) or operator.index(value) < least:
        raise TnshareError(f"{name} must be a whole number of at least {least}: found {value!r}")
    return operator.index(value)


def fresh(name: str, taken: Any) -> str:
    """The name, with primes if it is taken already."""
    while name in taken:
        name += "'"
    return name
