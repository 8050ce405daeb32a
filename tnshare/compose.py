"""Contract a network of arrays: weights of all tasks, of one, of some; in any framework that has an Ops."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .checks import fresh
from .errors import TnshareError
from .network import Network, Node
from .ops import Array, NDArray, Ops, numpy_ops
from .plan import Plan
from .tasks import Choice, choose, take_rows


def compose(
    network: Network,
    factors: Mapping[str, Array],
    task: Any = None,
    *,
    ops: Ops[Array] = numpy_ops,  # type: ignore[assignment]
) -> Array:
    """The weights that the factors stand for, with the axes ``network.output``.

    ``task=3`` gives one task, without the task axis (a pair for two task axes); a list keeps one axis, last,
    for its tasks.
    """
    arrays = checked(network, factors)
    if task is None:
        return Plan.flop_optimal(network).run(ops, arrays)
    choice = choose(task, network, ops)
    part = chosen_network(network, choice)
    return Plan.flop_optimal(part).run(ops, chosen_arrays(network, arrays, choice, ops))


def chosen_network(network: Network, choice: Choice) -> Network:
    """The network of the chosen tasks: no task axis for one task, an axis of rows, last, for several."""
    if choice.rows is None:
        return network.drop(*network.tasks)
    rows = fresh("b", network.sizes)
    return network.rename(network.tasks, rows, max(choice.rows, 1)).to(*network.weight_axes, rows)


def chosen_arrays(network: Network, arrays: list[Array], choice: Choice, ops: Ops[Array]) -> list[Array]:
    """The arrays of all nodes, those that have task axes reduced to the chosen tasks."""
    pairs = zip(network.nodes, arrays, strict=True)
    return [take_rows(array, _own_tasks(network, node), choice, ops) for node, array in pairs]


def checked(network: Network, factors: Mapping[str, Array]) -> list[Array]:
    """The arrays in the order of the nodes; refuses missing ones and wrong shapes."""
    arrays = []
    for node in network.nodes:
        if node.name not in factors:
            raise TnshareError(f"the factor {node.name!r} is missing: expected {tuple(network.shapes)}")
        array = factors[node.name]
        shape = tuple(getattr(array, "shape", ()))
        if shape != node.shape:
            found = shape if hasattr(array, "shape") else f"a {type(array).__name__}, not an array"
            raise TnshareError(f"the factor {node!r} must have shape {node.shape}: found {found}")
        arrays.append(array)
    return arrays


def gram(network: Network, factors: Mapping[str, NDArray], kept: tuple[str, ...]) -> NDArray:
    """``sum conj(W) W`` over all axes of the output but the ``kept``, from the factors alone.

    The result has the kept axes twice, those of the conjugate first.
    """
    summed = set(network.output) - set(kept)
    twin = {axis: axis if axis in summed else fresh(f"{axis}*", network.sizes) for axis in network.sizes}
    mirrored = (
        Node(fresh(f"{node.name}*", network.shapes), tuple(twin[a] for a in node.axes), node.shape)
        for node in network.nodes
    )
    doubled = Network((*mirrored, *network.nodes), (*(twin[axis] for axis in kept), *kept))
    arrays = [np.asarray(factors[node.name]) for node in network.nodes]
    return Plan.flop_optimal(doubled).run(numpy_ops, [*(array.conj() for array in arrays), *arrays])


def squared_norm(network: Network, factors: Mapping[str, NDArray]) -> float:
    """``||W||_F^2`` from the factors alone."""
    return float(gram(network, factors, ()).real)


def _own_tasks(network: Network, node: Node) -> tuple[int, ...]:
    """The positions in ``network.tasks`` of the task axes of a node, in its own order."""
    return tuple(network.tasks.index(axis) for axis in node.axes if axis in network.tasks)
