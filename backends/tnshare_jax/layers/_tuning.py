"""Time the candidates of a layer's calls as compiled programs, so that calls traced later run the fastest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp

import tnshare as tn
from tnshare.layers import Layer
from tnshare.layers import source as compiled_source
from tnshare.layers import tune as time_compiled
from tnshare.planning import Way
from tnshare_jax._ops import ops

_IMPORTS = """\
from jax.numpy import broadcast_to, einsum, multiply, reshape, transpose
from jax.numpy import matmul as _matmul


def matmul(a, b):
    # A stack of products, where XLA would turn the whole stack b to make it one.
    return _matmul(broadcast_to(a, (*b.shape[:-2], *a.shape)) if a.ndim < b.ndim else a, b)


def take(array, ids):
    return array[tuple(ids)]"""


def tune(
    layer: Layer,
    params: Mapping[str, jax.Array],
    batch: int,
    way: Way = "mixed",
    *,
    training: bool = True,
    sizes: Sequence[int] = (),
) -> dict[str, float]:
    """Compile the best few candidates for so many rows, time them, and keep the times in the cache folder.

    To be called before a function that applies the layer is compiled; it takes some seconds once, and
    milliseconds where times are known. ``training`` includes the backward pass, and is that of `apply`.
    ``sizes`` are those of the axes of x that are neither rows nor features: of a convolution its places, as
    ``sizes=(28, 28)``; of an embedding, or of x (rows, ..., in), what a row has. Returns seconds by name, of
    those that were not given up early.
    """
    return time_compiled(layer, params, batch, way, training=training, ops=ops, sizes=sizes)


def source(
    layer: Layer,
    batch: int,
    way: Way = "mixed",
    *,
    training: bool = True,
    sizes: Sequence[int] = (),
    dtype: Any = jnp.float32,
) -> str:
    """What is computed for a batch of that many rows, as JAX code that runs when pasted.

    Of a convolution these are its parts before, between and behind: mixing channels and composing kernels; of
    an embedding, what is contracted. After `tune` it is what was the fastest; ``sizes`` are those of `tune`.
    """
    try:
        like = jnp.zeros((), dtype)
    except TypeError:
        raise tn.TnshareError(f"dtype must be one of JAX's, as 'float32': found {dtype!r}") from None
    text = compiled_source(layer, batch, way, training=training, ops=ops, like=like, sizes=sizes)
    return f"{_IMPORTS}\n\n\n{text}"
