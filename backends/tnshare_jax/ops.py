"""The array operations of JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tnshare.ops import NDArray
from tnshare.profiles import Device, cpu_model

from .convolve import convolve


class JaxOps:
    """What `tnshare.ops.Ops` asks for."""

    convolve = staticmethod(convolve)

    def matmul(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.matmul(a, b)

    def reshape(self, a: jax.Array, shape: Sequence[int]) -> jax.Array:
        return jnp.reshape(a, tuple(shape))

    def transpose(self, a: jax.Array, order: Sequence[int]) -> jax.Array:
        return jnp.transpose(a, tuple(order))

    def multiply(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return a * b

    def add(self, a: jax.Array, b: jax.Array) -> jax.Array:
        return a + b

    def take(self, a: jax.Array, ids: Sequence[Any]) -> jax.Array:
        # Traced ids cannot be looked at, and JAX would quietly use the nearest row: NaN is loud. A negative
        # id would count from the end, so it is sent out of range.
        return jnp.asarray(a).at[tuple(map(_loud, ids, a.shape))].get(mode="fill", fill_value=jnp.nan)

    def asarray(self, value: NDArray, like: jax.Array | None = None) -> jax.Array:
        return jnp.asarray(value, dtype=None if like is None else like.dtype)

    def values(self, a: Any) -> NDArray | None:
        return None if isinstance(a, jax.core.Tracer) else np.asarray(a)

    def device(self, like: jax.Array) -> Device:
        # A tracer does not say where it will be.
        place = jax.devices()[0] if isinstance(like, jax.core.Tracer) else next(iter(like.devices()))
        kind = {"gpu": "cuda"}.get(place.platform, place.platform)
        model = cpu_model() if kind == "cpu" else place.device_kind
        return Device("jax", jax.__version__, kind, model, 0)

    def gradients(
        self, function: Callable[..., jax.Array], arrays: Sequence[jax.Array], weights: jax.Array
    ) -> list[jax.Array]:
        """The derivative of ``sum(weights * function(*arrays))`` by each array; tnshare.testing uses it."""
        _, pull_back = jax.vjp(function, *arrays)
        return list(pull_back(weights))


def _loud(ids: Any, size: int) -> jax.Array:
    """Ids with every one that is out of range made equal to the size, in a dtype that can hold it."""
    wide = jnp.asarray(ids)
    wide = wide if wide.dtype.itemsize >= 4 else wide.astype(jnp.int32)
    return jnp.where((wide < 0) | (wide >= size), size, wide)


ops = JaxOps()
