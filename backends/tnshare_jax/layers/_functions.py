"""Initial parameters of a layer, and the layer as a function of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jax
import jax.numpy as jnp

import tnshare as tn
from tnshare.checks import check_numbers
from tnshare.files import layer_params, layer_state
from tnshare.layers import Layer, check_layer
from tnshare_jax._ops import Precision, is_key, ops_with

from ._meshes import on_any_mesh

Params = Mapping[str, jax.Array]


def init(
    layer: Layer, seed: Any = 0, dtype: Any = jnp.float32, scheme: Literal["direct", "decomposed"] = "direct"
) -> dict[str, jax.Array]:
    """Initial parameters, a plain dict of arrays; frozen codes are no part of it.

    ``seed`` is a whole number, which gives the same numbers in every framework, or a key, which draws one.
    Either may be traced, so that `jax.vmap` makes the parameters of several seeds; JAX asks NumPy then, while
    it runs.
    """
    check_layer(layer)
    if not isinstance(seed, jax.Array):
        values = layer.init(seed, dtype, scheme)
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
    order = _ChannelOrder.of(layer, dimension_numbers)

    def run(x: jax.Array, task: Any, params: Params) -> jax.Array:
        return order.back(tn.apply(layer, params, order(x), task, ops=own, training=training))

    found: jax.Array = on_any_mesh(run, _array(x), task, params, 0)
    return found


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
    order = _ChannelOrder.of(layer, dimension_numbers)

    def run(x: jax.Array, _: Any, params: Params) -> jax.Array:
        return order.back(tn.fan_out(layer, params, order(x), ops=own, training=training))

    check_layer(layer)
    found: jax.Array = on_any_mesh(run, _array(x), None, params, len(layer.task_shape))
    return found


def _array(x: Any) -> jax.Array:
    """What JAX takes as an array; says what it does not."""
    if isinstance(x, jax.Array):
        return x
    try:
        check_numbers("x", x)
        return jnp.asarray(x)
    except (TypeError, ValueError) as error:
        if isinstance(error, tn.TnshareError):
            raise
        raise tn.TnshareError(f"x must be an array that JAX can read: found {type(x).__name__}") from None


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


@dataclass(frozen=True)
class _ChannelOrder:
    """Where the channels of a convolution are: first, as the core has them, or last.

    Brings channels from the end to before the ``places``, and back; nothing if there are no places.
    """

    places: int

    @classmethod
    def of(cls, layer: Layer, dimension_numbers: str | None) -> _ChannelOrder:
        """What `jax.lax` calls the layout: rows N, channels C, and the places."""
        if dimension_numbers is None:
            return cls(0)
        if not isinstance(layer, tn.Conv):
            raise tn.TnshareError(
                f"dimension_numbers are for convolutions: found {dimension_numbers!r} for a "
                f"{type(layer).__name__}"
            )
        space = "".join(layer.space).upper()
        layouts = {f"NC{space}": 0, f"N{space}C": len(space)}
        if dimension_numbers not in layouts:
            raise tn.TnshareError(
                f"dimension_numbers must be one of {tuple(layouts)}: found {dimension_numbers!r}"
            )
        return cls(layouts[dimension_numbers])

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.moveaxis(x, -1, -1 - self.places) if x.ndim > self.places else x

    def back(self, y: jax.Array) -> jax.Array:
        """The same for outputs, in the other direction."""
        return jnp.moveaxis(y, -1 - self.places, -1)
