"""The four ways of choosing tasks, as operations on the network of a linear layer."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

from .errors import TnshareError
from .network import Network

Way = Literal["one", "mixed", "each", "fan_out"]
WAYS: tuple[Way, ...] = ("one", "mixed", "each", "fan_out")


def with_input(network: Network, way: Way, batch: int, inner: int | None = None) -> Network:
    """The network with an input ``x`` as one more node, contracted to the outputs.

    Sizes are rounded up to powers of two: there is one plan for all that are rounded to the same.
    """
    if way not in WAYS:
        raise TnshareError(f"way must be one of {WAYS}: found {way!r}")
    return _with_input(network, way, _bucket(batch), None if inner is None else _bucket(inner))


def _bucket(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()


@lru_cache(maxsize=4096)
def _with_input(network: Network, way: Way, batch: int, inner: int | None) -> Network:
    tasks = network.tasks
    if way == "one":
        return network.drop(*tasks).feed("x", ("b", "i"), ("b", "o"), b=batch)
    if way == "fan_out":
        return network.feed("x", ("b", "i"), (*tasks, "b", "o"), b=batch)
    if way == "each":
        return network.feed("x", (*tasks, "b", "i"), (*tasks, "b", "o"), b=batch)
    rows = network.rename(tasks, "b", batch)
    if inner is None:
        return rows.feed("x", ("b", "i"), ("b", "o"))
    return rows.feed("x", ("b", "m", "i"), ("b", "m", "o"), m=inner)
