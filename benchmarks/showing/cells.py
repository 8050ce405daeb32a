"""Numbers and rows as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Rows as text in columns."""
    if not rows:
        return "(nothing)"
    return aligned([list(rows[0]), *([cell(value) for value in row.values()] for row in rows)])


def aligned(lines: Sequence[Sequence[str]]) -> str:
    """Lines of text whose columns are as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def cell(value: Any) -> str:
    """A number with two decimals, anything else as it is."""
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def duration(seconds: float) -> str:
    """Seconds with a unit that suits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size or unit == "us":
            return f"{seconds / size:.3g} {unit}"
    raise AssertionError


def memory(size: float) -> str:
    """Bytes with a unit that suits them."""
    for unit, power in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= power:
            return f"{size / power:.3g} {unit}"
    return f"{size:.0f} B"
