"""How much memory a plan needs at once, beyond its operands, its result and their gradients."""

from __future__ import annotations

from collections.abc import Mapping

from .emit import varies
from .plan import Plan
from .step import Step, count


def peak(
    plan: Plan, sizes: Mapping[str, int], *, training: bool, kept: bool = False, bias: bool = True
) -> int:
    """An upper bound on the numbers that are alive at once, forwards and, when training, backwards.

    What is ``kept`` for later calls counts. ``bias`` is added at the end, which needs a result of its own.
    """
    ledger = _Ledger(plan, sizes, kept)
    last = ledger.result(len(plan.steps) - 1) if plan.steps and (bias or plan.turned) else 0
    if not training:
        return ledger.held + ledger.forward(last)
    return max(ledger.forward(last, hold=True), ledger.backward())


class _Ledger:
    """Walks through the steps of a plan with an eye on what is alive."""

    def __init__(self, plan: Plan, sizes: Mapping[str, int], kept: bool) -> None:
        self.plan, self.sizes = plan, sizes
        self.first = len(plan.network.nodes)
        self.axes = [node.axes for node in plan.network.nodes] + [step.result for step in plan.steps]
        self.constant = [kept and not varies(axes) for axes in self.axes]
        self.held = sum(
            count(self.axes[n], sizes)
            for step in plan.steps
            if kept and varies(step.result)
            for n in step.operands
            if self.constant[n] and (n >= self.first or self._copied(step, n))
        )

    def result(self, step: int) -> int:
        """The size of what a step gives."""
        return count(self.plan.steps[step].result, self.sizes)

    def forward(self, last: int, hold: bool = False) -> int:
        """The most that is alive; with ``hold`` nothing is let go, since the backward pass needs it.

        ``last`` is the size of the final result where the caller makes another one of it.
        """
        alive, most = 0, 0
        for n, step in enumerate(self.plan.steps):
            if self.constant[self.first + n]:
                continue
            copies = sum(count(self.axes[m], self.sizes) for m in step.operands if self._moves(step, m))
            new = self.result(n) if n < len(self.plan.steps) - 1 else last
            most = max(most, alive + copies + new)
            alive += new + (copies if hold else -self._inputs(n))
        return most

    def backward(self) -> int:
        """The most that is alive while gradients run back from the last step to the first."""
        steps = range(len(self.plan.steps))
        last = steps[-1] if len(steps) else 0
        alive = sum(self.result(n) for n in steps if n != last) + sum(self._copies(n) for n in steps)
        most = alive
        for n in reversed(steps):
            step = self.plan.steps[n]
            # The gradient of the result may have to be brought into order; those of the operands are new, and
            # a factor's is made anew if its axes are in another order.
            new = self.result(n) + sum(self._gradient(step, m) for m in step.operands)
            most = max(most, alive + new)
            alive += self._inputs(n) - (self.result(n) if n != last else 0)
        return most

    def _gradient(self, step: Step | object, operand: int) -> int:
        size = count(self.axes[operand], self.sizes)
        if isinstance(step, Step) and step.alone and (step.alone == "left") != (operand == step.left):
            size *= 1 + count(step.batch, self.sizes)  # of the repeated operand, before it is added up
        return 2 * size if operand < self.first and self._moves(step, operand, any_order=True) else size

    def _inputs(self, step: int) -> int:
        """The size of the operands that are results of earlier steps."""
        operands = self.plan.steps[step].operands
        return sum(
            count(self.axes[n], self.sizes) for n in operands if n >= self.first and not self.constant[n]
        )

    def _copies(self, step: int) -> int:
        found = self.plan.steps[step]
        return sum(count(self.axes[n], self.sizes) for n in found.operands if self._copied(found, n))

    def _moves(self, step: object, operand: int, any_order: bool = False) -> bool:
        """Whether an operand is copied, or (``any_order``) read in another order than it is stored in."""
        if self.constant[operand] or not isinstance(step, Step):
            return False
        orders = step.left_order, step.right_order
        return (any_order and orders[operand != step.left] is not None) or self._copied(step, operand)

    def _copied(self, step: object, operand: int) -> bool:
        return isinstance(step, Step) and step.copies[operand != step.left]
