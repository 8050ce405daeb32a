"""Programs in JAX: everything compiled, the arrays given as arguments.

Rows of mixed tasks are grouped before what is compiled, on the host and within the time of a call, as the
planner's programs by hand do: how long groups are is not known while tracing. Batches that make groups of
another length would be compiled anew, which is not counted.
"""

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
from benchmarks.measuring.meters import JaxMeter, Meter, Program
from benchmarks.planner.contestants import groups
from tnshare.layers import calls_for

from .common import ADAPTER_RANK, NUMBER, Programs, largest, left_to_right, not_here, number_of, optimal

Leaves = list[Array]
Function = Callable[..., Array]  # of leaves, x and, for rows of mixed tasks, ids or what groups them
Rest = Callable[[], tuple[Any, ...]]  # what a function takes besides what is learnt, made at every call


def _nothing() -> tuple[Any, ...]:
    return ()


class Bench:
    """JAX on a device, which must be here."""

    name = "jax"

    def __init__(self, device: str = "cpu", limit: int = 2**30, meter: Meter | None = None) -> None:
        self.device, self.limit = device, limit
        self.place = _place(device)
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
                made = partial(compiled, function, (factors,), _nothing, case.training)
                found.add(name, size, self.limit, made)
        return found


def _place(device: str) -> jax.Device:
    try:
        return jax.devices("gpu" if device.startswith("cuda") else device)[number_of(device)]
    except (RuntimeError, IndexError):
        raise not_here("jax", jax.__version__, device) from None


def compiled(function: Function, learnt: tuple[Any, ...], rest: Rest, training: bool) -> Program:
    """A compiled forward pass and, in training, a compiled backward pass from ones to what is learnt: the
    parameters, and what else there is.

    They are compiled apart, so that they can be timed apart; what the backward pass needs goes between them.
    """
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(learnt[0]))
    if not training:
        run = jax.jit(function)
        return Program(
            lambda: run(*learnt, *rest()),
            analyse=lambda: run.lower(*learnt, *rest()).compile().memory_analysis(),
            parameters=held,
        )

    def forwards(given: tuple[Any, ...], others: tuple[Any, ...]) -> Any:
        return jax.vjp(lambda *own: function(*own, *others), *given)

    def step(given: tuple[Any, ...], others: tuple[Any, ...]) -> Any:
        y, back = forwards(given, others)
        return y, back(jnp.ones_like(y))

    forward, backward = jax.jit(forwards), jax.jit(lambda back, above: back(above))
    above = jnp.ones(jax.eval_shape(function, *learnt, *rest()).shape)
    return Program(
        lambda: forward(learnt, rest()),
        lambda found: backward(found[1], above),
        lambda: jax.jit(step).lower(learnt, rest()).compile().memory_analysis(),
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
        self.ids = order[: case.batch]  # on the host
        self.rest = (jnp.asarray(self.ids),) if case.way == "mixed" else ()

    def add_all(self) -> None:
        """tnshare, then the peers."""
        network, times = self.case.network, 3 if self.case.training else 1
        self._add("tnshare", 0, self._ours)
        for name in ("factored", "materialised"):
            self._forced(f"tnshare {name}", name)
        expression, needs = optimal(network)
        self._add("einsum", times * largest(network), lambda *g: jnp.einsum(network.equation, *self._all(*g)))
        self._add("opt_einsum", times * needs, lambda *g: expression(*self._all(*g), backend="jax"))
        if self.case.way == "mixed":
            self._mixed(times)
        else:
            self._together(times)

    def _together(self, times: int) -> None:
        """Products with dense weights, of one task or of all."""
        case = self.case
        size = times * NUMBER * case.i * case.o
        one = case.way == "one"
        held = slice(case.task, case.task + 1) if one else slice(None)
        own = partial(_drawn, (1 if one else case.tasks, case.i, case.o))
        self._add(
            "authors", size * case.tasks, lambda leaves, x: self._multiply(x, self._composed(leaves)[held])
        )
        self._add("dense", size * (1 if one else case.tasks), lambda W, x: self._multiply(x, W[0]), own)

    def _mixed(self, times: int) -> None:
        """Rows by their tasks, a weight for each row, and adapters for each row."""
        case = self.case
        size, thin = times * NUMBER * case.i * case.o, times * NUMBER * ADAPTER_RANK * (case.i + case.o)
        dense = partial(_drawn, (case.tasks, case.i, case.o))
        adapters = (case.tasks, case.i, ADAPTER_RANK), (case.tasks, ADAPTER_RANK, case.o)
        lora = partial(_drawn, (case.i, case.o), *adapters)
        every = case.tasks + case.batch
        by_task: Rest = lambda: groups(self.ids)  # noqa: E731
        self._add("authors", size * case.tasks, _grouped(self._composed), rest=by_task)
        self._add("dense", size * case.tasks, _grouped(lambda leaves: leaves[0]), dense, by_task)
        self._add("dense, weight per row", size * every, _per_row, dense)
        self._add("LoRA, batched", size + thin * every, _adapted, lora)

    def _add(
        self,
        name: str,
        needs: int,
        function: Function,
        leaves: Callable[[], Leaves] | None = None,
        rest: Rest | None = None,
    ) -> None:
        """Add a program of the factors, or of leaves of its own, which are made if there is room for them."""

        def make() -> Program:
            learnt = (leaves() if leaves else self.factors, self.x)
            return compiled(function, learnt, rest or (lambda: self.rest), self.case.training)

        self.found.add(name, needs, self.bench.limit, make)

    def _ours(self, factors: Leaves, x: Array, *ids: Array) -> Array:
        params = dict(zip(self.names, factors, strict=True))
        if self.case.way == "fan_out":
            return tnj.fan_out(self.case.layer, params, x, training=self.case.training)
        return tnj.apply(self.case.layer, params, x, self._task(*ids), training=self.case.training)

    def _forced(self, name: str, strategy: Any) -> None:
        """tnshare by one strategy: the best by the model that is of that kind."""
        case = self.case
        calls = calls_for(case.layer, tnj.ops, strategy)
        job = calls.job(case.way, (case.batch,), training=case.training, keep=False, concrete=False)

        def run(factors: Leaves, x: Array, *ids: Array) -> Array:
            if case.way == "fan_out":
                every: Array = calls.fan_out(factors, None, x, case.training)
                return every
            found: Array = calls.apply(factors, None, x, self._task(*ids), case.training)
            return found

        self._add(name, calls.options(job, calls.profile(self.x))[0].peak, run)

    def _task(self, *ids: Array) -> Any:
        return self.case.task if self.case.way == "one" else ids[0] if ids else None

    def _all(self, factors: Leaves, x: Array, *ids: Array) -> Leaves:
        """The operands of the whole equation."""
        *shared, codes = factors
        task = self._task(*ids)
        return [*shared, codes if task is None else codes[task], x]

    def _composed(self, factors: Leaves) -> Array:
        """The weights (T, i, o), as the paper's authors compose them."""
        W, axes = left_to_right(self.case.layer.network, factors, jnp.tensordot)
        weights: Array = W.transpose([axes.index(axis) for axis in ("task", "i", "o")])
        return weights

    def _multiply(self, x: Array, W: Array) -> Array:
        """The input times weights (n, i, o)."""
        return x @ W[0] if self.case.way == "one" else jnp.matmul(x, W)


def _drawn(*shapes: tuple[int, ...]) -> Leaves:
    rng = np.random.default_rng(1)
    return [jnp.asarray(rng.standard_normal(shape, np.float32)) for shape in shapes]


def _grouped(weights: Callable[[Leaves], Array]) -> Function:
    """Rows that were grouped by task times the weights (T, i, o) of the tasks present."""

    def run(leaves: Leaves, x: Array, present: Array, source: Array, position: Array) -> Array:
        together = x[source].reshape(len(present), -1, x.shape[1])
        y = jnp.matmul(together, weights(leaves)[present])
        return y.reshape(-1, y.shape[2])[position]

    return run


def _per_row(leaves: Leaves, x: Array, ids: Array) -> Array:
    return jnp.einsum("bi,bio->bo", x, leaves[0][ids])


def _adapted(leaves: Leaves, x: Array, ids: Array) -> Array:
    """A weight for all rows, and two thin matrices for each."""
    W, A, B = leaves
    return x @ W + jnp.einsum("br,bro->bo", jnp.einsum("bi,bir->br", x, A[ids]), B[ids])
