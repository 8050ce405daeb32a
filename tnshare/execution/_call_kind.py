"""What `Calls` has to know of a layer: linear, convolution and embedding each say it for themselves."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from tnshare.errors import TnshareError
from tnshare.ops import Ops
from tnshare.planning import AnyJob, AnyOption, Form, Profile, Way

from ._runners import Runner, Shape

Job = TypeVar("Job", bound=AnyJob)
Option = TypeVar("Option", bound=AnyOption)


class CallKind(ABC, Generic[Job, Option]):
    """The calls of a layer in a framework: what they ask for, and what they may be computed by.

    ``rows`` are the axes of x that are neither tasks nor what belongs to one row, such as features.
    """

    guarded = True  # whether ids go to where a framework itself refuses those that are out of range

    def __init__(self, layer: Any, ops: Ops[Any]) -> None:
        self.layer, self.ops = layer, ops

    @abstractmethod
    def rows_of(self, way: Way, ids: int | None, shape: Shape) -> Shape:
        """The axes of rows in an x of this shape; refuses one that does not fit, or not so many ids."""

    @abstractmethod
    def shape(self, rows: Sequence[int], sizes: Sequence[int] | None) -> Shape:
        """The shape of an x of one task, whose axes that are neither rows nor features have such sizes."""

    @abstractmethod
    def job(self, way: Way, rows: Shape, shape: Shape, training: bool, keep: bool, concrete: bool) -> Job:
        """What is to be computed for an x of this shape, sizes of rows rounded up: one plan is for many."""

    @abstractmethod
    def options(self, job: Job, profile: Profile, form: Form) -> tuple[Option, ...]:
        """What the job may be computed by, the best prediction first."""

    @abstractmethod
    def function(self, job: Job, option: Option, rows: Shape | None) -> Runner:
        """An option as a function of an x that has these axes of rows; None: any."""

    @abstractmethod
    def code(self, option: Option) -> str:
        """An option as a user reads it."""

    @abstractmethod
    def key(self, job: Job) -> dict[str, Any]:
        """All that times of a job depend on, besides the place."""

    @abstractmethod
    def peak_bytes(self, job: Job, option: Option, rows: Shape, part: int, itemsize: int) -> int:
        """What is alive at once where so many of the rows are computed at a time."""

    @abstractmethod
    def seconds(self, job: Job, option: Option, profile: Profile, rows: int, training: bool) -> float:
        """A prediction for other rows, with the backward pass or without."""

    def worth_timing(self, options: Sequence[Option]) -> Sequence[Option]:
        """Those that may turn out to be the fastest."""
        return options

    def measurable(self, options: Sequence[Option]) -> Sequence[Option]:
        """Those of which it is known what they need."""
        return options

    def planned_for(self, batches: Sequence[int]) -> Sequence[int]:
        """Of numbers of rows in order, those that traced calls are planned for; by default a middle one."""
        return batches[len(batches) // 2 : len(batches) // 2 + 1]

    def leading_axes(
        self,
        way: Way,
        ids: int | None,
        shape: Shape,
        own: tuple[int | str, ...] = (),
        where: str = "",
        most: int | None = None,
    ) -> Shape:
        """The axes of x before its ``own``, without those of tasks; refuses an x that does not fit.

        Of its own axes the first has a size, the others names. ``ids`` is how many there are, where every row
        has a task of its own; a row of an x has at most so many axes before its own ones then.
        """
        tasks = self.layer.task_shape
        if len(shape) < len(own) or (own and shape[-len(own)] != own[0]):
            raise TnshareError(f"expected x of shape {_text('...', *own)}, {where}: found {shape}")
        rows = shape[: len(shape) - len(own)]
        if way == "mixed" and (
            not rows or (ids is not None and rows[0] != ids) or (most is not None and len(rows) > most)
        ):
            expected = _text(ids, *([] if most == 1 else ["..."]), *own)
            raise TnshareError(
                f"one task id for each row: expected x of shape {expected} with {ids} ids, found {shape}"
            )
        if way != "each":
            return rows
        if rows[: len(tasks)] != tasks:
            raise TnshareError(
                "without a task, row t of x belongs to task t: expected x of shape "
                f"{_text(*tasks, '...', *own)}, found {shape}; give a task, or ids, or use fan_out"
            )
        return rows[len(tasks) :]

    def rows_in(self, way: Way, rows: Shape) -> int:
        """How many rows there are; where each has a task of its own, they may have more axes."""
        return rows[0] if way == "mixed" else math.prod(rows)


def _text(*axes: int | str | None) -> str:
    return f"({', '.join(map(str, axes))})"
