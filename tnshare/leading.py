"""The axes of an input before its features."""

from __future__ import annotations

from .errors import TnshareError
from .ways import Way


def leading_axes(
    way: Way, rows: int | None, shape: tuple[int, ...], features: int, tasks: tuple[int, ...]
) -> tuple[int, ...]:
    """The axes of x before the last, without those of tasks; refuses an x that does not fit.

    ``rows`` is how many ids there are, where every row has a task of its own.
    """
    if not shape or shape[-1] != features:
        raise TnshareError(f"expected x of shape (..., {features}), in_features last: found {shape}")
    if way == "mixed" and (len(shape) < 2 or shape[0] != rows):
        raise TnshareError(
            f"one task id for each row: expected x of shape ({rows}, ..., {features}) with {rows} ids, found "
            f"{shape}"
        )
    if way != "each":
        return shape[:-1]
    if len(shape) <= len(tasks) or shape[: len(tasks)] != tasks:
        counts = ", ".join(map(str, tasks))
        raise TnshareError(
            f"without a task, row t of x belongs to task t: expected x of shape ({counts}, ..., {features}), "
            f"found {shape}; give a task, or ids, or use fan_out"
        )
    return shape[len(tasks) : -1]
