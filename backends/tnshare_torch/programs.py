"""The programs of a softly shared weight: for eager calls found when they are met, for traced ones ahead."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import tnshare as tn
from tnshare.emit import program
from tnshare.halves import composing, halves
from tnshare.profiles import profile_for

from .ops import ops

ROWS = -1  # stands for a number of tasks: each row is one
_MANY = 128  # about how many rows those are
Program = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Applied:
    """A linear layer as programs: pieces of factors, each with their numbers and whether tasks differ in it,
    for all tasks at once; then the rest, for one."""

    pieces: tuple[tuple[tuple[int, ...], bool, Program | None], ...]
    rest: Program


class Programs:
    """How one weight is composed and applied. ``order`` brings the axes of the stack to the network's own."""

    def __init__(self, network: tn.Network, order: tuple[int, ...]) -> None:
        self.network, self.order = network, order
        self.is_matrix = order == (1, 0)
        self.in_features, self.size = network.shape[0], math.prod(network.shape[:-1])
        self.ahead: dict[int, tuple[Program, Applied | None]] = {}

    def compose(self, tasks: int) -> Program:
        """Weights (task, ...) of so many tasks, from the factors."""
        return self.ahead[tasks][0] if torch.compiler.is_compiling() else self._compose(tasks)

    def apply(self, tasks: int, rows: int, training: bool, like: torch.Tensor) -> Applied:
        """How so many rows of each task go through a matrix."""
        if torch.compiler.is_compiling():
            found = self.ahead[tasks][1]
            assert found is not None
            return found
        return self._apply(tasks, rows, training, like)

    def prepare(self, tasks: int, rows: int, like: torch.Tensor) -> None:
        """Make what a traced call of so many tasks will look for, each on about so many rows."""
        if tasks not in self.ahead:
            applied = self._apply(tasks, rows, True, like) if self.is_matrix else None
            self.ahead[tasks] = self._compose(max(tasks, 1)), applied

    def _compose(self, tasks: int) -> Program:
        return program(composing(self.network, tasks, self.order), ops)

    def _apply(self, tasks: int, rows: int, training: bool, like: torch.Tensor) -> Applied:
        if tasks == ROWS:
            tasks, rows = _MANY, 1
        made = halves(self.network, tasks, rows, training, profile_for(ops.device(like)))
        pieces = [(p.factors, p.own, None if p.plan is None else program(p.plan, ops)) for p in made.pieces]
        return Applied(tuple(pieces), program(made.rest, ops))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "ahead": {}}  # has functions, which no pickle holds
