"""The ways of calling a shared network: each with several tasks can go one by one, or at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from tnshare.planning import group
from tnshare_torch.shared.running._replacing import Trial
from tnshare_torch.shared.running._weights import CallTasks
from tnshare_torch.shared.template._containers import flatten, mapped

from ._both_paths import at_once, one_by_one
from ._rows import (
    TASKS,
    Arguments,
    Belonging,
    Groups,
    check_rows,
    index_on_device_of,
    is_tensor,
    stack_outputs,
)

_SINGLES = 16  # rows of a group that a probe runs one by one; the others together


def casts() -> bool:
    """Whether autocast is on."""
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")


class Kind(NamedTuple):
    """A way, whether the network trains, and all that may make it another computation."""

    way: str
    training: bool
    given: tuple[object, ...]


@dataclass(frozen=True)
class Call:
    """An input for tasks of a shared network, or of others that are given by their codes."""

    tasks: CallTasks
    given: Arguments
    way = ""
    alone = False  # it is for one task, or tasks cannot run at once

    @property
    def numbers(self) -> Sequence[int]:
        """The tasks that run."""
        return range(len(self.tasks))

    @property
    def training(self) -> bool:
        """Whether the network is in training, where it may compute something else."""
        return self.tasks.weights.template.training

    @property
    def x(self) -> torch.Tensor | None:
        """A tensor of the input."""
        return self.given.first

    @property
    def rows(self) -> int:
        """How many rows each of them has, about; 1 where the input has no rows."""
        return 1 if self.x is None or self.x.ndim <= self.row_dim else self.x.shape[self.row_dim]

    @property
    def longest(self) -> int:
        """How many rows the task has that has most."""
        return self.rows

    @property
    def row_dim(self) -> int:
        """The axis of rows."""
        return self.tasks.weights.batch_dim

    def kind(self) -> Kind:
        """What tells it apart: what was seen of one call holds for others of its kind."""
        modes = type(self.tasks).__name__, torch.is_grad_enabled(), casts()
        return Kind(self.way, self.training, modes + self.given.signature())

    def check(self) -> None:
        """Refuse what does not fit, or of which it is not known whom it belongs to."""
        self.given.check_all(len(self.tasks))

    def one_by_one(self, trial: Trial | None = None) -> Any:
        """One task after the other."""
        raise NotImplementedError

    def at_once(self, trial: Trial | None = None) -> Any:
        """All at once."""
        raise NotImplementedError

    def probed(self) -> Call | None:
        """What is run to find out whether all may run at once; None if that would not show it."""
        return self

    def _dims(self, each: tuple[type, ...]) -> list[int | None]:
        """The axes of tasks of what has an entry for each."""
        pairs = zip(self.given.leaves, self.given.belongs, strict=True)
        return [0 if is_tensor(x) and (b == TASKS or isinstance(b, each)) else None for x, b in pairs]


@dataclass(frozen=True)
class One(Call):
    """One task on all rows."""

    number: int
    way = "one"
    alone = True

    @property
    def numbers(self) -> Sequence[int]:
        return [self.number]

    def check(self) -> None:
        if TASKS in self.given.belongs:
            self.given.check_all(len(self.tasks))

    def one_by_one(self, trial: Trial | None = None) -> Any:
        return one_by_one(self.tasks, [self.number], [self.given.task(self.number)], trial)[0]


class FanOut(Call):
    """The same x through every task."""

    way = "fan_out"

    def one_by_one(self, trial: Trial | None = None) -> Any:
        given = [self.given.task(number) for number in self.numbers]
        return stack_outputs(one_by_one(self.tasks, self.numbers, given, trial), required=False)

    def at_once(self, trial: Trial | None = None) -> Any:
        return at_once(self.tasks, self.numbers, self.given, self._dims(()), trial)


class Each(Call):
    """Entry t of x through task t."""

    way = "each"

    @property
    def row_dim(self) -> int:
        return self.tasks.weights.batch_dim + 1

    def check(self) -> None:
        self.given.check_each(len(self.tasks))

    def one_by_one(self, trial: Trial | None = None) -> Any:
        given = [self.given.entry(number) for number in self.numbers]
        return stack_outputs(one_by_one(self.tasks, self.numbers, given, trial), required=True)

    def at_once(self, trial: Trial | None = None) -> Any:
        return at_once(self.tasks, self.numbers, self.given, self._dims((int,)), trial)


@dataclass(frozen=True)
class Several(Call):
    """Entry t of a list through task t: entries may have different lengths."""

    inputs: Sequence[Arguments]
    way = "list"
    alone = True

    def check(self) -> None:
        """They are checked when they are taken apart."""

    def one_by_one(self, trial: Trial | None = None) -> Any:
        return one_by_one(self.tasks, self.numbers, self.inputs, trial)


@dataclass(frozen=True)
class Mixed(Call):
    """A task for each row: *defined* as rows grouped by task, each group run on its own."""

    ids: np.ndarray[Any, Any]
    way = "mixed"

    @cached_property
    def counts(self) -> np.ndarray[Any, Any]:
        """How many rows every task has."""
        return np.bincount(self.ids)

    @cached_property
    def numbers(self) -> Sequence[int]:
        found: list[int] = np.flatnonzero(self.counts).tolist()
        return found

    @property
    def rows(self) -> int:
        return -(-len(self.ids) // max(len(self.numbers), 1))

    @property
    def longest(self) -> int:
        return int(self.counts.max())

    def check(self) -> None:
        self.given.check_mixed(len(self.ids), len(self.tasks))

    def one_by_one(self, trial: Trial | None = None) -> Any:
        groups = Groups(self.ids, len(self.tasks), self.row_dim)
        return groups.joined(one_by_one(self.tasks, groups.present, groups.parts(self.given), trial))

    def at_once(self, trial: Trial | None = None) -> Any:
        """Groups padded to the longest; for networks that treat every row alone."""
        groups = group([self.ids], (len(self.tasks),), False)
        if groups is None:  # mostly padding
            return self.one_by_one(trial)
        count = len(groups.present[0])

        def padded(x: torch.Tensor, belongs: Belonging) -> torch.Tensor:
            if belongs == TASKS:
                return x.index_select(0, index_on_device_of(x, groups.present[0]))
            if not isinstance(belongs, int):
                return x
            shape = (*x.shape[:belongs], count, groups.longest, *x.shape[belongs + 1 :])
            return x.index_select(belongs, index_on_device_of(x, groups.rows)).reshape(shape)

        given = self.given.changed(padded)
        pairs = zip(given.leaves, given.belongs, strict=True)
        dims = [(0 if b == TASKS else b) if is_tensor(x) and b is not None else None for x, b in pairs]
        axes = [dim if isinstance(dim, int) else None for dim in dims]
        y = at_once(self.tasks, groups.present[0].tolist(), given, axes, trial)

        def back(leaf: Any) -> Any:
            return self._rows(leaf, groups.back, groups.longest)

        return back(y) if is_tensor(y) else mapped(back, y)

    def _rows(self, leaf: Any, back: np.ndarray[Any, Any], longest: int) -> Any:
        """The rows of an output (task, ..., longest, ...) in their old places."""
        if not is_tensor(leaf):
            return leaf
        dim = self.row_dim
        check_rows(leaf.unbind(0), [longest] * len(leaf), dim)
        return leaf.movedim(0, dim).flatten(dim, dim + 1).index_select(dim, index_on_device_of(leaf, back))

    def probed(self) -> Mixed | None:
        """The longest group, and one row of another task, so that it is padded."""
        long = int(self.counts.argmax())
        own, others = np.flatnonzero(self.ids == long), np.flatnonzero(self.ids != long)
        if len(own) < 2:
            return None  # too few to see whether rows are independent: some other call will show
        other = int(self.ids[others[0]]) if len(others) else (long + 1) % len(self.tasks)
        rows = np.append(own, others[0] if len(others) else own[0])
        ids = np.append(np.full(len(own), long), other)
        return replace(self, given=self.given.rows(rows), ids=ids)

    def row_by_row(self, trial: Trial | None = None) -> Any:
        """Rows as groups of their own: what grouped rows must equal, if they are independent.

        Some are alone, the others of a task together: one more or less must change nothing.
        """
        count = len(self.ids)
        alone = sorted({*np.linspace(0, count - 1, min(count, _SINGLES)).astype(int).tolist()})
        rest = [n for n in range(count) if n not in set(alone)]
        pieces = [np.array([n]) for n in alone]
        pieces += [np.array([n for n in rest if self.ids[n] == t]) for t in {int(self.ids[n]) for n in rest}]
        given = [self.given.rows(piece) for piece in pieces]
        numbers = [int(self.ids[piece[0]]) for piece in pieces]
        each = [g.task(number) for g, number in zip(given, numbers, strict=True)]
        outputs = [flatten(y) for y in one_by_one(self.tasks, numbers, each, trial)]
        back = np.argsort(np.concatenate(pieces), kind="stable")
        columns = zip(*(leaves for leaves, _ in outputs), strict=True)
        put = [self._joined(column, back) for column in columns]
        return outputs[0][1].filled(put)

    def _joined(self, column: Sequence[Any], back: np.ndarray[Any, Any]) -> Any:
        if not is_tensor(column[0]):
            return column[0]
        joined = torch.cat(list(column), self.row_dim)
        return joined.index_select(self.row_dim, index_on_device_of(joined, back))
