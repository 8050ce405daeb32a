"""Initial parameters of a layer, and the layer as a function of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import tnshare as tn
from tnshare.layer import Layer
from tnshare.ways import Way

from .ops import ops

Params = Mapping[str, jax.Array]
_IMPORTS = """\
from jax.numpy import matmul, multiply, reshape, transpose


def take(array, ids):
    return array[tuple(ids)]"""


def init(
    layer: Layer, seed: int = 0, dtype: Any = jnp.float32, scheme: Literal["direct", "decomposed"] = "direct"
) -> dict[str, jax.Array]:
    """Initial parameters, a plain dict of arrays; frozen codes are no part of it."""
    values = layer.init(seed, np.dtype(dtype), scheme)
    return {name: jnp.asarray(value, dtype) for name, value in values.items()}


def apply(layer: tn.Linear, params: Params, x: jax.Array, task: Any = None) -> jax.Array:
    """The outputs of one task, of a task for each row (ids), or of all tasks, each on its own row of x.

    Task ids may be traced. They cannot be checked then: a row whose id is out of range is NaN.
    """
    return tn.apply(layer, params, jnp.asarray(x), task, ops=ops, training=True)


def fan_out(layer: tn.Linear, params: Params, x: jax.Array) -> jax.Array:
    """The same x (..., in) through every task: (T, ..., out)."""
    return tn.fan_out(layer, params, jnp.asarray(x), ops=ops, training=True)


def weight(layer: Layer, params: Params, task: Any = None) -> jax.Array:
    """Composed weights with the axes ``layer.network.output``: (in, out, T), or (in, out) for one task."""
    return tn.weight(layer, params, task, ops=ops)


def source(layer: tn.Linear, batch: int, way: Way = "mixed") -> str:
    """What is computed for a batch of that many rows, as JAX code that runs when pasted."""
    return f"{_IMPORTS}\n\n\n{layer.plan(way, batch).source(layer.network.sizes)}"
