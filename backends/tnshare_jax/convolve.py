"""A stack of convolutions, each with a kernel of its own, by XLA's."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from tnshare.convolution import Geometry

_MODES = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def convolve(
    x: jax.Array,
    kernels: jax.Array,
    counts: tuple[int, ...] | None,
    bias: jax.Array | None,
    geometry: Geometry,
) -> jax.Array:
    """What `tnshare.ops.Ops` says of ``convolve``."""
    padding = geometry.padding
    if geometry.mode != "zeros":
        x = jnp.pad(x, ((0, 0), (0, 0), *padding), mode=_MODES[geometry.mode])
        padding = ((0, 0),) * len(padding)
    many = kernels.shape[0]
    if counts is not None and len(set(counts)) > 1:
        ends = [sum(counts[: n + 1]) for n in range(many - 1)]
        rows = zip(jnp.split(x, ends), kernels, [None] * many if bias is None else bias, strict=True)
        return jnp.concatenate([_added(_one(part, k, padding, geometry), b) for part, k, b in rows])
    stacked = x.reshape(many, x.shape[0] // many, *x.shape[1:])
    y = jax.vmap(lambda part, kernel: _one(part, kernel, padding, geometry))(stacked, kernels)
    y = y if bias is None else jax.vmap(_added)(y, bias)
    return y.reshape(x.shape[0], *y.shape[2:])


def _one(
    x: jax.Array, kernel: jax.Array, padding: tuple[tuple[int, int], ...], geometry: Geometry
) -> jax.Array:
    places = "DHW"[-len(geometry.kernel) :]
    return lax.conv_general_dilated(
        x,
        kernel,
        geometry.stride,
        padding,
        rhs_dilation=geometry.dilation,
        dimension_numbers=(f"NC{places}", f"OI{places}", f"NC{places}"),
        feature_group_count=geometry.groups,
    )


def _added(y: jax.Array, bias: jax.Array | None) -> jax.Array:
    return y if bias is None else y + bias.reshape(-1, *[1] * (y.ndim - 2))
