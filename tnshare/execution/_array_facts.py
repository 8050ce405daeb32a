"""What arrays say of themselves, in every framework."""

from __future__ import annotations

from typing import Any


def has_gradient(x: Any) -> bool:
    """Whether an input has a gradient: tokens have none."""
    return "int" not in str(getattr(x, "dtype", ""))


def is_contiguous(x: Any) -> bool:
    """Whether the numbers of an array lie in memory as its axes say, as far as its framework tells."""
    ask = getattr(x, "is_contiguous", None)
    return bool(ask()) if ask is not None else True


def itemsize(x: Any) -> int:
    """The bytes of a number."""
    found: int = getattr(getattr(x, "dtype", None), "itemsize", 4)
    return found
