"""T networks of one architecture as one module: factors for all tasks, and what each has of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import tnshare as tn
from tnshare.checks import by_name, patterns, whole
from tnshare.decomposition import Fit
from tnshare.models import Roster, SharedModel, added_task, sharing_of_layers, similarity_of_layers
from tnshare_torch._ops import ops

from ._network_state import SharedState
from ._new_task import described_task, fitted, fitted_task, mean_task
from .paths._both_paths import one_by_one, one_of, row_by_row
from .paths._path_choice import PathChooser, Strategy
from .paths._rows import Arguments, check_belongings, check_entries, entries, read_ids, read_traced_ids
from .paths._task_calls import Each, FanOut, Mixed, One, Several
from .running._soft_weight import ROWS
from .running._weights import CallTasks, TasksByCode, TaskTensors, Weights, check_code, contents
from .template._template import filled_copy

_TRACED_ROWS = 128  # for which traced calls are planned, whatever their rows


class Shared(SharedState):
    """What `share` makes of T networks.

    ``shared(x, 3)`` runs task 3 on all of x; ``shared(x, ids)`` gives each row its own task; ``shared(xs)``
    sends entry t of a tensor (T, ...) or of a list through task t; ``shared.fan_out(x)`` the same x through
    every task. ``common`` holds the factors and weights of all tasks, ``tasks[t]`` the codes, weights and
    buffers of one; ``roster`` says how many there are, and what they are called. Rows are along ``batch_dim``
    of inputs and outputs.
    """

    def __init__(
        self,
        template: nn.Module,
        model: SharedModel,
        tensors: Sequence[Mapping[str, torch.Tensor]],
        roster: Roster,
        *,
        batch_dim: int = 0,
        batch_dims: Mapping[str, int | str | None] | None = None,
        scratch: Sequence[str] = (),
        ignore: Sequence[str] = (),
        strategy: Strategy = "auto",
    ) -> None:
        super().__init__()
        batch_dim, scratch = whole("batch_dim", batch_dim, least=0), patterns("scratch", scratch)
        check_belongings(by_name("batch_dims", batch_dims or {}, "of arguments and the axis of their rows"))
        ignore = patterns("ignore", ignore)
        self._weights = Weights.of(template, model, batch_dim, batch_dims or {}, scratch, ignore)
        self.roster, self.paths, self.summary = roster, PathChooser(strategy), model.report()
        self.common, self.tasks = contents(self._weights, model, tensors)
        super().train(template.training)  # not that of the template's parts, some of which may be frozen

    def forward(self, x: Any, task: Any = None, *, code: torch.Tensor | None = None, **kwargs: Any) -> Any:
        """The outputs of one task, of a task for each row, or of every task on an entry of x of its own.

        Tasks may be given by their codes instead of being among those of the network: ``code`` is one,
        (code_size,), or several, (tasks, code_size), which ``task`` then counts.
        """
        tasks = self._call_tasks(code)
        if task is None and code is not None and code.ndim == 1:
            task = 0
        if task is None:
            return self._each(tasks, x, kwargs)
        if isinstance(task, str):
            task = self.index(task)
        if torch.compiler.is_compiling() and not isinstance(task, int):
            return self._traced_mixed(tasks, x, task, kwargs)
        ids = task if type(task) is int and 0 <= task < len(tasks) else read_ids(task, len(tasks))
        given, traced = self._given(x, kwargs), torch.compiler.is_compiling()
        if isinstance(ids, int):
            if given.plain and code is None and not traced and self.paths.is_known(ids, x, self.training):
                return one_by_one(tasks, (ids,), (given,))[0]
            return self.paths.run(One(tasks, given, ids))
        if not len(ids):
            raise tn.TnshareError("a batch of no rows has no tasks to run: found 0 ids")
        return self.paths.run(Mixed(tasks, given, ids))

    def fan_out(self, x: Any, *, code: torch.Tensor | None = None, **kwargs: Any) -> Any:
        """The same x through every task: outputs (T, ...), or a list where tasks have different heads."""
        return self.paths.run(FanOut(self._call_tasks(code), self._given(x, kwargs)))

    def index(self, task: int | str) -> int:
        """The number of a task, given by its name or its number."""
        return self.roster.index(task, ops)

    def weights(self, task: int | str) -> dict[str, torch.Tensor]:
        """All parameters and buffers of a task, composed, by the names that they had in its network."""
        tasks, number = self.own_tasks(), self.index(task)
        composed = {name: soft.composed(0) for name, soft in tasks.softs([number]).items()}
        found = tasks.hard() | tasks.own(number) | composed
        return {name: found[name] for name in self._weights.placeholders}

    def task_model(self, task: int | str) -> nn.Module:
        """A plain network that computes what task ``task`` computes now; it has tensors of its own."""
        tensors, trained = {}, dict(self._template.named_parameters())
        number = self.index(task)
        for name, tensor in self.weights(number).items():
            own, dense = tensor.detach(), tensor.layout is torch.strided
            own = own.clone(memory_format=torch.contiguous_format) if dense else own.clone()
            tensors[name] = nn.Parameter(own, self._trains(name, number)) if name in trained else own
        return filled_copy(self._template, tensors)

    def unshare(self) -> list[nn.Module]:
        """T plain networks."""
        return [self.task_model(t) for t in range(len(self.tasks))]

    def sharing(self, normalise: bool = True) -> dict[str, float]:
        """The paper's sharing strength of every softly shared weight."""
        return sharing_of_layers(self.decompositions(), normalise)

    def similarity(self) -> dict[str, np.ndarray[Any, Any]]:
        """T x T cosines of the tasks' weights, for every softly shared weight."""
        return similarity_of_layers(self.decompositions())

    @property
    def batch_dim(self) -> int:
        """The axis of rows."""
        return self._weights.batch_dim

    @property
    def code_size(self) -> int:
        """How many numbers tell a task from others: the codes of all softly shared weights together."""
        return self._weights.layout.size

    def code(self, task: int | str) -> torch.Tensor:
        """The codes of a task, in a row (code_size,): what ``code=`` takes."""
        return self.own_tasks().code(self.index(task))

    def fit_code(self, model: nn.Module) -> Fit[torch.Tensor]:
        """The code that comes closest to a network's weights, by least squares, and the errors."""
        return fitted(self.own_tasks(), model)

    def shared_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of all tasks."""
        return self.common.parameters()

    def task_parameters(self, task: int | str) -> Iterator[nn.Parameter]:
        """The parameters of one task alone: its codes, and what is not shared."""
        return self.tasks[self.index(task)].parameters()

    def report(self) -> str:
        """What `share` did, as a table."""
        return self.summary

    def explain(self) -> str:
        """Which of the ways that were called run all tasks at once, and why others do not."""
        return self.paths.explain()

    def add_task(
        self, model: nn.Module | None = None, name: str | None = None, *, code: torch.Tensor | None = None
    ) -> int:
        """One more task, whose codes come as close to a network's weights as the factors allow.

        Or with a code that is given; without either it starts from the mean of the others. What others have
        stays bit by bit the same, also weights that all tasks have in common: the report says how far off
        the network's own are. Returns its number.
        """
        if model is not None and code is not None:
            raise tn.TnshareError("give add_task a network or a code, not both")
        roster = self.roster.grown(name)
        with torch.no_grad():
            self.tasks.append(self._new_task(model, code))
        self.tasks[-1].train(self.training)
        self.roster = roster
        return roster.count - 1

    def remove_task(self, task: int | str) -> None:
        """Forget a task; those behind it move up by one."""
        number = self.index(task)
        self.roster = self.roster.without(number)
        del self.tasks[number]
        self.paths.forget()

    def train(self, mode: bool = True) -> Shared:
        self._template.train(mode)
        return super().train(mode)

    def extra_repr(self) -> str:
        """How many tasks there are, and of what."""
        return f"tasks={len(self.tasks)}, template={type(self._template).__name__}"

    def _new_task(self, model: nn.Module | None, code: torch.Tensor | None) -> TaskTensors:
        tasks = self.own_tasks()
        if model is not None:
            fit = fitted(tasks, model)
            made = fitted_task(tasks, model, fit)
            self.summary += added_task(len(self.tasks), fit.errors)
            return made
        if code is None:
            return mean_task(tasks)
        check_code(tasks, code)
        if code.ndim == 2:
            raise tn.TnshareError(f"add_task takes the code of one task: found {len(code)} codes")
        if not bool(torch.isfinite(code).all()):
            raise tn.TnshareError("a code must be finite: found NaN or infinity")
        return described_task(tasks, code)

    def _call_tasks(self, code: torch.Tensor | None) -> CallTasks:
        own = self._weights, self.common, self.tasks
        tasks = CallTasks(*own) if code is None else TasksByCode(*own, code)
        if torch.compiler.is_compiling():
            self._plan_ahead(len(tasks))
        return tasks

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _plan_ahead(self, count: int) -> bool:
        """Dynamo runs this while it compiles, instead of tracing it: a plan is found by search."""
        tasks = self.own_tasks()
        for name, programs in self._weights.programs.items():
            for several in (ROWS, 1, count):
                programs.prepare(several, _TRACED_ROWS, tasks.like(name))
        return True

    def _trains(self, name: str, task: int) -> bool:
        """Whether a parameter of a task is one to train, and not frozen."""
        tasks, own = self.own_tasks(), self._weights.own
        if name in own:
            return tasks.task_tensors(task).get(own[name]).requires_grad
        key = self._weights.hard.get(name) or self._weights.programs[name].key
        return any(p.requires_grad for p in tasks.shared(key).values())

    def _given(self, x: Any, kwargs: Mapping[str, Any]) -> Arguments:
        return Arguments.of(x, kwargs, self._weights.batch_dim, self._weights.batch_dims)

    def _each(self, tasks: CallTasks, xs: Any, kwargs: Mapping[str, Any]) -> Any:
        check_entries(xs, len(tasks))
        if isinstance(xs, torch.Tensor):
            return self.paths.run(Each(tasks, self._given(xs, kwargs)))
        named = entries(kwargs, self._weights.batch_dims, len(tasks))
        each = [Arguments.of(x, own, self.batch_dim, {}) for x, own in zip(xs, named, strict=True)]
        return self.paths.run(Several(tasks, each[0], each))

    def _traced_mixed(self, tasks: CallTasks, x: Any, ids: Any, kwargs: Mapping[str, Any]) -> Any:
        given = self._given(x, kwargs)
        assert given.first is not None
        ids = read_traced_ids(ids, len(tasks), given.first)
        if ids.ndim == 0:
            return one_of(tasks, given, ids)
        call = Mixed(tasks, given, ids)
        given.check_mixed(ids.shape[0], len(tasks))
        if not self.paths.rows_are_independent(call, ids.shape[0]):
            raise tn.TnshareError(
                "in compiled code rows of mixed tasks are run one by one, for networks that treat every row "
                "alone, and nothing shows yet that this one does, for so many rows and these arguments: "
                "share(..., example=x), with as many rows, or example=(x, {'name': value})"
            )
        return row_by_row(tasks, given, ids)
