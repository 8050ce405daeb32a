"""Which rows belong to which task, and outputs of several tasks as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import tnshare as tn
from tnshare.planning import RowGroups, read_tasks
from tnshare_torch._ops import ops


def read_ids(task: Any, tasks: int) -> int | np.ndarray[Any, Any]:
    """The number of a task, or one for each row."""
    known = _read(task) if isinstance(task, torch.Tensor) else task
    found: int | np.ndarray[Any, Any] = read_tasks(known, ("task",), (tasks,), ops).ids[0]
    return found


def _read(ids: torch.Tensor) -> Any:
    if ids.is_floating_point() or ids.is_complex():
        return ids  # refused by its dtype, which NumPy may not have
    if ids.layout != torch.strided:
        raise tn.TnshareError(f"task ids must be dense: found {ids.layout}; convert with to_dense()")
    if ids.is_meta:
        raise tn.TnshareError("task ids must be on a device that has numbers: found the device meta")
    try:
        return np.asarray(ids.cpu())
    except RuntimeError:  # inside transforms of torch.func that gives no numbers, but this may
        pass
    try:
        return np.array(ids.tolist(), np.int64)
    except RuntimeError:
        raise tn.TnshareError(
            "task ids must be known when rows are grouped by task: found ids of a transform, such as vmap; "
            "call it inside with one task, or outside with all ids"
        ) from None


def check_entries(xs: Any, tasks: int) -> None:
    """Refuse what is not one entry for each task."""
    if not isinstance(xs, torch.Tensor | list | tuple) or (isinstance(xs, torch.Tensor) and not xs.ndim):
        raise tn.TnshareError(
            f"without a task, x must be a tensor (T, ...) or a list: found {type(xs).__name__}; give a "
            "task, or ids, or use fan_out"
        )
    if len(xs) != tasks:
        raise tn.TnshareError(
            f"without a task, entry t of x belongs to task t: expected {tasks} entries, found "
            f"{len(xs)}; give a task, or ids, or use fan_out"
        )


def check_input(x: Any, rows: int, dim: int) -> None:
    """Refuse what has not one row for each task id."""
    if not isinstance(x, torch.Tensor) or x.ndim <= dim or x.shape[dim] != rows:
        found = tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
        raise tn.TnshareError(
            f"one task id for each row: expected x with {rows} rows along axis {dim}, found {found}"
        )


def check_named(kwargs: Mapping[str, Any], dims: Mapping[str, int | None], rows: int, dim: int) -> None:
    """Refuse keyword arguments of which it is not known whether they have rows."""
    for name, value in kwargs.items():
        doubtful = name not in dims and isinstance(value, torch.Tensor) and value.ndim > dim
        if doubtful and value.shape[dim] == rows > 1:
            raise tn.TnshareError(
                f"does {name!r}, of shape {tuple(value.shape)}, have a row for each of the {rows} rows "
                f"of x? Say so: share(..., batch_dims={{{name!r}: {dim}}}), or {{{name!r}: None}} if not"
            )


class Groups:
    """Rows along an axis grouped by task: the tasks that are ``present``, with ``counts`` of rows."""

    def __init__(self, ids: np.ndarray[Any, Any], tasks: int, dim: int) -> None:
        if not len(ids):
            raise tn.TnshareError("a batch of no rows has no tasks to run: found 0 ids")
        self.groups, self.rows, self.dim = RowGroups.of([ids], (tasks,)), len(ids), dim
        self.present: list[int] = self.groups.present[0].tolist()
        self.counts: list[int] = self.groups.counts.tolist()

    def parts(self, x: Any) -> list[torch.Tensor]:
        """The rows of each task that is present."""
        check_input(x, self.rows, self.dim)
        return self._split(x, self.dim)

    def named(self, kwargs: Mapping[str, Any], dims: Mapping[str, int | None]) -> list[dict[str, Any]]:
        """Keyword arguments for each task: those of which it is known have their rows split as x has."""
        check_named(kwargs, dims, self.rows, self.dim)
        found: list[dict[str, Any]] = [dict(kwargs) for _ in self.present]
        for name, value in kwargs.items():
            if (dim := dims.get(name)) is not None:
                for one, part in zip(found, self._split(value, dim), strict=True):
                    one[name] = part
        return found

    def joined(self, outputs: list[Any]) -> Any:
        """Outputs of groups put together, rows in their old places."""
        leaves = [tree_flatten(output) for output in outputs]
        put: list[torch.Tensor | None] = []
        for column in zip(*(flat for flat, _ in leaves), strict=True):
            if all(part is None for part in column):
                put.append(None)
                continue
            check_rows(column, self.counts, self.dim)
            back = index_on_device_of(column[0], self.groups.places)
            put.append(torch.cat(column, self.dim).index_select(self.dim, back))
        return tree_unflatten(put, leaves[0][1])

    def _split(self, x: torch.Tensor, dim: int) -> list[torch.Tensor]:
        if len(self.present) == 1:
            return [x]
        rows = x.index_select(dim, index_on_device_of(x, self.groups.order))
        return list(rows.split(self.counts, dim))  # type: ignore[no-untyped-call]


def index_on_device_of(x: torch.Tensor, index: np.ndarray[Any, Any]) -> torch.Tensor:
    """An index where x is."""
    return torch.as_tensor(index, device=x.device)


def stack_outputs(outputs: list[Any], required: bool) -> Any:
    """Outputs of all tasks as one, a task axis first; a list where their shapes differ, if that may be."""
    leaves = [tree_flatten(output) for output in outputs]
    # Compared, not put into a set, which would make constants of sizes that compiled code leaves open.
    shapes = [(str(spec), [getattr(leaf, "shape", None) for leaf in flat]) for flat, spec in leaves]
    alike = all(shape == shapes[0] for shape in shapes)
    tensors = all(leaf is None or isinstance(leaf, torch.Tensor) for leaf in leaves[0][0])
    if not (alike and tensors) and required:
        raise tn.TnshareError(
            "the outputs of tasks differ in shape, or are no tensors: give a list of inputs, and get a list"
        )
    if not (alike and tensors):
        return outputs
    columns = zip(*(flat for flat, _ in leaves), strict=True)
    put = [None if column[0] is None else torch.stack(column) for column in columns]
    return tree_unflatten(put, leaves[0][1])


def check_rows(parts: Sequence[Any], counts: Sequence[int], dim: int) -> None:
    """Refuse outputs that cannot be put together row by row."""
    for part, count in zip(parts, counts, strict=True):
        if not isinstance(part, torch.Tensor) or part.ndim <= dim or part.shape[dim] != count:
            raise tn.TnshareError(
                f"rows of mixed tasks need outputs with rows along axis {dim}: run one task at a time"
            )
    if len({tuple(n for d, n in enumerate(part.shape) if d != dim) for part in parts}) > 1:
        raise tn.TnshareError(
            "rows of mixed tasks cannot be put together, tasks have heads of different sizes: run one "
            "task at a time, or give a list of inputs"
        )
