"""Softly shared layers as modules of flax nnx: the same functions, with parameters that can be told apart."""

from __future__ import annotations

from typing import Any

try:
    from flax import nnx
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "flax":
        raise
    raise ImportError("tnshare_jax.nnx needs flax: pip install flax") from None

import jax
import jax.numpy as jnp

import tnshare as tn
from tnshare.convolution import PaddingMode
from tnshare.layer import Layer as Description
from tnshare.layer import Tasks
from tnshare.model import has_task

from .functions import apply, fan_out, init, weight
from .ops import Precision


class SharedFactor(nnx.Param[jax.Array]):
    """A factor that all tasks have in common."""


class TaskCode(nnx.Param[jax.Array]):
    """The codes of tasks: ``nnx.Optimizer(model, optimiser, wrt=TaskCode)`` trains nothing else."""


class TaskBias(nnx.Param[jax.Array]):
    """The biases of tasks."""


class Layer(nnx.Module):
    """A description, such as ``tnshare.Linear``, with its parameters, by the names that they have there.

    ``layer(x, 3)`` is task 3, ``layer(x, ids)`` gives each row a task of its own, ``layer(xs)`` sends row t
    through task t, ``layer.fan_out(x)`` the same x through every task. Task numbers may be traced. With
    ``training=False`` it runs what is fast without derivatives.
    """

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
        self.description = description
        self.dimension_numbers = dimension_numbers
        self.precision, self.preferred_element_type = precision, preferred_element_type
        for name, value in init(description, seed, dtype).items():
            setattr(self, name, _kind(description, name)(value))

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
        return {name: getattr(self, name)[...] for name in self.description.shapes}

    def _products(self) -> dict[str, Any]:
        return {"precision": self.precision, "preferred_element_type": self.preferred_element_type}


class Linear(Layer):
    """``nnx.Linear`` for every one of many tasks; see `tnshare.Linear`."""

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
    """``nnx.Conv`` for every one of many tasks, channels last; keywords are those of `tnshare.Conv`."""

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
        last = f"N{''.join(description.space).upper()}C"
        super().__init__(description, **{"dimension_numbers": last} | options)


class Embedding(Layer):
    """``nnx.Embed`` for every one of many tasks; see `tnshare.Embedding`."""

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


def _kind(description: Description, name: str) -> type[nnx.Param[jax.Array]]:
    if name == "bias":
        return TaskBias
    network = description.network
    return TaskCode if has_task(network, network.node(name)) else SharedFactor
