"""Initial parameters of a layer, and the layer as a function of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

import tnshare as tn
from tnshare.files import layer_params, layer_state
from tnshare.layers import Layer
from tnshare_jax._ops import Precision, is_key, ops_with

from ._channel_order import ChannelOrder

Params = Mapping[str, jax.Array]


def init(
    layer: Layer, seed: Any = 0, dtype: Any = jnp.float32, scheme: Literal["direct", "decomposed"] = "direct"
) -> dict[str, jax.Array]:
    """Initial parameters, a plain dict of arrays; frozen codes are no part of it.

    ``seed`` is a whole number, which gives the same numbers in every framework, or a key, which draws one.
    Either may be traced, so that `jax.vmap` makes the parameters of several seeds; JAX asks NumPy then, while
    it runs.
    """
    if not isinstance(seed, jax.Array):
        values = layer.init(seed, np.dtype(dtype), scheme)
        return {name: jnp.asarray(value, dtype) for name, value in values.items()}
    number = _number(seed)
    if not isinstance(number, jax.core.Tracer):
        return init(layer, int(number), dtype, scheme)
    kind = jax.dtypes.canonicalize_dtype(dtype)
    shape: Any = jax.ShapeDtypeStruct
    shapes = {name: shape(sizes, kind) for name, sizes in layer.shapes.items()}

    def drawn(number: Any) -> dict[str, Any]:
        return {name: value.astype(kind) for name, value in layer.init(int(number), kind, scheme).items()}

    found: dict[str, jax.Array] = jax.pure_callback(drawn, shapes, number, vmap_method="sequential")
    return found


def _number(seed: jax.Array) -> jax.Array:
    """A whole number, as it is or drawn by a key."""
    old = seed.dtype == jnp.uint32 and seed.ndim == 1  # as jax.random.PRNGKey makes them
    if is_key(seed) or old:
        if seed.ndim != int(old):
            raise tn.TnshareError(f"a seed is one key: found keys of shape {seed.shape}; use jax.vmap")
        return jax.random.bits(seed, dtype=jnp.uint32)
    if seed.ndim or not jnp.issubdtype(seed.dtype, jnp.integer):
        raise tn.TnshareError(
            f"a seed must be a whole number or a key: found {seed.dtype} of shape {seed.shape}"
        )
    return seed


def apply(
    layer: Layer,
    params: Params,
    x: jax.Array,
    task: Any = None,
    *,
    training: bool = True,
    dimension_numbers: str | None = None,
    precision: Precision = None,
    preferred_element_type: Any = None,
) -> jax.Array:
    """The outputs of one task, of a task for each row (ids), or of all tasks, each on its own row of x.

    Task ids may be traced. They cannot be checked then: a row whose id is out of range is NaN, and so is the
    vector of a token out of range. Convolutions take and give channels first, ``"NCHW"``, or last, if
    ``dimension_numbers`` is ``"NHWC"``, ``"NWC"`` or ``"NDHWC"``. ``precision`` and
    ``preferred_element_type`` are those of `jax.numpy.matmul`, for every product on the way. ``training``
    chooses what is fast together with its derivatives, else what is fast alone.
    """
    own = ops_with(precision, preferred_element_type)
    order = ChannelOrder.of(layer, dimension_numbers)
    return order.back(tn.apply(layer, params, order(jnp.asarray(x)), task, ops=own, training=training))


def fan_out(
    layer: Layer,
    params: Params,
    x: jax.Array,
    *,
    training: bool = True,
    dimension_numbers: str | None = None,
    precision: Precision = None,
    preferred_element_type: Any = None,
) -> jax.Array:
    """The same x (..., in) through every task: (T, ..., out)."""
    own = ops_with(precision, preferred_element_type)
    order = ChannelOrder.of(layer, dimension_numbers)
    return order.back(tn.fan_out(layer, params, order(jnp.asarray(x)), ops=own, training=training))


def weight(
    layer: Layer,
    params: Params,
    task: Any = None,
    *,
    precision: Precision = None,
    preferred_element_type: Any = None,
) -> jax.Array:
    """Composed weights with the axes ``layer.network.output``: (in, out, T), or (in, out) for one task."""
    own = ops_with(precision, preferred_element_type)
    return tn.weight(layer, params, task, ops=own)


def state(layer: Layer, params: Params) -> tn.State:
    """The parameters as `tnshare.save` writes them and every framework understands them."""
    return layer_state(layer, params)


def params(layer: Layer, state: tn.State, dtype: Any = None) -> dict[str, jax.Array]:
    """The parameters in what `tnshare.load` gives, whichever framework saved it; in its dtype, or another."""
    return {name: jnp.asarray(value, dtype) for name, value in layer_params(layer, state).items()}
