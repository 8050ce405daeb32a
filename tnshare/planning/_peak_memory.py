"""How much memory a plan needs at once, beyond its operands, its result and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tnshare.network import Network

from ._job import Candidate, Job
from ._plan import Plan
from ._row_groups import padded
from ._steps import IDS, Step, Take, count, depends_on_batch


def peak(
    plan: Plan,
    sizes: Mapping[str, int],
    *,
    training: bool,
    kept: bool = False,
    bias: int = 0,
    part: bool = False,
) -> int:
    """An upper bound on the numbers that are alive at once, forwards and, when training, backwards.

    What is ``kept`` for later calls counts. A ``bias`` of so many numbers is added at the end, which needs a
    result of its own. The result of a ``part`` of the batch is put into its place, its gradients are added to
    those of others: neither is the caller's, so both count. What is saved for the backward pass counts to
    its end, since the caller may want to go through it again.
    """
    ledger = _Ledger(plan, sizes, kept)
    forward, saved = ledger.forward(bias > 0, training)
    own = ledger.result(len(plan.steps) - 1) if part and plan.steps else 0
    if not training:
        return ledger.held + forward + own
    start = saved + (bias + ledger.bias_rows() if part else 0)  # the first gradient is that of the bias
    return max(forward, start, ledger.backward(saved, part)) + own


def plan_peak(plan: Plan, spread: dict[str, int], training: bool, part: bool) -> int:
    """The same for a plan whose axes of rows have the sizes ``spread``."""
    return peak(plan, {**plan.network.sizes, **spread}, training=training, part=part)


def task_gradients(network: Network, part: bool) -> int:
    """Gradients of factors: of tasks, before they are put together; of a part, before they are added up."""
    own = sum(math.prod(node.shape) for node in network.nodes if set(node.axes) & set(network.tasks))
    return own + (network.parameters if part else 0)


def linear_peak(job: Job, candidate: Candidate, chunk: int, rows: int) -> int:
    """The numbers alive at once when so many of the rows are computed at a time."""
    plan, part = candidate.plan, chunk < rows
    sizes = {**plan.network.sizes, "b": chunk} | ({} if job.inner is None else {"m": job.inner})
    alive = peak(plan, sizes, training=job.training, kept=candidate.kept, bias=bias_gradients(job), part=part)
    alive += slice_gradients(job, part)
    if not part:
        return alive
    # The gradient of a part of x; and of each task's rows, a part is not one piece of memory.
    return alive + count(_input(plan), sizes) * (job.training + (job.way == "each"))


def bias_gradients(job: Job) -> int:
    """The gradient of the bias, for one task together with the slice that is put into it."""
    first, *others = job.network.task_shape
    return (first + (job.way == "one")) * math.prod(others) * job.network.sizes["o"] if job.bias else 0


def slice_gradients(job: Job, part: bool = False) -> int:
    """The gradients of what one task has of the factors: the backward pass uses them at its end.

    They are put where they belong along one task axis after the other.
    """
    if job.way != "one" or not job.training:
        return 0
    sizes, tasks = job.network.sizes, job.network.tasks
    own = [(*tasks, "o"), *(node.axes for node in job.network.nodes if set(tasks) & set(node.axes))]
    wholes = [count(axes, sizes) for axes in own]
    slices = [n // next(sizes[a] for a in axes if a in tasks) for n, axes in zip(wholes, own, strict=True)]
    bias = 0 if job.bias and len(tasks) > 1 else 1  # the slice of a lone task axis is no more than a result
    return sum(slices[bias:]) * min(len(tasks), 2) + (2 * max(wholes[1:]) if part else 0)


def _input(plan: Plan) -> tuple[str, ...]:
    (axes,) = (node.axes for node in plan.network.nodes if node.name == "x")
    return axes


class _Ledger:
    """Walks through the steps of a plan with an eye on what is alive."""

    def __init__(self, plan: Plan, sizes: Mapping[str, int], kept: bool) -> None:
        self.plan, self.sizes = plan, sizes
        self.first = len(plan.network.nodes)
        self.input = next((n for n, node in enumerate(plan.network.nodes) if node.name == "x"), -1)
        self.axes = [node.axes for node in plan.network.nodes] + [step.result for step in plan.steps]
        self.constant = [kept and not depends_on_batch(axes) for axes in self.axes]
        # Entries times entries lie as the operands do, in whatever order those are given: to be copied.
        self.loose = {
            self.first + n
            for n, step in enumerate(plan.steps)
            if isinstance(step, Step) and not step.inner and any(_moved(step, m) for m in step.operands)
        }
        self.held = sum(
            self._size(n)
            for step in plan.steps
            if kept and depends_on_batch(step.result)
            for n in step.operands
            if self.constant[n] and (n >= self.first or self._copied(step, n))
        )

    def result(self, step: int) -> int:
        """The size of what a step gives."""
        return count(self.plan.steps[step].result, self.sizes)

    def bias_rows(self) -> int:
        """Rows of mixed tasks take a bias each; vectors of an embedding have none."""
        mixed = any(node.name == IDS for node in self.plan.network.nodes)
        return count("bo", self.sizes) if mixed and "o" in self.sizes else 0

    def forward(self, bias: bool, training: bool) -> tuple[int, int]:
        """The most that is alive, and what is left at the end: saved for the backward pass, when training."""
        last = len(self.plan.steps) - 1
        alive, most = 0, 0
        for n, step in enumerate(self.plan.steps):
            if self.constant[self.first + n]:
                continue
            operands = [m for m in step.operands if not self.constant[m]]
            copies = sum(self._size(m) for m in operands if self._copied(step, m))
            new = self.result(n) if n < last or bias or self.plan.needs_final_transpose else 0
            together, product = self._grouped(step)
            most = max(most, alive + copies + new + together + product)
            copies += together
            # A product saves its operands, or their copies; what is taken from is not needed again.
            gone = [m for m in operands if not training or self._copied(step, m) or isinstance(step, Take)]
            alive += new + (copies if training else 0) - self._intermediate(gone)
        if last < 0 or not (bias or self.plan.needs_final_transpose):
            return most, alive
        # Its axes may be unfolded, by a copy.
        end = self.result(last) if bias and self.plan.needs_final_transpose else 0
        end += self.bias_rows() if bias else 0
        return max(most, alive + end), alive - self.result(last)

    def backward(self, saved: int, part: bool) -> int:
        """The most that is alive while gradients run back from the last step to the first."""
        last = len(self.plan.steps) - 1
        alive = most = saved
        # Any gradient of the result may have to be brought into order, and those of operands that are not
        # used in the order in which they are stored.
        disordered = {self.first + last}
        for n in range(last, -1, -1):
            step = self.plan.steps[n]
            given = self.first + n
            inputs = self._intermediate(step.operands)
            new = inputs + sum(self._temporary(step, m, part) for m in step.operands)
            most = max(most, alive + new + (self.result(n) if given in disordered else 0))
            alive += inputs - (self.result(n) if n != last else 0)
            moved = {m for m in step.operands if _moved(step, m)}
            # That of x goes where it belongs through the view that folded its axes, which comes last.
            alive += self._size(self.input) if self.input in moved else 0
            disordered |= moved
        return most

    def _temporary(self, step: Step | Take, operand: int, part: bool) -> int:
        """What a gradient needs until it is in its place."""
        size, product = self._size(operand), count(step.result, self.sizes)
        needed = sum(self._grouped(step)) if operand == step.operands[0] else 0
        if isinstance(step, Step) and not step.inner and size < product:
            needed += product  # entries times entries, before they are added up
        if (
            isinstance(step, Step)
            and step.variant in ("left", "right")
            and (step.variant == "left") != (operand == step.left)
        ):
            needed += size * count(step.batch, self.sizes)  # of the repeated operand, before it is added up
        if operand < self.first and (part or _moved(step, operand)):
            needed += size  # the caller's gradient is another array
        return needed

    def _grouped(self, step: Step | Take) -> tuple[int, int]:
        """The numbers of rows that are brought together by task, and of what becomes of them."""
        if isinstance(step, Take) or step.variant != "grouped":
            return 0, 0
        places = padded(self.sizes["b"], count(step.batch, self.sizes))
        rows, inner, columns = (count(axes, self.sizes) for axes in (step.rows, step.inner, step.columns))
        return places * rows * inner, places * rows * columns

    def _intermediate(self, operands: tuple[int, ...] | list[int]) -> int:
        """The size of the operands that are results of earlier steps."""
        return sum(self._size(n) for n in operands if n >= self.first and not self.constant[n])

    def _size(self, operand: int) -> int:
        return count(self.axes[operand], self.sizes)

    def _copied(self, step: Step | Take, operand: int) -> bool:
        """Whether a step has to copy an operand into another order."""
        return _copies(step, operand) or (operand in self.loose and isinstance(step, Step))


def _moved(step: Step | Take, operand: int) -> bool:
    """Whether an operand is read in another order than it is stored in."""
    if isinstance(step, Take):
        return False
    return (step.left_order, step.right_order)[operand != step.left] is not None or _copies(step, operand)


def _copies(step: Step | Take, operand: int) -> bool:
    return isinstance(step, Step) and step.copies[operand != step.left]
