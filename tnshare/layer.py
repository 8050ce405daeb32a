"""Layers without a framework: what their weights are made of, how they start, how they are contracted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from .candidate import Candidate, Job, candidates, room
from .checks import whole
from .cost import Profile
from .decompose import Decomposition
from .errors import TnshareError
from .init import decomposed_factors, random_factors, random_stream, rounded
from .network import Network
from .ops import NDArray
from .plan import Plan
from .profiles import PROFILES
from .spec import Spec
from .ways import WAYS, Way, bucket

Tasks = int | Mapping[str, int] | tuple[tuple[str, int], ...]


class Layer(ABC):
    """What Linear, Conv and Embedding have in common: factors for the weights, and a bias for each task."""

    tasks: Any
    spec: Spec
    bias: bool

    @property
    @abstractmethod
    def weight_sizes(self) -> dict[str, int]:
        """The axes of one task's weights, in the order that ranks are given in."""

    @property
    @abstractmethod
    def variance(self) -> float:
        """The variance that initial weights have."""

    @property
    @abstractmethod
    def bias_size(self) -> int:
        """The number of biases of one task; 0 if there are none."""

    @cached_property
    def network(self) -> Network:
        """The factors of the weights of all tasks."""
        return self.spec.checked(self.weight_sizes, self.task_sizes)

    @cached_property
    def task_sizes(self) -> dict[str, int]:
        """The number of tasks along each task axis, by name."""
        return dict(self.tasks)

    @property
    def task_shape(self) -> tuple[int, ...]:
        """The number of tasks along each task axis."""
        return self.network.task_shape

    @cached_property
    def frozen(self) -> dict[str, NDArray]:
        """Factors that are given and not learnt; they are no part of the parameters."""
        values = self.spec.frozen(self.network)
        for value in values.values():
            value.flags.writeable = False
        return values

    def init(
        self, seed: int = 0, dtype: Any = np.float32, scheme: Literal["direct", "decomposed"] = "direct"
    ) -> dict[str, NDArray]:
        """Initial values of all parameters, by name: those factors that are learnt, then the bias.

        Every tensor has a random stream of its own, keyed by the seed and its name, so the same seed gives
        the same factors with and without bias, in every framework and dtype. ``"direct"`` gives every task
        the same variance and builds no dense weights (`random_factors` says where shapes do not allow that);
        ``"decomposed"`` is the paper's way (draw, decompose).
        """
        if scheme not in ("direct", "decomposed"):
            raise TnshareError(f"scheme must be 'direct' or 'decomposed': found {scheme!r}")
        if scheme == "decomposed":
            values = decomposed_factors(
                self.spec, self.network, variance=self.variance, seed=seed, dtype=dtype
            )
        else:
            values = random_factors(
                self.network, variance=self.variance, seed=seed, dtype=dtype, frozen=self.frozen
            )
        learnt = {name: value for name, value in values.items() if name not in self.frozen}
        if self.bias_size:
            bound = math.sqrt(3 * self.variance)
            draw = random_stream(seed, "bias").uniform(-bound, bound, (*self.task_shape, self.bias_size))
            learnt["bias"] = rounded(draw, dtype)
        return learnt

    def adopt(self, decomposition: Decomposition) -> dict[str, NDArray]:
        """The factors of a decomposition under the names of this layer's parameters."""
        d = decomposition
        if d.spec != self.spec or d.network.shape != self.network.shape:
            raise TnshareError(
                f"a decomposition by {self.spec!r} of weights {self.network.shape} was expected: found {d!r}"
            )
        pairs = zip(self.network.nodes, d.network.nodes, strict=True)
        return {own.name: d.factors[given.name] for own, given in pairs if own.learnt}

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every parameter, by name, as ``init`` gives them."""
        shapes = {name: shape for name, shape in self.network.shapes.items() if name not in self.frozen}
        return shapes | ({"bias": (*self.task_shape, self.bias_size)} if self.bias_size else {})

    def _set(self, **values: Any) -> None:
        """Put checked values in the place of what was given, and refuse what does not fit together."""
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if not isinstance(self.spec, Spec):
            raise TnshareError(f"spec must be a factorisation such as tnshare.LAF(4): found {self.spec!r}")
        if not isinstance(self.bias, bool):
            raise TnshareError(f"bias must be True or False: found {self.bias!r}")
        _ = self.network  # a wrong rank is told now, not at the first call


@dataclass(frozen=True)
class Linear(Layer):
    """``y = x W_t + b_t``, with ``W`` (i, o, task) kept as factors.

    ``tasks`` is their number, or, for tasks told apart by two things, ``{"site": 4, "user": 5}``. Weights and
    biases start with the variance that ``torch.nn.Linear`` gives them, 1 / (3 in_features).
    """

    in_features: int
    out_features: int
    tasks: Tasks
    spec: Spec
    bias: bool = True

    def __post_init__(self) -> None:
        self._set(
            in_features=whole("in_features", self.in_features),
            out_features=whole("out_features", self.out_features),
            tasks=read_tasks(self.tasks, reserved=("b", "m", "i", "o")),
        )

    @property
    def weight_sizes(self) -> dict[str, int]:
        return {"i": self.in_features, "o": self.out_features}

    @property
    def variance(self) -> float:
        return 1 / (3 * self.in_features)

    @property
    def bias_size(self) -> int:
        return self.out_features if self.bias else 0

    def plan(
        self,
        way: Way,
        batch: int,
        inner: int | None = None,
        *,
        training: bool = True,
        device: Profile = PROFILES["cpu"],
    ) -> Plan:
        """How rows are contracted as they come, as fast as a device can by its profile.

        ``batch`` counts the rows: of all tasks together (``"one"``, ``"mixed"``, ``"fan_out"``) or of each
        task (``"each"``). ``inner`` is the number of vectors in a row, if rows of ``"mixed"`` have several.
        Training counts the backward pass.
        """
        return candidates(self._job(way, batch, inner, training, concrete=False), device)[0].plan

    def candidates(
        self,
        way: Way,
        batch: int,
        inner: int | None = None,
        *,
        training: bool = True,
        device: Profile = PROFILES["cpu"],
    ) -> tuple[Candidate, ...]:
        """The ways to compute a batch that are worth a look, the fastest by the profile first.

        What they are is said by their names: what is contracted with what, and whether rows of mixed tasks
        are grouped by task. In inference, what depends on factors alone is taken to be kept between calls.
        """
        job = self._job(way, batch, inner, training, concrete=True)
        return candidates(job if training else replace(job, keep=room(self.network, way)), device)

    def _job(self, way: Way, batch: int, inner: int | None, training: bool, concrete: bool) -> Job:
        if way not in WAYS:
            raise TnshareError(f"way must be one of {WAYS}: found {way!r}")
        rows = bucket(whole("batch", batch, least=0))
        vectors = None if inner is None else bucket(whole("inner", inner, least=0))
        return Job(self.network, way, rows, vectors, training, 0, concrete, self.bias)


def read_tasks(tasks: Tasks, reserved: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """The task axes with their sizes, hashable."""
    if not isinstance(tasks, Mapping | tuple):
        return (("task", whole("tasks", tasks)),)
    pairs = tuple(tasks.items() if isinstance(tasks, Mapping) else tasks)
    if not pairs or not all(isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in pairs):
        raise TnshareError(
            f"tasks must be a whole number, or names with numbers {{'site': 4}}: found {tasks!r}"
        )
    for name, _ in pairs:
        if name in (*reserved, "tasks") or not name.isidentifier():
            used = ", ".join(reserved)
            raise TnshareError(f"a task axis cannot be called {name!r}: the layer itself uses {used}")
    if len(dict(pairs)) != len(pairs):
        raise TnshareError(f"task axes must have different names: found {tasks!r}")
    return tuple((name, whole(f"tasks[{name!r}]", size)) for name, size in pairs)
