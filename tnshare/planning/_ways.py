"""The ways of choosing tasks, as operations on the network of a linear layer."""

from __future__ import annotations

from functools import lru_cache
from numbers import Integral
from typing import Literal

from tnshare.errors import TnshareError
from tnshare.network import Network, Node

from ._steps import IDS

Way = Literal["one", "mixed", "each", "fan_out"]
WAYS: tuple[Way, ...] = ("one", "mixed", "each", "fan_out")
GROUP_AXIS = "g"  # the axis of groups of rows, when rows of mixed tasks are sorted by task
# Where nobody knows yet how many there will be: rows, and places along each of so many dimensions.
USUAL_ROWS, USUAL_PLACES = 128, {1: 256, 2: 32, 3: 8}


def with_input(network: Network, way: Way, batch: int, inner: int | None = None) -> Network:
    """The network with an input ``x`` as one more node, contracted to the outputs.

    For ``"mixed"`` there is one more node: ``ids``, a row of zeros with a one at the task for each row. Sizes
    are rounded up to powers of two: there is one plan for all that are rounded to the same.
    """
    if way not in WAYS:
        raise TnshareError(f"way must be one of {WAYS}: found {way!r}")
    return _with_input(network, way, bucket(batch), None if inner is None else bucket(inner))


@lru_cache(maxsize=4096)
def of_present(network: Network, groups: int, batch: int, inner: int | None = None) -> Network:
    """Rows of mixed tasks, by their places among the tasks that are present: an axis in place of the tasks'.

    Sizes are as they are.
    """
    some = network.rename(network.tasks, GROUP_AXIS, groups)
    return _mixed(Network(some.nodes, some.output, (GROUP_AXIS,)), batch, inner)


def bucket(count: int) -> int:
    """The power of two that a size is rounded up to; of one that is a symbol yet, a usual one."""
    if type(count) is int or isinstance(count, Integral):  # the first is what most are, and quickly told
        return 1 << max(int(count) - 1, 0).bit_length()
    return USUAL_ROWS


@lru_cache(maxsize=4096)
def _with_input(network: Network, way: Way, batch: int, inner: int | None) -> Network:
    tasks = network.tasks
    if way == "one":
        return network.drop(*tasks).feed("x", ("b", "i"), ("b", "o"), b=batch)
    if way == "fan_out":
        return network.feed("x", ("b", "i"), (*tasks, "b", "o"), b=batch)
    if way == "each":
        return network.feed("x", (*tasks, "b", "i"), (*tasks, "b", "o"), b=batch)
    return _mixed(network, batch, inner)


def _mixed(network: Network, batch: int, inner: int | None) -> Network:
    tasks = network.tasks
    rows = {"b": batch} if inner is None else {"b": batch, "m": inner}
    x = Node("x", (*rows, "i"), (*rows.values(), network.sizes["i"]), learnt=False)
    ids = Node(IDS, (*tasks, "b"), (*network.task_shape, batch), learnt=False)
    return Network((*network.nodes, x, ids), (*rows, "o"), tasks)
