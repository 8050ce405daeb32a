"""Weights of several tasks, used one after the other: what depends on factors alone is computed once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from tnshare.network import Network, Node
from tnshare.ops import Array, Ops
from tnshare.planning import Goal, Move, Plan, Profile, Step, Take, best_plans, bucket, with_input


@dataclass(frozen=True)
class FactorPart:
    """Something that depends on factors alone: the ``plan`` of some of them, or one as it is.

    Where tasks differ in it (``own``), the task axis is first.
    """

    factors: tuple[int, ...]
    plan: Plan | None
    own: bool

    def of(self, ops: Ops[Array], factors: Sequence[Array]) -> Array:
        """The piece, for all tasks at once."""
        chosen = [factors[n] for n in self.factors]
        return chosen[0] if self.plan is None else self.plan.run(ops, chosen)


@dataclass(frozen=True)
class TwoStages:
    """``y = x W_t`` in two stages: ``pieces`` for all tasks at once; ``rest``, of a task's pieces and x.

    Composed weights are a case of it, with one piece.
    """

    pieces: tuple[FactorPart, ...]
    rest: Plan


def two_stages(network: Network, tasks: int, rows: int, training: bool, profile: Profile) -> TwoStages:
    """The fastest, by a profile, for so many tasks of a matrix (in, out, task), each on ``rows`` rows.

    Both numbers are rounded up to powers of two: there is one plan for all that are rounded to the same.
    """
    return _two_stages(network, bucket(tasks), bucket(rows), training, profile)


def composing_plan(network: Network, tasks: int, order: tuple[int, ...]) -> Plan:
    """Weights of so many tasks, the task axis first, then those of the output in an order."""
    return _composing_plan(network, bucket(tasks), order)


def split(plan: Plan) -> TwoStages:
    """A plan for rows of each task, whose last operand is x, in two stages."""
    inputs = len(plan.network.nodes)
    steps = {inputs + n: step for n, step in enumerate(plan.steps)}
    varying = {inputs - 1}
    for number, step in steps.items():
        if varying & set(step.operands):
            varying.add(number)
    found = list(_constant(steps, varying))
    pieces = tuple(_piece(plan, steps, number) for number in found)
    (task,) = plan.network.tasks
    axes = [tuple(a for a in _axes(plan, steps, number) if a != task) for number in (*found, inputs - 1)]
    sizes = plan.network.sizes
    nodes = tuple(
        Node(f"p{n}", own, tuple(sizes[a] for a in own), learnt=n < len(found)) for n, own in enumerate(axes)
    )
    numbers = {number: n for n, number in enumerate((*found, inputs - 1))}
    moves: list[Move] = []
    for number in sorted(varying - {inputs - 1}):
        moves.append(_moved(steps[number], numbers))
        numbers[number] = len(found) + len(moves)
    output = tuple(axis for axis in plan.network.output if axis != task)
    return TwoStages(pieces, Plan.of(Network(nodes, output), moves, plan.why))


@lru_cache(maxsize=4096)
def _two_stages(network: Network, tasks: int, rows: int, training: bool, profile: Profile) -> TwoStages:
    every = network.for_tasks(tasks)
    first, second = every.weight_axes
    fed = with_input(every.rename(first, "i").rename(second, "o"), "each", rows)
    ((_, plan),) = best_plans(fed, profile, Goal(training, 0, "any"), 1)
    return split(plan)


@lru_cache(maxsize=4096)
def _composing_plan(network: Network, tasks: int, order: tuple[int, ...]) -> Plan:
    every = network.for_tasks(tasks)
    (task,) = every.tasks
    return Plan.flop_optimal(every.to(task, *(every.weight_axes[n] for n in order)))


def _constant(steps: dict[int, Step | Take], varying: set[int]) -> Iterator[int]:
    """The operands of steps on x that do not depend on x themselves."""
    for number in sorted(varying & steps.keys()):
        yield from (n for n in steps[number].operands if n not in varying)


def _piece(plan: Plan, steps: dict[int, Step | Take], number: int) -> FactorPart:
    (task,) = plan.network.tasks
    axes = _axes(plan, steps, number)
    if number not in steps:
        return FactorPart((number,), None, task in axes)
    parts = sorted(_parts(steps, number))
    factors = tuple(n for n in parts if n not in steps)
    nodes = tuple(plan.network.nodes[n] for n in factors)
    numbers = {n: position for position, n in enumerate(factors)}
    moves: list[Move] = []
    for n in (n for n in parts if n in steps):
        moves.append(_moved(steps[n], numbers))
        numbers[n] = len(factors) + len(moves) - 1
    own = (task,) if task in axes else ()
    output = (*own, *(axis for axis in axes if axis != task))
    return FactorPart(factors, Plan.of(Network(nodes, output, own), moves, plan.why), bool(own))


def _parts(steps: dict[int, Step | Take], number: int) -> Iterator[int]:
    """What a result is made of: steps and operands."""
    yield number
    for n in steps[number].operands if number in steps else ():
        yield from _parts(steps, n)


def _axes(plan: Plan, steps: dict[int, Step | Take], number: int) -> tuple[str, ...]:
    return steps[number].result if number in steps else plan.network.nodes[number].axes


def _moved(step: Step | Take, numbers: dict[int, int]) -> Move:
    assert isinstance(step, Step)
    return numbers[step.left], numbers[step.right], step.variant
