"""Which tasks a user asks for: one, or one for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import TnshareError
from .network import Network
from .ops import Array, Ops


@dataclass(frozen=True)
class Choice:
    """For every task axis its index (one task, ``rows`` is None) or its indices (``rows`` many)."""

    ids: tuple[Any, ...]
    rows: int | None


def choose(task: Any, network: Network, ops: Ops[Array]) -> Choice:
    """Read what a user gave as a task: a whole number, a pair for two task axes, or an array of them."""
    sizes = tuple(network.sizes[axis] for axis in network.tasks)
    if not sizes:
        raise TnshareError(f"the network has no task axis to choose a task from: found task={task!r}")
    if not hasattr(task, "shape"):
        task = _as_ids(task, len(sizes))
    shape = tuple(task.shape)
    single = () if len(sizes) == 1 else (len(sizes),)
    if shape == single:
        rows = None
    elif len(shape) == len(single) + 1 and shape[1:] == single:
        rows = shape[0]
    else:
        many = "(rows,)" if len(sizes) == 1 else f"(rows, {len(sizes)})"
        raise TnshareError(
            f"a task must be {'a whole number' if len(sizes) == 1 else f'{len(sizes)} whole numbers'}, "
            f"task ids an array of shape {many}: found shape {shape}"
        )
    _check_values(ops.values(task), network.tasks, sizes, rows)
    if len(sizes) == 1:
        return Choice((task if rows is not None else _plain(task),), rows)
    columns = (task[..., n] for n in range(len(sizes)))
    return Choice(tuple(c if rows is not None else _plain(c) for c in columns), rows)


def take_rows(array: Array, own: Sequence[int], choice: Choice, ops: Ops[Array]) -> Array:
    """Of an array whose first axes are the task axes numbered ``own``, the part of the chosen tasks."""
    return ops.take(array, [choice.ids[n] for n in own]) if own else array


def _as_ids(task: Any, axes: int) -> np.ndarray[Any, Any]:
    """A number or a list as an array."""
    if isinstance(task, Sequence) and not len(task):
        return np.empty((0,) if axes == 1 else (0, axes), np.intp)
    try:
        return np.asarray(task)
    except ValueError:  # rows of different lengths
        raise TnshareError(f"a task must be a whole number, or ids in rows alike: found {task!r}") from None


def _plain(task: Any) -> Any:
    """A NumPy number as a whole number, which frameworks index with faster; their own arrays as they are."""
    return int(task) if isinstance(task, np.ndarray | np.integer) else task


def _check_values(
    values: np.ndarray[Any, Any] | None, axes: Sequence[str], sizes: Sequence[int], rows: int | None
) -> None:
    """Refuse ids that are not whole numbers in range; while tracing there are no values to look at."""
    if values is None:
        return
    if values.dtype.kind not in "iu":
        raise TnshareError(f"task ids must be whole numbers: found dtype {values.dtype}")
    table = values.reshape(1 if rows is None else rows, len(sizes))
    for axis, size, column in zip(axes, sizes, table.T, strict=True):
        wrong = np.flatnonzero((column < 0) | (column >= size))
        if len(wrong):
            where = "" if rows is None else f" in row {wrong[0]}"
            raise TnshareError(
                f"{axis} {column[wrong[0]]}{where} is out of range: expected 0 <= {axis} <= {size - 1}"
            )
