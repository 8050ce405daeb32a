"""Time the candidates of calls that a framework traces and compiles, once; traced calls take the fastest.

Nothing is measured while tracing. Who wants it measured says so, before a function is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tnshare.checks import flag, listed, whole
from tnshare.errors import TnshareError
from tnshare.execution import Calls, Runner, Shape, has_gradient, time_in_rounds
from tnshare.ops import Ops
from tnshare.planning import Way

from ._functions import cached_calls, checked_factors
from ._layer import Layer, check_layer
from .embedding._embedding import Embedding


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
    like = next(iter(params.values()), None) if isinstance(params, Mapping) else None
    if like is None and not isinstance(params, Mapping):
        found = type(params).__name__
        raise TnshareError(f"expected params by name, a dict with {tuple(layer.shapes)}: found {found}")
    flag("training", training)
    if like is None:
        raise TnshareError(f"expected params with {tuple(layer.shapes)}: found none")
    if ops.values(like) is None:
        raise TnshareError("nothing is measured while tracing: tune before, outside of compiled functions")
    sizes = _sizes(batch, sizes)
    job = calls.job(way, (batch,), sizes, training=training, keep=False, concrete=False)
    shape = calls.shape(way, (batch,), sizes)
    x, ids = _inputs(layer, shape, way, ops, like)
    factors = checked_factors(ops, layer, params, x)

    def measure(runs: Mapping[str, Runner]) -> dict[str, float]:
        arrays = [*factors, *([params["bias"]] if layer.bias_size else []), x]
        program = _Program(ops, len(factors), arrays, ids, way, training)
        return time_in_rounds({name: program(run) for name, run in runs.items()})

    seconds = calls.choose(job, calls.kind.rows_of(way, None, shape), like, measure=measure).seconds
    assert seconds is not None
    calls.forget()
    return dict(seconds)


def source(
    layer: Layer, batch: int, way: Way, *, training: bool, ops: Ops[Any], like: Any, sizes: Sequence[int] = ()
) -> str:
    """What a traced call of so many rows runs, in a framework's operations; ``like`` is any array of it."""
    calls = _calls(layer, ops)
    flag("training", training)
    return calls.source(way, batch, like, training=training, sizes=_sizes(batch, sizes))


def _sizes(batch: int, sizes: Sequence[int]) -> Shape:
    whole("batch", batch)
    return tuple(whole("sizes", size) for size in listed("sizes", sizes, "whole numbers"))


def _calls(layer: Layer, ops: Ops[Any]) -> Calls:
    check_layer(layer)
    return cached_calls(layer, ops)


def _inputs(layer: Layer, shape: Shape, way: Way, ops: Ops[Any], like: Any) -> tuple[Any, Any]:
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
        differentiable = self.arrays if has_gradient(x) else self.arrays[:-1]

        def forward(arrays: Sequence[Any], x: Any, rows: Any) -> Any:
            bias = arrays[factors] if len(arrays) > factors else None
            return run(arrays[:factors], bias, x, rows if self.traced else self.ids, None)

        def function(given: Sequence[Any], x: Any, rows: Any) -> Any:
            return forward(given[:-1], given[-1], rows) if has_gradient(x) else forward(given, x, rows)

        def step(given: Sequence[Any], x: Any, rows: Any, weights: Any) -> Any:
            y = function(given, x, rows)  # a compiler would leave out what derivatives alone do not need
            if not self.training:
                return y
            return y, ops.gradients(lambda *arrays: function(arrays, x, rows), given, weights)

        compiled, rows = ops.jit(step), self.ids if self.traced else ()
        weights = ops.jit(function)(differentiable, x, rows) if self.training else None
        return lambda: ops.wait(compiled(differentiable, x, rows, weights))
