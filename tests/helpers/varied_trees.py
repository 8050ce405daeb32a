"""Trees of JAX that differ a little from one another."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np


def varied(tree, count=3):
    """Copies of a tree with other numbers; what is no number stays."""
    random = np.random.default_rng(1)

    def changed(leaf):
        if not hasattr(leaf, "dtype") or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        return jnp.asarray(np.asarray(leaf) + 0.1 * random.normal(size=leaf.shape), leaf.dtype)

    return [jax.tree.map(changed, tree) for _ in range(count)]
