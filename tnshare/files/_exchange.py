"""States between frameworks: the parameters of a layer, and names for the same thing."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from tnshare.checks import check_numbers
from tnshare.decomposition import Decomposition, factors_in_order
from tnshare.errors import TnshareError
from tnshare.layers import Layer, check_layer
from tnshare.ops import NDArray

from ._state import Saved, State

# What frameworks call the same thing: torch's word first.
_WORDS = {"weight": ("kernel", "w", "embedding", "embeddings", "scale"), "bias": ("b", "offset")}


def layer_state(layer: Layer, params: Mapping[str, Any]) -> State:
    """The parameters of a layer for `tnshare.save`: the decomposition "weight", and the bias."""
    check_layer(layer)
    given = {name: value for name, value in params.items() if name in layer.shapes}
    if missing := set(layer.shapes) - set(given):
        raise TnshareError(f"expected params with {tuple(layer.shapes)}: {sorted(missing)[0]!r} is missing")
    factors = {
        name: np.asarray(params[name]) if name in params else layer.frozen[name]
        for name in layer.network.shapes
    }
    factors_in_order(layer.network, factors)
    weight = Decomposition(layer.spec, layer.network, factors)
    return State({"weight": weight, **({"bias": np.asarray(params["bias"])} if layer.bias_size else {})})


def layer_params(layer: Layer, state: State) -> dict[str, NDArray]:
    """The parameters of a layer again, by name; refuses the state of another layer."""
    expected = ("weight", "bias") if layer.bias_size else ("weight",)
    found = dict(state.entries) if isinstance(state, State) else {}
    weight, bias = found.get("weight"), found.get("bias")
    if set(found) != set(expected) or not isinstance(weight, Decomposition) or state.tasks:
        what = tuple(found) if isinstance(state, State) else type(state).__name__
        raise TnshareError(f"expected the state of a layer, with {expected}: found {what}")
    shape = layer.shapes.get("bias", ())
    if layer.bias_size and np.shape(bias) != shape:  # type: ignore[arg-type]
        raise TnshareError(f"the bias must have shape {shape}: found {np.shape(bias)}")  # type: ignore[arg-type]
    if layer.bias_size:
        check_numbers("the bias", np.asarray(bias))
    return layer.adopt(weight) | ({"bias": np.asarray(bias)} if layer.bias_size else {})


def task_count(state: Any) -> int:
    """How many tasks the state of a shared model has; refuses one whose parts do not have as many."""
    if not isinstance(state, State) or not state.tasks:
        kind = "that of a layer" if isinstance(state, State) else type(state).__name__
        raise TnshareError(
            f"the state of a shared model was expected, as tnshare.load gives it: found {kind}; save a Shared"
        )
    soft = [d for d in state.entries.values() if isinstance(d, Decomposition)]
    for d in soft:
        factors_in_order(d.network, d.factors)
    counts = {len(state.tasks), *(d.network.task_shape[0] for d in soft)}
    counts |= {len(values) for values in state.constants.values()} - {1}
    if len(counts) > 1 or len(state.names) not in (0, len(state.tasks)):
        raise TnshareError(
            f"a state has one number of tasks: found {sorted(counts)}, and {len(state.names)} names"
        )
    if any(own.keys() != state.tasks[0].keys() for own in state.tasks):
        raise TnshareError("all tasks of a state must have the same names of their own")
    return len(state.tasks)


def stacked(array: NDArray, order: tuple[int, ...] | None) -> NDArray:
    """An array as it is saved: a weight, which has an order, with the axes of a stack, (..., in, out)."""
    return array if order is None else array.transpose(order)


def unstacked(saved: NDArray, order: tuple[int, ...] | None, shape: tuple[int, ...]) -> NDArray:
    """A saved array with the axes that it has in a model, if it can have this shape there.

    A bias (out, 1, 1), as some libraries have it, is one of (out,).
    """
    if order is None:
        return saved.reshape(shape) if saved.size == math.prod(shape) else saved
    return saved.transpose(np.argsort(order)) if saved.ndim == len(order) else saved


def with_constants(state: State, names: Collection[str]) -> tuple[dict[str, Saved], ...]:
    """What each task has of its own, with those constants that a model of these names has as arrays."""
    found = tuple(dict(task) for task in state.tasks)
    for name, values in state.constants.items():
        if name in names:
            for task, value in zip(found, values * (len(found) if len(values) == 1 else 1), strict=True):
                if isinstance(value, np.ndarray):
                    task.setdefault(name, value)
    return found


def translated(saved: Collection[str], names: Collection[str]) -> dict[str, str]:
    """For each saved name the one of a model's own that means the same in another framework, or itself."""
    own = [name for name in names if name not in saved]
    found = {}
    for name in saved:
        meant = [other for other in own if common_name(other) == common_name(name)]
        found[name] = meant[0] if name not in names and len(meant) == 1 else name
    return found


def common_name(name: str) -> str:
    """A name with torch's word for its last part: ``dense.kernel`` and ``dense.w`` are ``dense.weight``."""
    layer, dot, last = name.rpartition(".")
    word = next((word for word, others in _WORDS.items() if last in others), last)
    return f"{layer}{dot}{word}"
