"""Time the candidates of a layer's calls as compiled programs, so that calls traced later run the fastest."""

from __future__ import annotations

from collections.abc import Mapping

import jax

import tnshare as tn
from tnshare.compiled import tune as _tune
from tnshare.ways import Way

from .ops import ops


def tune(
    layer: tn.Linear,
    params: Mapping[str, jax.Array],
    batch: int,
    way: Way = "mixed",
    *,
    training: bool = True,
) -> dict[str, float]:
    """Compile the best few candidates for so many rows, time them, and keep the times in the cache folder.

    To be called before a function that applies the layer is compiled; it takes some seconds once, and
    milliseconds where times are known. ``training`` includes the backward pass, and is that of `apply`.
    Returns seconds by name, of those that were not given up early.
    """
    return _tune(layer, params, batch, way, training=training, ops=ops)
