"""Initial parameters of a layer, and the layer as a function of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import tnshare as tn
from tnshare.apply import apply_with, fan_out_with, weight_with
from tnshare.layer import Layer

from .ops import ops

Params = Mapping[str, jax.Array]


def init(layer: Layer, seed: int = 0, dtype: Any = jnp.float32) -> dict[str, jax.Array]:
    """Initial parameters, a plain dict of arrays; frozen codes are no part of it."""
    return {name: jnp.asarray(value) for name, value in layer.init(seed, np.dtype(dtype)).items()}


def apply(layer: tn.Linear, params: Params, x: jax.Array, task: Any = None) -> jax.Array:
    """The outputs of one task, of a task for each row (ids), or of all tasks, each on its own row of x.

    Task ids may be traced. They cannot be checked then: a row whose id is out of range is NaN.
    """
    return apply_with(ops, layer, params, jnp.asarray(x), task)


def fan_out(layer: tn.Linear, params: Params, x: jax.Array) -> jax.Array:
    """The same x (..., in) through every task: (T, ..., out)."""
    return fan_out_with(ops, layer, params, jnp.asarray(x))


def weight(layer: Layer, params: Params, task: Any = None) -> jax.Array:
    """Composed weights with the axes ``layer.network.output``: (in, out, T), or (in, out) for one task."""
    return weight_with(ops, layer, params, task)
