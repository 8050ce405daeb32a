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
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

import tnshare as tn
from tnshare_torch._ops import out_of_range_refused
from tnshare_torch.shared.running._outside_vmap import VmappedRows
from tnshare_torch.shared.running._replacing import Trial, run_with
from tnshare_torch.shared.running._soft_weight import ROWS, SoftWeight
from tnshare_torch.shared.running._weights import CallTasks, Weights
from tnshare_torch.shared.template._attribute_guard import AttributeGuard

Tensors = dict[str, torch.Tensor]
Factors = dict[str, list[torch.Tensor]]


def one_by_one(
    tasks: CallTasks,
    numbers: Sequence[int],
    inputs: Sequence[Any],
    kwargs: Sequence[Mapping[str, Any]],
    trial: Trial | None = None,
) -> list[Any]:
    """The outputs of some tasks, each on its own input; weights are composed for all of them at once."""
    weights, outputs = tasks.weights, []
    with _guarded(weights):
        softs = tasks.softs(numbers)
        common: dict[str, torch.Tensor | SoftWeight] = {**tasks.hard(), **softs}
        for place, (task, x, named) in enumerate(zip(numbers, inputs, kwargs, strict=True)):
            tensors = {**common, **tasks.own(task)}
            pairs = [(placeholder, tensors[name]) for name, placeholder in weights.placeholders.items()]
            outputs.append(run_with(weights.template, pairs, place, x, named, trial))
        _refuse_written(softs)
    return outputs


def at_once(
    tasks: CallTasks,
    numbers: Sequence[int],
    x: tuple[torch.Tensor, int | None],
    kwargs: tuple[Mapping[str, Any], Mapping[str, int]],
    trial: Trial | None = None,
) -> Any:
    """The outputs of some tasks, a task axis first.

    x comes with the axis along which the inputs of tasks lie, None if all have the same; keyword arguments
    with such axes by name, for those that have one.
    """
    each = [tasks.own(task) for task in numbers]
    own = _stacked(each)
    counted = not torch.compiler.is_compiling() and not torch.is_inference_mode_enabled()
    before = {name: tensor._version for name, tensor in own.items()} if counted else {}
    factors = {name: tasks.factors(name, numbers) for name in tasks.weights.programs}
    inputs = x[0], dict(kwargs[0])
    dims = x[1], {name: kwargs[1].get(name) for name in kwargs[0]}
    y = _mapped(tasks, own, factors, len(numbers), inputs, dims, trial)
    for name, tensor in own.items():
        # Batch norm updates its statistics under vmap without a change of their version (torch 2.13).
        if name in tasks.weights.buffers or (before and tensor._version != before[name]):
            with torch.no_grad():
                for one, value in zip(each, tensor.unbind(0), strict=True):
                    one[name].copy_(value)
    return y


def row_by_row(tasks: CallTasks, x: torch.Tensor, ids: torch.Tensor, kwargs: Mapping[str, Any]) -> Any:
    """The outputs of rows, each a batch of its own with a task of its own; for traced calls."""
    dim = tasks.weights.batch_dim
    own, factors = _chosen(tasks, ids)
    dims = {name: tasks.weights.batch_dims.get(name) for name in kwargs}
    run = _Run(tasks, factors, ROWS)
    with vmap_increment_nesting(ids.shape[0], "different") as level:
        rows = VmappedRows(ids.shape[0], level)
        mine = {name: rows.enter(tensor) for name, tensor in own.items()}
        code = {name: rows.enter(tensor) for name, tensor in run.codes.items()}
        named = {}
        for name, value in kwargs.items():
            along = dims[name]  # a row keeps its axis, of size 1
            named[name] = value if along is None else rows.enter(value.unsqueeze(along + 1), along)
        outputs = run(mine, code, rows.enter(x.unsqueeze(dim + 1), dim), named, rows)
        found = [rows.leave(y) for y in outputs]
    y = run.outputs(found)
    flat, spec = tree_flatten(y)
    for leaf in flat:
        if leaf is not None and (leaf.ndim < dim + 2 or leaf.shape[dim + 1] != 1):
            raise tn.TnshareError(
                f"rows of mixed tasks need outputs with rows along axis {dim}: run one task at a time"
            )
    return tree_unflatten([None if f is None else f.movedim(0, dim).squeeze(dim + 1) for f in flat], spec)


def one_of(tasks: CallTasks, x: Any, task: torch.Tensor, kwargs: Mapping[str, Any]) -> Any:
    """The outputs of one task whose number is a tensor: for traced calls, one program for all tasks."""
    index = task.reshape(1)
    own, factors = _chosen(tasks, index)
    y = _mapped(tasks, own, factors, 1, (x, dict(kwargs)), (None, dict.fromkeys(kwargs)))
    for name in tasks.weights.buffers:  # a task not known here gets back what was written to its buffers
        for number in range(len(tasks)):
            buffer = tasks.own(number)[name]
            buffer.copy_(torch.where(index[0] == number, own[name][0], buffer))
    flat, spec = tree_flatten(y)
    return tree_unflatten([None if leaf is None else leaf[0] for leaf in flat], spec)


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
    inputs: tuple[Any, dict[str, Any]],
    dims: tuple[Any, dict[str, Any]],
    trial: Trial | None = None,
) -> Any:
    """The template under vmap, over tensors of tasks and their codes."""
    run = _Run(tasks, factors, planned, trial)
    mapped = torch.func.vmap(run, in_dims=(0, 0, *dims), randomness="different")
    with _guarded(tasks.weights):
        return run.outputs(mapped(dict(own), run.codes, *inputs))


class _Run:
    """The template as a function of what one task has of its own, its codes, and its inputs.

    It gives the tensors among its outputs, as vmap wants it; ``outputs`` puts them back where they were.
    """

    def __init__(self, tasks: CallTasks, factors: Factors, planned: int, trial: Trial | None = None) -> None:
        self.tasks, self.factors, self.planned, self.trial = tasks, factors, planned, trial
        programs = tasks.weights.programs
        self.codes = {name: every[programs[name].place] for name, every in factors.items()}
        self.specs: list[TreeSpec] = []
        self.nothing: list[bool] = []

    def __call__(
        self, tensors: Tensors, codes: Tensors, x: Any, named: dict[str, Any], rows: VmappedRows | None = None
    ) -> tuple[torch.Tensor, ...]:
        weights = self.tasks.weights
        every: dict[str, torch.Tensor | SoftWeight] = {**self.tasks.hard(), **tensors}
        for name, factors in self.factors.items():
            programs, mine = weights.programs[name], list(factors)
            mine[programs.place] = codes[name].unsqueeze(0)
            every[name] = SoftWeight(programs, mine, self.planned)
        pairs = [(placeholder, every[name]) for name, placeholder in weights.placeholders.items()]
        y = run_with(weights.template, pairs, 0, x, named, self.trial, rows)
        flat, spec = tree_flatten(y)
        self.specs.append(spec)
        self.nothing.extend(leaf is None for leaf in flat)
        return tuple([leaf for leaf in flat if leaf is not None])

    def outputs(self, found: Sequence[torch.Tensor]) -> Any:
        """The outputs of the template, with these tensors."""
        rest = list(found)
        return tree_unflatten([None if none else rest.pop(0) for none in self.nothing], self.specs[0])


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
