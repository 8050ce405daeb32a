"""A contraction as a straight line of steps: batched matrix products, and rows taken by task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import opt_einsum

from tnshare.network import Network
from tnshare.ops import Array, Ops

from ._generated_code import program, source
from ._steps import IDS, Move, Step, Take, count, make_step, make_take


@dataclass(frozen=True)
class Plan:
    """How to contract a network. It holds for every size of the axes; its costs are for the network's own.

    ``order`` brings the axes of the last result into those of the network's output; ``why`` says how the plan
    was chosen.
    """

    network: Network
    steps: tuple[Step | Take, ...]
    order: tuple[int, ...]
    why: str

    @classmethod
    def of(cls, network: Network, moves: Iterable[Move], why: str) -> Plan:
        """The plan of these moves; whatever they are, if they use every operand once it is a right one."""
        live = {n: node.axes for n, node in enumerate(network.nodes) if node.name != IDS}
        ids = frozenset(axis for node in network.nodes if node.name == IDS for axis in node.axes)
        steps: list[Step | Take] = []
        for move in moves:
            step: Step | Take
            if len(move) == 1:
                step = make_take(move[0], live.pop(move[0]), network.tasks)
            else:
                left, right, variant = move
                operands = (left, live.pop(left)), (right, live.pop(right))
                needed = ids.union(network.output, *live.values())
                step = make_step(*operands, needed, variant, network.tasks)
            live[len(network.nodes) + len(steps)] = step.result
            steps.append(step)
        ((_, axes),) = live.items()
        return cls(network, tuple(steps), tuple(axes.index(axis) for axis in network.output), why)

    @classmethod
    def flop_optimal(cls, network: Network) -> Plan:
        """The order in which opt_einsum finds the fewest flops."""
        return _flop_optimal(network)

    @classmethod
    def chain(cls, network: Network, first: int) -> Plan:
        """From one operand on, take in a neighbour at a time."""
        return cls.of(network, _chained(network, first), f"a chain from {network.nodes[first].name}")

    @property
    def moves(self) -> tuple[Move, ...]:
        """The steps in short."""
        return tuple(step.move for step in self.steps)

    @property
    def needs_final_transpose(self) -> bool:
        """Whether the last result has its axes in another order than the output."""
        return self.order != tuple(range(len(self.order)))

    @cached_property
    def flops(self) -> int:
        """Multiplications and additions of all steps."""
        return sum(step.flops(self.network.sizes) for step in self.steps)

    @cached_property
    def largest_intermediate(self) -> int:
        """The number of elements of the largest result of a step that is not the last."""
        return max((count(step.result, self.network.sizes) for step in self.steps[:-1]), default=0)

    @cached_property
    def text(self) -> str:
        """What is contracted with what, as an expression in the names of the nodes."""
        texts = [node.name for node in self.network.nodes]
        for step in self.steps:
            if isinstance(step, Take):
                texts.append(f"{texts[step.operand]}[{IDS}]")
            else:
                texts.append(f"({texts[step.left]} {texts[step.right]})")
        return texts[-1].removeprefix("(").removesuffix(")") if len(self.steps) else texts[0]

    @cached_property
    def tree(self) -> frozenset[tuple[int, ...]]:
        """What is contracted with what, whatever the orders: the operands that are in each result."""
        held: list[tuple[int, ...]] = [(n,) for n in range(len(self.network.nodes))]
        for step in self.steps:
            own = sorted(n for m in step.operands for n in held[m])
            held.append((*own, -1) if isinstance(step, Take) else tuple(own))
        return frozenset(held)

    def run(self, ops: Ops[Array], operands: Sequence[Array]) -> Array:
        """Contract arrays given in the order of the network's nodes; their sizes may differ from its own.

        In the place of the node of ids, if there is one, goes a tuple: for each task axis the ids (b,). If
        a step groups rows, behind them all go ``rows`` and ``back`` of `tnshare.planning._row_groups.Groups`.
        """
        result: Array = program(self, ops)(*operands)
        return result

    def source(self, fixed: Iterable[str] = (), *, named: bool = False) -> str:
        """What runs, as readable Python; sizes of ``fixed`` axes are written as numbers.

        If ``named``, products are calls of ``einsum``.
        """
        return source(self, tuple(fixed), named=named)

    def explain(self) -> str:
        """What is contracted with what, and what it costs."""
        from ._explanation import explain_plan

        return explain_plan(self)

    def __hash__(self) -> int:
        return self._hash  # programs are looked up by plan

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_hash"}  # one for each process

    @cached_property
    def _hash(self) -> int:
        return hash((self.network, self.steps, self.order))


def _chained(network: Network, first: int) -> Iterator[Move]:
    nodes = dict(enumerate(network.nodes))
    last, axes = first, set(nodes.pop(first).axes)
    while nodes:
        joined = [n for n, node in nodes.items() if set(node.axes) & axes]
        n = joined[0] if joined else next(iter(nodes))
        axes |= set(nodes.pop(n).axes)
        axes &= set(network.output).union(*(node.axes for node in nodes.values()))
        yield last, n, ""
        last = len(network.nodes) if last < len(network.nodes) else last + 1


@lru_cache(maxsize=4096)
def _flop_optimal(network: Network) -> Plan:
    # opt_einsum's "auto" modes draw from Python's global random numbers when operands are many; these do not.
    total = len(network.nodes)
    search = "optimal" if total <= 6 else "dp" if total <= 16 else "greedy"
    shapes = network.shapes.values()
    path, _ = opt_einsum.contract_path(network.equation, *shapes, shapes=True, optimize=search)
    live = list(range(total))
    moves: list[Move] = []
    for pair in path:
        if len(pair) == 1:  # opt_einsum's way of saying that a single operand is left as it is
            continue
        right, left = (live.pop(position) for position in sorted(pair, reverse=True))
        live.append(total + len(moves))
        moves.append((left, right, ""))
    return Plan.of(network, moves, "the order with the fewest flops (opt_einsum)")
