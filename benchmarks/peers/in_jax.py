"""Programs in JAX: everything compiled, the arrays given as arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tnshare_jax as tnj
from jax import Array

from benchmarks.case import Case
from benchmarks.meters import JaxMeter, Meter, Program

from .common import NUMBER, Programs, largest, left_to_right, optimal

Leaves = list[Array]
Function = Callable[..., Array]  # of leaves, x and, for rows of mixed tasks, ids


class Bench:
    """JAX on a processor, or on the device given."""

    name = "jax"

    def __init__(
        self,
        device: str = "cpu",
        limit: int = 2**30,
        meter: Meter | None = None,
        place: jax.Device | None = None,
    ) -> None:
        self.device, self.limit = device, limit
        self.place = place or jax.devices("cpu")[0]
        self.meter: Meter = meter or JaxMeter()

    def apply(self, case: Case, peers: Sequence[str] | None = None) -> Programs:
        """Programs of one call; of the peers only those named, if names are given."""
        with jax.default_device(self.place):
            made = _Applied(self, case)
            made.add_all()
        keep = [n for n in made.found.run if peers is None or n.startswith("tnshare") or n in peers]
        made.found.run = {name: made.found.run[name] for name in keep}
        return made.found

    def compose(self, case: Case, one: bool) -> Programs:
        """Programs that give the weights of all tasks, or of one."""
        found, network, names = Programs(), case.layer.network, list(case.layer.network.shapes)
        asked = network.drop("task") if one else network
        with jax.default_device(self.place):
            factors = list(tnj.init(case.layer, seed=0).values())

            def weight(factors: Leaves) -> Array:
                params = dict(zip(names, factors, strict=True))
                composed: Array = tnj.weight(case.layer, params, case.task if one else None)
                return composed

            def operands(factors: Leaves) -> Leaves:
                return [*factors[:-1], factors[-1][case.task]] if one else factors

            def authors(factors: Leaves) -> Array:
                W, axes = left_to_right(network, factors, jnp.tensordot)
                weights: Array = W.transpose([axes.index(axis) for axis in network.output])
                return weights[..., case.task] if one else weights

            expression, needs = optimal(asked)
            size = 2 * NUMBER * case.i * case.o * case.tasks
            functions: dict[str, tuple[int, Function]] = {
                "tnshare": (size, weight),
                "einsum": (size, lambda factors: jnp.einsum(asked.equation, *operands(factors))),
                "opt_einsum": (size + needs, lambda factors: expression(*operands(factors), backend="jax")),
                "authors": (size, authors),
            }
            for name, (size, function) in functions.items():
                made = partial(compiled, function, (factors,), (), case.training)
                found.add(name, size, self.limit, made)
        return found


def compiled(function: Function, learnt: tuple[Any, ...], rest: tuple[Any, ...], training: bool) -> Program:
    """A compiled forward pass and, in training, a compiled backward pass from ones to what is learnt: the
    parameters, and what else there is.

    They are compiled apart, so that they can be timed apart; what the backward pass needs goes between them.
    """
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(learnt[0]))
    if not training:
        run = jax.jit(function)
        return Program(
            lambda: run(*learnt, *rest),
            analyse=lambda: run.lower(*learnt, *rest).compile().memory_analysis(),
            parameters=held,
        )

    def forwards(*given: Any) -> Any:
        return jax.vjp(lambda *own: function(*own, *rest), *given)

    def step(*given: Any) -> Any:
        y, back = forwards(*given)
        return y, back(jnp.ones_like(y))

    forward, backward = jax.jit(forwards), jax.jit(lambda back, above: back(above))
    above = jnp.ones(jax.eval_shape(function, *learnt, *rest).shape)
    return Program(
        lambda: forward(*learnt),
        lambda found: backward(found[1], above),
        lambda: jax.jit(step).lower(*learnt).compile().memory_analysis(),
        held,
    )


class _Applied:
    """The programs of one case."""

    def __init__(self, bench: Bench, case: Case) -> None:
        self.bench, self.case, self.found = bench, case, Programs()
        rng = np.random.default_rng(0)
        self.names = list(case.layer.network.shapes)
        self.factors = list(tnj.init(case.layer, seed=0).values())
        self.x = jnp.asarray(rng.standard_normal(case.x_shape, np.float32))
        order = np.tile(rng.permutation(case.tasks), -(-case.batch // case.tasks))
        self.rest = (jnp.asarray(order[: case.batch]),) if case.way == "mixed" else ()

    def add_all(self) -> None:
        """tnshare, then the peers."""
        case, network = self.case, self.case.network
        times = 3 if case.training else 1
        dense = times * NUMBER * case.i * case.o * case.tasks
        expression, needs = optimal(network)
        self._add("tnshare", 0, self._ours)
        self._add("einsum", times * largest(network), lambda *g: jnp.einsum(network.equation, *self._all(*g)))
        self._add("opt_einsum", times * needs, lambda *g: expression(*self._all(*g), backend="jax"))
        self._add("authors", dense, self._authors)
        rng = np.random.default_rng(1)
        held = 1 if case.way == "one" else case.tasks
        name = "dense, weight per row" if case.way == "mixed" else "dense"
        rows = times * NUMBER * case.batch * case.i * case.o if case.way == "mixed" else 0
        size = times * NUMBER * case.i * case.o * held + rows
        if size <= self.bench.limit:
            W = jnp.asarray(rng.standard_normal((held, case.i, case.o), np.float32))
            self._add(name, size, lambda leaves, x, *ids: self._multiply(x, leaves[0], *ids), [W])
        else:
            self.found.skipped[name] = f"needs {size / 2**30:.1f} GiB"

    def _add(self, name: str, needs: int, function: Function, leaves: Leaves | None = None) -> None:
        learnt = (self.factors if leaves is None else leaves, self.x)
        make = lambda: compiled(function, learnt, self.rest, self.case.training)  # noqa: E731
        self.found.add(name, needs, self.bench.limit, make)

    def _ours(self, factors: Leaves, x: Array, *ids: Array) -> Array:
        params = dict(zip(self.names, factors, strict=True))
        if self.case.way == "fan_out":
            return tnj.fan_out(self.case.layer, params, x)
        task = self.case.task if self.case.way == "one" else ids[0] if ids else None
        return tnj.apply(self.case.layer, params, x, task)

    def _all(self, factors: Leaves, x: Array, *ids: Array) -> Leaves:
        """The operands of the whole equation."""
        *shared, codes = factors
        codes = codes[ids[0]] if ids else codes[self.case.task] if self.case.way == "one" else codes
        return [*shared, codes, x]

    def _authors(self, factors: Leaves, x: Array, *ids: Array) -> Array:
        W, axes = left_to_right(self.case.layer.network, factors, jnp.tensordot)
        weights = W.transpose([axes.index(axis) for axis in ("task", "i", "o")])
        task = self.case.task
        return self._multiply(x, weights[task : task + 1] if self.case.way == "one" else weights, *ids)

    def _multiply(self, x: Array, W: Array, *ids: Array) -> Array:
        """The input times weights (n, i, o); traced ids cannot be grouped, so every row takes its weight."""
        if ids:
            return jnp.einsum("bi,bio->bo", x, W[ids[0]])
        return x @ W[0] if self.case.way == "one" else jnp.matmul(x, W)
