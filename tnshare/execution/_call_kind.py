"""What `Calls` has to know of a layer: linear, convolution and embedding each say it for themselves."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from tnshare.ops import Ops
from tnshare.planning import AnyJob, AnyOption, Candidate, Form, Profile, Way

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
    def options(self, job: Job, profile: Profile, form: Form | Candidate) -> tuple[Option, ...]:
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

    def rows_in(self, way: Way, rows: Shape) -> int:
        """How many rows there are; where each has a task of its own, they may have more axes."""
        return rows[0] if way == "mixed" else math.prod(rows)
