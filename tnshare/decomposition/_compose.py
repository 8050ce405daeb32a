"""Contract a network of arrays: weights of all tasks, of one, of some; in any framework that has an Ops."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from tnshare.checks import check_numbers, fresh, holds_numbers, is_whole
from tnshare.errors import TnshareError
from tnshare.network import Network, Node
from tnshare.ops import Array, NDArray, Ops, check_ops, numpy_ops
from tnshare.planning import PROFILES, Choice, Goal, Move, Plan, best_plans, choose, take_rows

_LARGE, _LONG, _MANY = 1 << 20, 64, 16  # numbers of the weights and of what is written in one go; tasks


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
    arrays = factors_in_order(network, factors)
    check_ops(ops)
    if task is None:
        return _all_tasks(network, arrays, ops)
    choice = choose(task, network, ops)
    part = chosen_network(network, choice)
    return Plan.flop_optimal(part).run(ops, chosen_arrays(network, arrays, choice, ops))


def chosen_network(network: Network, choice: Choice) -> Network:
    """The network of the chosen tasks: no task axis for one task, an axis of rows, last, for several."""
    if choice.rows is None:
        return network.drop(*network.tasks)
    rows = fresh("b", network.sizes)
    count = max(choice.rows, 1) if is_whole(choice.rows) else 64  # a symbol, while a call is exported
    return network.rename(network.tasks, rows, count).to(*network.weight_axes, rows)


def chosen_arrays(network: Network, arrays: list[Array], choice: Choice, ops: Ops[Array]) -> list[Array]:
    """The arrays of all nodes, those that have task axes reduced to the chosen tasks."""
    pairs = zip(network.nodes, arrays, strict=True)
    return [take_rows(array, network.task_columns(node), choice, ops) for node, array in pairs]


def factors_in_order(network: Network, factors: Mapping[str, Array]) -> list[Array]:
    """The arrays in the order of the nodes; refuses missing ones, wrong shapes, and what holds no numbers."""
    if not isinstance(network, Network):
        raise TnshareError(f"network must be a tnshare.Network: found {type(network).__name__}")
    if not isinstance(factors, Mapping):
        raise TnshareError(
            f"factors must be a dict with {tuple(network.shapes)}: found {type(factors).__name__}"
        )
    arrays = []
    for node in network.nodes:
        if node.name not in factors:
            raise TnshareError(f"the factor {node.name!r} is missing: expected {tuple(network.shapes)}")
        array = factors[node.name]
        shape = tuple(getattr(array, "shape", ()))
        if shape != node.shape:
            found = shape if hasattr(array, "shape") else f"a {type(array).__name__}, not an array"
            raise TnshareError(f"the factor {node!r} must have shape {node.shape}: found {found}")
        if not holds_numbers(array):
            check_numbers(f"the factor {node.name!r}", array)
        arrays.append(array)
    return arrays


def gram(network: Network, factors: Mapping[str, NDArray], kept: tuple[str, ...]) -> NDArray:
    """``sum conj(W) W`` over all axes of the output but the ``kept``, from the factors alone.

    The result has the kept axes twice, those of the conjugate first.
    """
    summed = set(network.output) - set(kept)
    twin = {axis: axis if axis in summed else fresh(f"{axis}_twin", network.sizes) for axis in network.sizes}
    mirrored = (
        Node(fresh(f"{node.name}_twin", network.shapes), tuple(twin[a] for a in node.axes), node.shape)
        for node in network.nodes
    )
    doubled = Network((*mirrored, *network.nodes), (*(twin[axis] for axis in kept), *kept))
    arrays = [np.asarray(factors[node.name]) for node in network.nodes]
    return Plan.flop_optimal(doubled).run(numpy_ops, [*(array.conj() for array in arrays), *arrays])


def squared_norm(network: Network, factors: Mapping[str, NDArray]) -> float:
    """``||W||_F^2`` from the factors alone."""
    return float(gram(network, factors, ()).real)


def _all_tasks(network: Network, arrays: list[Array], ops: Ops[Array]) -> Array:
    """Computed with the tasks first in memory; the order asked for is a view of it, where there are views."""
    if not getattr(ops, "concrete", lambda _: False)(arrays[0]):
        return Plan.flop_optimal(network).run(ops, arrays)
    plan, orders = _tasks_first(network)
    turned = (a if o is None else ops.transpose(a, o) for a, o in zip(arrays, orders, strict=True))
    return plan.run(ops, list(turned))


@lru_cache(maxsize=1024)
def _tasks_first(network: Network) -> tuple[Plan, tuple[tuple[int, ...] | None, ...]]:
    """The plan, and the order in which it reads each factor.

    Codes times what they choose from, (task, k) (k, d1, d2), is one flat matrix of very long rows, which
    products write slowly if it has more than a few. Read as (d1, k, d2), which is a view, it is many small
    ones: up to three times as fast.
    """
    nodes: list[Node] = []
    orders: list[tuple[int, ...] | None] = []
    large = math.prod(network.shape) >= _LARGE and math.prod(network.task_shape) > _MANY
    for node in network.nodes:
        sides = [axis in network.output for axis in node.axes[:2]]
        turn = large and sides == [False, True] and math.prod(node.shape[2:]) >= max(_LONG, node.shape[0])
        order = (1, 0, *range(2, len(node.axes))) if turn else tuple(range(len(node.axes)))
        axes, shape = tuple(node.axes[n] for n in order), tuple(node.shape[n] for n in order)
        nodes.append(Node(node.name, axes, shape))
        orders.append(order if turn else None)
    stored = Network(tuple(nodes), (*network.tasks, *network.weight_axes))
    _, found = best_plans(stored, PROFILES["cpu"], Goal(training=False))[0]
    moves = [_batched(move, orders) for move in found.moves]
    return Plan.of(stored.to(*network.output), moves, found.why), tuple(orders)


def _batched(move: Move, orders: list[tuple[int, ...] | None]) -> Move:
    """A product with an operand that is read in another order goes through its first axis item by item."""
    if len(move) == 1:
        return move
    left, right, variant = move
    turned = [n < len(orders) and orders[n] is not None for n in (left, right)]
    return left, right, "left" if turned[0] else "right" if turned[1] else variant
