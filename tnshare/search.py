"""Find the order of contraction, and the memory order of every intermediate, that a device runs fastest.

Dynamic programming over sets of operands: the best ways to contract a set are found from the best ways to
contract its two halves. For each set the cheapest way is kept for each of a few memory orders of its result,
since what is a view for the next product depends on it. A copy is an ordinary choice with its price.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from .cost import Profile
from .network import Network
from .plan import Plan, Step, make_step

_ORDERS = 4  # memory orders of a result that are kept
_MOST = 10  # operands; for more the number of sets is too large, and opt_einsum's order has to do


@lru_cache(maxsize=4096)
def fastest(network: Network, profile: Profile, training: bool) -> Plan:
    """The plan that the profile predicts to be the fastest, counting the backward pass for training."""
    if len(network.nodes) > _MOST:
        return Plan.flop_optimal(network)
    part = min(_complete(network, profile, training), key=lambda p: p.seconds)
    steps: list[Step] = []
    _emit(part, steps, len(network.nodes))
    order = tuple(part.axes.index(axis) for axis in network.output)
    what = "a training step" if training else "inference"
    why = f"the fastest for {what} by the profile {profile.name!r}, {part.seconds * 1e6:,.0f} us predicted"
    return Plan(network, tuple(steps), order, why)


@dataclass(frozen=True, slots=True)
class _Part:
    """The contraction of some operands: its time, the order of its axes in memory, what it is made of."""

    seconds: float
    axes: tuple[str, ...]
    operand: int = -1
    halves: tuple[_Part, _Part] | None = None
    step: Step | None = None


def _complete(network: Network, profile: Profile, training: bool) -> list[_Part]:
    """Contractions of all operands, each with the price of bringing the result into the order asked for."""
    count = len(network.nodes)
    price = _pricer(network, profile, training)
    nodes = list(enumerate(network.nodes))
    table = {1 << n: [_Part(0.0, node.axes, n)] for n, node in nodes}
    for chosen in range(1, 1 << count):
        if chosen in table:
            continue
        outside = (node.axes for n, node in nodes if not chosen >> n & 1)
        needed = frozenset(network.output).union(*outside)
        best: dict[tuple[str, ...], _Part] = {}
        for first, second in _halves(chosen, table):
            for part in _joined(first, second, needed, price):
                if part.axes not in best or part.seconds < best[part.axes].seconds:
                    best[part.axes] = part
        table[chosen] = sorted(best.values(), key=lambda p: p.seconds)[:_ORDERS]
    whole = math.prod(network.shape)
    turn = profile.copy(whole) * (2 if training else 1)
    return [
        _Part(p.seconds + (turn if p.axes != network.output else 0), p.axes, p.operand, p.halves, p.step)
        for p in table[(1 << count) - 1]
    ]


def _halves(chosen: int, table: dict[int, list[_Part]]) -> Iterator[tuple[list[_Part], list[_Part]]]:
    """All ways to split a set in two; outer products only where nothing else is possible."""
    lowest = chosen & -chosen
    pairs = []
    half = (chosen - 1) & chosen
    while half:
        if half & lowest and table[half] and table[chosen ^ half]:
            pairs.append((table[half], table[chosen ^ half]))
        half = (half - 1) & chosen
    joined = [pair for pair in pairs if set(pair[0][0].axes) & set(pair[1][0].axes)]
    return iter(joined or pairs)


def _joined(
    first: list[_Part], second: list[_Part], needed: frozenset[str], price: Callable[[Step], float]
) -> Iterator[_Part]:
    """The products of two halves, in each of their memory orders, either one on the left."""
    for a in first:
        for b in second:
            for left, right in ((a, b), (b, a)):
                step = make_step((0, left.axes), (1, right.axes), needed)
                seconds = left.seconds + right.seconds + price(step)
                yield _Part(seconds, step.result, halves=(left, right), step=step)


def _pricer(network: Network, profile: Profile, training: bool) -> Callable[[Step], float]:
    """The time of a step: its product, the two of the backward pass, and the copies of its operands."""
    sizes = network.sizes
    product = lru_cache(maxsize=None)(profile.product)

    def count(axes: tuple[str, ...]) -> int:
        return math.prod([sizes[axis] for axis in axes])

    def price(step: Step) -> float:
        b, r, k, c = count(step.batch), count(step.rows), count(step.inner), count(step.columns)
        seconds = product(b, r, k, c) if step.inner else profile.outer(b, r, c)
        if training:
            seconds += product(b, r, c, k) + product(b, k, r, c)
        left, right = step.copies
        for copied, elements in ((left, b * r * k), (right, b * k * c)):
            if copied:
                seconds += profile.copy(elements) * (2 if training else 1)
        return seconds

    return price


def _emit(part: _Part, steps: list[Step], operands: int) -> int:
    """Append the steps of a part; returns the number under which later steps know its result."""
    if part.halves is None or part.step is None:
        return part.operand
    left, right = (_emit(half, steps, operands) for half in part.halves)
    steps.append(part.step.of(left, right))
    return operands + len(steps) - 1
