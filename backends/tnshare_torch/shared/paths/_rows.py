"""What a shared network is given: tasks, and tensors, each of which belongs to rows, to tasks, or to all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

import tnshare as tn
from tnshare.planning import RowGroups, read_tasks
from tnshare_torch._ops import ops
from tnshare_torch.shared.template._containers import LEAF, Structure, flatten, hidden_tensors

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


class Arguments:
    """An input and keyword arguments, taken apart: ``leaves`` with names and belongings, and containers."""

    def __init__(
        self,
        leaves: Sequence[Any],
        names: Sequence[str],
        belongs: Sequence[Belonging],
        structures: Sequence[tuple[str, Structure]],
    ) -> None:
        self.leaves, self.names, self.belongs, self.structures = leaves, names, belongs, structures
        self.plain = len(structures) == 1 and structures[0][1] is LEAF and is_tensor(leaves[0])  # one input

    @staticmethod
    def of(x: Any, kwargs: Mapping[str, Any], dim: int, dims: Mapping[str, Belonging]) -> Arguments:
        """The input has rows along ``dim``, keyword arguments as ``dims`` say."""
        if isinstance(x, torch.Tensor) and not kwargs:
            return Arguments((x,), ("",), (dim,), (("", LEAF),))
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
        return Arguments(leaves, names, belongs, structures)

    def filled(self, leaves: Sequence[Any]) -> tuple[Any, dict[str, Any]]:
        """An input and keyword arguments with these leaves."""
        if self.plain:
            return leaves[0], {}
        found, start = [], 0
        for name, structure in self.structures:
            found.append((name, structure.filled(leaves[start : start + structure.count])))
            start += structure.count
        return found[0][1], dict(found[1:])

    def holding(self, leaves: Sequence[Any]) -> Arguments:
        """The same with other leaves."""
        return Arguments(leaves, self.names, self.belongs, self.structures)

    def changed(self, change: Callable[[torch.Tensor, Belonging], Any]) -> Arguments:
        """The same with other tensors."""
        if self.plain:
            return self.holding((change(self.leaves[0], self.belongs[0]),))
        pairs = zip(self.leaves, self.belongs, strict=True)
        return self.holding([change(x, b) if is_tensor(x) else x for x, b in pairs])

    def given(self) -> tuple[Any, dict[str, Any]]:
        """An input and keyword arguments."""
        return self.filled(self.leaves)

    def tensors(self) -> Iterator[torch.Tensor]:
        """All of them."""
        return (leaf for leaf in self.leaves if is_tensor(leaf))

    @property
    def first(self) -> torch.Tensor | None:
        """A tensor of the input."""
        return next((x for x, n in zip(self.leaves, self.names, strict=True) if not n and is_tensor(x)), None)

    def task(self, number: int) -> Arguments:
        """What one task is given, which is given all rows."""
        if TASKS not in self.belongs:
            return self
        return self.changed(lambda x, b: x[number] if b == TASKS else x)

    def entry(self, number: int) -> Arguments:
        """What belongs to a task where every task has rows of its own."""
        return self.changed(lambda x, b: x[number] if b == TASKS or isinstance(b, int) else x)

    def rows(self, index: np.ndarray[Any, Any]) -> Arguments:
        """The same with some of the rows."""

        def chosen(x: torch.Tensor, dim: Belonging) -> torch.Tensor:
            return x.index_select(dim, index_on_device_of(x, index)) if isinstance(dim, int) else x

        return self.changed(chosen)

    def check_mixed(self, rows: int, tasks: int) -> None:
        """Refuse what cannot be split by rows, or of which nobody has said whether it is to be."""
        x, dim = self.leaves[0] if self.plain else None, self.belongs[0] if self.leaves else None
        if x is not None and isinstance(dim, int) and x.ndim > dim and x.shape[dim] == rows:
            return
        self._refuse_doubtful(lambda x: rows > 1 and rows in x.shape, tasks, rows)
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
        if self.plain:
            return
        self._refuse_doubtful(lambda x: False, tasks, 0)
        self._check_entries(tasks, lambda b: b == TASKS or isinstance(b, int))
        self._check_objects()

    def check_all(self, tasks: int) -> None:
        """The same where all tasks are given the same rows."""
        if self.plain:
            return
        self._refuse_doubtful(lambda x: False, tasks, 0)
        self._check_entries(tasks, lambda b: b == TASKS)

    def signature(self) -> tuple[object, ...]:
        """What tells calls apart of which one says nothing about another: names, dtypes, ranks, flags."""
        if self.plain:
            return self.leaves[0].dtype, self.leaves[0].ndim
        told = [(n, *_told(x)) for n, x in zip(self.names, self.leaves, strict=True)]
        return (*told, *((name, structure.kind) for name, structure in self.structures))

    def _refuse_doubtful(self, has_rows: Callable[[torch.Tensor], bool], tasks: int, rows: int) -> None:
        for x, name, belongs in zip(self.leaves, self.names, self.belongs, strict=True):
            if belongs != UNKNOWN or not is_tensor(x) or not x.ndim:
                continue
            of_tasks = x.shape[0] == tasks > 1
            if has_rows(x) or of_tasks:
                axis = list(x.shape).index(rows) if has_rows(x) else 0
                which = f"a row for each of the {rows} rows of x" if has_rows(x) else "an entry for each task"
                raise tn.TnshareError(_question(name, f"of shape {tuple(x.shape)}", which, axis))

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


def entries(kwargs: Mapping[str, Any], dims: Mapping[str, Belonging], tasks: int) -> list[dict[str, Any]]:
    """Keyword arguments for each task, where inputs are a list of entries: a list too, or stacked."""
    found: list[dict[str, Any]] = [{} for _ in range(tasks)]
    for name, value in kwargs.items():
        belongs = dims.get(name, UNKNOWN)
        listed = isinstance(value, list | tuple) and len(value) == tasks > 1
        if listed and belongs == UNKNOWN and any(map(is_tensor, flatten(value)[0])):
            raise tn.TnshareError(_question(name, f"a list of {tasks}", "an entry for each task", 0))
        if listed and belongs not in (None, UNKNOWN):
            own: Sequence[Any] = value
        else:
            given = Arguments.of(None, {name: value}, 0, dims)
            given.check_each(tasks)
            own = [given.entry(task).given()[1][name] for task in range(tasks)]
        for task, entry in enumerate(own):
            found[task][name] = entry
    return found


def _question(name: str, what: str, which: str, axis: int) -> str:
    return (
        f"does {name!r}, {what}, have {which}? Say so: share(..., batch_dims={{{name!r}: {axis}}}) for rows "
        f"along an axis, {{{name!r}: 'tasks'}} for an entry for each task, or {{{name!r}: None}} if it is "
        "the same for all"
    )


def is_tensor(x: Any) -> bool:
    """Whether something is a tensor."""
    return isinstance(x, torch.Tensor)


def _told(x: Any) -> tuple[object, ...]:
    if isinstance(x, torch.Tensor):
        return x.dtype, x.ndim
    known = x is None or isinstance(x, bool | str | int | float)
    return (type(x).__name__, x) if known else (type(x).__name__,)


def index_on_device_of(x: torch.Tensor, index: np.ndarray[Any, Any]) -> torch.Tensor:
    """An index where x is."""
    return torch.as_tensor(index, device=x.device)


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


def read_traced_ids(task: Any, tasks: int, like: torch.Tensor) -> torch.Tensor:
    """The same in compiled code, which checks the range of ids that it does not know while it runs."""
    if isinstance(task, list | tuple) and any(
        type(number) is int and not 0 <= number < tasks for number in task
    ):
        raise tn.TnshareError(f"task ids {task} are out of range: expected 0 <= task <= {tasks - 1}")
    ids = torch.as_tensor(task, device=like.device)
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        kind = str(ids.dtype).removeprefix("torch.")
        raise tn.TnshareError(f"task ids must be whole numbers: found dtype {kind}")
    if ids.ndim > 1:
        raise tn.TnshareError(
            f"a task must be a whole number, or ids (rows,): found shape {tuple(ids.shape)}"
        )
    return ids.long()


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


class Groups:
    """Rows along an axis grouped by task: the tasks that are ``present``, with ``counts`` of rows."""

    def __init__(self, ids: np.ndarray[Any, Any], tasks: int, dim: int) -> None:
        if not len(ids):
            raise tn.TnshareError("a batch of no rows has no tasks to run: found 0 ids")
        self.groups, self.rows, self.dim = RowGroups.of([ids], (tasks,)), len(ids), dim
        self.present: list[int] = self.groups.present[0].tolist()
        self.counts: list[int] = self.groups.counts.tolist()

    def parts(self, arguments: Arguments) -> list[Arguments]:
        """What each task that is present is given: its rows, and its own entries."""
        columns = [self._split(*leaf) for leaf in zip(arguments.leaves, arguments.belongs, strict=True)]
        return [arguments.holding(leaves) for leaves in zip(*columns, strict=True)]

    def joined(self, outputs: list[Any]) -> Any:
        """Outputs of groups put together, rows in their old places."""
        if all(map(is_tensor, outputs)):
            return self._joined(outputs)
        leaves = [flatten(output) for output in outputs]
        if any(structure != leaves[0][1] for _, structure in leaves):
            raise tn.TnshareError("the outputs of tasks differ in kind: run one task at a time")
        columns = zip(*(flat for flat, _ in leaves), strict=True)
        put = [self._joined(c) if any(map(is_tensor, c)) else _common(c) for c in columns]
        return leaves[0][1].filled(put)

    def _joined(self, column: Sequence[Any]) -> torch.Tensor:
        check_rows(column, self.counts, self.dim)
        back = index_on_device_of(column[0], self.groups.places)
        return torch.cat(list(column), self.dim).index_select(self.dim, back)

    def _split(self, x: Any, belongs: Belonging) -> Sequence[Any]:
        if is_tensor(x) and belongs == TASKS:
            return [x[task] for task in self.present]
        if not is_tensor(x) or not isinstance(belongs, int) or len(self.present) == 1:
            return [x] * len(self.present)
        rows = x.index_select(belongs, index_on_device_of(x, self.groups.order))
        return list(rows.split(self.counts, belongs))


def stack_outputs(outputs: list[Any], required: bool) -> Any:
    """Outputs of all tasks as one, a task axis first; a list where their shapes differ, if that may be."""
    if all(is_tensor(y) and y.shape == outputs[0].shape for y in outputs):
        return torch.stack(outputs)
    leaves = [flatten(output) for output in outputs]
    alike = all(structure == leaves[0][1] for _, structure in leaves)
    put: list[Any] = []
    for column in zip(*(flat for flat, _ in leaves), strict=True) if alike else ():
        # Compared, not put into a set, which would make constants of sizes that compiled code leaves open.
        if all(map(is_tensor, column)) and all(x.shape == column[0].shape for x in column):
            put.append(torch.stack(column))
        elif not any(map(is_tensor, column)) and all(_is_same(x, column[0]) for x in column):
            put.append(column[0])
        else:
            alike = False
    if alike:
        return leaves[0][1].filled(put)
    if required:
        raise tn.TnshareError(
            "the outputs of tasks differ in shape, or are no tensors: give a list of inputs, and get a list"
        )
    return outputs


def _common(column: Sequence[Any]) -> Any:
    """What is no tensor and has no rows: a word or a flag that is the same for all groups."""
    one = column[0]
    plain = one is None or isinstance(one, bool | str)
    if (not plain and len(column) > 1) or not all(_is_same(x, one) for x in column):
        raise tn.TnshareError(
            f"rows of mixed tasks need outputs with rows: found {one!r:.60}, a {type(one).__name__}; run one "
            "task at a time"
        )
    return one


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (
        type(one) is type(other) and isinstance(one, bool | str | int | float) and one == other
    )


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
