"""Read a stack of weights, know its size, and measure how far a factorisation is from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .errors import TnshareError
from .network import Network, Node
from .ops import NDArray, numpy_ops
from .peel import wide
from .plan import Plan

_BLOCK = 2**19  # elements that are turned into double precision at once


@dataclass(frozen=True)
class Reference:
    """What errors are relative to.

    ``norm`` is that of the stack divided by ``scale``, its largest entry, so that no square can overflow.
    ``deviation`` is ``||W - mean_t W|| / ||W||``. ``dtype`` is the one that factors are stored in.
    """

    scale: float
    norm: float
    deviation: float
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, stack: NDArray, task_axes: int) -> Reference:
        """Measure a stack whose last axes are the task axes; refuses NaN and infinity."""
        tasks = math.prod(stack.shape[stack.ndim - task_axes :])
        rows = stack.reshape(-1, tasks)
        scale = max(float(np.abs(block).max()) for block in _wide_blocks(rows))
        if not math.isfinite(scale):
            raise TnshareError(_first_bad(rows, stack.shape))
        if scale == 0:
            return cls(0.0, 0.0, 0.0, _stored_dtype(stack.dtype))
        square = deviation = 0.0
        for block in _wide_blocks(rows):
            block /= scale
            square += _sum_of_squares(block)
            block -= block.mean(axis=1, keepdims=True)
            deviation += _sum_of_squares(block)
        relative = math.sqrt(deviation / square)
        if relative < 4 * np.finfo(np.float64).eps:  # rounding errors of the mean
            relative = 0.0
        return cls(scale, math.sqrt(square), relative, _stored_dtype(stack.dtype))

    @property
    def rounding(self) -> float:
        """The relative error below which nothing is gained: that of the stored dtype, or of an SVD."""
        return max(float(np.finfo(self.dtype).eps), 64 * float(np.finfo(np.float64).eps))

    def scaled(self, stack: NDArray) -> NDArray:
        """The stack in double precision, its largest entry 1: a copy that may be overwritten."""
        work = stack.astype(wide(stack.dtype), order="C")
        if self.scale > 0:
            work /= self.scale
        return work


def read_stack(
    stack: Any, axes: Sequence[str] | None, tasks: Sequence[str] | None
) -> tuple[NDArray, dict[str, int], dict[str, int]]:
    """The stack as a contiguous array, with the sizes of its weight axes and of its task axes."""
    array = np.ascontiguousarray(stack)
    kind = "f" if array.dtype.name == "bfloat16" else array.dtype.kind
    if kind not in "fc" or array.dtype.itemsize > 16 or array.dtype == np.longdouble:
        raise TnshareError(
            "a stack must be float16, bfloat16, float32, float64, complex64 or complex128: "
            f"found {array.dtype}; convert it first, for example with stack.astype(np.float32)"
        )
    if isinstance(tasks, str):
        tasks = (tasks,)
    task_names = ("task",) if tasks is None and axes is None else tuple(tasks or tuple(axes or ())[-1:])
    if np.ndim(stack) < len(task_names) + 1 or array.size == 0:
        raise TnshareError(
            f"a stack has at least one weight axis, then {len(task_names)} of tasks, none of them empty: "
            f"found shape {np.shape(stack)}"
        )
    weights = tuple(f"d{n}" for n in range(1, array.ndim - len(task_names) + 1))
    names = (*weights, *task_names) if axes is None else tuple(axes)
    fits = len(names) == array.ndim == len(set(names)) and names[-len(task_names) :] == task_names
    if not fits or (tasks is None and "task" in names[:-1]):
        raise TnshareError(
            f"axes must name each of the {array.ndim} axes of the stack once, "
            f"the task axes {task_names} last: found {names}"
        )
    sizes = dict(zip(names, array.shape, strict=True))
    return array, {a: sizes[a] for a in names[: -len(task_names)]}, {a: sizes[a] for a in task_names}


def relative_errors(
    network: Network, factors: Mapping[str, NDArray], stack: NDArray, reference: Reference
) -> tuple[float, float]:
    """``||W - W'||`` relative to ``||W||`` and to ``||W - mean_t W||``; composes ``W'`` bit by bit."""
    if reference.norm == 0:
        return 0.0, 0.0
    square = 0.0
    for rows, composed in _composed_blocks(network, factors):
        difference = composed.astype(wide(stack.dtype)) - stack[rows].astype(wide(stack.dtype))
        difference /= reference.scale
        square += _sum_of_squares(difference)
    error = math.sqrt(square) / reference.norm
    if reference.deviation > 0:
        return error, error / reference.deviation
    return error, 0.0 if error <= 16 * reference.rounding else math.inf


def _composed_blocks(network: Network, factors: Mapping[str, NDArray]) -> Iterator[tuple[slice, NDArray]]:
    """The composed tensor, some indices of its first axis at a time."""
    first = network.output[0]
    (head,) = (node for node in network.nodes if first in node.axes)
    tail = tuple(node for node in network.nodes if node != head)
    open_axes = [
        a for a in dict.fromkeys(a for n in tail for a in n.axes) if a in (*head.axes, *network.output)
    ]
    joined = Plan.flop_optimal(Network(tail, tuple(open_axes))).run(
        numpy_ops, [factors[n.name] for n in tail]
    )
    rest = Node("rest", tuple(open_axes), joined.shape)
    plan = Plan.flop_optimal(Network((head, rest), network.output))
    axis = head.axes.index(first)
    each = math.prod(network.shape[1:])
    step = max(1, _BLOCK // each)
    for start in range(0, network.shape[0], step):
        rows = slice(start, start + step)
        part = factors[head.name][(slice(None),) * axis + (rows,)]
        yield rows, plan.run(numpy_ops, [part, joined])


def _wide_blocks(rows: NDArray) -> Iterator[NDArray]:
    """Copies in double precision of some rows of a matrix at a time."""
    step = max(1, _BLOCK // rows.shape[1])
    return (rows[n : n + step].astype(wide(rows.dtype)) for n in range(0, len(rows), step))


def _stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("=") if dtype.kind in "fc" and dtype.itemsize >= 4 else np.dtype(np.float32)


def _sum_of_squares(array: NDArray) -> float:
    return float(np.vdot(array, array).real)


def _first_bad(rows: NDArray, shape: tuple[int, ...]) -> str:
    """Say where the first entry is that is not finite, without a second copy of the stack."""
    for start, row in enumerate(rows):
        values = row.astype(wide(rows.dtype))
        bad = np.flatnonzero(~np.isfinite(values))
        if len(bad):
            where = tuple(int(n) for n in np.unravel_index(start * rows.shape[1] + bad[0], shape))
            return f"a stack must be finite: found {values[bad[0]]} at {where}"
    raise AssertionError("unreachable: the largest entry was not finite")
