"""Time the candidates of calls that a framework traces and compiles, once; traced calls take the fastest.

Nothing is measured while tracing. Who wants it measured says so, before a function is compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import store
from .apply import bound, given_factors
from .calls import Calls
from .candidate import Candidate, Job
from .checks import whole
from .errors import TnshareError
from .layer import Linear
from .ops import Ops
from .runners import runner
from .tune import KIND, measured, shortlisted, timed, tuning_key
from .ways import WAYS, Way


def tune(
    layer: Linear, params: Mapping[str, Any], batch: int, way: Way, *, training: bool, ops: Ops[Any]
) -> dict[str, float]:
    """Seconds of the candidates for so many rows, each compiled with its backward pass when training.

    They are kept in the cache folder; what is there already is not measured again. Calls that are traced from
    now on run the fastest.
    """
    if not isinstance(layer, Linear):
        raise TnshareError(f"only tnshare.Linear can be tuned so far: found {type(layer).__name__}")
    if way not in WAYS:
        raise TnshareError(f"way must be one of {WAYS}: found {way!r}")
    rows = whole("batch", batch)
    like = next(iter(params.values()))
    x, ids = _inputs(layer, rows, way, ops, like)
    factors = given_factors(ops, layer, params, x)
    calls: Calls = bound(layer, ops)
    job = calls.job(way, (rows,), training=training, keep=False, concrete=False)
    found = {c.name: c for c in shortlisted(calls.shortlist(job, calls.profile(x)))}
    key = tuning_key(job, ops, x, tuple(found))
    seconds = measured(key, found)
    if seconds is None:
        arrays = [*factors, *([params["bias"]] if layer.bias else []), x]
        seconds = timed({name: _program(job, c, ops, (rows,), arrays, ids) for name, c in found.items()})
        store.write(KIND, key, seconds)
    calls.forget()
    return seconds


def _inputs(layer: Linear, rows: int, way: Way, ops: Ops[Any], like: Any) -> tuple[Any, Any]:
    """An input of so many rows, of each task where each has its own, and ids."""
    rng = np.random.default_rng(0)
    lead = (*layer.task_shape, rows) if way == "each" else (rows,)
    x = ops.asarray(rng.standard_normal((*lead, layer.in_features)), like)
    if way == "mixed":
        return x, tuple(ops.asarray(rng.integers(0, n, rows).astype(np.int32)) for n in layer.task_shape)
    return x, tuple(n // 2 for n in layer.task_shape) if way == "one" else None


def _program(
    job: Job, candidate: Candidate, ops: Any, lead: tuple[int, ...], arrays: list[Any], ids: Any
) -> Callable[[], object]:
    """One run of a compiled candidate, with the derivatives by all arrays when training.

    Ids of rows are an argument of it, a task of all rows is part of the program, as they are in most calls.
    """
    run = runner(job, candidate, ops, lead)
    factors, traced = len(job.network.nodes), job.way == "mixed"

    def forward(arrays: Sequence[Any], rows: Any) -> Any:
        bias = arrays[factors] if job.bias else None
        return run(arrays[:factors], bias, arrays[-1], rows if traced else ids, None)

    def step(arrays: Sequence[Any], rows: Any, weights: Any) -> Any:
        y = forward(arrays, rows)  # a compiler would leave out what derivatives alone do not need
        if not job.training:
            return y
        return y, ops.gradients(lambda *given: forward(given, rows), arrays, weights)

    compiled, rows = ops.jit(step), ids if traced else ()
    weights = ops.jit(forward)(arrays, rows) if job.training else None
    return lambda: ops.wait(compiled(arrays, rows, weights))
