"""Apply a shared linear layer from its factors, in the four ways of choosing tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from .compose import checked, chosen_arrays, compose
from .errors import TnshareError
from .layer import Layer, Linear
from .ops import Array, Ops, numpy_ops
from .tasks import choose, take_rows


def apply(
    layer: Linear,
    params: Mapping[str, Array],
    x: Array,
    task: Any = None,
    *,
    ops: Ops[Array] = numpy_ops,  # type: ignore[assignment]
    training: bool = False,
) -> Array:
    """The outputs of the chosen tasks.

    - ``task`` a whole number: ``x`` is (..., in), all of it belongs to that task;
    - ``task`` an array of ids (B,): ``x`` is (B, ..., in), each row has a task of its own;
    - no ``task``: ``x`` is (T, ..., in), row t belongs to task t.

    With two task axes a task is a pair, ids are (B, 2), and row (s, u) of ``x`` (T1, T2, ..., in) belongs to
    the task (s, u). ``training`` chooses plans that are fast with the backward pass. Without
    ``ops`` the arrays are NumPy's.
    """
    factors = _factors(ops, layer, params, x)
    if task is None:
        return _each(ops, layer, factors, params, x, training)
    choice = choose(task, layer.network, ops)
    arrays = chosen_arrays(layer.network, factors, choice, ops)
    lead = x.shape[:-1]
    folded: tuple[int, ...]
    if choice.rows is None:
        folded = (math.prod(lead),)
        plan = layer.plan("one", *folded, training=training)
    elif not lead or lead[0] != choice.rows:
        raise TnshareError(
            f"one task id for each row: expected x of shape ({choice.rows}, ..., {layer.in_features}) "
            f"with {choice.rows} ids, found {tuple(x.shape)}"
        )
    elif len(lead) == 1:
        folded = (choice.rows,)
        plan = layer.plan("mixed", *folded, training=training)
    else:
        folded = (choice.rows, math.prod(lead[1:]))
        plan = layer.plan("mixed", *folded, training=training)
    y = plan.run(ops, [*arrays, ops.reshape(x, (*folded, layer.in_features))])
    if layer.bias:
        own = range(len(layer.task_shape))
        bias = take_rows(params["bias"], own, choice, ops)
        middle = (1,) * (len(folded) - (choice.rows is not None))
        y = ops.add(y, ops.reshape(bias, (*bias.shape[:-1], *middle, layer.out_features)))
    return ops.reshape(y, (*lead, layer.out_features))


def fan_out(
    layer: Linear,
    params: Mapping[str, Array],
    x: Array,
    *,
    ops: Ops[Array] = numpy_ops,  # type: ignore[assignment]
    training: bool = False,
) -> Array:
    """The same ``x`` (..., in) through every task: (T, ..., out), or (T1, T2, ..., out)."""
    factors = _factors(ops, layer, params, x)
    lead = x.shape[:-1]
    rows = math.prod(lead)
    plan = layer.plan("fan_out", rows, training=training)
    y = plan.run(ops, [*factors, ops.reshape(x, (rows, layer.in_features))])
    return ops.reshape(_with_bias(ops, layer, params, y), (*layer.task_shape, *lead, layer.out_features))


def weight(
    layer: Layer,
    params: Mapping[str, Array],
    task: Any = None,
    *,
    ops: Ops[Array] = numpy_ops,  # type: ignore[assignment]
) -> Array:
    """The composed weights with the axes ``layer.network.output``, of all tasks or of some."""
    return compose(layer.network, _all_factors(ops, layer, params), task, ops=ops)


def _each(
    ops: Ops[Array],
    layer: Linear,
    factors: list[Array],
    params: Mapping[str, Array],
    x: Array,
    training: bool,
) -> Array:
    tasks = layer.task_shape
    if len(x.shape) <= len(tasks) or tuple(x.shape[: len(tasks)]) != tasks:
        counts = ", ".join(map(str, tasks))
        raise TnshareError(
            f"without a task, row t of x belongs to task t: expected x of shape ({counts}, ..., "
            f"{layer.in_features}), found {tuple(x.shape)}; give a task, or ids, or use fan_out"
        )
    lead = x.shape[:-1]
    rows = math.prod(lead[len(tasks) :])
    folded = ops.reshape(x, (*tasks, rows, layer.in_features))
    y = layer.plan("each", rows, training=training).run(ops, [*factors, folded])
    return ops.reshape(_with_bias(ops, layer, params, y), (*lead, layer.out_features))


def _with_bias(ops: Ops[Array], layer: Linear, params: Mapping[str, Array], y: Array) -> Array:
    """Add each task's bias to outputs (T, rows, out)."""
    if not layer.bias:
        return y
    return ops.add(y, ops.reshape(params["bias"], (*layer.task_shape, 1, layer.out_features)))


def _factors(ops: Ops[Array], layer: Linear, params: Mapping[str, Array], x: Array) -> list[Array]:
    """The arrays of all nodes in order, after a look at what was given."""
    if not isinstance(layer, Linear):
        kind = f"{type(layer).__module__}.{type(layer).__name__}"
        raise TnshareError(f"only tnshare.Linear can be applied so far: found {kind}")
    if not hasattr(x, "shape"):
        raise TnshareError(f"x must be an array: found {type(x).__name__}")
    if not x.shape or x.shape[-1] != layer.in_features:
        raise TnshareError(
            f"expected x of shape (..., {layer.in_features}), in_features last: found {tuple(x.shape)}"
        )
    if layer.bias and tuple(params["bias"].shape if "bias" in params else ()) != layer.shapes["bias"]:
        raise TnshareError(f"expected params['bias'] of shape {layer.shapes['bias']}: see layer.shapes")
    return checked(layer.network, _all_factors(ops, layer, params))


def _all_factors(ops: Ops[Array], layer: Layer, params: Mapping[str, Array]) -> Mapping[str, Array]:
    """The learnt factors, which are among the parameters, and the frozen ones, which may be."""
    missing = {name: value for name, value in layer.frozen.items() if name not in params}
    if not missing or not params:
        return params
    like = next(iter(params.values()))
    return {**params, **{name: ops.asarray(value, like) for name, value in missing.items()}}
