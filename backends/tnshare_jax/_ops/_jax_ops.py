"""The array operations of JAX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tnshare.errors import TnshareError
from tnshare.ops import NDArray
from tnshare.planning import Device, cpu_model

from ._convolution import convolve

Precision = Any  # as `jax.lax.PrecisionLike`, which type checkers cannot follow


@dataclass(frozen=True)
class JaxOps:
    """What `tnshare.ops.Ops` asks for.

    ``precision`` and ``preferred_element_type`` are those of `jax.numpy.matmul`, for every product and
    convolution.
    """

    precision: Precision = None
    preferred_element_type: Any = None

    jit = staticmethod(jax.jit)
    wait = staticmethod(jax.block_until_ready)

    def matmul(self, a: jax.Array, b: jax.Array) -> jax.Array:
        if a.ndim == 2 and b.ndim == 3 and _is_long(b, a):
            # XLA would bring the whole stack into another order, to make one product of many: on a CPU that
            # takes up to nine times as long, and its derivatives seven times. `einsum` leaves it to XLA.
            a = jnp.broadcast_to(a, (b.shape[0], *a.shape))
        return jnp.matmul(a, b, **self._options)

    def convolve(self, *given: Any) -> jax.Array:
        return convolve(*given, **self._options)

    def einsum(self, equation: str, a: jax.Array, b: jax.Array) -> jax.Array:
        y: jax.Array = jnp.einsum(equation, a, b, **self._options)
        return y

    def reshape(self, a: jax.Array, shape: Sequence[int]) -> jax.Array:
        return jnp.reshape(a, tuple(shape))

    def transpose(self, a: jax.Array, order: Sequence[int]) -> jax.Array:
        return jnp.transpose(a, tuple(order))

    def multiply(self, a: jax.Array, b: jax.Array) -> jax.Array:
        preferred = self.preferred_element_type
        return a * b if preferred is None else a.astype(preferred) * b.astype(preferred)

    def add(self, a: jax.Array, b: jax.Array) -> jax.Array:
        if a.ndim > b.ndim and jax.config.jax_numpy_rank_promotion != "allow":  # type: ignore[attr-defined]
            b = jnp.reshape(b, (*(1,) * (a.ndim - b.ndim), *b.shape))
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
        # A tracer does not say where it will be, nor do NumPy's arrays.
        here = isinstance(like, jax.Array) and not isinstance(like, jax.core.Tracer)
        place = next(iter(like.devices())) if here else jax.devices()[0]
        kind = {"gpu": "cuda"}.get(place.platform, place.platform)
        model = cpu_model() if kind == "cpu" else place.device_kind
        return Device("jax", jax.__version__, kind, model, 0)

    @property
    def _options(self) -> dict[str, Any]:
        return {"precision": self.precision, "preferred_element_type": self.preferred_element_type}

    def gradients(
        self, function: Callable[..., jax.Array], arrays: Sequence[jax.Array], weights: jax.Array
    ) -> list[jax.Array]:
        """The derivative of ``sum(weights * function(*arrays))`` by each array; tnshare.testing uses it."""
        _, pull_back = jax.vjp(function, *arrays)
        return list(pull_back(weights))


def _is_long(stack: jax.Array, matrix: jax.Array) -> bool:
    """Whether a stack (k, i, o) has more numbers than a matrix (b, i) that is repeated for each of its items.

    If so, the matrix is what should be moved. Sizes may be symbols, of which nothing is known.
    """
    rows, columns = matrix.shape[0], stack.shape[2]
    return isinstance(rows, int) and isinstance(columns, int) and columns > rows


def _loud(ids: Any, size: int) -> jax.Array:
    """Ids with every one that is out of range made equal to the size, in a dtype that can hold it."""
    wide = jnp.asarray(ids)
    wide = wide if wide.dtype.itemsize >= 4 else wide.astype(jnp.int32)
    return jnp.where((wide < 0) | (wide >= size), size, wide)


ops = JaxOps()


def ops_with(precision: Precision, preferred_element_type: Any) -> JaxOps:
    """The operations with these settings, in a form that programs are kept by."""
    if isinstance(precision, list):  # a pair, one for each operand
        precision = tuple(precision)
    if precision is None and preferred_element_type is None:
        return ops
    return _ops_with(precision, preferred_element_type)


@lru_cache(maxsize=64)
def _ops_with(precision: Precision, preferred_element_type: Any) -> JaxOps:
    """The same, once for the same settings; JAX is asked whether it knows them."""
    try:
        preferred = None if preferred_element_type is None else jnp.dtype(preferred_element_type)
    except TypeError:
        raise TnshareError(
            f"preferred_element_type must be a dtype, as jnp.float32: found {preferred_element_type!r}"
        ) from None
    try:
        jax.eval_shape(lambda a: jnp.matmul(a, a, precision=precision), np.ones((1, 1), np.float32))
    except (TypeError, ValueError):
        raise TnshareError(
            f"precision must be one of jax.lax.Precision, as 'highest', or two of them: found {precision!r}"
        ) from None
    return JaxOps(precision, preferred)


def is_key(value: Any) -> bool:
    """Whether an array holds keys of random numbers."""
    return bool(jnp.issubdtype(value.dtype, jax.dtypes.prng_key))
