"""Where the channels of a convolution are: first, as the core has them, or last."""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp

import tnshare as tn
from tnshare.layers import Layer


@dataclass(frozen=True)
class ChannelOrder:
    """Brings channels from the end to before the ``places``, and back; nothing if there are no places."""

    places: int

    @classmethod
    def of(cls, layer: Layer, dimension_numbers: str | None) -> ChannelOrder:
        """What `jax.lax` calls the layout: rows N, channels C, and the places."""
        if dimension_numbers is None:
            return cls(0)
        if not isinstance(layer, tn.Conv):
            raise tn.TnshareError(
                f"dimension_numbers are for convolutions: found {dimension_numbers!r} for a "
                f"{type(layer).__name__}"
            )
        space = "".join(layer.space).upper()
        layouts = {f"NC{space}": 0, f"N{space}C": len(space)}
        if dimension_numbers not in layouts:
            raise tn.TnshareError(
                f"dimension_numbers must be one of {tuple(layouts)}: found {dimension_numbers!r}"
            )
        return cls(layouts[dimension_numbers])

    def __call__(self, x: jax.Array) -> jax.Array:
        return jnp.moveaxis(x, -1, -1 - self.places) if x.ndim > self.places else x

    def back(self, y: jax.Array) -> jax.Array:
        """The same for outputs, in the other direction."""
        return jnp.moveaxis(y, -1 - self.places, -1)
