"""What the steps of a plan cost on a device: seconds, and bytes that are moved."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal

from tnshare.network import Network

from ._plan import Plan
from ._row_groups import longest_group, mostly_padding, padded
from ._steps import Step, Take, count, depends_on_batch
from .devices._profile import GRID, Profile

_BYTES = 4
_GRAPH = 5  # calls that the graph of a step for the backward pass costs, beyond its operations
_VIEWS = 4  # times as long as a view takes its gradient too
_OTHER: dict[str, Literal["left", "right"]] = {"left": "right", "right": "left"}
_LONELY = ("left", "right")
_SORTING = 3e-5, 1e-7  # seconds for grouping ids on the host: of a call, and of a row


class Prices:
    """Seconds of the steps of a network's plans, with the backward pass when training.

    With ``keep``, what depends on factors alone is computed before and free, if it has at most that many
    numbers; more may not be kept, at no price.
    """

    def __init__(self, network: Network, profile: Profile, training: bool, keep: int = 0) -> None:
        self.sizes, self.profile, self.training, self.keep = network.sizes, profile, training, keep
        self.output = network.output
        # Where products are told apart by how their operands lie; compilers arrange them themselves.
        self.layouts = len(profile.single) > len(GRID) ** 3
        self._product = lru_cache(maxsize=None)(profile.product)
        self._counts: dict[tuple[str, ...], int] = {}

    def count(self, axes: tuple[str, ...]) -> int:
        """The number of elements of an array with these axes."""
        found = self._counts.get(axes)
        if found is None:
            found = self._counts[axes] = count(axes, self.sizes)
        return found

    def of(self, plan: Plan) -> float:
        """A whole plan."""
        return sum(self.steps(plan)) + (self.turn if plan.needs_final_transpose else 0.0)

    def steps(self, plan: Plan) -> list[float]:
        """Each step of a plan; 0 for those whose result is kept."""
        axes = [node.axes for node in plan.network.nodes]
        seconds = []
        for step in plan.steps:
            axes.append(step.result)
            if isinstance(step, Take):
                seconds.append(self.take(step, axes[step.operand]))
            else:
                seconds.append(self.product(step, axes[step.left], axes[step.right]))
        return seconds

    @property
    def turn(self) -> float:
        """Bringing the result into the order of the output."""
        return self.copy(self.output)

    def copy(self, axes: tuple[str, ...]) -> float:
        """Bringing an array into another order, and its gradient back."""
        return self.profile.copy(self.count(axes)) * (1 + self.training)

    def kept(self, axes: tuple[str, ...]) -> bool:
        """Whether an array of these axes is computed before and kept."""
        return bool(self.keep) and not depends_on_batch(axes)

    def take(self, step: Take, axes: tuple[str, ...]) -> float:
        """Rows of an array; backwards they are added up where they came from."""
        rows, whole = self.count(step.result), self.count(axes)
        seconds = self.profile.call + self.profile.stream(rows)
        if self.training:
            seconds += self.profile.call + 2 * self.profile.stream(rows) + self.profile.stream(whole)
        return seconds

    def product(self, step: Step, left: tuple[str, ...], right: tuple[str, ...]) -> float:
        """A product, the two of the backward pass, the copies of its operands, and the views."""
        if self.kept(step.result):
            return 0.0 if self.count(step.result) <= self.keep else math.inf
        profile, training = self.profile, self.training
        view = profile.view * (_VIEWS if training else 1)
        seconds = self._grouping(step) if step.variant == "grouped" else 0.0
        seconds += self._multiplying(step)
        for copied, axes, moved in zip(step.copies, (left, right), views(step), strict=True):
            if copied and self.kept(axes) and self.count(axes) > self.keep:
                return math.inf  # where it is folded too, the copy is kept
            # What is kept is a view where a transpose is all it takes: a product then copies it every time.
            seconds += profile.copy(self.count(axes)) * (1 + training) if copied else 0.0
            seconds += 0.0 if self.kept(axes) else moved * view
        unfolded = any(len(group) != 1 for group in step.result_groups)
        return seconds + view * (unfolded + (step.variant in _LONELY))  # the other operand is repeated

    def _multiplying(self, step: Step) -> float:
        """A product and, when training, the two of the backward pass, their operands as they should be."""
        profile, training = self.profile, self.training
        b, r, k, c = (self.count(g) for g in (step.batch, step.rows, step.inner, step.columns))
        if step.variant == "grouped":
            r *= longest_group(self.sizes["b"], b)
        spread = _OTHER.get(step.variant, False)
        lying = left_turned, right_turned = step.lies_transposed
        seconds = self._product(b, r, k, c, spread, lying) if step.inner else profile.outer(b, r, c)
        if training:
            seconds += _GRAPH * profile.call
        if training and not step.inner:  # the gradient times the other operand, summed, for each of the two
            seconds += 4 * profile.stream(b * r * c) - 3 * profile.call
        elif training and self.layouts and not step.batch:
            seconds += self._gradients(r, k, c, left_turned, right_turned)
        elif training:
            seconds += self._product(b, r, c, k, spread == "right" and spread, (False, not right_turned))
            seconds += self._product(b, k, r, c, spread == "left" and spread, (not left_turned, False))
        if spread and training:
            seconds += profile.call + profile.stream(b * (k * c if step.variant == "left" else r * k))
        return seconds

    def _gradients(self, r: int, k: int, c: int, left_turned: bool, right_turned: bool) -> float:
        """The two products of the backward pass of ``y = a b``, which torch computes as the operands lie.

        They are ``y' b^T`` and ``a^T y'``, or, of an operand that lies transposed, ``b y'^T`` and ``y'^T a``.
        """
        one = (k, c, r) if left_turned else (r, c, k)
        lying = (right_turned, True) if left_turned else (False, not right_turned)
        other = (c, r, k) if right_turned else (k, r, c)
        across = (True, left_turned) if right_turned else (not left_turned, False)
        return self._product(1, *one, False, lying) + self._product(1, *other, False, across)

    def _grouping(self, step: Step) -> float:
        """Sorting ids on the host, bringing the rows of each task together, and what they became back."""
        profile, rows = self.profile, self.sizes["b"]
        places = padded(rows, self.count(step.batch))
        if mostly_padding(places, rows):
            return math.inf
        there, back = (self.count(step.rows + axes) for axes in (step.inner, step.columns))
        moving = profile.stream(places * there) + profile.stream(rows * back) + 2 * profile.view
        if step.left_order is not None:  # rows that do not lie in one piece
            moving += profile.copy(rows * there)
        return _SORTING[0] + _SORTING[1] * rows + moving * (3 if self.training else 1)

    def bytes(self, plan: Plan) -> int:
        """Bytes that the steps read and write, forwards; copies included, what is kept read only."""
        axes = [node.axes for node in plan.network.nodes]
        total = 0
        for step in plan.steps:
            axes.append(step.result)
            if self.kept(step.result):
                continue
            operands = [self.count(axes[n]) for n in step.operands]
            if isinstance(step, Step):
                total += sum(2 * n for n, copied in zip(operands, step.copies, strict=True) if copied)
                total += sum(operands) + 2 * self._gathered(step)
            else:
                total += self.count(step.result)
            total += self.count(step.result)
        return _BYTES * total

    def _gathered(self, step: Step) -> int:
        """The numbers of rows that are brought together, and of what becomes of them."""
        if step.variant != "grouped":
            return 0
        places = padded(self.sizes["b"], self.count(step.batch))
        return places * (self.count(step.rows + step.inner) + self.count(step.rows + step.columns))


@lru_cache(maxsize=65536)
def views(step: Step) -> tuple[int, int]:
    """How many transposes and reshapes the operands of a step need."""
    counts = []
    for order, groups in zip((step.left_order, step.right_order), step.groups, strict=True):
        counts.append((order is not None) + any(len(group) != 1 for group in groups))
    return counts[0], counts[1] + 4 * (step.variant == "turned")


def priced(
    plan: Plan, network: Network, profile: Profile, training: bool, keep: int = 0
) -> tuple[float, Plan]:
    """What a plan takes for a network of other sizes, and the plan for those."""
    own = Plan.of(network, plan.moves, plan.why)
    return Prices(network, profile, training, keep).of(own), own
