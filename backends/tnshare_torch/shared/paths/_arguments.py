"""What a shared network is given, besides tasks: every tensor in it belongs to rows, to tasks, or to all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

import tnshare as tn
from tnshare_torch.shared.template._containers import Structure, flatten, hidden_tensors

TASKS = "tasks"
UNKNOWN = "unknown"
# The axis of rows; None: the same for all; "tasks": an entry for each task; "unknown": nobody has said.
Belonging = int | str | None


def check_belongings(dims: Mapping[str, Any]) -> None:
    """Refuse what ``batch_dims`` cannot say."""
    for name, dim in dims.items():
        counted = isinstance(dim, int) and not isinstance(dim, bool) and dim >= 0
        if not (counted or dim is None or dim == TASKS):
            raise tn.TnshareError(
                f"batch_dims[{name!r}] must be the axis of rows, 'tasks' (an entry for each task) or None "
                f"(the same for all): found {dim!r}"
            )


@dataclass(frozen=True)
class Arguments:
    """An input and keyword arguments, taken apart: ``leaves`` with names and belongings, and containers."""

    leaves: tuple[Any, ...]
    names: tuple[str, ...]
    belongs: tuple[Belonging, ...]
    structures: tuple[tuple[str, Structure], ...]

    @staticmethod
    def of(x: Any, kwargs: Mapping[str, Any], dim: int, dims: Mapping[str, Belonging]) -> Arguments:
        """The input has rows along ``dim``, keyword arguments as ``dims`` say."""
        leaves: list[Any] = []
        names: list[str] = []
        belongs: list[Belonging] = []
        structures = []
        for name, value in (("", x), *kwargs.items()):
            held, structure = flatten(value)
            leaves += held
            names += [name] * len(held)
            belongs += [dims.get(name, UNKNOWN) if name else dim] * len(held)
            structures.append((name, structure))
        return Arguments(tuple(leaves), tuple(names), tuple(belongs), tuple(structures))

    def filled(self, leaves: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
        """An input and keyword arguments with these leaves."""
        found, start = [], 0
        for name, structure in self.structures:
            found.append((name, structure.filled(leaves[start : start + structure.count])))
            start += structure.count
        return found[0][1], dict(found[1:])

    def changed(self, change: Callable[[torch.Tensor, Belonging], Any]) -> Arguments:
        """The same with other tensors."""
        pairs = zip(self.leaves, self.belongs, strict=True)
        return replace(self, leaves=tuple([change(x, b) if is_tensor(x) else x for x, b in pairs]))

    def given(self) -> tuple[Any, dict[str, Any]]:
        """An input and keyword arguments."""
        return self.filled(self.leaves)

    def tensors(self) -> Iterator[torch.Tensor]:
        """All of them."""
        return (leaf for leaf in self.leaves if is_tensor(leaf))

    @cached_property
    def first(self) -> torch.Tensor | None:
        """A tensor of the input."""
        return next((x for x, n in zip(self.leaves, self.names, strict=True) if not n and is_tensor(x)), None)

    def task(self, number: int, tasks: int) -> Arguments:
        """What one task is given, which is given all of the rows."""
        if TASKS not in self.belongs:
            return self
        self._check_entries(tasks, lambda b: b == TASKS)
        return self.changed(lambda x, b: x[number] if b == TASKS else x)

    def entry(self, number: int) -> Arguments:
        """What belongs to a task where every task has rows of its own."""
        return self.changed(lambda x, b: x[number] if b == TASKS or isinstance(b, int) else x)

    def rows(self, chosen: Callable[[torch.Tensor, int], torch.Tensor]) -> Arguments:
        """The same with other rows."""
        return self.changed(lambda x, b: chosen(x, b) if isinstance(b, int) else x)

    def check_mixed(self, rows: int, tasks: int) -> None:
        """Refuse what cannot be split by rows, or of which nobody has said whether it is to be."""
        self._refuse_doubtful(lambda x: rows in x.shape[: x.ndim] and rows > 1, tasks, rows)
        self._check_entries(tasks, lambda b: b == TASKS)
        self._check_objects()
        if self.first is None:
            raise tn.TnshareError(
                f"one task id for each row: expected x with {rows} rows along axis {self.belongs[0]}, found "
                f"{type(self.leaves[0]).__name__ if self.leaves else 'nothing'}"
            )
        for x, name, dim in zip(self.leaves, self.names, self.belongs, strict=True):
            if isinstance(dim, int) and is_tensor(x) and (x.ndim <= dim or x.shape[dim] != rows):
                raise tn.TnshareError(
                    f"one task id for each row: expected {name or 'x'} with {rows} rows along axis {dim}, "
                    f"found {tuple(x.shape)}"
                )
        self._check_lists(rows)

    def check_each(self, tasks: int) -> None:
        """Refuse what is no entry for each task, or of which nobody has said whether it is."""
        self._refuse_doubtful(lambda x: False, tasks, 0)
        self._check_entries(tasks, lambda b: b == TASKS or isinstance(b, int))
        self._check_objects()

    def check_all(self, tasks: int) -> None:
        """The same where all tasks are given the same rows."""
        self._refuse_doubtful(lambda x: False, tasks, 0)
        self._check_entries(tasks, lambda b: b == TASKS)

    def signature(self) -> tuple[object, ...]:
        """What tells calls apart of which one says nothing about another: names, dtypes, ranks, flags."""
        told = [(n, *_told(x)) for n, x in zip(self.names, self.leaves, strict=True)]
        return (*told, *(structure for _, structure in self.structures))

    def _refuse_doubtful(self, has_rows: Callable[[torch.Tensor], bool], tasks: int, rows: int) -> None:
        for x, name, belongs in zip(self.leaves, self.names, self.belongs, strict=True):
            if belongs != UNKNOWN or not is_tensor(x) or not x.ndim:
                continue
            of_tasks = x.shape[0] == tasks > 1
            if has_rows(x) or of_tasks:
                axis = list(x.shape).index(rows) if has_rows(x) else 0
                which = (
                    f"a row for each of the {rows} rows of x" if has_rows(x) else f"one of {tasks} tasks each"
                )
                raise tn.TnshareError(
                    f"does {name!r}, of shape {tuple(x.shape)}, have {which}? Say so: share(..., batch_dims="
                    f"{{{name!r}: {axis}}}) for rows along an axis, {{{name!r}: 'tasks'}} for an entry for "
                    f"each task, or {{{name!r}: None}} if it is the same for all"
                )

    def _check_entries(self, tasks: int, has_entries: Callable[[Belonging], bool]) -> None:
        for x, name, belongs in zip(self.leaves, self.names, self.belongs, strict=True):
            if name and has_entries(belongs) and is_tensor(x) and (not x.ndim or x.shape[0] != tasks):
                raise tn.TnshareError(
                    f"{name!r} must have an entry for each of {tasks} tasks: found shape {tuple(x.shape)}; "
                    f"share(..., batch_dims={{{name!r}: None}}) says that it is the same for all"
                )

    def _check_objects(self) -> None:
        for x, name, belongs in zip(self.leaves, self.names, self.belongs, strict=True):
            if belongs is not None and not is_tensor(x) and next(hidden_tensors(x), None) is not None:
                raise tn.TnshareError(
                    f"{name or 'x'} holds a {type(x).__name__} with tensors in it, which cannot be split by "
                    "task: give a dict, a list or a dataclass of them, or say that all tasks have the same, "
                    f"share(..., batch_dims={{{name!r}: None}})"
                )

    def _check_lists(self, rows: int) -> None:
        for name, structure in self.structures:
            held = [x for x, n in zip(self.leaves, self.names, strict=True) if n == name]
            belongs = next((b for n, b in zip(self.names, self.belongs, strict=True) if n == name), None)
            words = structure.kind and len(held) == rows > 1 and not any(map(is_tensor, held))
            arrays = any(isinstance(x, np.ndarray) and rows in x.shape for x in held)
            if belongs is not None and (words or arrays):
                raise tn.TnshareError(
                    f"{name or 'x'} has {rows} entries that are no tensor, and rows are split by task: "
                    "give a tensor, or say that all tasks have the same, "
                    f"share(..., batch_dims={{{name!r}: None}})"
                )


def is_tensor(x: Any) -> bool:
    """Whether something is a tensor."""
    return isinstance(x, torch.Tensor)


def _told(x: Any) -> tuple[object, ...]:
    if isinstance(x, torch.Tensor):
        return x.dtype, x.ndim, x.device.type
    return (type(x), x) if x is None or isinstance(x, bool | str | int | float) else (type(x),)
