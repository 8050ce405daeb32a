"""A plan as Python: one line a step, which is what runs and what a user can read."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from .ops import Ops

if TYPE_CHECKING:
    from .plan import Plan, Step

_CALLS = ("matmul", "multiply", "reshape", "transpose")


@lru_cache(maxsize=4096)
def program(plan: Plan, ops: Ops[Any]) -> Callable[..., Any]:
    """The plan as a function of its operands."""
    scope = {name: getattr(ops, name) for name in _CALLS}
    exec(compile(source(plan), "<tnshare plan>", "exec"), scope)  # every name in it is made or checked here
    function: Callable[..., Any] = scope["contract"]
    return function


def source(plan: Plan) -> str:
    """A function ``contract`` of the operands in order, in terms of matmul, multiply, reshape and transpose.

    Sizes are read off the operands, so it holds for every batch. Intermediates are let go after their use.
    """
    return _Writer(plan).text()


class _Writer:
    """Writes one function; knows the variable of every operand, intermediate and size."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.variables: list[str] = []
        self.sizes: dict[str, str] = {}
        for node in plan.network.nodes:
            self._new(node.name)
        self.operands = len(self.variables)
        self.body: list[str] = []

    def text(self) -> str:
        for step in self.plan.steps:
            self._step(step)
        result = self.variables[-1]
        if self.plan.order != tuple(range(len(self.plan.order))):
            result = f"transpose({result}, {self.plan.order})"
        head = f"def contract({', '.join(self.variables[: self.operands])}):"
        lines = [head, *self._unpacked(), *self.body, f"return {result}"]
        return "\n    ".join(lines) + "\n"

    def _step(self, step: Step) -> None:
        stack = (step.batch,) if step.batch else ()
        left = self._folded(step.left, step.left_order, (*stack, step.rows, step.inner))
        right = self._folded(step.right, step.right_order, (*stack, step.inner, step.columns))
        # Without an axis to sum over, a batch of outer products is entries times entries: far faster.
        product = f"{'matmul' if step.inner else 'multiply'}({left}, {right})"
        if not all(len(group) == 1 for group in (*stack, step.rows, step.columns)):
            product = f"reshape({product}, ({self._listed(step.result)}))"
        gone = [self.variables[n] for n in (step.left, step.right) if n >= self.operands]
        name = self._new(f"t{len(self.variables) - self.operands + 1}")
        self.body.append(f"{name} = {product}  # ({', '.join(step.result)})")
        self.body += [f"del {', '.join(gone)}"] if gone else []

    def _folded(self, operand: int, order: Sequence[int] | None, groups: Sequence[tuple[str, ...]]) -> str:
        """An operand with one axis for each group."""
        text = self.variables[operand]
        if order is not None:
            text = f"transpose({text}, {tuple(order)})"
        if all(len(group) == 1 for group in groups):
            return text
        shape = (" * ".join(map(self._size, group)) or "1" for group in groups)
        return f"reshape({text}, ({', '.join(shape)}))"

    def _listed(self, axes: Sequence[str]) -> str:
        return ", ".join(map(self._size, axes)) + ("," if len(axes) == 1 else "")

    def _size(self, axis: str) -> str:
        """The variable of the size of an axis; asking for it has it read off an operand."""
        if axis not in self.sizes:
            self.sizes[axis] = self._free(axis)
        return self.sizes[axis]

    def _unpacked(self) -> list[str]:
        """Lines that read the sizes that are needed, each off the first operand that has it."""
        lines: list[str] = []
        read: set[str] = set()
        for variable, node in zip(self.variables, self.plan.network.nodes, strict=False):
            wanted = [axis in self.sizes and axis not in read for axis in node.axes]
            if any(wanted):
                names = [self.sizes[a] if w else "_" for a, w in zip(node.axes, wanted, strict=True)]
                lines.append(f"{', '.join(names)}{',' if len(names) == 1 else ''} = {variable}.shape")
                read.update(node.axes)
        return lines

    def _new(self, name: str) -> str:
        """A variable for one more operand or intermediate."""
        self.variables.append(self._free(name))
        return self.variables[-1]

    def _free(self, name: str) -> str:
        """A name like this one that is a name in Python, and not taken."""
        plain = name if name.isidentifier() and not keyword.iskeyword(name) else "n"
        while plain in {*self.variables, *self.sizes.values(), *_CALLS, "contract", "_"}:
            plain += "_"
        return plain
