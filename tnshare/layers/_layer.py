"""Layers without a framework: what their weights are made of, how they start, how they are contracted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tnshare.checks import is_floating, whole
from tnshare.decomposition import (
    Decomposition,
    decomposed_factors,
    factors_in_order,
    random_factors,
    random_stream,
    rounded,
)
from tnshare.errors import TnshareError
from tnshare.network import Network, Spec
from tnshare.ops import NDArray

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
        if not isinstance(d, Decomposition):
            raise TnshareError(
                f"a decomposition by {self.spec!r} of weights {self.network.shape} was expected: "
                f"found {type(d).__name__}"
            )
        if d.spec != self.spec or d.network.shape != self.network.shape:
            raise TnshareError(
                f"a decomposition by {self.spec!r} of weights {self.network.shape} was expected: found {d!r}"
            )
        for array in factors_in_order(d.network, d.factors):
            if not is_floating(array.dtype):
                raise TnshareError(f"factors must be floating arrays: found {array.dtype}")
        pairs = zip(self.network.nodes, d.network.nodes, strict=True)
        return {own.name: _checked(d.factors, given.name, own.shape) for own, given in pairs if own.learnt}

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


def check_layer(layer: Any) -> None:
    """Refuse what is no description of a layer."""
    if not isinstance(layer, Layer):
        kind = f"{type(layer).__module__}.{type(layer).__name__}"
        raise TnshareError(f"expected a description such as tnshare.Linear: found {kind}")


def _checked(factors: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> NDArray:
    """A factor of a decomposition; one of another shape would be broadcast."""
    found = factors.get(name)
    array = np.asarray(found) if hasattr(found, "shape") else np.empty(0, object)
    if array.shape != shape or array.dtype.kind not in "fcV":  # V: bfloat16
        what = f"{array.dtype} {array.shape}" if hasattr(found, "shape") else type(found).__name__
        raise TnshareError(f"the factor {name!r} must have numbers {shape}: found {what}")
    return array


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
            raise TnshareError(
                f"a task axis cannot be called {name!r}: the layer itself uses {used}, and it must be an "
                "identifier"
            )
    if len(dict(pairs)) != len(pairs):
        raise TnshareError(f"task axes must have different names: found {tasks!r}")
    return tuple((name, whole(f"tasks[{name!r}]", size)) for name, size in pairs)
