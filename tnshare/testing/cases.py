"""Random cases for the laws: hypothesis draws shapes, ranks and ways; numbers come from a seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tnshare.layers import Linear
from tnshare.network import LAF, METHODS, Network, Spec
from tnshare.ops import NDArray
from tnshare.planning import WAYS, Way

Sizes = dict[str, int]
DTYPES = ("float32",)
_SEEDS = st.integers(0, 2**32 - 1)


@st.composite
def axis_sizes(draw: st.DrawFn, max_weights: int = 4, largest: int = 4) -> tuple[Sizes, Sizes]:
    """Sizes of one or more weight axes, and of one or two task axes."""
    size = st.integers(1, largest)
    weights = {f"d{n}": draw(size) for n in range(draw(st.integers(1, max_weights)))}
    names = draw(st.sampled_from([("task",), ("task",), ("site", "user")]))
    return weights, {name: draw(size) for name in names}


@st.composite
def specs(draw: st.DrawFn, weights: Mapping[str, int], tasks: Mapping[str, int], frozen: bool = True) -> Spec:
    """A factorisation of these axes with useful ranks; with ``frozen`` sometimes one with given codes."""
    count = math.prod(tasks.values())
    if frozen and draw(st.integers(0, 4)) == 0:
        given = [LAF.single_task(count), LAF.hard_sharing(), LAF.evgeniou_pontil(count)]
        return draw(st.sampled_from(given))
    family: Any = METHODS[draw(st.sampled_from(sorted(METHODS)))]
    bonds = family.bonds((*weights, *tasks))
    ranks = tuple(draw(st.integers(1, 5)) for _ in bonds)
    spec: Spec = family(ranks).clipped(weights, tasks)
    return spec


@dataclass(frozen=True)
class NetworkCase:
    """A network, with factors and everything else drawn from a seed."""

    spec: Spec
    network: Network
    dtype: str
    seed: int

    def factors(self) -> dict[str, NDArray]:
        """Random factors, those with given codes as they are given."""
        rng = np.random.default_rng(self.seed)
        drawn = {name: random_array(rng, shape, self.dtype) for name, shape in self.network.shapes.items()}
        return drawn | {k: v.astype(self.dtype) for k, v in self.spec.frozen(self.network).items()}

    @property
    def terms(self) -> int:
        """How often a composed number is rounded at most."""
        return _terms(self.network)


@st.composite
def network_cases(draw: st.DrawFn, dtypes: Sequence[str] = DTYPES) -> NetworkCase:
    """Networks over random axes."""
    weights, tasks = draw(axis_sizes())
    spec = draw(specs(weights, tasks))
    return NetworkCase(spec, spec.build(weights, tasks), draw(st.sampled_from(dtypes)), draw(_SEEDS))


@dataclass(frozen=True)
class LinearCase:
    """A linear layer, a way of choosing tasks, and an input of some shape."""

    layer: Linear
    way: Way
    lead: tuple[int, ...]
    dtype: str
    seed: int

    def params(self) -> dict[str, NDArray]:
        """Random parameters (not initial values: a law holds for all)."""
        rng = np.random.default_rng([self.seed, 0])
        return {name: random_array(rng, shape, self.dtype) for name, shape in self.layer.shapes.items()}

    def x(self) -> NDArray:
        """An input; without a task its first axes are those of the tasks."""
        lead = (*self.layer.task_shape, *self.lead) if self.way == "each" else self.lead
        return random_array(
            np.random.default_rng([self.seed, 1]), (*lead, self.layer.in_features), self.dtype
        )

    def task(self) -> Any:
        """What is given as the task: None, a whole number or a pair, or ids."""
        if self.way in ("each", "fan_out"):
            return None
        rows = (self.lead[0],) if self.way == "mixed" else ()
        rng = np.random.default_rng([self.seed, 2])
        ids = np.stack([rng.integers(0, size, rows) for size in self.layer.task_shape], axis=-1)
        return ids if len(self.layer.task_shape) > 1 else ids[..., 0]

    @property
    def terms(self) -> int:
        """How often a number of the output is rounded at most: the input is summed, the bias added."""
        return _terms(self.layer.network) + self.layer.in_features + 1


@st.composite
def linear_cases(draw: st.DrawFn, dtypes: Sequence[str] = DTYPES) -> LinearCase:
    """Linear layers in all four ways, with batches that may be empty and inputs of up to three axes."""
    _, tasks = draw(axis_sizes(max_weights=1))
    weights = {"i": draw(st.integers(1, 5)), "o": draw(st.integers(1, 5))}
    spec = draw(specs(weights, tasks))
    layer = Linear(weights["i"], weights["o"], tasks=tasks, spec=spec, bias=draw(st.booleans()))
    way = draw(st.sampled_from(WAYS))
    lead = tuple(draw(st.lists(st.integers(0, 4), min_size=way == "mixed", max_size=2)))
    return LinearCase(layer, way, lead, draw(st.sampled_from(dtypes)), draw(_SEEDS))


def random_array(rng: np.random.Generator, shape: Sequence[int], dtype: str) -> NDArray:
    """Normally distributed numbers."""
    values = rng.standard_normal(shape)
    return (values + 1j * rng.standard_normal(shape) if dtype.startswith("complex") else values).astype(dtype)


def _terms(network: Network) -> int:
    """One for each factor, and the terms of all bonds."""
    return len(network.nodes) + sum(network.sizes[bond] for bond in network.bonds)
