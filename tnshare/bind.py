"""A description of a layer bound to a framework."""

from __future__ import annotations

from typing import Any

from .calls import Calls, Strategy
from .candidate import Candidate
from .conv_calls import ConvCalls
from .convolution import Conv
from .embedding import Embedding
from .errors import TnshareError
from .layer import Layer, Linear
from .lookup_calls import LookupCalls
from .ops import Ops

_KINDS: dict[type, type[Calls]] = {Linear: Calls, Conv: ConvCalls, Embedding: LookupCalls}


def bind(
    layer: Layer,
    ops: Ops[Any],
    strategy: Strategy | Candidate = "auto",
    memory_limit: int | None = None,
) -> Calls:
    """The calls of a layer in a framework, by a strategy."""
    kind = next((calls for described, calls in _KINDS.items() if isinstance(layer, described)), None)
    if kind is None:
        found = f"{type(layer).__module__}.{type(layer).__name__}"
        raise TnshareError(f"expected a tnshare.Linear, Conv or Embedding: found {found}")
    if kind is not Calls and isinstance(strategy, Candidate):
        raise TnshareError(
            f"a candidate is a strategy for linear layers alone: found {strategy.name!r} for "
            f"{type(layer).__name__}"
        )
    return kind(layer, ops, strategy, memory_limit)
