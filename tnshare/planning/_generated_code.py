"""A plan as Python: one line a step, which is what runs and what a user can read.

Names of nodes and axes come from users and files, so none of them is in what runs: operands, sizes and
intermediates have names that are made here. What a user reads is the same text with comments that say which
node is which; they are not in the text that is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from opt_einsum import get_symbol

from tnshare.ops import Ops

from ._steps import BATCH_AXES, IDS, Step, Take, depends_on_batch

if TYPE_CHECKING:
    from ._plan import Plan

CALLS = ("matmul", "multiply", "reshape", "take", "transpose")
_DIRECT = {2: "mm", 3: "bmm"}  # of two matrices, of two stacks of them: a framework may offer either
_PLACES = ("rows", "back")  # of rows that are grouped by task: see `tnshare.planning._row_groups.Groups`
_OURS = ("x", IDS, *BATCH_AXES, "g")  # what is called so here is called so in the text; the rest is numbered


@lru_cache(maxsize=4096)
def program(
    plan: Plan, ops: Ops[Any], fixed: tuple[str, ...] = (), rows: tuple[str, ...] = (), named: bool = False
) -> Callable[..., Any]:
    """The plan as a function of its operands; those called ``rows`` are vectors, each given as a matrix.

    If ``named``, a framework that offers ``einsum`` is told which axes a product has, and arranges them.
    """
    offered = _offered(ops)
    if named and "einsum" in offered:
        writer: _Writer = _NamedWriter(plan, fixed, False, rows, offered)
    else:
        writer = _Writer(plan, fixed, False, rows, offered)
    function: Callable[..., Any] = _executed(writer.text(), ops)["contract"]
    return function


class KeptProgram(NamedTuple):
    """A plan as two functions: ``prepare(*factors)``, and ``contract(*prepared, *the other operands)``.

    Plans whose ``preparation`` is the same text prepare the same.
    """

    prepare: Callable[..., tuple[Any, ...]]
    contract: Callable[..., Any]
    preparation: str


@lru_cache(maxsize=4096)
def kept_program(
    plan: Plan, ops: Ops[Any], fixed: tuple[str, ...], rows: tuple[str, ...] = ()
) -> KeptProgram:
    """The plan as two functions, one for what depends on factors alone."""
    writer = _Writer(plan, fixed, True, rows, _offered(ops))
    scope = _executed(writer.text(), ops)
    return KeptProgram(scope["prepare"], scope["contract"], writer.text(shown=True).partition("\n\n\n")[0])


def source(plan: Plan, fixed: tuple[str, ...] = (), kept: bool = False, named: bool = False) -> str:
    """A function ``contract`` of the operands in order, in terms of the operations in ``CALLS``.

    Sizes of ``fixed`` axes are numbers, others are read off the operands, so it holds for every batch. Where
    rows are grouped by task, it has ``rows`` and ``back`` as arguments too (see `._row_groups.Groups`).
    Intermediates are let go after their use. With ``kept`` there is a function ``prepare`` too, for all that
    depends on the factors alone; what it returns comes first among the arguments of ``contract``. If
    ``named``, products are calls of ``einsum``, which arranges axes itself. Comments say which nodes the
    operands are, and which axes an intermediate has.
    """
    return (_NamedWriter if named else _Writer)(plan, fixed, kept).text(shown=True)


def _offered(ops: Ops[Any]) -> tuple[str, ...]:
    return tuple(name for name in (*_DIRECT.values(), "einsum") if hasattr(ops, name))


def _executed(text: str, ops: Ops[Any]) -> dict[str, Any]:
    scope = {name: getattr(ops, name) for name in (*CALLS, *_offered(ops))}
    exec(compile(text, "<tnshare plan>", "exec"), scope)  # every name in it is made here
    return scope


class _Writer:
    """Writes one function, or two; knows the variable of every operand, intermediate and size."""

    def __init__(
        self,
        plan: Plan,
        fixed: tuple[str, ...],
        kept: bool,
        rows: tuple[str, ...] = (),
        offered: tuple[str, ...] = (),
    ) -> None:
        self.plan, self.kept, self.offered = plan, kept, offered
        self.rows = [n for n, node in enumerate(plan.network.nodes) if node.name in rows]
        self.sizes = {axis: str(size) for axis, size in plan.network.sizes.items() if axis in fixed}
        self.read: dict[str, str] = {}
        nodes = plan.network.nodes
        self.constant = [kept and not depends_on_batch(node.axes) for node in nodes]
        self.variables = [_own(node.name, f"f{n}") for n, node in enumerate(nodes, 1)]
        self.groups: list[_Groups] = [_single(node.axes) for node in nodes]
        self.operands = len(nodes)
        self.prepared: list[str] = []
        self.before: list[_Line] = []
        self.body: list[_Line] = []
        self._write_steps()

    def _write_steps(self) -> None:
        for step in self.plan.steps:
            constant = not depends_on_batch(step.result) and all(self.constant[n] for n in step.operands)
            lines = self.before if constant else self.body
            expression = self._taken(step) if isinstance(step, Take) else self._product(step, constant)
            gone = [self.variables[n] for n in step.operands if self._droppable(n, constant)]
            self.constant.append(constant)
            self.groups.append(self._given(step))
            self.variables.append(f"t{len(self.variables) - self.operands + 1}")
            lines.append((f"{self.variables[-1]} = {expression}", f"({_grouped(self.groups[-1])})"))
            lines += [(f"del {', '.join(gone)}", "")] if gone else []

    def text(self, shown: bool = False) -> str:
        """What is run; or, to be shown, the same with comments."""
        result = self._unfolded(len(self.variables) - 1)
        if self.plan.needs_final_transpose:
            result = f"transpose({result}, {self.plan.order})"
        own = [n for n in range(self.operands) if not self.constant[n]]
        inputs = [*self.prepared, *(self.variables[n] for n in own)]
        if any(isinstance(step, Step) and step.variant == "grouped" for step in self.plan.steps):
            inputs += _PLACES
        head, body = f"def contract({', '.join(inputs)}):", [*self._unpacked(), *self.body]
        text = self._function(head, own, [*body, (f"return {result}", "")], shown)
        if not self.kept:
            return text
        kept = [n for n in range(self.operands) if self.constant[n]]
        head = f"def prepare({', '.join(self.variables[n] for n in kept)}):"
        returned = f"return ({', '.join(self.prepared)}{',' if len(self.prepared) == 1 else ''})"
        return self._function(head, kept, [*self.before, (returned, "")], shown) + "\n\n" + text

    def _function(self, head: str, operands: Sequence[int], lines: Sequence[_Line], shown: bool) -> str:
        """A function; what is shown says of each of its operands which node it is."""
        nodes = self.plan.network.nodes
        said = [f"# {self.variables[n]} is {nodes[n].name}({', '.join(nodes[n].axes)})" for n in operands]
        notes = [f"{code}  # {note}" if shown and note else code for code, note in lines]
        return "\n    ".join([head, *(said if shown else ()), *notes]) + "\n"

    def _droppable(self, operand: int, constant: bool) -> bool:
        """Whether a variable is an intermediate of the function that is being written."""
        return operand >= self.operands and self.constant[operand] == constant

    def _taken(self, step: Take) -> str:
        ids = self.variables[[node.name for node in self.plan.network.nodes].index(IDS)]
        columns = f"({''.join(f'{ids}[{n}], ' for n in step.columns).strip()})"
        if step.columns == tuple(range(len(self.plan.network.tasks))):
            columns = ids
        return f"take({self._ready(step.operand, self._unfolded(step.operand))}, {columns})"

    def _given(self, step: Step | Take) -> _Groups:
        """The axes of what a step gives, a group for each axis of the array."""
        return _single(step.result) if isinstance(step, Take) else step.result_groups

    def _product(self, step: Step, constant: bool) -> str:
        orders = step.left_order, step.right_order
        left, right = (
            self._folded(n, order, groups)
            for n, order, groups in zip(step.operands, orders, step.groups, strict=True)
        )
        if step.variant == "turned":
            right = self._turned(right, step)
        if not constant:
            left, right = self._ready(step.left, left), self._ready(step.right, right)
        if step.variant == "grouped":
            return self._grouped_product(step, left, right)
        # Without an axis to sum over, a batch of outer products is entries times entries: far faster.
        return f"{self._multiply(step) if step.inner else 'multiply'}({left}, {right})"

    def _multiply(self, step: Step) -> str:
        """The operation that multiplies matrices, or stacks of them."""
        left, right = map(len, step.groups)
        direct = _DIRECT.get(right, "") if left == right or step.variant == "grouped" else ""
        return direct if direct in self.offered else "matmul"

    def _grouped_product(self, step: Step, left: str, right: str) -> str:
        """The rows of each task together, times the matrices of the tasks, and back to where they were."""
        groups, inner, columns = (
            " * ".join(map(self._size, axes)) or "1"
            for axes in (step.batch, step.inner, (*step.rows, *step.columns))
        )
        together = f"reshape(take({left}, (rows,)), ({groups}, -1, {inner}))"
        return f"take(reshape({self._multiply(step)}({together}, {right}), (-1, {columns})), (back,))"

    def _ready(self, operand: int, text: str) -> str:
        """An operand of a step; what depends on factors alone is computed before, and kept."""
        if not self.constant[operand]:
            return text
        self.prepared.append(f"k{len(self.prepared) + 1}")
        self.before.append((f"{self.prepared[-1]} = {text}", ""))
        return self.prepared[-1]

    def _folded(self, operand: int, order: Sequence[int] | None, groups: _Groups) -> str:
        """An operand with one axis for each group."""
        if order is not None:
            text = f"transpose({self._unfolded(operand)}, {tuple(order)})"
            return text if all(len(group) == 1 for group in groups) else self._reshaped(text, groups)
        if operand in self.rows and groups == ((), self.groups[operand][0]):
            return self.variables[operand]  # a row already
        return self._as(operand, groups)

    def _turned(self, matrix: str, step: Step) -> str:
        """A matrix copied to where it lies transposed, as a view in the order that it had."""
        flat = f"reshape(transpose({matrix}, (1, 0)), (-1,))"  # which copies; to a matrix it would be a view
        return f"transpose({self._reshaped(flat, (step.columns, step.inner))}, (1, 0))"

    def _unfolded(self, operand: int) -> str:
        """An operand with all its axes."""
        return self._as(operand, _single(sum(self.groups[operand], ())))

    def _as(self, operand: int, groups: _Groups) -> str:
        """An operand with its axes in other groups; products leave theirs as matrices until they are used."""
        text = self.variables[operand]
        return text if self.groups[operand] == groups else self._reshaped(text, groups)

    def _reshaped(self, text: str, groups: _Groups) -> str:
        shape = [" * ".join(map(self._size, group)) or "1" for group in groups]
        return f"reshape({text}, ({', '.join(shape)}{',' if len(shape) == 1 else ''}))"

    def _size(self, axis: str) -> str:
        """The size of an axis: a number, or a variable; asking for it has it read off an operand."""
        if axis in self.sizes:
            return self.sizes[axis]
        if axis not in self.read:
            self.read[axis] = _own(axis, f"n{len(set(self.read.values()) - set(_OURS)) + 1}")
        return self.read[axis]

    def _unpacked(self) -> list[_Line]:
        """Lines that read the sizes that are needed, each off the first operand that has it."""
        lines: list[_Line] = []
        done: set[str] = set()
        for n, (variable, node) in enumerate(zip(self.variables, self.plan.network.nodes, strict=False)):
            wanted = [axis in self.read and axis not in done for axis in node.axes]
            if any(wanted) and node.name != IDS and not self.constant[n]:
                names = [self.read[a] if w else "_" for a, w in zip(node.axes, wanted, strict=True)]
                lines.append((f"{', '.join(names)}{',' if len(names) == 1 else ''} = {variable}.shape", ""))
                done.update(node.axes)
        return lines


class _NamedWriter(_Writer):
    """Writes products as einsum: no operand is brought into another order, or shape."""

    def _given(self, step: Step | Take) -> _Groups:
        grouped = isinstance(step, Step) and step.variant == "grouped"
        return super()._given(step) if grouped else _single(step.result)

    def _product(self, step: Step, constant: bool) -> str:
        if step.variant == "grouped":
            return super()._product(step, constant)
        axes = [sum(self.groups[n], ()) for n in step.operands]
        letter = {axis: get_symbol(n) for n, axis in enumerate(dict.fromkeys(axes[0] + axes[1]))}
        left, right, result = ("".join(letter[axis] for axis in own) for own in (*axes, step.result))
        operands = ", ".join(self._unfolded(n) for n in step.operands)
        return f'einsum("{left},{right}->{result}", {operands})'


_Groups = tuple[tuple[str, ...], ...]
_Line = tuple[str, str]  # what is run, and a comment


def _own(name: str, numbered: str) -> str:
    """The variable of a node or a size: its name if that is one of ours, else a number."""
    return name if name in _OURS else numbered


def _single(axes: Sequence[str]) -> _Groups:
    return tuple((axis,) for axis in axes)


def _grouped(groups: _Groups) -> str:
    return ", ".join(" ".join(group) or "1" for group in groups)
