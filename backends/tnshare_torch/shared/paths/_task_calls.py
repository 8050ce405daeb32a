"""The ways of calling a shared network with several tasks: each can go one by one, or at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from tnshare.planning import group
from tnshare_torch.shared.running._replacing import Trial
from tnshare_torch.shared.running._weights import CallTasks

from ._both_paths import at_once, one_by_one
from ._rows import Groups, check_input, check_named, check_rows, index_on_device_of, stack_outputs

_FEW = 3  # rows of a task that a probe runs


@dataclass(frozen=True)
class Call:
    """An input for several tasks of a shared network, or of others that are given by their codes."""

    tasks: CallTasks
    x: Any
    kwargs: Mapping[str, Any]
    way = ""

    @property
    def numbers(self) -> Sequence[int]:
        """The tasks that run."""
        return range(len(self.tasks))

    @property
    def training(self) -> bool:
        """Whether the network is in training, where it may compute something else."""
        return self.tasks.weights.template.training

    @property
    def rows(self) -> int:
        """How many rows each of them has, about; 1 where the input has no rows."""
        return self.x.shape[self.row_dim] if self.x.ndim > self.row_dim else 1

    @property
    def row_dim(self) -> int:
        """The axis of rows."""
        return self.tasks.weights.batch_dim

    def one_by_one(self, trial: Trial | None = None) -> Any:
        """One task after the other."""
        raise NotImplementedError

    def at_once(self, trial: Trial | None = None) -> Any:
        """All at once."""
        raise NotImplementedError

    def sample(self) -> Call:
        """The same with fewer rows."""
        dim = self.row_dim
        return self if self.x.ndim <= dim else replace(self, x=self.x.narrow(dim, 0, min(self.rows, _FEW)))


class FanOut(Call):
    """The same x through every task."""

    way = "fan_out"

    def one_by_one(self, trial: Trial | None = None) -> Any:
        several = [self.x] * len(self.numbers), [self.kwargs] * len(self.numbers)
        return stack_outputs(one_by_one(self.tasks, self.numbers, *several, trial), required=False)

    def at_once(self, trial: Trial | None = None) -> Any:
        return at_once(self.tasks, self.numbers, (self.x, None), (self.kwargs, {}), trial)


class Each(Call):
    """Entry t of x through task t."""

    way = "each"

    @property
    def row_dim(self) -> int:
        return self.tasks.weights.batch_dim + 1

    def one_by_one(self, trial: Trial | None = None) -> Any:
        several = list(self.x.unbind(0)), [self.kwargs] * len(self.numbers)
        return stack_outputs(one_by_one(self.tasks, self.numbers, *several, trial), required=True)

    def at_once(self, trial: Trial | None = None) -> Any:
        return at_once(self.tasks, self.numbers, (self.x, 0), (self.kwargs, {}), trial)


@dataclass(frozen=True)
class Mixed(Call):
    """A task for each row: *defined* as rows grouped by task, each group run on its own."""

    ids: np.ndarray[Any, Any]
    way = "mixed"

    @cached_property
    def numbers(self) -> Sequence[int]:
        return sorted(set(self.ids.tolist()))

    @property
    def rows(self) -> int:
        return -(-len(self.ids) // max(len(self.numbers), 1))

    def one_by_one(self, trial: Trial | None = None) -> Any:
        groups = Groups(self.ids, len(self.tasks), self.row_dim)
        inputs = groups.parts(self.x), groups.named(self.kwargs, self.tasks.weights.batch_dims)
        return groups.joined(one_by_one(self.tasks, groups.present, *inputs, trial))

    def at_once(self, trial: Trial | None = None) -> Any:
        """Groups padded to the longest; for networks that treat every row alone."""
        dims = self.tasks.weights.batch_dims
        check_input(self.x, len(self.ids), self.row_dim)
        check_named(self.kwargs, dims, len(self.ids), self.row_dim)
        groups = group([self.ids], (len(self.tasks),), False)
        if groups is None:  # mostly padding
            return self.one_by_one(trial)
        count = len(groups.present[0])

        def padded(value: torch.Tensor, dim: int) -> torch.Tensor:
            shape = (*value.shape[:dim], count, groups.longest, *value.shape[dim + 1 :])
            return value.index_select(dim, index_on_device_of(value, groups.rows)).reshape(shape)

        split = {name: d for name in self.kwargs if (d := dims.get(name)) is not None}
        named = {n: padded(v, split[n]) if n in split else v for n, v in self.kwargs.items()}
        numbers, x = groups.present[0].tolist(), (padded(self.x, self.row_dim), self.row_dim)
        y = at_once(self.tasks, numbers, x, (named, split), trial)
        flat, spec = tree_flatten(y)
        return tree_unflatten([self._rows(leaf, groups.back, groups.longest) for leaf in flat], spec)

    def _rows(self, leaf: Any, back: np.ndarray[Any, Any], longest: int) -> Any:
        """The rows of an output (task, ..., longest, ...) in their old places."""
        if leaf is None:
            return None
        dim = self.row_dim
        check_rows(leaf.unbind(0), [longest] * len(leaf), dim)
        return leaf.movedim(0, dim).flatten(dim, dim + 1).index_select(dim, index_on_device_of(leaf, back))

    def sample(self) -> Mixed:
        """Three rows, two of one task and one of another, so that groups are padded."""
        tasks = [*self.numbers, *(task for task in range(len(self.tasks)) if task not in self.numbers)]
        few = min(len(self.ids), _FEW)
        chosen, ids = np.arange(few), np.array([tasks[0], tasks[0], tasks[min(1, len(tasks) - 1)]])[:few]
        dims = self.tasks.weights.batch_dims
        named = {n: _chosen(v, dims.get(n), chosen) for n, v in self.kwargs.items()}
        return replace(self, x=_chosen(self.x, self.row_dim, chosen), kwargs=named, ids=ids)

    def row_by_row(self, trial: Trial | None = None) -> Any:
        """Every row as a group of its own: what grouped rows must equal, if they are independent."""
        dims, rows = self.tasks.weights.batch_dims, [np.array([n]) for n in range(len(self.ids))]
        inputs = [_chosen(self.x, self.row_dim, row) for row in rows]
        kwargs = [{n: _chosen(v, dims.get(n), row) for n, v in self.kwargs.items()} for row in rows]
        outputs = one_by_one(self.tasks, self.ids.tolist(), inputs, kwargs, trial)
        leaves = [tree_flatten(output) for output in outputs]
        columns = zip(*(flat for flat, _ in leaves), strict=True)
        put = [None if column[0] is None else torch.cat(column, self.row_dim) for column in columns]
        return tree_unflatten(put, leaves[0][1])


def _chosen(value: Any, dim: int | None, rows: np.ndarray[Any, Any]) -> Any:
    """Some rows of an argument that has rows."""
    return value if dim is None else value.index_select(dim, index_on_device_of(value, rows))
