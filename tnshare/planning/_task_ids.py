"""Which tasks a user asks for: one, or one for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnshare.errors import TnshareError
from tnshare.network import Network
from tnshare.ops import Array, NDArray, Ops

_NUMPY = (np.ndarray, np.integer)  # no union of types: torch.compile does not read it


@dataclass(frozen=True)
class Choice:
    """For every task axis its index (one task, ``rows`` is None) or its indices (``rows`` many)."""

    ids: tuple[Any, ...]
    rows: int | None


def choose(task: Any, network: Network, ops: Ops[Array]) -> Choice:
    """Read what a user gave as a task: a whole number, a pair for two task axes, or an array of them."""
    sizes = network.task_shape
    if type(task) is int and len(sizes) == 1 and 0 <= task < sizes[0]:
        return Choice((task,), None)  # what most calls give, and quickly done
    if not sizes:
        raise TnshareError(f"the network has no task axis to choose a task from: found task={task!r}")
    return read_tasks(task, network.tasks, sizes, ops)


def read_tasks(task: Any, axes: Sequence[str], sizes: Sequence[int], ops: Ops[Array]) -> Choice:
    """The same for task axes of these names and sizes."""
    columns = _columns(task, len(sizes))
    rows = columns[0].shape[0] if columns[0].shape else None
    for axis, size, column in zip(axes, sizes, columns, strict=True):
        _check_dtype(column)
        values = ops.values(column)
        if values is not None:  # while tracing there are no values to look at
            _check_range(values, axis, size)
    return Choice(tuple(map(_plain, columns)), rows)


def take_rows(array: Array, own: Sequence[int], choice: Choice, ops: Ops[Array]) -> Array:
    """Of an array whose first axes are the task axes numbered ``own``, the part of the chosen tasks."""
    return ops.take(array, [choice.ids[n] for n in own]) if own else array


def _columns(task: Any, axes: int) -> list[Any]:
    """What was given, as one array of ids for each task axis: of shape () for one task, else (rows,)."""
    if axes > 1 and isinstance(task, Sequence) and len(task) == axes and not any(map(np.ndim, task)):
        return [part if hasattr(part, "shape") else np.asarray(part) for part in task]
    ids = task if hasattr(task, "shape") else _as_ids(task, axes)
    shape = tuple(ids.shape)
    if axes == 1 and len(shape) <= 1:
        return [ids]
    if axes > 1 and 1 <= len(shape) <= 2 and shape[-1] == axes:
        return [ids[..., n] for n in range(axes)]
    single, many = (
        ("a whole number", "(rows,)") if axes == 1 else (f"{axes} whole numbers", f"(rows, {axes})")
    )
    raise TnshareError(f"a task must be {single}, task ids an array of shape {many}: found shape {shape}")


def _as_ids(task: Any, axes: int) -> NDArray:
    """A number or a list as an array."""
    if isinstance(task, Sequence) and not len(task):
        return np.empty((0,) if axes == 1 else (0, axes), np.intp)
    try:
        return np.asarray(task)
    except ValueError:  # rows of different lengths
        raise TnshareError(f"a task must be a whole number, or ids in rows alike: found {task!r}") from None


def _plain(task: Any) -> Any:
    """A NumPy number as a whole number, which frameworks index with faster; other arrays as they are."""
    return int(task) if isinstance(task, _NUMPY) and task.ndim == 0 else task


def _check_dtype(ids: Any) -> None:
    """Whole numbers only; the name of a dtype is what all frameworks have in common, traced or not."""
    if hasattr(ids, "mask"):
        raise TnshareError("task ids must have all their entries: found a masked array; fill it first")
    name = str(getattr(ids, "dtype", "int")).rpartition(".")[2]
    if not name.startswith(("int", "uint")):
        raise TnshareError(f"task ids must be whole numbers: found dtype {name}")


def _check_range(ids: NDArray, axis: str, size: int) -> None:
    wrong = np.flatnonzero((ids < 0) | (ids >= size))
    if len(wrong):
        where = f" in row {wrong[0]}" if ids.ndim else ""
        found = ids.reshape(-1)[wrong[0]]
        raise TnshareError(f"{axis} {found}{where} is out of range: expected 0 <= {axis} <= {size - 1}")
