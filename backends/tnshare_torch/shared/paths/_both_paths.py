"""Both paths of several tasks.

One after the other, each as if it were alone; or all at once under vmap, which keeps track of the task axis
through the user's code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch._functorch.vmap import vmap_increment_nesting

import tnshare as tn
from tnshare_torch._ops import out_of_range_refused
from tnshare_torch.shared.running._outside_vmap import VmappedRows
from tnshare_torch.shared.running._provenance import Owner
from tnshare_torch.shared.running._replacing import Trial, run_with
from tnshare_torch.shared.running._soft_weight import ROWS, SoftWeight
from tnshare_torch.shared.running._weights import CallTasks, Weights
from tnshare_torch.shared.template._attribute_guard import AttributeGuard
from tnshare_torch.shared.template._containers import LEAF, Structure, flatten
from tnshare_torch.shared.template._state_guard import StateGuard

from ._rows import TASKS, Arguments, is_tensor

Tensors = dict[str, torch.Tensor]
Factors = dict[str, list[torch.Tensor]]


def one_by_one(
    tasks: CallTasks, numbers: Sequence[int], given: Sequence[Arguments], trial: Trial | None = None
) -> list[Any]:
    """The outputs of some tasks, each on its own input; weights are composed for all of them at once."""
    weights, outputs = tasks.weights, []
    watched = trial is not None and trial.watched
    deep = StateGuard(weights.template, weights.scratch) if watched else nullcontext()
    with deep, _guarded(weights):
        softs = tasks.softs(numbers)
        common: dict[str, torch.Tensor | SoftWeight] = {**tasks.hard(), **softs}
        for place, (task, arguments) in enumerate(zip(numbers, given, strict=True)):
            tensors = {**common, **tasks.own(task)}
            pairs = [(placeholder, tensors[name]) for name, placeholder in weights.placeholders.items()]
            if trial is not None:
                trial.owners.append(Owner(tasks.owner(task)))
            outputs.append(run_with(weights.template, pairs, place, *arguments.given(), trial))
        _refuse_written(softs)
    return outputs


def at_once(
    tasks: CallTasks,
    numbers: Sequence[int],
    given: Arguments,
    dims: Sequence[int | None],
    trial: Trial | None = None,
) -> Any:
    """The outputs of some tasks, a task axis first.

    ``dims`` are the axes along which what is given lies for tasks, leaf by leaf; None if all have the same.
    """
    each = [tasks.own(task) for task in numbers]
    own = _stacked(each)
    counted = not torch.compiler.is_compiling() and not torch.is_inference_mode_enabled()
    before = {name: tensor._version for name, tensor in own.items()} if counted else {}
    factors = {name: tasks.factors(name, numbers) for name in tasks.weights.programs}
    y = _mapped(tasks, own, factors, len(numbers), given, dims, trial)
    for name, tensor in own.items():
        # Batch norm updates its statistics under vmap without a change of their version (torch 2.13).
        if name in tasks.weights.buffers or (before and tensor._version != before[name]):
            with torch.no_grad():
                for one, value in zip(each, tensor.unbind(0), strict=True):
                    one[name].copy_(value)
    return y


def row_by_row(tasks: CallTasks, given: Arguments, ids: torch.Tensor) -> Any:
    """The outputs of rows, each a batch of its own with a task of its own; for traced calls."""
    dim = tasks.weights.batch_dim
    own, factors = _chosen(tasks, ids)
    run = _Run(tasks, factors, ROWS, given)
    with vmap_increment_nesting(ids.shape[0], "different") as level:
        rows = VmappedRows(ids.shape[0], level)
        mine = {name: rows.enter(tensor) for name, tensor in own.items()}
        code = {name: rows.enter(tensor) for name, tensor in run.codes.items()}
        leaves = []
        for x, along in zip(given.leaves, given.belongs, strict=True):
            if is_tensor(x) and along == TASKS:
                x = rows.enter(x.index_select(0, ids))
            elif is_tensor(x) and isinstance(along, int):  # a row keeps its axis, of size 1
                x = rows.enter(x.unsqueeze(along + 1), along)
            leaves.append(x)
        found = [rows.leave(y) for y in run(mine, code, leaves, rows)]
    for leaf in found:
        if leaf.ndim < dim + 2 or leaf.shape[dim + 1] != 1:
            raise tn.TnshareError(
                f"rows of mixed tasks need outputs with rows along axis {dim}: run one task at a time"
            )
    return run.outputs([leaf.movedim(0, dim).squeeze(dim + 1) for leaf in found])


def one_of(tasks: CallTasks, given: Arguments, task: torch.Tensor) -> Any:
    """The outputs of one task whose number is a tensor: for traced calls, one program for all tasks."""
    index = task.reshape(1)
    own, factors = _chosen(tasks, index)
    mine = given.changed(lambda x, b: x.index_select(0, index)[0] if b == TASKS else x)
    run = _Run(tasks, factors, 1, mine)
    y = [leaf[0] for leaf in run.mapped(own, [None] * len(mine.leaves))]
    for name in tasks.weights.buffers:  # a task not known here gets back what was written to its buffers
        for number in range(len(tasks)):
            buffer = tasks.own(number)[name]
            buffer.copy_(torch.where(index[0] == number, own[name][0], buffer))
    return run.outputs(y)


def _guarded(weights: Weights) -> AbstractContextManager[Any]:
    """Refuses that the network changes itself; compiled code cannot watch it."""
    compiled = torch.compiler.is_compiling()
    return nullcontext() if compiled else AttributeGuard(weights.template, weights.scratch)


def _refuse_written(softs: Mapping[str, SoftWeight]) -> None:
    """Writing to a weight that is composed anew in every call would have no effect."""
    for name, soft in softs.items():
        if soft.written():
            raise tn.TnshareError(
                f"the network writes to {name!r} in its forward, which is softly shared and composed anew in "
                f"every call: leave it to each task, layers={{{name!r}: 'single'}}"
            )


def _mapped(
    tasks: CallTasks,
    own: Mapping[str, torch.Tensor],
    factors: Factors,
    planned: int,
    given: Arguments,
    dims: Sequence[int | None],
    trial: Trial | None = None,
) -> Any:
    """The template under vmap, over tensors of tasks and their codes."""
    run = _Run(tasks, factors, planned, given, trial)
    return run.outputs(run.mapped(own, dims))


class _Run:
    """The template as a function of what one task has of its own, its codes, and its inputs.

    It gives the tensors among its outputs, as vmap wants it; ``outputs`` puts them back where they were.
    """

    def __init__(
        self, tasks: CallTasks, factors: Factors, planned: int, given: Arguments, trial: Trial | None = None
    ) -> None:
        self.tasks, self.factors, self.planned, self.trial = tasks, factors, planned, trial
        self.given = given
        programs = tasks.weights.programs
        self.codes = {name: every[programs[name].place] for name, every in factors.items()}
        self.structures: list[Structure] = []
        self.others: list[Any] = []  # what is no tensor, in its place

    def mapped(self, own: Mapping[str, torch.Tensor], dims: Sequence[int | None]) -> Sequence[torch.Tensor]:
        """The tensors among the outputs of all tasks."""
        mapped = torch.func.vmap(self, in_dims=(0, 0, list(dims)), randomness="different")
        with _guarded(self.tasks.weights):
            found: Sequence[torch.Tensor] = mapped(dict(own), self.codes, list(self.given.leaves))
        return found

    def __call__(
        self, tensors: Tensors, codes: Tensors, leaves: list[Any], rows: VmappedRows | None = None
    ) -> tuple[torch.Tensor, ...]:
        weights = self.tasks.weights
        every: dict[str, torch.Tensor | SoftWeight] = {**self.tasks.hard(), **tensors}
        for name, factors in self.factors.items():
            programs, mine = weights.programs[name], list(factors)
            mine[programs.place] = codes[name].unsqueeze(0)
            every[name] = SoftWeight(programs, mine, self.planned)
        pairs = [(placeholder, every[name]) for name, placeholder in weights.placeholders.items()]
        y = run_with(weights.template, pairs, 0, *self.given.filled(leaves), self.trial, rows)
        flat, structure = ([y], LEAF) if is_tensor(y) else flatten(y)
        self.structures.append(structure)
        self.others.extend(_TENSOR if is_tensor(leaf) else leaf for leaf in flat)
        if any(isinstance(leaf, int | float | complex) and not isinstance(leaf, bool) for leaf in flat):
            raise tn.TnshareError("a number among the outputs, which is no tensor, has no task")
        return tuple([leaf for leaf in flat if is_tensor(leaf)])

    def outputs(self, found: Sequence[torch.Tensor]) -> Any:
        """The outputs of the template, with these tensors."""
        if self.structures[0] is LEAF and found:
            return found[0]
        rest = list(found)
        return self.structures[0].filled([rest.pop(0) if x is _TENSOR else x for x in self.others])


_TENSOR = object()


def _chosen(tasks: CallTasks, ids: torch.Tensor) -> tuple[Tensors, Factors]:
    """What the tasks have of their own, and factors with their codes, for tasks given by a tensor."""
    every = range(len(tasks))
    ids = out_of_range_refused(ids, len(tasks))
    stacked = _stacked([tasks.own(task) for task in every])
    found = {}
    for name, programs in tasks.weights.programs.items():
        factors = tasks.factors(name, every)
        factors[programs.place] = factors[programs.place].index_select(0, ids)
        found[name] = factors
    return {name: tensor.index_select(0, ids) for name, tensor in stacked.items()}, found


def _stacked(each: Sequence[Tensors]) -> Tensors:
    """What tasks have of their own, by name, a task axis first."""
    return {name: torch.stack([own[name] for own in each]) for name in each[0]}
