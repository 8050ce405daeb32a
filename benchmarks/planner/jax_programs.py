"""What is timed at a point in JAX: everything compiled, the arrays given as arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tnshare_jax as tnj
from jax import Array

import tnshare as tn
from benchmarks.grid import Point
from benchmarks.measuring.timing import AGAIN
from tnshare.layers import calls_for
from tnshare.planning import Candidate

from .contestants import EMPTY, Programs, anonymous, groups, one_task

Factors = list[Array]
_ready: Any = jax.block_until_ready
Weights = Callable[[Factors, Any], Array]  # (n, i, o) of the n tasks that are chosen
Function = Callable[..., Array]  # of factors, x and, for rows of mixed tasks, ids or what groups them


def programs(point: Point, *, peers: bool = True) -> Programs:
    """tnshare first, then the others, on the same arrays; without ``peers``, only its own candidates."""
    factors, x, ids = arrays(point)
    description = tn.Linear(*point.shape, spec=point.spec, bias=False)
    found = Programs(compiled=True)
    given = [ids] if point.way == "mixed" else []

    def add(name: str, function: Function, factors: Factors = factors, rest: list[Any] = given) -> None:
        found.run[name] = timed(point, function, factors, x, rest)

    # The fastest by the model is compiled before anything is measured, the fastest that was measured behind.
    add("tnshare auto", forced(point, description, candidates(point, description, x)[0]))
    params = dict(zip(description.shapes, factors, strict=True))
    tnj.tune(description, params, point.batch, point.way, training=point.training)
    add("tnshare", ours(point, description))
    found.run = dict(sorted(found.run.items(), key=lambda item: len(item[0])))  # "tnshare" is timed twice
    add("tnshare" + AGAIN, ours(point, description))  # compiled anew: that alone may change its time
    found.propose(
        candidates(point, description, x),
        lambda candidate: timed(point, forced(point, description, candidate), factors, x, given),
    )
    if not peers:
        return found
    for name, function in (others(point) | {EMPTY: _empty(point)}).items():
        add(name, function)
    W = jnp.asarray(np.random.default_rng(1).standard_normal((point.shape[2], *point.shape[:2]), np.float32))
    if point.way == "mixed":
        found.run["by hand: grouped"] = timed_grouped(point, _middles(point), factors, x, ids, middle=True)
        found.run["by hand: grouped all"] = timed_grouped(point, _composed(point), factors, x, ids)
        found.run["authors"] = timed_grouped(point, _authors(point), factors, x, ids)
        found.run["dense"] = timed_grouped(point, lambda factors, chosen: factors[0][chosen], [W], x, ids)
    else:
        dense = W[one_task(point)][None] if point.way == "one" else W
        add("dense", lambda factors, x: multiply(point.way, x, factors[0]), [dense])
    return found


def arrays(point: Point) -> tuple[Factors, Array, Any]:
    """Factors in their storage order, inputs, and the ids of tasks, on the host."""
    i, o, tasks = point.shape
    rng = np.random.default_rng(0)
    shapes = point.spec.network(i=i, o=o, task=tasks).shapes.values()
    factors = [jnp.asarray(rng.standard_normal(s, np.float32) / s[-1] ** 0.5) for s in shapes]
    shape = (tasks, point.batch, i) if point.way == "each" else (point.batch, i)
    return factors, jnp.asarray(rng.standard_normal(shape, np.float32)), rng.integers(tasks, size=point.batch)


def candidates(point: Point, description: tn.Linear, x: Array) -> tuple[Candidate, ...]:
    """The ways to compute the point in JAX, the fastest by the model first."""
    calls = calls_for(description, tnj.ops)
    lead = (point.batch,)
    job = calls.job(point.way, lead, training=point.training, keep=False, concrete=False)
    return calls.options(job, calls.profile(x))


def forced(point: Point, description: tn.Linear, candidate: Candidate) -> Function:
    """One candidate as a function of factors, x and, for mixed tasks, ids."""
    calls = calls_for(description, tnj.ops, candidate)

    def run(factors: Factors, x: Array, *ids: Array) -> Array:
        if point.way == "fan_out":
            result: Array = calls.fan_out(factors, None, x, point.training)
        else:
            task = one_task(point) if point.way == "one" else ids[0] if ids else None
            result = calls.apply(factors, None, x, task, point.training)
        return result

    return run


def ours(point: Point, description: tn.Linear) -> Function:
    """tnshare as a function of factors, x and, for mixed tasks, ids."""
    names = list(description.shapes)

    def run(factors: Factors, x: Array, *ids: Array) -> Array:
        params = dict(zip(names, factors, strict=True))
        if point.way == "fan_out":
            return tnj.fan_out(description, params, x, training=point.training)
        task = one_task(point) if point.way == "one" else ids[0] if ids else None
        return tnj.apply(description, params, x, task, training=point.training)

    return run


class Compiled:
    """A program on its operands."""

    def __init__(self, function: Callable[..., Any], *operands: Any) -> None:
        self.step, self.operands = jax.jit(function), operands

    def __call__(self) -> Any:
        return _ready(self.step(*self.operands))

    def text(self) -> str:
        """What XLA made of it; compiles it, if that was not done yet."""
        return anonymous(self.step.lower(*self.operands).compile().as_text() or "")


def timed(point: Point, function: Function, factors: Factors, x: Array, rest: list[Any]) -> Compiled:
    """The compiled function, with the value and the gradients of factors and x in training."""
    return Compiled(_step(point, function), _weights(point), factors, x, *rest)


def timed_grouped(
    point: Point, weights: Weights, factors: Factors, x: Array, ids: Any, *, middle: bool = False
) -> Callable[[], Any]:
    """Rows grouped by task on the host, then compiled products with the weights of the tasks present.

    With ``middle`` these are the middles alone, between the input and output sides.
    """

    def run(factors: Factors, x: Array, present: Array, source: Array, position: Array) -> Array:
        fed = _parts(point, factors, x)[0] if middle else x
        y = jnp.matmul(fed[source].reshape(len(present), -1, fed.shape[1]), weights(factors, present))
        y = y.reshape(-1, y.shape[2])[position]
        return y @ factors[2] if middle and point.method == "tucker" else y

    step, weights_of_y = jax.jit(_step(point, run)), _weights(point)
    return lambda: _ready(step(weights_of_y, factors, x, *groups(ids)))


def others(point: Point) -> dict[str, Function]:
    """Written by hand, as the paper's authors do, and by einsum along two paths."""
    made: dict[str, Function] = {"by hand: input first": _input_first(point), "by hand: outer": _outer(point)}
    if point.way != "mixed":
        made["by hand: compose"] = _compose_middle(point)
        for name, weights in (("by hand: compose all", _composed(point)), ("authors", _authors(point))):
            made[name] = lambda factors, x, weights=weights: multiply(
                point.way, x, weights(factors, _tasks(point))
            )
    for name, optimize in (("opt_einsum", "optimal"), ("einsum", "auto")):
        made[name] = lambda factors, x, *ids, optimize=optimize: jnp.einsum(
            point.equation, *factors[:-1], _codes(point, factors, *ids), x, optimize=optimize
        )
    return made


def _empty(point: Point) -> Function:
    """Looks at one number of each operand, and writes results of the right shapes: what any call takes."""

    def run(factors: Factors, x: Array, *ids: Array) -> Array:
        looked = [array[(0,) * array.ndim] for array in (*factors, x, *ids)]
        return jnp.broadcast_to(sum(looked[1:], looked[0]), _shape(point)).astype(x.dtype)

    return run


def multiply(way: str, x: Array, W: Array) -> Array:
    """The input times weights (n, i, o), of one task or of all."""
    return x @ W[0] if way == "one" else jnp.matmul(x, W)


def _step(point: Point, function: Function) -> Callable[..., Any]:
    def step(weights: Array | None, factors: Factors, x: Array, *rest: Any) -> Any:
        if weights is None:
            return function(factors, x, *rest)
        y, pull_back = jax.vjp(lambda factors, x: function(factors, x, *rest), factors, x)
        return y, pull_back(weights)

    return step


def _weights(point: Point) -> Array | None:
    """What the gradients are of, times y: given as a loss would: XLA knows what ones give."""
    if not point.training:
        return None
    return jnp.asarray(np.random.default_rng(2).standard_normal(_shape(point), np.float32))


def _shape(point: Point) -> tuple[int, ...]:
    """The shape of the result."""
    every = (point.shape[2],) if point.way in ("each", "fan_out") else ()
    return (*every, point.batch, point.shape[1])


def _tasks(point: Point) -> Any:
    """Which rows of the codes are used, but for mixed tasks."""
    first = one_task(point)
    return slice(first, first + 1) if point.way == "one" else slice(None)


def _codes(point: Point, factors: Factors, *ids: Array) -> Array:
    """The codes that the equation wants."""
    if ids:
        return factors[-1][ids[0]]
    return factors[-1][one_task(point)] if point.way == "one" else factors[-1]


def _middles(point: Point) -> Weights:
    """Middles (n, i, o) of the chosen tasks."""
    n = 1 if point.method == "tt" else 0
    return lambda factors, chosen: jnp.tensordot(factors[-1][chosen], factors[n], 1)


def _composed(point: Point) -> Weights:
    """Weights (n, i, o) of the chosen tasks."""

    def weights(factors: Factors, chosen: Any) -> Array:
        small = _middles(point)(factors, chosen)
        if point.method == "tucker":
            small = small @ factors[2]
        return small if point.method == "laf" else factors[0 if point.method == "tt" else 1] @ small

    return weights


def _authors(point: Point) -> Weights:
    """The weights of all tasks from left to right, then those that are chosen."""

    def weights(factors: Factors, chosen: Any) -> Array:
        if point.method == "laf":
            W = jnp.tensordot(factors[0], factors[1], ((0,), (1,)))
        elif point.method == "tt":
            U_i, U_o, U_t = factors
            W = jnp.tensordot(jnp.tensordot(U_i, U_o, ((1,), (1,))), U_t, ((1,), (1,)))
        else:
            core, U_i, U_o, U_t = factors
            W = jnp.tensordot(jnp.tensordot(core, U_i, ((1,), (1,))), U_o, ((1,), (0,)))
            W = jnp.tensordot(W, U_t, ((0,), (1,)))
        return W.transpose(2, 0, 1)[chosen]

    return weights


def _parts(point: Point, factors: Factors, x: Array) -> tuple[Array, Array]:
    """What the input becomes before the middle (k, i, o), and the middle."""
    if point.method == "laf":
        return x, factors[0]
    return (x @ factors[0], factors[1]) if point.method == "tt" else (x @ factors[1], factors[0])


def _input_first(point: Point) -> Function:
    """The input with all that the codes choose from, then the codes."""
    last = {"one": "kbo,k->bo", "mixed": "kbo,bk->bo", "each": "ktbo,tk->tbo", "fan_out": "kbo,tk->tbo"}

    def run(factors: Factors, x: Array, *ids: Array) -> Array:
        fed, middle = _parts(point, factors, x)
        first = jnp.einsum("tbi,kio->ktbo" if point.way == "each" else "bi,kio->kbo", fed, middle)
        y = jnp.einsum(last[point.way], first, _codes(point, factors, *ids))
        return y @ factors[2] if point.method == "tucker" else y

    return run


def _compose_middle(point: Point) -> Function:
    """The middle of the chosen tasks, between input and output sides that are not composed."""

    def run(factors: Factors, x: Array) -> Array:
        fed, _ = _parts(point, factors, x)
        y = multiply(point.way, fed, _middles(point)(factors, _tasks(point)))
        return y @ factors[2] if point.method == "tucker" else y

    return run


def _outer(point: Point) -> Function:
    """Each row times its code, entry by entry, then one product with all that the codes choose from."""
    first = {"one": "bi,k->bki", "mixed": "bi,bk->bki", "each": "tbi,tk->tbki", "fan_out": "bi,tk->tbki"}

    def run(factors: Factors, x: Array, *ids: Array) -> Array:
        fed, middle = _parts(point, factors, x)
        k, i, o = middle.shape
        outer = jnp.einsum(first[point.way], fed, _codes(point, factors, *ids))
        y = outer.reshape(*outer.shape[:-2], k * i) @ middle.reshape(k * i, o)
        return y @ factors[2] if point.method == "tucker" else y

    return run
