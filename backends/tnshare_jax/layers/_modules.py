"""What layers of flax nnx and of equinox have in common: how they are described, drawn and called."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol

import jax

import tnshare as tn
from tnshare.layers import Layer as Description
from tnshare.layers import Tasks
from tnshare.ops import PaddingMode
from tnshare_jax._ops import Precision

from . import _functions as functions


class Module(Protocol):
    """A layer: its description, its parameters, and how it computes."""

    description: Description
    dimension_numbers: str | None
    precision: Precision
    preferred_element_type: Any

    def params(self) -> dict[str, jax.Array]:
        """The parameters as the functions of tnshare_jax take them."""


# Methods that libraries bind in their own way, so a module has them in its body, and does not inherit them.
def call_layer(self: Module, x: jax.Array, task: Any = None, *, training: bool = True) -> jax.Array:
    """The outputs of one task, of a task for each row, or of every task on an entry of x of its own."""
    return functions.apply(self.description, self.params(), x, task, training=training, **_jax_options(self))


def fan_out(self: Module, x: jax.Array, *, training: bool = True) -> jax.Array:
    """The same x through every task."""
    return functions.fan_out(self.description, self.params(), x, training=training, **_jax_options(self))


def weight(self: Module, task: Any = None) -> jax.Array:
    """Composed weights with the axes ``description.network.output``, without that of tasks for one."""
    options = _jax_options(self)
    del options["dimension_numbers"]
    return functions.weight(self.description, self.params(), task, **options)


def one_seed(seed: int | None, drawn: Any, word: str) -> Any:
    """The seed, or what the library has instead; 0 if nobody says."""
    if seed is not None and drawn is not None:
        raise tn.TnshareError(f"give a layer a seed or {word}, not both")
    return drawn if drawn is not None else seed or 0


class LinearOf:
    """Makes a layer from the keywords of `tnshare.Linear`."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        tasks: Tasks,
        spec: tn.Spec,
        bias: bool = True,
        **options: Any,
    ) -> None:
        description = tn.Linear(in_features, out_features, tasks, spec, bias)
        super().__init__(description, **options)  # type: ignore[call-arg]


class ConvOf:
    """Makes a layer from the keywords of `tnshare.Conv`."""

    channels_last: ClassVar[bool] = False

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
        own: Any = kernel  # what is one number becomes a tuple
        where = stride, padding, dilation, padding_mode
        description = tn.Conv(in_channels, out_channels, own, tasks, spec, groups, bias, *where)
        if self.channels_last:
            options = {"dimension_numbers": f"N{''.join(description.space).upper()}C"} | options
        super().__init__(description, **options)  # type: ignore[call-arg]


class EmbeddingOf:
    """Makes a layer from the keywords of `tnshare.Embedding`."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        tasks: Tasks,
        spec: tn.Spec,
        padding_idx: int | None = None,
        **options: Any,
    ) -> None:
        description = tn.Embedding(num_embeddings, embedding_dim, tasks, spec, padding_idx)
        super().__init__(description, **options)  # type: ignore[call-arg]


def _jax_options(layer: Module) -> dict[str, Any]:
    names = ("dimension_numbers", "precision", "preferred_element_type")
    return {name: getattr(layer, name) for name in names}
