"""Softly shared layers as modules of equinox: the same functions, with parameters that can be told apart."""

from __future__ import annotations

from typing import Any

try:
    import equinox as eqx
except ModuleNotFoundError as error:
    if error.name != "equinox":
        raise
    raise ImportError("tnshare_jax.equinox needs equinox: pip install equinox") from None

import jax
import jax.numpy as jnp

from tnshare.layers import Layer as Description

from ._ops import Precision
from .layers import init, modules


class Layer(eqx.Module):
    """A description, such as ``tnshare.Linear``, with its parameters, by the names that they have there.

    ``layer(x, 3)`` is task 3, ``layer(x, ids)`` gives each row a task of its own, ``layer(xs)`` sends row t
    through task t, ``layer.fan_out(x)`` the same x through every task. Task numbers may be traced, so
    ``jax.vmap(layer)(x, ids)`` is the same as ``layer(x, ids)``. A ``seed`` gives the factors that it gives
    everywhere; a ``key`` draws one.
    """

    factors: dict[str, jax.Array]
    codes: dict[str, jax.Array]
    bias: jax.Array | None
    description: Description = eqx.field(static=True)
    dimension_numbers: str | None = eqx.field(static=True)
    precision: Precision = eqx.field(static=True)
    preferred_element_type: Any = eqx.field(static=True)

    def __init__(
        self,
        description: Description,
        *,
        seed: int | None = None,
        key: jax.Array | None = None,
        dtype: Any = jnp.float32,
        dimension_numbers: str | None = None,
        precision: Precision = None,
        preferred_element_type: Any = None,
    ) -> None:
        drawn = modules.one_seed(seed, key, "a key")
        params, network = init(description, drawn, dtype), description.network
        self.bias = params.pop("bias", None)
        codes = {name for name in params if network.is_coded(network.node(name))}
        self.factors = {name: value for name, value in params.items() if name not in codes}
        self.codes = {name: value for name, value in params.items() if name in codes}
        self.description = description
        self.dimension_numbers = dimension_numbers
        self.precision, self.preferred_element_type = precision, preferred_element_type

    __call__ = modules.call_layer
    fan_out = modules.fan_out
    weight = modules.weight

    def params(self) -> dict[str, jax.Array]:
        """The parameters as the functions of tnshare_jax take them."""
        return {**self.factors, **self.codes, **({} if self.bias is None else {"bias": self.bias})}


class Linear(modules.LinearOf, Layer):
    """``equinox.nn.Linear`` for every one of many tasks; see `tnshare.Linear`."""


class Conv(modules.ConvOf, Layer):
    """``equinox.nn.Conv`` for every one of many tasks, channels first; keywords as of `tnshare.Conv`."""


class Embedding(modules.EmbeddingOf, Layer):
    """``equinox.nn.Embedding`` for every one of many tasks; see `tnshare.Embedding`."""


def labels(model: Any) -> Any:
    """A model with words for its leaves, as `optax.multi_transform` takes them.

    They are ``"shared"``, ``"codes"`` and ``"own"`` (biases) in layers of this module, ``"other"`` elsewhere.
    """

    def worded(node: Any) -> Any:
        if not isinstance(node, Layer):
            return "other"
        words = "shared", "codes", "own"
        parts = (
            jax.tree.map(lambda _, word=word: word, part)
            for word, part in zip(words, (node.factors, node.codes, node.bias), strict=True)
        )
        return eqx.tree_at(_arrays, node, tuple(parts), is_leaf=lambda leaf: leaf is None)

    return jax.tree.map(worded, model, is_leaf=lambda node: isinstance(node, Layer))


def _arrays(layer: Layer) -> tuple[Any, ...]:
    return layer.factors, layer.codes, layer.bias
