"""Checks of what a user gives that several rooms need."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np

from .errors import TnshareError


def flag(name: str, value: Any) -> bool:
    """True or False, and nothing that only counts as one: "no" would be True."""
    if value is not True and value is not False and not isinstance(value, np.bool_):
        raise TnshareError(f"{name} must be True or False: found {value!r}")
    return bool(value)


def listed(name: str, value: Any, what: str) -> tuple[Any, ...]:
    """What is given in an order, more than once readable: no string, no set, no generator."""
    if isinstance(value, str | bytes | Set | Mapping | Iterator) or not isinstance(value, Iterable):
        raise TnshareError(f"{name} must be a list of {what}: found {value!r}")
    return tuple(value)


def patterns(name: str, value: Any) -> tuple[str, ...]:
    """Several names, or patterns of them; one alone would be read letter by letter."""
    found = listed(name, value, "strings")
    if not all(isinstance(one, str) for one in found):
        raise TnshareError(f"{name} must be a list of strings: found {value!r}")
    return found


def by_name(name: str, value: Any, what: str) -> Mapping[str, Any]:
    """A dict whose keys are strings."""
    if not isinstance(value, Mapping):
        raise TnshareError(f"{name} must be a dict {what}: found {type(value).__name__}")
    if not all(isinstance(key, str) for key in value):
        raise TnshareError(f"{name} must be a dict {what}, with strings for keys: found {tuple(value)}")
    return value


def positive(name: str, value: Any) -> float:
    """A finite number of more than 0."""
    plain = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if not plain or not 0 < value < math.inf:
        raise TnshareError(f"{name} must be a positive number: found {value!r}")
    return float(value)


def holds_numbers(array: Any) -> bool:
    """Whether an array of NumPy has numbers, all of them; other frameworks have no others."""
    if type(array) is np.ndarray:  # what most are, and quickly told
        return array.dtype.kind not in "OSUMm"
    plain = not isinstance(array, np.ndarray) or array.dtype.kind not in "OSUMm"
    return plain and not isinstance(array, np.ma.MaskedArray)


def check_numbers(name: str, array: Any) -> None:
    """Refuse arrays of NumPy that hold no numbers, or not all of them."""
    if isinstance(array, np.ma.MaskedArray):
        raise TnshareError(f"{name} must have all its entries: found a masked array; fill it first")
    if not holds_numbers(array):
        raise TnshareError(f"{name} must be an array of numbers: found dtype {array.dtype}")


def is_whole(value: Any) -> bool:
    """Whether something is a whole number; True and False are not, nor are arrays of several."""
    try:
        operator.index(value)
    except TypeError:
        return False
    return not isinstance(value, bool | np.bool_)


def whole(name: str, value: Any, least: int = 1) -> int:
    """A whole number of at least ``least``, which ``name`` is called in the error if it is not."""
    if type(value) is int and value >= least:  # what most are, and quickly told
        return value
    if not is_whole(value) or operator.index(value) < least:
        raise TnshareError(f"{name} must be a whole number of at least {least}: found {value!r}")
    return operator.index(value)


def printable(what: str, name: Any) -> str:
    """The name of a task, a layer, an entry of a file: printable text of at most 200 characters.

    The joiners that Persian, Hindi and others write with count as printable, and spaces of every width.
    """
    if not isinstance(name, str):
        raise TnshareError(f"{what} must be strings of printable characters: found {type(name).__name__}")
    seen = "".join("" if c in "\u200c\u200d" or (c.isspace() and c > "\x9f") else c for c in name)
    if not seen.isprintable() or "\u2028" in name or "\u2029" in name:
        raise TnshareError(f"{what} must be strings of printable characters: found {name[:200]!r}")
    if len(name) > 200:
        raise TnshareError(f"{what} must have at most 200 characters: found {len(name)}, {name[:40]!r}...")
    return name


def identifier(what: str, name: Any) -> str:
    """The name of a node or of an axis; from wherever it comes, it can be nothing but a name."""
    if not isinstance(name, str) or not name.isidentifier() or len(name) > 250:
        found = repr(name) if not isinstance(name, str) or len(name) <= 60 else f"{name[:57]!r}..."
        raise TnshareError(
            f"the name of {what} must be a Python identifier of at most 250 characters, as k_i: found {found}"
        )
    return name


def is_floating(dtype: Any) -> bool:
    """Whether numbers of a dtype have fractions: float, complex, and ml_dtypes' kinds."""
    return np.dtype(dtype).kind in "fc" or "float" in np.dtype(dtype).name


def fresh(name: str, taken: Any, mark: str = "_") -> str:
    """The name, with marks at its end if it is taken already."""
    while name in taken:
        name += mark
    return name
