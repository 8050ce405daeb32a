"""Time the candidates of calls that a framework traces and compiles, once; traced calls take the fastest.

Nothing is measured while tracing. Who wants it measured says so, before a function is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tnshare.checks import whole
from tnshare.errors import TnshareError
from tnshare.execution import KIND, Calls, Contest, Runner, measured, smooth, timed
from tnshare.ops import Ops
from tnshare.planning import WAYS, Way
from tnshare.planning.devices import store

from ._functions import bound, given_factors
from ._layer import Layer
from .embedding._table import Embedding


def tune(
    layer: Layer,
    params: Mapping[str, Any],
    batch: int,
    way: Way,
    *,
    training: bool,
    ops: Ops[Any],
    sizes: Sequence[int] = (),
) -> dict[str, float]:
    """Seconds of the candidates for so many rows, each compiled with its backward pass when training.

    ``sizes`` are those of the axes of x that are neither rows nor features: the places of a convolution, the
    tokens of a row. They are kept in the cache folder; what is there already is not measured again. Calls
    that are traced from now on run the fastest.
    """
    calls = _calls(layer, ops)
    like = next(iter(params.values()), None)
    if like is None:
        raise TnshareError(f"expected params with {tuple(layer.shapes)}: found none")
    if ops.values(like) is None:
        raise TnshareError("nothing is measured while tracing: tune before, outside of compiled functions")
    contest, shape = _contest(calls, batch, way, sizes, training, like)
    x, ids = _inputs(layer, shape, way, ops, like)
    factors = given_factors(ops, layer, params, x)
    seconds = measured(contest.key, contest.candidates)
    if seconds is None:
        arrays = [*factors, *([params["bias"]] if layer.bias_size else []), x]
        program = _Program(ops, len(factors), arrays, ids, way, training)
        seconds = timed({name: program(contest.make(c)) for name, c in contest.candidates.items()})
        store.write(KIND, contest.key, seconds)
    calls.forget()
    return seconds


def source(
    layer: Layer, batch: int, way: Way, *, training: bool, ops: Ops[Any], like: Any, sizes: Sequence[int] = ()
) -> str:
    """What a traced call of so many rows runs, in a framework's operations; ``like`` is any array of it."""
    contest, _ = _contest(_calls(layer, ops), batch, way, sizes, training, like)
    return contest.text(contest.chosen)


def _calls(layer: Layer, ops: Ops[Any]) -> Calls:
    if not isinstance(layer, Layer):
        raise TnshareError(f"expected a description such as tnshare.Linear: found {type(layer).__name__}")
    return bound(layer, ops)


def _contest(
    calls: Calls, batch: int, way: Way, sizes: Sequence[int], training: bool, like: Any
) -> tuple[Contest, tuple[int, ...]]:
    """The candidates, and the shape of an x."""
    if way not in WAYS:
        raise TnshareError(f"way must be one of {WAYS}: found {way!r}")
    rows = whole("batch", batch)
    own = calls.shape(rows, [whole("sizes", size) for size in sizes])
    shape = (*calls.layer.task_shape, *own) if way == "each" else own
    return calls.contest(way, rows if way == "mixed" else None, training, like, shape), shape


def _inputs(layer: Layer, shape: tuple[int, ...], way: Way, ops: Ops[Any], like: Any) -> tuple[Any, Any]:
    """An input of this shape, and ids."""
    rng = np.random.default_rng(0)
    if isinstance(layer, Embedding):
        x = ops.asarray(rng.integers(0, layer.num_embeddings, shape).astype(np.int32))
    else:
        x = ops.asarray(rng.standard_normal(shape), like)
    if way == "mixed":
        return x, tuple(ops.asarray(rng.integers(0, n, shape[0]).astype(np.int32)) for n in layer.task_shape)
    return x, tuple(n // 2 for n in layer.task_shape) if way == "one" else None


class _Program:
    """Makes programs of candidates, all on the same arrays: factors, a bias if there is one, x.

    Ids of rows are an argument, a task of all rows is part of the program, as they are in most calls.
    """

    def __init__(
        self, ops: Any, factors: int, arrays: Sequence[Any], ids: Any, way: Way, training: bool
    ) -> None:
        self.ops, self.factors, self.arrays, self.ids = ops, factors, list(arrays), ids
        self.traced, self.training = way == "mixed", training

    def __call__(self, run: Runner) -> Callable[[], object]:
        """One run of the compiled candidate, with the derivatives by all arrays when training."""
        ops, factors, x = self.ops, self.factors, self.arrays[-1]
        differentiable = self.arrays if smooth(x) else self.arrays[:-1]

        def forward(arrays: Sequence[Any], x: Any, rows: Any) -> Any:
            bias = arrays[factors] if len(arrays) > factors else None
            return run(arrays[:factors], bias, x, rows if self.traced else self.ids, None)

        def function(given: Sequence[Any], x: Any, rows: Any) -> Any:
            return forward(given[:-1], given[-1], rows) if smooth(x) else forward(given, x, rows)

        def step(given: Sequence[Any], x: Any, rows: Any, weights: Any) -> Any:
            y = function(given, x, rows)  # a compiler would leave out what derivatives alone do not need
            if not self.training:
                return y
            return y, ops.gradients(lambda *arrays: function(arrays, x, rows), given, weights)

        compiled, rows = ops.jit(step), self.ids if self.traced else ()
        weights = ops.jit(function)(differentiable, x, rows) if self.training else None
        return lambda: ops.wait(compiled(differentiable, x, rows, weights))
