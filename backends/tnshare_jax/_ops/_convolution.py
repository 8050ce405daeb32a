"""A stack of convolutions, each with a kernel of its own, by JAX's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tnshare.ops import Geometry

_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_LAYOUTS = {n: (f"NC{s}", f"OI{s}", f"NC{s}") for n, s in {1: "W", 2: "HW", 3: "DHW"}.items()}
# On a CPU, XLA takes up to 25 times as long for one convolution with many groups, which `jax.vmap` makes of
# many, as for one after the other. These are written out for a few kernels with many rows each. A product
# with patches of the input is nearly as fast, faster for few rows, and as quickly compiled for any number.
_FEW_ROWS, _FEW_KERNELS = 4, 16


def convolve(
    x: jax.Array,
    kernels: jax.Array,
    counts: Sequence[int] | None,
    bias: jax.Array | None,
    geometry: Geometry,
    **options: Any,
) -> jax.Array:
    """What `tnshare.ops.Ops` says of ``convolve``; options are those of a product."""
    many = kernels.shape[0]
    rows = tuple(counts or (x.shape[0] // many,) * many)
    if many == 1:  # also of rows whose number is a symbol
        y = _one(x, kernels[0], geometry, **options)
    elif len(set(rows)) == 1 and (rows[0] <= _FEW_ROWS or many > _FEW_KERNELS):
        y = _by_patches(x, kernels, geometry, **options)
    else:
        parts = jnp.split(x, np.cumsum(rows)[:-1].tolist())
        y = jnp.concatenate([_one(p, k, geometry, **options) for p, k in zip(parts, kernels, strict=True)])
    if bias is None:
        return y
    own = bias if many == 1 else bias[np.repeat(np.arange(many), rows)]
    return y + own.reshape(*own.shape, *(1,) * len(geometry.kernel))


def _one(x: jax.Array, kernel: jax.Array, geometry: Geometry, **options: Any) -> jax.Array:
    zeros = geometry.mode == "zeros"
    y: jax.Array = jax.lax.conv_general_dilated(
        x if zeros else _padded(x, geometry),
        kernel,
        geometry.stride,
        geometry.padding if zeros else [(0, 0)] * len(geometry.kernel),
        rhs_dilation=geometry.dilation,
        dimension_numbers=_LAYOUTS[len(geometry.kernel)],
        feature_group_count=geometry.groups,
        **options,
    )
    return y


def _by_patches(x: jax.Array, kernels: jax.Array, geometry: Geometry, **options: Any) -> jax.Array:
    """Products of (rows places, kernel channels) and (kernel channels, output channels), of each group."""
    many, outputs, inputs = kernels.shape[:3]
    groups, places = geometry.groups, geometry.places(x.shape[2:])
    padded = jnp.moveaxis(_padded(x, geometry), 1, -1)
    reach = [(n - 1) * step + 1 for n, step in zip(places, geometry.stride, strict=True)]
    shifts = product(*(range(0, d * k, d) for d, k in zip(geometry.dilation, geometry.kernel, strict=True)))
    windows = [
        padded[
            (slice(None), *(slice(a, a + n, s) for a, n, s in zip(at, reach, geometry.stride, strict=True)))
        ]
        for at in shifts
    ]
    # (rows, places, kernel, groups, channels) -> (kernels, groups, rows places, kernel channels)
    size = math.prod(geometry.kernel)
    patches = jnp.stack(windows, axis=-2).reshape(many, -1, size, groups, inputs)
    patches = jnp.transpose(patches, (0, 3, 1, 2, 4)).reshape(many, groups, -1, size * inputs)
    own = kernels.reshape(many, groups, outputs // groups, inputs, size)
    own = jnp.transpose(own, (0, 1, 4, 3, 2)).reshape(many, groups, size * inputs, outputs // groups)
    y = jnp.matmul(patches, own, **options)
    y = jnp.transpose(y, (0, 2, 1, 3)).reshape(x.shape[0], *places, outputs)
    return jnp.moveaxis(y, -1, 1)


def _padded(x: jax.Array, geometry: Geometry) -> jax.Array:
    return jnp.pad(x, ((0, 0), (0, 0), *geometry.padding), mode=_MODES[geometry.mode])
