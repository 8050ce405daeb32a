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
from tnshare.layers import Layer as Description
from tnshare.layers import check_layer

from ._ops import Precision
from .layers import init, modules


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
    ``training=False`` it runs what is fast without derivatives. A ``seed`` gives the factors that it gives
    everywhere; ``rngs`` draw one, from their stream "params".
    """

    def __init__(
        self,
        description: Description,
        *,
        seed: int | None = None,
        rngs: nnx.Rngs | None = None,
        dtype: Any = jnp.float32,
        dimension_numbers: str | None = None,
        precision: Precision = None,
        preferred_element_type: Any = None,
    ) -> None:
        self.description = description
        self.dimension_numbers = dimension_numbers
        self.precision, self.preferred_element_type = precision, preferred_element_type
        if not isinstance(rngs, nnx.Rngs | None):
            raise tn.TnshareError(f"rngs must be an nnx.Rngs: found {rngs!r}")
        check_layer(description)
        drawn = modules.one_seed(seed, None if rngs is None else rngs.params(), "rngs")
        for name, value in init(description, drawn, dtype).items():
            setattr(self, name, _kind(description, name)(value))

    __call__ = modules.call_layer
    fan_out = modules.fan_out
    weight = modules.weight

    def params(self) -> dict[str, jax.Array]:
        """The parameters as the functions of tnshare_jax take them."""
        return {name: getattr(self, name)[...] for name in self.description.shapes}


class Linear(modules.LinearOf, Layer):
    """``nnx.Linear`` for every one of many tasks; see `tnshare.Linear`."""


class Conv(modules.ConvOf, Layer):
    """``nnx.Conv`` for every one of many tasks, channels last; keywords are those of `tnshare.Conv`."""

    channels_last = True


class Embedding(modules.EmbeddingOf, Layer):
    """``nnx.Embed`` for every one of many tasks; see `tnshare.Embedding`."""


def _kind(description: Description, name: str) -> type[nnx.Param[jax.Array]]:
    if name == "bias":
        return TaskBias
    network = description.network
    return TaskCode if network.is_coded(network.node(name)) else SharedFactor
