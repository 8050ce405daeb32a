"""Find the orders of contraction, and the memory order of every intermediate, that a device runs fastest.

Dynamic programming over sets of operands: the best ways to contract a set are found from the best ways to
contract its two halves. For each set the cheapest way is kept for each of a few memory orders of its result,
since what is a view for the next product depends on it. A copy is an ordinary choice with its price, and so
is the moment at which rows take what belongs to their tasks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Literal

from tnshare.network import Network

from ._plan import Plan
from ._prices import Prices
from ._steps import BATCH_AXES, IDS, Move, Step, Variant, depends_on_batch, make_take, product_of
from ._ways import GROUP_AXIS
from .devices._profile import Profile

Form = Literal["any", "factored", "materialised"]
_ORDERS = 3  # memory orders of a set that are kept in mind
_FLIPPED = 4  # plans, the products of which are tried the other way round too
_FEW = 6  # operands; for as many, half as many parts of a set are kept; for more, of connected sets only
_MOST = 10  # operands; for more the number of sets is too large, and opt_einsum's order has to do


@dataclass(frozen=True)
class Goal:
    """What a plan should be good at.

    ``keep`` is how many numbers that depend on factors alone may be computed before and kept. ``"factored"``
    never builds a task's weights, ``"materialised"`` builds them before they meet the input. Rows of mixed
    tasks take what belongs to their tasks, or are ``grouped`` by task where they meet it.
    """

    training: bool = True
    keep: int = 0
    form: Form = "any"
    grouped: bool = False


@lru_cache(maxsize=4096)
def best_plans(
    network: Network, profile: Profile, goal: Goal, most: int = 10
) -> tuple[tuple[float, Plan], ...]:
    """The plans that the profile predicts to be the fastest, with their seconds, the best one first."""
    if len(network.nodes) > _MOST:
        plan = Plan.flop_optimal(network)
        return ((Prices(network, profile, goal.training, goal.keep).of(plan), plan),)
    found: dict[tuple[Move, ...], float] = {}
    for part in sorted(_Search(network, profile, goal).complete(), key=lambda p: p.seconds):
        if math.isinf(part.seconds):
            break
        moves: list[Move] = []
        _emit(part, moves, len(network.nodes))
        found.setdefault(tuple(moves), part.seconds)
        if len(found) == max(most, _FLIPPED):
            break
    what = "a training step" if goal.training else "inference"
    why = f"for {what} by the profile {profile.name!r}"
    plans = {moves: (seconds, Plan.of(network, moves, why)) for moves, seconds in found.items()}
    prices = Prices(network, profile, goal.training, goal.keep)
    for _, plan in list(plans.values())[:_FLIPPED]:
        for other in _flips(plan):
            if other.moves not in plans and not math.isinf(seconds := prices.of(other)):
                plans[other.moves] = seconds, other
    return tuple(sorted(plans.values(), key=lambda pair: pair[0])[:most])


def _flips(plan: Plan) -> Iterator[Plan]:
    """The same contraction with the sides of one product changed, which the search may have left out early.

    Its result has another order then, and so have those that follow from it. What rows are taken of by task
    is left alone, as its task axes must come first, and so are outer products: frameworks give them the
    order in which their first operand lies.
    """
    network, moves = plan.network, plan.moves
    taken: set[int] = set()
    for n, (move, step) in reversed(list(enumerate(zip(moves, plan.steps, strict=True)))):
        if len(move) == 1 or len(network.nodes) + n in taken:
            taken |= set(step.operands)
        elif isinstance(step, Step) and step.inner and step.variant in ("", "turned"):
            yield Plan.of(network, (*moves[:n], (move[1], move[0], ""), *moves[n + 1 :]), plan.why)


def _leads(tasks: tuple[str, ...], axes: tuple[str, ...]) -> bool:
    """Whether the task axes of an array come first."""
    own = [axis in tasks for axis in axes]
    return own == sorted(own, reverse=True)


@dataclass(frozen=True, slots=True)
class _Part:
    """The contraction of some operands: its time, the order of its axes in memory, what it is made of."""

    seconds: float
    axes: tuple[str, ...]
    operand: int = -1
    halves: tuple[_Part, ...] = ()
    variant: Variant = ""


class _Search:
    """The table of the best parts for every set of operands."""

    def __init__(self, network: Network, profile: Profile, goal: Goal) -> None:
        self.network, self.goal = network, goal
        self.nodes = [(n, node) for n, node in enumerate(network.nodes) if node.name != IDS]
        self.tasks = network.tasks if len(self.nodes) < len(network.nodes) else ()
        self.grouped = goal.grouped and bool(self.tasks)
        self.connected = len(self.nodes) > _FEW and _connected([set(node.axes) for _, node in self.nodes])
        self.prices = Prices(network, profile, goal.training, goal.keep)
        self._steps: dict[Any, list[tuple[float, Step, bool, bool]]] = {}
        inputs = [1 << bit for bit, (_, node) in enumerate(self.nodes) if set(node.axes) & set(BATCH_AXES)]
        self.input = inputs[0] if inputs else 0
        self.weight = frozenset(network.output).difference(network.tasks, BATCH_AXES, (GROUP_AXIS,))
        self.weight |= frozenset("i") if inputs else frozenset()

    def complete(self) -> list[_Part]:
        """Contractions of all operands, each with the price of bringing the result into the order asked."""
        table = {
            1 << bit: self._with_taken([_Part(0.0, node.axes, n)]) for bit, (n, node) in enumerate(self.nodes)
        }
        whole = (1 << len(self.nodes)) - 1
        for chosen in range(1, whole + 1):
            if chosen not in table and self._allowed(chosen, whole):
                table[chosen] = self._parts(chosen, table, last=chosen == whole)
        turn = self.prices.turn
        output = self.network.output
        return [
            part if part.axes == output else _Part(part.seconds + turn, *_rest(part))
            for part in table[whole]
            if sorted(part.axes) == sorted(output)
        ]

    def _parts(self, chosen: int, table: dict[int, list[_Part]], last: bool) -> list[_Part]:
        """The best contractions of a set; of all operands together, those of twice the shortest time too.

        Others are left out early: any order can be had of the best part for the price of a copy.
        """
        slack = 2.0 if last else 1.0
        outside = (node.axes for bit, (_, node) in enumerate(self.nodes) if not chosen >> bit & 1)
        needed = frozenset(self.network.output).union(self.tasks, BATCH_AXES, *outside)
        found: list[_Part] = []
        limit = math.inf
        outer = last or not self.connected
        for first, second in _halves(chosen, table, self.input, outer):
            for a, b in product(first, second):
                if a.seconds + b.seconds < limit and (self.grouped or not self._clash(a.axes, b.axes)):
                    for part in self._products(a, b, needed):
                        found.append(part)
                        if last or self._meets_rows(part):
                            limit = min(limit, slack * part.seconds + self.prices.copy(part.axes))
        found.sort(key=lambda p: p.seconds)
        if last:
            return self._with_taken(found)
        # What is kept costs the same however it was made, in whichever order: what is made of it matters.
        kept = self.prices.kept(found[0].axes if found else BATCH_AXES)
        alike = 1 if len(self.nodes) >= _FEW or kept else 2
        few = _few(found, alike, _ORDERS * (2 if kept else alike))
        if not any(map(self._meets_rows, few)):
            few += next(([part] for part in found if self._meets_rows(part)), [])
        return self._with_taken(few)

    def _meets_rows(self, part: _Part) -> bool:
        """Whether weights that are built first can meet the rows of mixed tasks: the task axes come first."""
        if not self.tasks or self.grouped or self.goal.form != "materialised":
            return True
        return _leads(self.tasks, part.axes)

    def _allowed(self, chosen: int, whole: int) -> bool:
        """Whether a set may be contracted on its own under the form that is asked for."""
        if not self.input or chosen == whole or self.goal.form == "any":
            return True
        if self.goal.form == "materialised":
            return not chosen & self.input
        if chosen & self.input or chosen.bit_count() == 1:
            return True
        axes = {axis for bit, (_, node) in enumerate(self.nodes) if chosen >> bit & 1 for axis in node.axes}
        return not axes >= self.weight

    def _with_taken(self, parts: list[_Part]) -> list[_Part]:
        """Parts, and those with task axes once more, with the rows of the batch taken from them."""
        if not self.tasks or self.grouped:
            return parts
        taken = []
        for part in parts:
            if set(self.tasks) & set(part.axes) and _leads(self.tasks, part.axes):
                take = make_take(0, part.axes, self.tasks)
                seconds = part.seconds + self.prices.take(take, part.axes)
                taken.append(_Part(seconds, take.result, halves=(part,)))
        return parts + taken

    def _products(self, a: _Part, b: _Part, needed: frozenset[str]) -> Iterator[_Part]:
        """The products of two halves, either one on the left."""
        before = a.seconds + b.seconds
        key = a.axes, b.axes, needed.intersection(a.axes + b.axes)
        steps = self._steps.get(key)
        if steps is None:
            steps = self._steps[key] = list(self._priced(*key))
        for seconds, step, swapped, kept in steps:
            total = seconds if kept else before + seconds
            yield _Part(total, step.result, halves=(b, a) if swapped else (a, b), variant=step.variant)

    def _priced(
        self, a: tuple[str, ...], b: tuple[str, ...], needed: frozenset[str]
    ) -> Iterator[tuple[float, Step, bool, bool]]:
        """The steps that join two operands: time, step, whether sides are swapped, whether it is kept."""
        prices = self.prices
        if self.grouped and self._clash(a, b):
            yield from self._meeting(a, b, needed)
            return
        for left, right, swapped in ((a, b, False), (b, a, True)):
            step = product_of(left, right, needed, "")
            kept = prices.kept(step.result)
            yield prices.product(step, left, right), step, swapped, kept
            if not step.inner and (inside := product_of(left, right, needed, "inside")).variant:
                yield prices.product(inside, left, right), inside, swapped, kept
            if self._grown(step) and (across := product_of(left, right, needed, "turned")).variant:
                yield prices.product(across, left, right), across, swapped, kept
            # An operand that must be copied may instead be a stack of matrices, the other one repeated.
            for variant, copied in zip(_LONELY, step.copies, strict=True):
                if copied and (other := product_of(left, right, needed, variant)).variant:
                    yield prices.product(other, left, right), other, swapped, kept

    def _grown(self, step: Step) -> bool:
        """Whether the gradient of the right operand, a sum over rows, may be worth a copy of the operand."""
        far = self.goal.training and self.prices.layouts and not step.lies_transposed[1]
        return far and depends_on_batch(step.rows) and not depends_on_batch(step.columns + step.inner)

    def _meeting(
        self, a: tuple[str, ...], b: tuple[str, ...], needed: frozenset[str]
    ) -> Iterator[tuple[float, Step, bool, bool]]:
        """The step at which rows meet the matrices of their tasks, if that is possible already."""
        left, right, swapped = (a, b, False) if "b" in a else (b, a, True)
        step = product_of(left, right, needed, "grouped", self.tasks)
        if step.variant == "grouped":
            yield self.prices.product(step, left, right), step, swapped, False

    def _clash(self, one: tuple[str, ...], other: tuple[str, ...]) -> bool:
        """Rows must take what belongs to their tasks before they meet the tasks of others."""
        if not self.tasks:
            return False
        tasks = set(self.tasks)
        return bool(("b" in one and tasks & set(other)) or ("b" in other and tasks & set(one)))


_LONELY: tuple[Variant, ...] = ("left", "right")


def _halves(
    chosen: int, table: dict[int, list[_Part]], rows: int, outer: bool
) -> Iterator[tuple[list[_Part], list[_Part]]]:
    """All ways to split a set in two; outer products with ``rows``, or, if wanted, for want of others."""
    lowest = chosen & -chosen
    pairs = []
    half = (chosen - 1) & chosen
    while half:
        if half & lowest and table.get(half) and table.get(chosen ^ half):
            pairs.append((table[half], table[chosen ^ half]))
        half = (half - 1) & chosen
    fed = bool(chosen & rows)  # then one of the halves has the rows
    joined = [pair for pair in pairs if fed or set(pair[0][-1].axes) & set(pair[1][-1].axes)]
    return iter(joined or (pairs if outer else []))


def _connected(operands: list[set[str]]) -> bool:
    """Whether axes lead from every operand to every other."""
    reached, rest = operands[0], operands[1:]
    while near := [axes for axes in rest if axes & reached]:
        rest = [axes for axes in rest if not axes & reached]
        reached = reached.union(*near)
    return not rest


def _few(parts: list[_Part], alike: int, most: int) -> list[_Part]:
    """Of parts in the order of their times, the first ``alike`` of every memory order: predictions err."""
    seen: dict[tuple[str, ...], int] = {}
    kept = []
    for part in parts:
        seen[part.axes] = seen.get(part.axes, 0) + 1
        if seen[part.axes] <= alike:
            kept.append(part)
    return kept[:most]


def _rest(part: _Part) -> tuple[tuple[str, ...], int, tuple[_Part, ...], Variant]:
    return part.axes, part.operand, part.halves, part.variant


def _emit(part: _Part, moves: list[Move], operands: int) -> int:
    """Append the moves of a part; returns the number under which later ones know its result."""
    if not part.halves:
        return part.operand
    numbers = [_emit(half, moves, operands) for half in part.halves]
    moves.append((numbers[0], numbers[1], part.variant) if len(numbers) == 2 else (numbers[0],))
    return operands + len(moves) - 1
