"""Apply a shared layer from its factors, in the four ways of choosing tasks."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from tnshare.checks import check_numbers, flag, holds_numbers
from tnshare.decomposition import compose, factors_in_order
from tnshare.errors import TnshareError
from tnshare.execution import CallKind, Calls, Strategy
from tnshare.ops import Array, Ops, check_ops, numpy_ops
from tnshare.planning import Candidate

from ._layer import Layer, check_layer
from ._linear import Linear
from ._linear_kind import LinearKind
from .convolution._conv import Conv
from .convolution._conv_kind import ConvKind
from .embedding._embedding import Embedding
from .embedding._lookup_kind import LookupKind


def apply(
    layer: Layer,
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
    the task (s, u). Convolutions take (..., channels, *places), embeddings whole numbers of any shape in the
    place of (..., in). ``training`` chooses plans that are fast with the backward pass. Without
    ``ops`` the arrays are NumPy's.
    """
    flag("training", training)
    factors = checked_factors(ops, layer, params, x)
    result: Array = cached_calls(layer, ops).apply(factors, params.get("bias"), x, task, training)
    return result


def fan_out(
    layer: Layer,
    params: Mapping[str, Array],
    x: Array,
    *,
    ops: Ops[Array] = numpy_ops,  # type: ignore[assignment]
    training: bool = False,
) -> Array:
    """The same ``x`` (..., in) through every task: (T, ..., out), or (T1, T2, ..., out)."""
    flag("training", training)
    factors = checked_factors(ops, layer, params, x)
    result: Array = cached_calls(layer, ops).fan_out(factors, params.get("bias"), x, training)
    return result


def weight(
    layer: Layer,
    params: Mapping[str, Array],
    task: Any = None,
    *,
    ops: Ops[Array] = numpy_ops,  # type: ignore[assignment]
) -> Array:
    """The composed weights with the axes ``layer.network.output``, of all tasks or of some."""
    _check_layer(layer, params)
    return compose(layer.network, _all_factors(ops, layer, params), task, ops=ops)


@lru_cache(maxsize=1024)
def cached_calls(layer: Layer, ops: Ops[Any]) -> Calls:
    """The calls of a layer in a framework, the same ones for the same layer."""
    return calls_for(layer, ops)


def checked_factors(ops: Ops[Array], layer: Layer, params: Mapping[str, Array], x: Array) -> list[Array]:
    """The arrays of all nodes in order, after a look at what was given."""
    _check_layer(layer, params)
    if not hasattr(x, "shape"):
        raise TnshareError(f"x must be an array: found {type(x).__name__}")
    if not holds_numbers(x):
        check_numbers("x", x)
    if layer.bias:
        bias = params.get("bias")
        shape = getattr(bias, "shape", None)
        if shape is None or tuple(shape) != layer.shapes["bias"]:
            found = type(bias).__name__ if shape is None else tuple(shape)
            raise TnshareError(
                f"expected params['bias'] of shape {layer.shapes['bias']}: see layer.shapes; found {found}"
            )
        if not holds_numbers(bias):
            check_numbers("params['bias']", bias)
    return factors_in_order(layer.network, _all_factors(ops, layer, params))


def _check_layer(layer: Any, params: Any) -> None:
    check_layer(layer)
    if not isinstance(params, Mapping):
        raise TnshareError(
            f"expected params by name, a dict with {tuple(layer.shapes)}: found {type(params).__name__}"
        )


def _all_factors(ops: Ops[Array], layer: Layer, params: Mapping[str, Array]) -> Mapping[str, Array]:
    """The learnt factors, which are among the parameters, and the frozen ones, which may be."""
    missing = {name: value for name, value in layer.frozen.items() if name not in params}
    if not missing or not params:
        return params
    like = next(iter(params.values()))
    return {**params, **{name: ops.asarray(value, like) for name, value in missing.items()}}


_KINDS: dict[type, type[CallKind[Any, Any]]] = {Linear: LinearKind, Conv: ConvKind, Embedding: LookupKind}


def calls_for(
    layer: Layer, ops: Ops[Any], strategy: Strategy | Candidate = "auto", memory_limit: int | None = None
) -> Calls:
    """The calls of a layer in a framework, by a strategy."""
    check_ops(ops)
    kind = next((kind for described, kind in _KINDS.items() if isinstance(layer, described)), None)
    if kind is None:
        found = f"{type(layer).__module__}.{type(layer).__name__}"
        raise TnshareError(f"expected a tnshare.Linear, Conv or Embedding: found {found}")
    if kind is not LinearKind and isinstance(strategy, Candidate):
        raise TnshareError(
            f"a candidate is a strategy for linear layers alone: found {strategy.name!r} for "
            f"{type(layer).__name__}"
        )
    return Calls(kind(layer, ops), strategy, memory_limit)
