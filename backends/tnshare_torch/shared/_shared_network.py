"""T networks of one architecture as one module: factors for all tasks, and what each has of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import tnshare as tn
from tnshare.checks import whole
from tnshare.decomposition import code_parts
from tnshare.models import SharedModel
from tnshare_torch._ops import array_of

from ._network_state import SharedState
from ._new_task import Fit, described_task, fitted, fitted_task, mean_task
from .paths._at_once import one_of, row_by_row
from .paths._one_by_one import one_by_one
from .paths._path_choice import Paths, Strategy
from .paths._rows import Groups, check_entries, read_ids, stacked
from .paths._task_calls import Each, FanOut, Mixed
from .running._call_tasks import Cast, Described, code_size
from .running._soft_weight import ROWS, Programs
from .running._task_tensors import Own, contents, key_of
from .template._template import fill, tensors_of

_TRACED_ROWS = 128  # for which traced calls are planned, whatever their rows


class Shared(SharedState):
    """What `share` makes of T networks.

    ``shared(x, 3)`` runs task 3 on all of x; ``shared(x, ids)`` gives each row its own task; ``shared(xs)``
    sends entry t of a tensor (T, ...) or of a list through task t; ``shared.fan_out(x)`` the same x through
    every task. ``common`` holds the factors and weights of all tasks, ``tasks[t]`` the codes, weights and
    buffers of one. Rows are along ``batch_dim`` of inputs and outputs.
    """

    _template: nn.Module
    placeholders: dict[str, torch.Tensor]
    common: nn.ModuleDict
    tasks: nn.ModuleList

    def __init__(
        self,
        template: nn.Module,
        model: SharedModel,
        tensors: Sequence[Mapping[str, torch.Tensor]],
        names: Sequence[str] = (),
        *,
        batch_dim: int = 0,
        batch_dims: Mapping[str, int | None] | None = None,
        scratch: Sequence[str] = (),
        strategy: Strategy = "auto",
    ) -> None:
        super().__init__()
        self.__dict__["_template"] = template  # its placeholders are nobody's parameters
        self.__dict__["placeholders"] = tensors_of(template)
        self.networks = {name: d.network for name, d in model.soft.items()}
        self.plain = {name: key_of(name) for name in self.placeholders if name not in self.networks}
        self.written = frozenset(dict(template.named_buffers()))
        self.orders, self.names = dict(model.orders), list(names)
        self.programs = {
            name: Programs(network, tuple(np.argsort(self.orders[name]).tolist()))
            for name, network in self.networks.items()
        }
        self.batch_dim, self.batch_dims, self.scratch = batch_dim, dict(batch_dims or {}), tuple(scratch)
        self.paths = Paths(strategy)
        self.summary = model.report()
        self.common, self.tasks = contents(model, tensors)
        super().train(template.training)  # not that of the template's parts, some of which may be frozen

    def forward(self, x: Any, task: Any = None, *, code: torch.Tensor | None = None, **kwargs: Any) -> Any:
        """The outputs of one task, of a task for each row, or of every task on an entry of x of its own.

        Tasks may be given by their codes instead of being among those of the network: ``code`` is one,
        (code_size,), or several, (tasks, code_size), which ``task`` then counts.
        """
        cast = self._cast(code)
        if task is None and code is not None and code.ndim == 1:
            task = 0
        if task is None:
            return self._each(cast, x, kwargs)
        if isinstance(task, str):
            task = self.index(task)
        if torch.compiler.is_compiling() and not isinstance(task, int):
            return self._traced_mixed(cast, x, task, kwargs)
        ids = task if type(task) is int and 0 <= task < len(cast) else read_ids(task, len(cast))
        if isinstance(ids, int):
            return one_by_one(self, cast, [ids], [x], [kwargs])[0]
        if isinstance(x, torch.Tensor) and len(ids):
            return self.paths.run(Mixed(self, cast, x, kwargs, ids))
        return Groups(ids, self.batch_dim).parts(x)  # says what is wrong with them

    def fan_out(self, x: Any, *, code: torch.Tensor | None = None, **kwargs: Any) -> Any:
        """The same x through every task: outputs (T, ...), or a list where tasks have different heads."""
        cast = self._cast(code)
        if isinstance(x, torch.Tensor):
            return self.paths.run(FanOut(self, cast, x, kwargs))
        several = [x] * len(cast), [kwargs] * len(cast)
        return stacked(one_by_one(self, cast, range(len(cast)), *several), must=False)

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
        cast = Cast(self)
        found = cast.plain(task) | {name: soft.composed(0) for name, soft in cast.softs([task]).items()}
        return {name: found[name] for name in self.placeholders}

    def task_model(self, task: int | str) -> nn.Module:
        """A plain network that computes what task ``task`` computes now; it has tensors of its own."""
        tensors, trained = {}, dict(self._template.named_parameters())
        number = self.index(task)
        for name, tensor in self.weights(number).items():
            own, dense = tensor.detach(), tensor.layout is torch.strided
            own = own.clone(memory_format=torch.contiguous_format) if dense else own.clone()
            tensors[name] = nn.Parameter(own, self._trains(name, number)) if name in trained else own
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

    @property
    def code_size(self) -> int:
        """How many numbers tell a task from others: the codes of all softly shared weights together."""
        return code_size(self)

    def code(self, task: int | str) -> torch.Tensor:
        """The codes of a task, in a row (code_size,): what ``code=`` takes."""
        own = self.own(self.index(task))
        parts = [
            own.get(f"{key_of(part.weight)}:{part.factor}").reshape(-1) for part in code_parts(self.networks)
        ]
        return torch.cat(parts) if parts else torch.zeros(0)

    def fit_code(self, model: nn.Module) -> Fit:
        """The code that comes closest to a network's weights, by least squares, and the errors."""
        return fitted(self, model)

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
        if (name is None) == bool(self.names):
            raise tn.TnshareError(
                "tasks have names: give the new one a name" if self.names else "tasks have no names"
            )
        if name in self.names:
            raise tn.TnshareError(f"a task is called {name!r} already: found {tuple(self.names)}")
        with torch.no_grad():
            self.tasks.append(self._new_task(model, code))
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

    def _new_task(self, model: nn.Module | None, code: torch.Tensor | None) -> Own:
        if model is not None:
            fit = fitted(self, model)
            errors = ", ".join(f"{name} {error:.3g}" for name, error in fit.errors.items())
            made = fitted_task(self, model, fit)
            self.summary += f"\ntask {len(self.tasks)} was added, with errors: {errors or 'none'}"
            return made
        if code is None:
            return mean_task(self)
        described = Described(self, code)
        if len(described) > 1:
            raise tn.TnshareError(f"add_task takes the code of one task: found {len(described)} codes")
        return described_task(self, described.code[0])

    def _cast(self, code: torch.Tensor | None) -> Cast:
        cast = Cast(self) if code is None else Described(self, code)
        if torch.compiler.is_compiling():
            self._plan_ahead(len(cast))
        return cast

    @torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
    def _plan_ahead(self, tasks: int) -> bool:
        """Dynamo runs this while it compiles, instead of tracing it: a plan is found by search."""
        for name, programs in self.programs.items():
            like = next(iter(self.shared(key_of(name)).values()))
            for several in (ROWS, 1, tasks):
                programs.prepare(several, _TRACED_ROWS, like)
        return True

    def _trains(self, name: str, task: int) -> bool:
        """Whether a parameter of a task is one to train, and not frozen."""
        key = key_of(name)
        if key in self.common:
            return any(p.requires_grad for p in self.shared(key).values())
        return self.own(task).get(key).requires_grad

    def _each(self, cast: Cast, xs: Any, kwargs: Mapping[str, Any]) -> Any:
        check_entries(xs, len(cast))
        if isinstance(xs, torch.Tensor):
            return self.paths.run(Each(self, cast, xs, kwargs))
        return one_by_one(self, cast, range(len(cast)), list(xs), [kwargs] * len(cast))

    def _traced_mixed(self, cast: Cast, x: torch.Tensor, ids: Any, kwargs: Mapping[str, Any]) -> Any:
        ids = torch.as_tensor(ids, device=x.device).long()
        if ids.ndim == 0:
            return one_of(self, cast, x, ids, kwargs)
        if not self.paths.rows_are_independent(self.training):
            raise tn.TnshareError(
                "in compiled code rows of mixed tasks are run one by one, for networks that treat every row "
                "alone, and nothing shows yet that this one does: share(..., example=x)"
            )
        return row_by_row(self, cast, x, ids, kwargs)

    def decompositions(self) -> dict[str, tuple[tn.Network, dict[str, Any]]]:
        """Network and factors of every soft weight, codes of all tasks stacked, in NumPy."""
        cast, tasks, found = Cast(self), range(len(self.tasks)), {}
        for name, network in self.networks.items():
            arrays = map(array_of, cast.factors(name, tasks)[0])
            every = network.for_tasks(len(tasks))
            found[name] = every, dict(zip(every.shapes, arrays, strict=True))
        return found
