"""The steps of a plan: a batched matrix product, and rows taken by task."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

from ._row_groups import padded

# Of a product: the operand on this side has the batch alone; or, of an outer product, the axes of the left
# operand go before the last of the right; or the right operand is copied so that it lies transposed; or rows
# meet the matrices of their tasks, task by task.
Variant = Literal["", "left", "right", "inside", "turned", "grouped"]
# A step in short: the product of two operands and its variant, or the rows of one operand that ids choose.
# Operands are counted as in a step.
Move = tuple[int, int, Variant] | tuple[int]
BATCH_AXES = ("b", "m")  # the axes of a batch: rows, and vectors of a row
IDS = "ids"  # the node of task ids: a row of zeros with a one at the task, of which only the ids exist


@dataclass(frozen=True)
class Step:
    """``result[batch, rows, columns] = sum_inner left[batch, rows, inner] right[batch, inner, columns]``.

    ``left`` and ``right`` count through the operands of the plan first, then the results of its steps. The
    orders bring the axes of an operand to those of the formula; None means that they are so already. By its
    ``variant``, one operand has the batch alone and the other is the same for all items, or an outer product
    is ``result[batch, other columns, rows, last column]``; or the right operand is copied, to lie as
    (columns, inner) in memory, for the sake of its gradient, which torch forms as the operand lies; or
    ``batch`` are task axes, and
    ``result[b, rows, columns] = sum_inner left[b, rows, inner] right[task of b, inner, columns]``, for which
    the rows of each task are brought together.
    """

    left: int
    right: int
    batch: tuple[str, ...]
    rows: tuple[str, ...]
    inner: tuple[str, ...]
    columns: tuple[str, ...]
    left_order: tuple[int, ...] | None
    right_order: tuple[int, ...] | None
    variant: Variant = ""

    @property
    def operands(self) -> tuple[int, int]:
        """The numbers of the operands."""
        return self.left, self.right

    @property
    def move(self) -> Move:
        """The step in short."""
        return self.left, self.right, self.variant

    @cached_property
    def result(self) -> tuple[str, ...]:
        """The axes of what the step gives."""
        return tuple(axis for group in self.result_groups for axis in group)

    @cached_property
    def result_groups(self) -> tuple[tuple[str, ...], ...]:
        """The axes of the result, a group for each axis of what the operation itself gives."""
        if self.variant == "grouped":
            return ("b",), (*self.rows, *self.columns)
        stack = (self.batch,) if self.batch else ()
        if self.variant == "inside":
            return (*stack, self.columns[:-1], self.rows, self.columns[-1:])
        return (*stack, self.rows, self.columns)

    @cached_property
    def groups(self) -> tuple[tuple[tuple[str, ...], ...], tuple[tuple[str, ...], ...]]:
        """The axes of the left and of the right operand, a group for each axis of the stack of matrices."""
        if self.variant == "inside":
            stack = (self.batch,) if self.batch else ()
            return (*stack, (), self.rows, ()), (*stack, self.columns[:-1], (), self.columns[-1:])
        if self.variant == "grouped":
            return (("b",), (*self.rows, *self.inner)), (self.batch, self.inner, self.columns)
        left, right = (self.rows, self.inner), (self.inner, self.columns)
        return (
            left if self.variant == "right" or not self.batch else (self.batch, *left),
            right if self.variant == "left" or not self.batch else (self.batch, *right),
        )

    @cached_property
    def copies(self) -> tuple[bool, bool]:
        """Whether the left and the right operand must be copied into another order first."""
        orders = self.left_order, self.right_order
        left, right = (
            not _is_view(order, groups, stacked=bool(self.inner) and len(groups) == 3)
            for order, groups in zip(orders, self.groups, strict=True)
        )
        return left, right or self.variant == "turned"

    @cached_property
    def lies_transposed(self) -> tuple[bool, bool]:
        """Whether the matrices of the left and the right operand lie transposed in memory."""
        orders = self.left_order, self.right_order
        left, right = (
            bool(self.inner) and order is not None and not copied and _comes_late(order, groups)
            for order, copied, groups in zip(orders, self.copies, self.groups, strict=True)
        )
        # Rows that are brought together are copied anyway.
        return left and self.variant != "grouped", right or self.variant == "turned"

    def with_operands(self, left: int, right: int) -> Step:
        """The same product of other operands."""
        return replace(self, left=left, right=right)

    def flops(self, sizes: Mapping[str, int]) -> int:
        """Multiplications and additions; of grouped rows, with the padding that is expected."""
        if self.variant == "grouped":
            places = padded(sizes["b"], count(self.batch, sizes))
            return 2 * places * count(self.rows + self.inner + self.columns, sizes)
        return 2 * count(self.result + self.inner, sizes)


@dataclass(frozen=True)
class Take:
    """For each row of the batch, what an operand holds for the row's task: its task axes become ``b``.

    ``columns`` are the ids that choose, by their number among the task axes.
    """

    operand: int
    columns: tuple[int, ...]
    result: tuple[str, ...]

    @property
    def operands(self) -> tuple[int]:
        """The number of the operand."""
        return (self.operand,)

    @property
    def move(self) -> Move:
        """The step in short."""
        return (self.operand,)

    def flops(self, sizes: Mapping[str, int]) -> int:
        """None: numbers are moved."""
        return 0


def make_step(
    left: tuple[int, tuple[str, ...]],
    right: tuple[int, tuple[str, ...]],
    needed: frozenset[str],
    variant: Variant = "",
    tasks: tuple[str, ...] = (),
) -> Step:
    """The product of two operands, each given as its number and its axes; ``needed`` axes are kept.

    An operand that is to have the batch alone gives to it what lies before its inner axes in memory. Where a
    variant cannot be, the step is an ordinary one.
    """
    kept = needed.intersection(left[1] + right[1])
    return product_of(left[1], right[1], kept, variant, tasks).with_operands(left[0], right[0])


def make_take(operand: int, axes: tuple[str, ...], tasks: tuple[str, ...]) -> Take:
    """The rows of an operand whose first axes are task axes."""
    own = tuple(axis for axis in axes if axis in tasks)
    return Take(operand, tuple(tasks.index(axis) for axis in own), ("b", *axes[len(own) :]))


@lru_cache(maxsize=65536)
def product_of(
    left: tuple[str, ...],
    right: tuple[str, ...],
    needed: frozenset[str],
    variant: Variant,
    tasks: tuple[str, ...] = (),
) -> Step:
    """The product of operands 0 and 1 with these axes."""
    if variant == "grouped" and (met := _met(left, right, needed, tasks)):
        return met
    common = [axis for axis in left if axis in right]
    batch = tuple(axis for axis in common if axis in needed)
    inner = tuple(axis for axis in common if axis not in needed)
    rows = tuple(axis for axis in left if axis not in common)
    columns = tuple(axis for axis in right if axis not in common)
    if variant == "turned":
        variant = variant if rows and inner and columns and not batch else ""
    elif variant in ("inside", "grouped"):
        variant = "inside" if variant == "inside" and not inner and rows and len(columns) > 1 else ""
    elif batch or not inner:
        variant = ""
    elif variant == "left" and (split := _split(left, inner)):
        batch, rows = split
    elif variant == "right" and (split := _split(right, inner)):
        batch, columns = split
    else:
        variant = ""
    ordered_left = (() if variant == "right" else batch) + rows + inner
    ordered_right = (() if variant == "left" else batch) + inner + columns
    orders = _order(left, ordered_left), _order(right, ordered_right)
    return Step(0, 1, batch, rows, inner, columns, *orders, variant)


def depends_on_batch(axes: Iterable[str]) -> bool:
    """Whether what has these axes changes from call to call while the factors stay the same."""
    return any(axis in BATCH_AXES for axis in axes)


def count(axes: Iterable[str], sizes: Mapping[str, int]) -> int:
    """The number of elements of an array with these axes."""
    return math.prod([sizes[axis] for axis in axes])


def _met(
    left: tuple[str, ...], right: tuple[str, ...], needed: frozenset[str], tasks: tuple[str, ...]
) -> Step | None:
    """Rows times the matrices of their tasks, if one side has the rows, the other all task axes."""
    inner = tuple(axis for axis in left if axis in right)
    if "b" not in left or not tasks or not set(tasks) <= set(right) or not inner or needed & set(inner):
        return None
    rows = tuple(axis for axis in left if axis not in ("b", *inner))
    columns = tuple(axis for axis in right if axis not in (*tasks, *inner))
    orders = _order(left, ("b", *rows, *inner)), _order(right, tasks + inner + columns)
    return Step(0, 1, tasks, rows, inner, columns, *orders, "grouped")


def _split(axes: tuple[str, ...], inner: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """The axes of an operand before its inner ones, and those behind them, if there are any of both."""
    start = min(axes.index(axis) for axis in inner)
    before, behind = axes[:start], tuple(axis for axis in axes[start:] if axis not in inner)
    return (before, behind) if before and behind else None


def _is_view(order: tuple[int, ...] | None, groups: tuple[tuple[str, ...], ...], stacked: bool) -> bool:
    """Whether a matrix product can read an operand where it lies.

    Its axes fall into groups, each of which must be one contiguous run in memory, in whichever sequence; and
    the last run must not be the batch, which is the first group if matrices are ``stacked``.
    """
    if order is None:
        return True
    start = 0
    for group in groups:
        run = order[start : start + len(group)]
        if run and run != tuple(range(run[0], run[0] + len(group))):
            return False
        start += len(group)
    batch = len(groups[0]) if stacked else 0
    return not batch or batch == len(order) or order[batch - 1] != len(order) - 1


def _comes_late(order: tuple[int, ...], groups: tuple[tuple[str, ...], ...]) -> bool:
    """Whether the first axis of a matrix lies behind the second in memory."""
    rows, columns = len(groups[-2]), len(groups[-1])
    start = len(order) - rows - columns
    return bool(rows and columns) and order[start] > order[start + rows]


def _order(axes: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[int, ...] | None:
    return None if axes == wanted else tuple(axes.index(axis) for axis in wanted)
