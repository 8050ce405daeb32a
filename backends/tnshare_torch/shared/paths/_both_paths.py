"""Both paths of several tasks.

One after the other, each as if it were alone; or all at once under vmap, which keeps track of the task axis
through the user's code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._functorch.vmap import vmap_increment_nesting
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

import tnshare as tn
from tnshare_torch._ops import out_of_range_refused
from tnshare_torch.shared.running._outside_vmap import VmappedRows
from tnshare_torch.shared.running._replacing import Trial, run_with
from tnshare_torch.shared.running._soft_weight import ROWS, SoftWeight
from tnshare_torch.shared.template._attribute_guard import AttributeGuard

if TYPE_CHECKING:
    from tnshare_torch.shared._shared_network import Shared
    from tnshare_torch.shared.running._weights import CallTasks

Tensors = dict[str, torch.Tensor]


def one_by_one(
    shared: Shared,
    cast: CallTasks,
    tasks: Sequence[int],
    inputs: Sequence[Any],
    kwargs: Sequence[Mapping[str, Any]],
    trial: Trial | None = None,
) -> list[Any]:
    """The outputs of some tasks, each on its own input; weights are composed for all of them at once."""
    if torch.compiler.is_compiling():
        return _outputs(shared, cast, tasks, inputs, kwargs, trial)
    with AttributeGuard(shared._template, shared.scratch):
        return _outputs(shared, cast, tasks, inputs, kwargs, trial)


def at_once(
    shared: Shared,
    cast: CallTasks,
    tasks: Sequence[int],
    x: tuple[torch.Tensor, int | None],
    kwargs: tuple[Mapping[str, Any], Mapping[str, int]],
    trial: Trial | None = None,
) -> Any:
    """The outputs of some tasks, a task axis first.

    x comes with the axis along which the inputs of tasks lie, None if all have the same; keyword arguments
    with such axes by name, for those that have one.
    """
    own = _stacked(cast, tasks)
    counted = not torch.compiler.is_compiling() and not torch.is_inference_mode_enabled()
    before = {name: tensor._version for name, tensor in own.items()} if counted else {}
    codes = {name: cast.factors(name, tasks) for name in shared.programs}
    inputs = x[0], dict(kwargs[0])
    dims = x[1], {name: kwargs[1].get(name) for name in kwargs[0]}
    y = _mapped(shared, own, codes, len(tasks), inputs, dims, trial)
    _store(cast, tasks, own, before)
    return y


def row_by_row(
    shared: Shared, cast: CallTasks, x: torch.Tensor, ids: torch.Tensor, kwargs: Mapping[str, Any]
) -> Any:
    """The outputs of rows, each a batch of its own with a task of its own; for traced calls."""
    dim = shared.batch_dim
    own, codes = _chosen(cast, ids)
    dims = {name: shared.batch_dims.get(name) for name in kwargs}
    run = _Run(shared, codes, ROWS)
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


def one_of(shared: Shared, cast: CallTasks, x: Any, task: torch.Tensor, kwargs: Mapping[str, Any]) -> Any:
    """The outputs of one task whose number is a tensor: for traced calls, one program for all tasks."""
    every, index = range(len(cast)), task.reshape(1)
    own, codes = _chosen(cast, index)
    y = _mapped(shared, own, codes, 1, (x, dict(kwargs)), (None, dict.fromkeys(kwargs)))
    for name in shared.written:  # a task that is not known here gets back what was written to its buffers
        for number in every:
            buffer = cast.own(number)(shared.plain[name])
            buffer.copy_(torch.where(index[0] == number, own[name][0], buffer))
    flat, spec = tree_flatten(y)
    return tree_unflatten([None if leaf is None else leaf[0] for leaf in flat], spec)


def _mapped(
    shared: Shared,
    own: Mapping[str, torch.Tensor],
    codes: Mapping[str, tuple[list[torch.Tensor], int]],
    planned: int,
    inputs: tuple[Any, dict[str, Any]],
    dims: tuple[Any, dict[str, Any]],
    trial: Trial | None = None,
) -> Any:
    """The template under vmap, over tensors of tasks and their codes."""
    run = _Run(shared, codes, planned, trial)
    mapped = torch.func.vmap(run, in_dims=(0, 0, *dims), randomness="different")
    if torch.compiler.is_compiling():
        return run.outputs(mapped(dict(own), run.codes, *inputs))
    with AttributeGuard(shared._template, shared.scratch):
        return run.outputs(mapped(dict(own), run.codes, *inputs))


class _Run:
    """The template as a function of what one task has of its own, its codes, and its inputs.

    It gives the tensors among its outputs, as vmap wants it; ``outputs`` puts them back where they were.
    """

    def __init__(
        self,
        shared: Shared,
        factors: Mapping[str, tuple[list[torch.Tensor], int]],
        planned: int,
        trial: Trial | None = None,
    ) -> None:
        self.shared, self.factors, self.planned, self.trial = shared, factors, planned, trial
        self.codes = {name: every[place] for name, (every, place) in factors.items()}
        self.specs: list[TreeSpec] = []
        self.nothing: list[bool] = []

    def __call__(
        self, tensors: Tensors, codes: Tensors, x: Any, named: dict[str, Any], rows: VmappedRows | None = None
    ) -> tuple[torch.Tensor, ...]:
        shared = self.shared
        every: dict[str, torch.Tensor | SoftWeight] = {
            name: shared.shared(key)["weight"] for name, key in shared.plain.items() if key in shared.common
        }
        every.update(tensors)
        for name, (factors, place) in self.factors.items():
            mine = [*factors[:place], codes[name].unsqueeze(0), *factors[place + 1 :]]
            every[name] = SoftWeight(shared.programs[name], mine, place, self.planned)
        pairs = [(placeholder, every[name]) for name, placeholder in shared.placeholders.items()]
        y = run_with(shared._template, pairs, 0, x, named, self.trial, rows)
        flat, spec = tree_flatten(y)
        self.specs.append(spec)
        self.nothing.extend(leaf is None for leaf in flat)
        return tuple([leaf for leaf in flat if leaf is not None])

    def outputs(self, found: Sequence[torch.Tensor]) -> Any:
        """The outputs of the template, with these tensors."""
        rest = list(found)
        return tree_unflatten([None if none else rest.pop(0) for none in self.nothing], self.specs[0])


def _chosen(cast: CallTasks, ids: torch.Tensor) -> tuple[Tensors, dict[str, tuple[list[torch.Tensor], int]]]:
    """What the tasks have of their own, and factors with their codes, for tasks given by a tensor."""
    every = range(len(cast))
    ids = out_of_range_refused(ids, len(cast))
    own = {name: tensor.index_select(0, ids) for name, tensor in _stacked(cast, every).items()}
    codes = {}
    for name in cast.shared.programs:
        factors, place = cast.factors(name, every)
        factors[place] = factors[place].index_select(0, ids)
        codes[name] = factors, place
    return own, codes


def _stacked(cast: CallTasks, tasks: Sequence[int]) -> dict[str, torch.Tensor]:
    """What tasks have of their own, by name, a task axis first."""
    shared = cast.shared
    each = [cast.own(task) for task in tasks]
    return {
        name: torch.stack([own(key) for own in each])
        for name, key in shared.plain.items()
        if key not in shared.common
    }


def _store(
    cast: CallTasks, tasks: Sequence[int], own: Mapping[str, torch.Tensor], before: Mapping[str, int]
) -> None:
    """Bring back to each task what was written to its buffers."""
    shared = cast.shared
    for name, tensor in own.items():
        # Batch norm updates its statistics under vmap without a change of their version (torch 2.13).
        if name in shared.written or (before and tensor._version != before[name]):
            with torch.no_grad():
                for task, value in zip(tasks, tensor.unbind(0), strict=True):
                    cast.own(task)(shared.plain[name]).copy_(value)


def _outputs(
    shared: Shared,
    cast: CallTasks,
    tasks: Sequence[int],
    inputs: Sequence[Any],
    kwargs: Sequence[Mapping[str, Any]],
    trial: Trial | None = None,
) -> list[Any]:
    softs, placeholders = cast.softs(tasks), shared.placeholders
    outputs = []
    for place, (task, x, named) in enumerate(zip(tasks, inputs, kwargs, strict=True)):
        tensors: dict[str, torch.Tensor | SoftWeight] = {**cast.plain(task), **softs}
        pairs = [(placeholder, tensors[name]) for name, placeholder in placeholders.items()]
        outputs.append(run_with(shared._template, pairs, place, x, named, trial))
    refuse_written(softs)
    return outputs


def refuse_written(softs: Mapping[str, Any]) -> None:
    """Writing to a weight that is composed anew in every call would have no effect."""
    for name, soft in softs.items():
        if soft.written():
            raise tn.TnshareError(
                f"the network writes to {name!r} in its forward, which is softly shared and composed anew in "
                f"every call: leave it to each task, layers={{{name!r}: 'single'}}"
            )
