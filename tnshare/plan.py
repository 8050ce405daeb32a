"""A contraction as a straight line of binary steps, each one batched matrix product."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import opt_einsum

from .emit import program, source
from .network import Network
from .ops import Array, Ops


@dataclass(frozen=True)
class Step:
    """``result[batch, rows, columns] = sum_inner left[batch, rows, inner] right[batch, inner, columns]``.

    ``left`` and ``right`` count through the operands of the plan first, then the results of its steps. The
    orders bring the axes of an operand to those of the formula; None means that they are so already.
    """

    left: int
    right: int
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    inner: tuple[str, ...]
    columns: tuple[str, ...]
    left_order: tuple[int, ...] | None
    right_order: tuple[int, ...] | None

    @property
    def result(self) -> tuple[str, ...]:
        """The axes of what the step gives."""
        return self.batch + self.rows + self.columns

    @property
    def copies(self) -> tuple[bool, bool]:
        """Whether the left and the right operand must be copied into another order first."""
        batch, rows, inner, columns = map(len, (self.batch, self.rows, self.inner, self.columns))
        left = _is_view(self.left_order, batch, rows, inner)
        right = _is_view(self.right_order, batch, inner, columns)
        return not left, not right

    def of(self, left: int, right: int) -> Step:
        """The same product of other operands."""
        return replace(self, left=left, right=right)

    def flops(self, sizes: Mapping[str, int]) -> int:
        """Multiplications and additions."""
        return 2 * _count(self.result + self.inner, sizes)


@dataclass(frozen=True)
class Plan:
    """How to contract a network. It holds for every size of the axes; its costs are for the network's own.

    ``order`` brings the axes of the last result into those of the network's output; ``why`` says how the plan
    was chosen.
    """

    network: Network
    steps: tuple[Step, ...]
    order: tuple[int, ...]
    why: str

    @classmethod
    def flop_optimal(cls, network: Network) -> Plan:
        """The order in which opt_einsum finds the fewest flops."""
        return _flop_optimal(network)

    @classmethod
    def chain(cls, network: Network, first: int) -> Plan:
        """From one operand on, take in a neighbour at a time."""
        nodes = dict(enumerate(network.nodes))
        last = (first, nodes.pop(first).axes)
        steps: list[Step] = []
        while nodes:
            joined = [n for n, node in nodes.items() if set(node.axes) & set(last[1])]
            n = joined[0] if joined else next(iter(nodes))
            right = (n, nodes.pop(n).axes)
            needed = frozenset(network.output).union(*(node.axes for node in nodes.values()))
            steps.append(make_step(last, right, needed))
            last = (len(network.nodes) + len(steps) - 1, steps[-1].result)
        order = tuple(last[1].index(axis) for axis in network.output)
        return cls(network, tuple(steps), order, f"a chain from {network.nodes[first].name}")

    @cached_property
    def flops(self) -> int:
        """Multiplications and additions of all steps."""
        return sum(step.flops(self.network.sizes) for step in self.steps)

    @cached_property
    def largest_intermediate(self) -> int:
        """The number of elements of the largest result of a step that is not the last."""
        return max((_count(step.result, self.network.sizes) for step in self.steps[:-1]), default=0)

    def run(self, ops: Ops[Array], operands: Sequence[Array]) -> Array:
        """Contract arrays given in the order of the network's nodes; their sizes may differ from its own."""
        result: Array = program(self, ops)(*operands)  # type: ignore[arg-type]
        return result

    def source(self) -> str:
        """What runs, as readable Python."""
        return source(self)

    def __hash__(self) -> int:
        return self._hash  # programs are looked up by plan at every call

    @cached_property
    def _hash(self) -> int:
        return hash((self.network, self.steps, self.order))

    def explain(self) -> str:
        """What is contracted with what, and what it costs."""
        sizes = self.network.sizes
        names = [node.name for node in self.network.nodes]
        names += [f"t{n}" for n in range(1, len(self.steps) + 1)]
        rows = [("step", "batch x rows x inner x columns", "flops", "copies", "result", "elements")]
        for n, step in enumerate(self.steps, len(self.network.nodes)):
            parts = (step.batch, step.rows, step.inner, step.columns)
            rows.append(
                (
                    f"{names[n]} = {names[step.left]} . {names[step.right]}",
                    " x ".join(str(_count(part, sizes)) for part in parts),
                    f"{step.flops(sizes):,}",
                    " and ".join(s for s, c in zip(("left", "right"), step.copies, strict=True) if c) or "-",
                    f"({', '.join(step.result)})",
                    f"{_count(step.result, sizes):,}",
                )
            )
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
        ]
        count = f"{len(self.steps)} step{'' if len(self.steps) == 1 else 's'}"
        head = (
            f"{self.network!r}\n{count}, {self.flops:,} flops, largest intermediate "
            f"{self.largest_intermediate:,} elements: {self.why}"
        )
        return "\n".join([head, *lines])


@lru_cache(maxsize=4096)
def _flop_optimal(network: Network) -> Plan:
    # opt_einsum's "auto" modes draw from Python's global random numbers when operands are many; these do not.
    count = len(network.nodes)
    search = "optimal" if count <= 6 else "dp" if count <= 16 else "greedy"
    shapes = network.shapes.values()
    path, _ = opt_einsum.contract_path(network.equation, *shapes, shapes=True, optimize=search)
    live = [(n, node.axes) for n, node in enumerate(network.nodes)]
    steps: list[Step] = []
    for pair in path:
        if len(pair) == 1:  # opt_einsum's way of saying that a single operand is left as it is
            continue
        picked = [live.pop(position) for position in sorted(pair, reverse=True)][::-1]
        needed = {axis for _, axes in live for axis in axes} | set(network.output)
        steps.append(make_step(picked[0], picked[1], frozenset(needed)))
        live.append((len(network.nodes) + len(steps) - 1, steps[-1].result))
    ((_, axes),) = live
    order = tuple(axes.index(axis) for axis in network.output)
    return Plan(network, tuple(steps), order, "the order with the fewest flops (opt_einsum)")


def make_step(
    left: tuple[int, tuple[str, ...]], right: tuple[int, tuple[str, ...]], needed: frozenset[str]
) -> Step:
    """The product of two operands, each given as its number and its axes; ``needed`` axes are kept."""
    (left_id, left_axes), (right_id, right_axes) = left, right
    common = [axis for axis in left_axes if axis in right_axes]
    batch = tuple(axis for axis in common if axis in needed)
    inner = tuple(axis for axis in common if axis not in needed)
    rows = tuple(axis for axis in left_axes if axis not in common)
    columns = tuple(axis for axis in right_axes if axis not in common)
    left_order = _order(left_axes, batch + rows + inner)
    right_order = _order(right_axes, batch + inner + columns)
    return Step(left_id, right_id, batch, rows, inner, columns, left_order, right_order)


def _is_view(order: tuple[int, ...] | None, *groups: int) -> bool:
    """Whether a matrix product can read an operand where it lies.

    Its axes fall into three groups: batch, and the two axes of the matrix. Each must be one contiguous run in
    memory, in whichever sequence, and the last run must not be the batch.
    """
    if order is None:
        return True
    start = 0
    for size in groups:
        run = order[start : start + size]
        if run and run != tuple(range(run[0], run[0] + size)):
            return False
        start += size
    batch = groups[0]
    return not batch or batch == len(order) or order[batch - 1] != len(order) - 1


def _order(axes: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[int, ...] | None:
    return None if axes == wanted else tuple(axes.index(axis) for axis in wanted)


def _count(axes: Iterable[str], sizes: Mapping[str, int]) -> int:
    return math.prod(sizes[axis] for axis in axes)
