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

import tnshare as tn
from tnshare.convolution import PaddingMode
from tnshare.layer import Layer as Description
from tnshare.layer import Tasks
from tnshare.model import has_task

from .functions import apply, fan_out, init, weight
from .ops import Precision


class Layer(eqx.Module):
    """A description, such as ``tnshare.Linear``, with its parameters, by the names that they have there.

    ``layer(x, 3)`` is task 3, ``layer(x, ids)`` gives each row a task of its own, ``layer(xs)`` sends row t
    through task t, ``layer.fan_out(x)`` the same x through every task. Task numbers may be traced, so
    ``jax.vmap(layer)(x, ids)`` is the same as ``layer(x, ids)``.
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
        seed: int = 0,
        dtype: Any = jnp.float32,
        dimension_numbers: str | None = None,
        precision: Precision = None,
        preferred_element_type: Any = None,
    ) -> None:
        params, network = init(description, seed, dtype), description.network
        self.bias = params.pop("bias", None)
        codes = {name for name in params if has_task(network, network.node(name))}
        self.factors = {name: value for name, value in params.items() if name not in codes}
        self.codes = {name: value for name, value in params.items() if name in codes}
        self.description = description
        self.dimension_numbers = dimension_numbers
        self.precision, self.preferred_element_type = precision, preferred_element_type

    def __call__(self, x: jax.Array, task: Any = None, *, training: bool = True) -> jax.Array:
        options = self._products() | {"dimension_numbers": self.dimension_numbers, "training": training}
        return apply(self.description, self.params(), x, task, **options)

    def fan_out(self, x: jax.Array, *, training: bool = True) -> jax.Array:
        """The same x through every task."""
        options = self._products() | {"dimension_numbers": self.dimension_numbers, "training": training}
        return fan_out(self.description, self.params(), x, **options)

    def weight(self, task: Any = None) -> jax.Array:
        """Composed weights with the axes ``description.network.output``, without that of tasks for one."""
        return weight(self.description, self.params(), task, **self._products())

    def params(self) -> dict[str, jax.Array]:
        """The parameters as the functions of tnshare_jax take them."""
        return {**self.factors, **self.codes, **({} if self.bias is None else {"bias": self.bias})}

    def _products(self) -> dict[str, Any]:
        return {"precision": self.precision, "preferred_element_type": self.preferred_element_type}


class Linear(Layer):
    """``equinox.nn.Linear`` for every one of many tasks; see `tnshare.Linear`."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        tasks: Tasks,
        spec: tn.Spec,
        bias: bool = True,
        **options: Any,
    ) -> None:
        super().__init__(tn.Linear(in_features, out_features, tasks, spec, bias), **options)


class Conv(Layer):
    """``equinox.nn.Conv`` for every one of many tasks, channels first; keywords as of `tnshare.Conv`."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: int | tuple[int, ...],
        tasks: Tasks,
        spec: tn.Spec,
        *,
        groups: int = 1,
        bias: bool = True,
        stride: int | tuple[int, ...] = 1,
        padding: Any = 0,
        dilation: int | tuple[int, ...] = 1,
        padding_mode: PaddingMode = "zeros",
        **options: Any,
    ) -> None:
        description = tn.Conv(
            in_channels,
            out_channels,
            kernel,  # type: ignore[arg-type]
            tasks,
            spec,
            groups,
            bias,
            stride,
            padding,
            dilation,
            padding_mode,
        )
        super().__init__(description, **options)


class Embedding(Layer):
    """``equinox.nn.Embedding`` for every one of many tasks; see `tnshare.Embedding`."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        tasks: Tasks,
        spec: tn.Spec,
        padding_idx: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(tn.Embedding(num_embeddings, embedding_dim, tasks, spec, padding_idx), **options)


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
