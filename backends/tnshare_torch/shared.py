"""T networks of one architecture as one module: factors for all tasks, and what each has of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import tnshare as tn
from tnshare.checks import whole
from tnshare.model import SharedModel
from tnshare.plan import Plan

from .grow import fitted_task, mean_task
from .ops import ops
from .own import Own, array_of, for_tasks, has_task, key_of, parameters
from .replace import Replacing
from .rows import joined, on, stacked
from .state import SharedState
from .template import fill, registered, restored, tensors_of


class Shared(SharedState):
    """What `share` makes of T networks.

    ``shared(x, 3)`` runs task 3 on all of x; ``shared(x, ids)`` gives each row its own task; ``shared(xs)``
    sends entry t of a tensor (T, ...) or of a list through task t; ``shared.fan_out(x)`` the same x through
    every task. ``common`` holds the factors and weights of all tasks, ``tasks[t]`` the codes, weights and
    buffers of one. Rows are along ``batch_dim`` of inputs and outputs.
    """

    _template: nn.Module
    common: nn.ModuleDict
    tasks: nn.ModuleList

    def __init__(
        self,
        template: nn.Module,
        model: SharedModel,
        tensors: Sequence[Mapping[str, torch.Tensor]],
        names: Sequence[str] = (),
        batch_dim: int = 0,
    ) -> None:
        super().__init__()
        self.__dict__["_template"] = template  # its placeholders are nobody's parameters
        self.networks = {name: d.network for name, d in model.soft.items()}
        self.orders, self.names, self.batch_dim = dict(model.orders), list(names), batch_dim
        self.summary = model.report()
        first = tensors[0]
        self.common = nn.ModuleDict()
        for name, d in model.soft.items():
            shared = {n.name: d.factors[n.name] for n in d.network.nodes if not has_task(d.network, n)}
            self.common[key_of(name)] = parameters(shared, first[name])
        for name, value in model.hard.items():
            self.common[key_of(name)] = parameters({"weight": value}, first[name])
        rows = [
            {
                f"{key_of(name)}:{node.name}": (d.factors[node.name][t], first[name])
                for name, d in model.soft.items()
                for node in d.network.nodes
                if has_task(d.network, node)
            }
            for t in range(len(tensors))
        ]
        own = [*model.single, *(name for name in first if not isinstance(first[name], nn.Parameter))]
        self.tasks = nn.ModuleList(
            Own(codes, {key_of(name): given[name] for name in own})
            for codes, given in zip(rows, tensors, strict=True)
        )
        super().train(template.training)  # not that of the template's parts, some of which may be frozen

    def forward(self, x: Any, task: Any = None, **kwargs: Any) -> Any:
        """The outputs of one task, of a task for each row, or of every task on an entry of x of its own."""
        if task is None:
            return self._each(x, kwargs)
        if isinstance(task, str):
            return self._run(self.index(task), x, kwargs)
        ids = np.asarray(task.detach().cpu() if isinstance(task, torch.Tensor) else task)
        if not np.issubdtype(ids.dtype, np.integer):
            raise tn.TnshareError(f"task ids must be whole numbers: found dtype {ids.dtype}")
        if ids.ndim > 1:
            raise tn.TnshareError(f"a task must be a whole number, or ids (rows,): found shape {ids.shape}")
        wrong = np.flatnonzero((ids < 0) | (ids >= len(self.tasks)))
        if len(wrong):
            where = f" in row {wrong[0]}" if ids.ndim else ""
            raise tn.TnshareError(
                f"task {ids.reshape(-1)[wrong[0]]}{where} is out of range: expected 0 <= task <= "
                f"{len(self.tasks) - 1}"
            )
        return self._run(int(ids), x, kwargs) if ids.ndim == 0 else self._mixed(x, ids, kwargs)

    def fan_out(self, x: Any, **kwargs: Any) -> Any:
        """The same x through every task: outputs (T, ...), or a list where tasks have different heads."""
        return stacked([self._run(t, x, kwargs) for t in range(len(self.tasks))], must=False)

    def index(self, task: int | str) -> int:
        """The number of a task, given by its name or its number."""
        if isinstance(task, str):
            if task not in self.names:
                raise tn.TnshareError(f"no task is called {task!r}: expected one of {tuple(self.names)}")
            return self.names.index(task)
        number = whole("task", task, least=0)
        if number >= len(self.tasks):
            raise tn.TnshareError(
                f"task {number} is out of range: expected 0 <= task <= {len(self.tasks) - 1}"
            )
        return number

    def own(self, task: int) -> Own:
        """What a task has of its own."""
        found = self.tasks[task]
        assert isinstance(found, Own)
        return found

    def shared(self, key: str) -> nn.ParameterDict:
        """The factors of a weight that all tasks have in common."""
        found = self.common[key]
        assert isinstance(found, nn.ParameterDict)
        return found

    def weights(self, task: int) -> dict[str, torch.Tensor]:
        """All parameters and buffers of a task, composed, by the names that they had in its network."""
        own, found = self.own(task), {}
        for name in tensors_of(self._template):
            key = key_of(name)
            if name in self.networks:
                found[name] = self._composed(name, own)
            elif key in self.common:
                found[name] = self.shared(key)["weight"]
            else:
                found[name] = own.get(key)
        return found

    def task_model(self, task: int | str) -> nn.Module:
        """A plain network that computes what task ``task`` computes now; it has tensors of its own."""
        tensors, trained = {}, dict(self._template.named_parameters())
        number = self.index(task)
        for name, tensor in self.weights(number).items():
            copied = tensor.detach().clone(memory_format=torch.contiguous_format)
            is_parameter = name in trained
            tensors[name] = nn.Parameter(copied, self._trains(name, number)) if is_parameter else copied
        return fill(self._template, tensors)

    def unshare(self) -> list[nn.Module]:
        """T plain networks."""
        return [self.task_model(t) for t in range(len(self.tasks))]

    def sharing(self, normalise: bool = True) -> dict[str, float]:
        """The paper's sharing strength of every softly shared weight."""
        found = {}
        for name, d in self.decompositions().items():
            codes = tn.codes(d[0], d[1])
            found[name.removesuffix(".weight")] = tn.sharing_strength(codes, normalise=normalise)
        return found

    def similarity(self) -> dict[str, np.ndarray[Any, Any]]:
        """T x T cosines of the tasks' weights, for every softly shared weight."""
        found = self.decompositions()
        return {name.removesuffix(".weight"): tn.task_similarity(*d) for name, d in found.items()}

    def shared_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of all tasks."""
        return self.common.parameters()

    def task_parameters(self, task: int | str) -> Iterator[nn.Parameter]:
        """The parameters of one task alone: its codes, and what is not shared."""
        return self.tasks[self.index(task)].parameters()

    def report(self) -> str:
        """What `share` did, as a table."""
        return self.summary

    def add_task(self, model: nn.Module | None = None, name: str | None = None) -> int:
        """One more task, whose codes come as close to a network's weights as the factors allow.

        Without a network it starts from the mean of the others. What others have stays bit by bit the same.
        Returns its number.
        """
        if (name is None) == bool(self.names):
            raise tn.TnshareError(
                "tasks have names: give the new one a name" if self.names else "tasks have no names"
            )
        if name in self.names:
            raise tn.TnshareError(f"a task is called {name!r} already: found {tuple(self.names)}")
        with torch.no_grad():
            self.tasks.append(mean_task(self) if model is None else fitted_task(self, model))
        self.tasks[-1].train(self.training)
        if name is not None:
            self.names.append(name)
        return len(self.tasks) - 1

    def remove_task(self, task: int | str) -> None:
        """Forget a task; those behind it move up by one."""
        number = self.index(task)
        if len(self.tasks) == 1:
            raise tn.TnshareError("the last task cannot be removed")
        del self.tasks[number]
        if self.names:
            del self.names[number]

    def train(self, mode: bool = True) -> Shared:
        self._template.train(mode)
        return super().train(mode)

    def extra_repr(self) -> str:
        """How many tasks there are, and of what."""
        return f"tasks={len(self.tasks)}, template={type(self._template).__name__}"

    def _run(self, task: int, x: Any, kwargs: Mapping[str, Any]) -> Any:
        """The template with the tensors of a task in the place of its own."""
        template, tensors = self._template, self.weights(task)
        held = registered(template)
        try:
            with Replacing([(p, tensors[name]) for name, p in tensors_of(template).items()]) as mode:
                y = mode.real(template(x, **kwargs))
        finally:
            changed = restored(held)
        if changed:
            raise tn.TnshareError(
                f"the network assigns to {changed[0]!r} in its forward, which would mix the tasks up: write "
                "to it in place instead, say with copy_"
            )
        return y

    def _trains(self, name: str, task: int) -> bool:
        """Whether a parameter of a task is one to train, and not frozen."""
        key = key_of(name)
        if key in self.common:
            return any(p.requires_grad for p in self.shared(key).values())
        return self.own(task).get(key).requires_grad

    def _each(self, xs: Any, kwargs: Mapping[str, Any]) -> Any:
        if not isinstance(xs, torch.Tensor | list | tuple) or (isinstance(xs, torch.Tensor) and not xs.ndim):
            raise tn.TnshareError(
                f"without a task, x must be a tensor (T, ...) or a list: found {type(xs).__name__}; give a "
                "task, or ids, or use fan_out"
            )
        if len(xs) != len(self.tasks):
            raise tn.TnshareError(
                f"without a task, entry t of x belongs to task t: expected {len(self.tasks)} entries, found "
                f"{len(xs)}; give a task, or ids, or use fan_out"
            )
        outputs = [self._run(t, x, kwargs) for t, x in enumerate(xs)]
        return outputs if isinstance(xs, list | tuple) else stacked(outputs, must=True)

    def _mixed(self, x: torch.Tensor, ids: np.ndarray[Any, Any], kwargs: Mapping[str, Any]) -> Any:
        """Rows grouped by task, each group run on its own, and brought back."""
        dim = self.batch_dim
        if not isinstance(x, torch.Tensor) or x.ndim <= dim or x.shape[dim] != len(ids):
            found = tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
            raise tn.TnshareError(
                f"one task id for each row: expected x with {len(ids)} rows along axis {dim}, found {found}"
            )
        if not len(ids):
            raise tn.TnshareError("a batch of no rows has no tasks to run: found 0 ids")
        order = np.argsort(ids, kind="stable")
        present, counts = np.unique(ids, return_counts=True)
        parts = x.index_select(dim, on(x, order)).split(counts.tolist(), dim)  # type: ignore[no-untyped-call]
        outputs = [self._run(int(t), part, kwargs) for t, part in zip(present, parts, strict=True)]
        back = on(x, np.argsort(order, kind="stable"))
        return joined(outputs, counts, back, dim)

    def _composed(self, name: str, own: Own) -> torch.Tensor:
        """The weight of a task, with the axes that it has in its network."""
        network, key = self.networks[name], key_of(name)
        shared = self.shared(key)
        arrays = [
            own.get(f"{key}:{node.name}") if has_task(network, node) else shared[node.name]
            for node in network.nodes
        ]
        stacked = Plan.flop_optimal(network.drop(*network.tasks)).run(ops, arrays)
        return stacked.permute(*np.argsort(self.orders[name]).tolist())

    def decompositions(self) -> dict[str, tuple[tn.Network, dict[str, Any]]]:
        """Network and factors of every soft weight, codes of all tasks stacked, in NumPy."""
        found = {}
        for name, network in self.networks.items():
            key, sizes = key_of(name), len(self.tasks)
            every = for_tasks(network, sizes)
            factors = {}
            for node in every.nodes:
                rows = (
                    [own.get(f"{key}:{node.name}") for own in map(self.own, range(sizes))]
                    if has_task(every, node)
                    else None
                )
                tensor = self.shared(key)[node.name] if rows is None else torch.stack(rows)
                factors[node.name] = array_of(tensor)
            found[name] = every, factors
        return found
