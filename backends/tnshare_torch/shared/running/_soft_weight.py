"""A softly shared weight in a call, and its programs: found when met, or ahead for traced calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch.nn import functional

import tnshare as tn
from tnshare.execution import composing_plan, two_stages
from tnshare.planning import MOST_KEPT_NUMBERS, Device, profile_for, program
from tnshare_torch._ops import autocasts, ops

from ._recomputing import current_checkpoint, unrecorded

ROWS = -1  # stands for a number of tasks: each row is one
_MANY = 128  # about how many rows those are

Program = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class StagedLinear:
    """A linear layer as programs: pieces of factors, each with their numbers and whether tasks differ in it,
    for all tasks at once; then the rest, for one."""

    pieces: tuple[tuple[tuple[int, ...], bool, Program | None], ...]
    rest: Program


class WeightPrograms:
    """How one weight is composed and applied. ``order`` brings the axes of the stack to the network's own.

    ``factors`` are the names of its nodes; ``coded`` is the one that holds the codes of tasks, at ``place``
    among them. Modules keep these under ``code_key``, the others under ``key``. A composed weight lies in
    memory as ``strides`` say that a plain one does: a forward may rely on it.
    """

    def __init__(
        self, network: tn.Network, order: tuple[int, ...], key: str, strides: Sequence[int] = ()
    ) -> None:
        self.network, self.order, self.key = network, order, key
        self.is_matrix = order == (1, 0)
        self.in_features, self.size = network.shape[0], math.prod(network.shape[:-1])
        self.factors = tuple(node.name for node in network.nodes)
        (self.place,) = (n for n, node in enumerate(network.nodes) if network.is_coded(node))
        self.coded = self.factors[self.place]
        self.code_key = f"{key}:{self.coded}"
        axes = tuple(sorted(range(len(strides)), key=lambda axis: -strides[axis]))
        self.memory_order = None if axes == tuple(range(len(axes))) else axes
        self.planned: dict[int, tuple[Program, StagedLinear | None]] = {}

    def compose(self, tasks: int) -> Program:
        """Weights (task, ...) of so many tasks, from the factors."""
        return self.planned[tasks][0] if torch.compiler.is_compiling() else _composing(self, tasks)

    def laid_out(self, every: torch.Tensor) -> torch.Tensor:
        """Weights (task, ...) in memory as plain ones are."""
        if self.memory_order is None:
            return every.contiguous()
        axes = (0, *(axis + 1 for axis in self.memory_order))
        back = sorted(range(len(axes)), key=axes.__getitem__)
        return every.permute(axes).contiguous().permute(back)

    def apply(self, tasks: int, rows: int, training: bool, like: torch.Tensor) -> StagedLinear:
        """How so many rows of each task go through a matrix."""
        if torch.compiler.is_compiling():
            found = self.planned[tasks][1]
            assert found is not None
            return found
        return _staged(self, tasks, rows, training, ops.device(like))

    def prepare(self, tasks: int, rows: int, like: torch.Tensor) -> None:
        """Make what a traced call of so many tasks will look for, each on about so many rows."""
        if tasks not in self.planned:
            staged = _staged(self, tasks, rows, True, ops.device(like)) if self.is_matrix else None
            self.planned[tasks] = _composing(self, max(tasks, 1)), staged

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "planned": {}}  # has functions, which no pickle holds


# By the weight itself, of which there is one: to hash its network in every call would take longer.
@lru_cache(maxsize=4096)
def _composing(weight: WeightPrograms, tasks: int) -> Program:
    return program(composing_plan(weight.network, tasks, weight.order), ops)


@lru_cache(maxsize=4096)
def _staged(weight: WeightPrograms, tasks: int, rows: int, training: bool, device: Device) -> StagedLinear:
    if tasks == ROWS:
        tasks, rows = _MANY, 1
    made = two_stages(weight.network, tasks, rows, training, profile_for(device))
    pieces = [(p.factors, p.own, None if p.plan is None else program(p.plan, ops)) for p in made.pieces]
    return StagedLinear(tuple(pieces), program(made.rest, ops))


class SoftWeight:
    """One weight for the tasks of a call.

    ``factors`` are in the order of the network's nodes, codes of the tasks as rows. What depends on them
    alone is computed for all these tasks at once, when the first of them asks for it. ``planned_tasks`` is
    for how many tasks that is worth planning, if there are more than the rows tell: under vmap.
    """

    def __init__(
        self, programs: WeightPrograms, factors: Sequence[torch.Tensor], planned_tasks: int = 0
    ) -> None:
        self.programs, self.factors, self.place = programs, list(factors), programs.place
        self.tasks = self.factors[self.place].shape[0]
        self.planned_tasks, self.outer = planned_tasks or self.tasks, current_checkpoint()
        self._composed: dict[tuple[int, bool], torch.Tensor] = {}
        self._applied: dict[bool, tuple[StagedLinear, list[Sequence[torch.Tensor]]]] = {}
        self._given: list[tuple[torch.Tensor, int]] = []

    def composed(self, task: int) -> torch.Tensor:
        """The weight of a task of the call, by its place among them, as its network has it."""
        key = task, torch.is_grad_enabled()  # one that was made without gradients has none later
        if key not in self._composed:
            self._compose(task)
        return self._composed[key]

    def alone(self, task: int) -> SoftWeight:
        """The weight of one of the tasks, with nothing computed yet."""
        factors = list(self.factors)
        factors[self.place] = factors[self.place][task : task + 1]
        return SoftWeight(self.programs, factors, self.planned_tasks)

    def linear(self, task: int, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """``functional.linear`` with the weight of a task."""
        if (task, torch.is_grad_enabled()) in self._composed or not self._applies(x):
            return functional.linear(x, self.composed(task), bias)
        applied, pieces = self._pieces(x)
        own = [part[task] if len(part) > 1 else part[0] for part in pieces]
        y = applied.rest(*own, x.reshape(-1, x.shape[-1]))
        y = y.reshape(*x.shape[:-1], y.shape[-1])
        return y if bias is None else ops.add(y, bias)

    def watched(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same tensor, which is not to be written to: it is gone after the call."""
        if not torch.compiler.is_compiling() and ops.concrete(tensor) and not tensor.is_inference():
            self._given.append((tensor, tensor._version))
        return tensor

    def written(self) -> bool:
        """Whether something was written to a composed weight, where it would be lost."""
        return any(tensor._version != version for tensor, version in self._given)

    def _compose(self, task: int) -> None:
        """The weights of all tasks, or, where nobody needs them later and they are large, of some."""
        together = torch.is_grad_enabled() or torch.compiler.is_compiling()
        most = self.tasks if together else max(1, MOST_KEPT_NUMBERS // max(self.programs.size, 1))
        start = task // most * most
        several = min(most, self.tasks - start)
        factors = list(self.factors)
        if several < self.tasks:
            factors[self.place] = factors[self.place][start : start + several]
            self._composed.clear()
        with _precise(factors[0]), unrecorded(self.outer):
            every = self.programs.laid_out(self.programs.compose(several)(*factors))
        for n, weight in enumerate(every.unbind(0)):
            self._composed[start + n, torch.is_grad_enabled()] = self.watched(weight)

    def _applies(self, x: torch.Tensor) -> bool:
        """Whether x is what a plan can take: others go to torch as they are, for what it makes of them."""
        plain = x.layout == torch.strided and not x.is_nested and x.ndim > 0
        dtype = x.dtype if autocasts(x.device.type) else self.factors[0].dtype
        return plain and x.shape[-1] == self.programs.in_features and x.dtype == dtype

    def _pieces(self, x: torch.Tensor) -> tuple[StagedLinear, list[Sequence[torch.Tensor]]]:
        graded = torch.is_grad_enabled()
        if graded not in self._applied:
            traced = torch.compiler.is_compiling()
            rows = 0 if traced else max(x.numel() // x.shape[-1], 1)
            applied = self.programs.apply(self.planned_tasks, rows, graded, x)
            pieces: list[Sequence[torch.Tensor]] = []
            with unrecorded(self.outer):
                for numbers, own, contract in applied.pieces:
                    factors = [self.factors[n] for n in numbers]
                    part = factors[0] if contract is None else contract(*factors)
                    pieces.append(part.unbind(0) if own else (part,))
            self._applied[graded] = applied, pieces
        return self._applied[graded]


def _precise(like: torch.Tensor) -> AbstractContextManager[Any]:
    """Weights are composed in their own precision, also under autocast, which shortens them afterwards."""
    kind = like.device.type
    return torch.autocast(kind, enabled=False) if autocasts(kind) else nullcontext()
