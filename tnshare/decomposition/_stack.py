"""Read a stack of weights, know its size, and measure how far a factorisation is from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnshare.checks import patterns
from tnshare.errors import TnshareError
from tnshare.network import Network
from tnshare.ops import NDArray, numpy_ops
from tnshare.planning import Plan

from ._truncated_svd import wide

DTYPES = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
_BLOCK = 2**19  # elements that are turned into double precision at once


@dataclass(frozen=True)
class StackNorms:
    """What errors are relative to.

    ``norm`` is that of the stack divided by ``scale``, its largest entry, so that no square can overflow.
    ``deviation`` is ``||W - mean_t W|| / ||W||``. ``dtype`` is the one that factors are stored in.
    """

    scale: float
    norm: float
    deviation: float
    dtype: np.dtype[Any]

    @classmethod
    def of(cls, stack: NDArray, task_axes: int) -> StackNorms:
        """Measure a stack whose last axes are the task axes; refuses NaN and infinity."""
        tasks = math.prod(stack.shape[stack.ndim - task_axes :])
        rows = stack.reshape(-1, tasks)
        scale = float(np.max([np.abs(block.view(np.float64)).max() for block in _wide_blocks(rows)]))
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
    array = _as_array(stack)
    axes = None if axes is None else patterns("axes", axes)
    if isinstance(tasks, str):
        tasks = (tasks,)
    if not isinstance(tasks, Sequence | None):
        raise TnshareError(f"tasks must name the task axes: found {tasks!r}")
    task_names = ("task",) if tasks is None and axes is None else tuple(tasks or (axes or ())[-1:])
    if array.ndim < len(task_names) + 1 or array.size == 0:
        raise TnshareError(
            f"a stack has at least one weight axis, then {len(task_names)} of tasks, none of them empty: "
            f"found shape {array.shape}"
        )
    weights = tuple(f"d{n}" for n in range(1, array.ndim - len(task_names) + 1))
    names = (*weights, *task_names) if axes is None else axes
    fits = len(names) == array.ndim == len(set(names)) and names[-len(task_names) :] == task_names
    if not fits or (tasks is None and "task" in names[:-1]):
        raise TnshareError(
            f"axes must name each of the {array.ndim} axes of the stack once, "
            f"the task axes {task_names} last: found {names}"
        )
    sizes = dict(zip(names, array.shape, strict=True))
    return array, {a: sizes[a] for a in names[: -len(task_names)]}, {a: sizes[a] for a in task_names}


def relative_errors(
    network: Network, factors: Mapping[str, NDArray], stack: NDArray, reference: StackNorms
) -> tuple[float, float]:
    """``||W - W'||`` relative to ``||W||`` and to ``||W - mean_t W||``; composes ``W'`` bit by bit."""
    if reference.norm == 0:
        return 0.0, 0.0
    square = 0.0
    for rows, composed in _composed_blocks(network, factors, reference.scale):
        difference = stack[rows].astype(wide(stack.dtype))
        difference /= reference.scale
        difference -= composed
        square += _sum_of_squares(difference)
    error = math.sqrt(square) / reference.norm
    if reference.deviation > 0:
        return error, error / reference.deviation
    return error, 0.0 if error <= 16 * reference.rounding else math.inf


def _as_array(stack: Any) -> NDArray:
    """The stack in NumPy, in row-major order; refuses what is no array of floating numbers."""
    try:
        array = np.asarray(stack, order="C")
        found = str(array.dtype)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TnshareError(f"a stack must be an array that NumPy can read: {error}") from None
    if np.ma.isMaskedArray(stack):
        raise TnshareError("a stack must have all its entries: found a masked array; fill it first")
    if found not in DTYPES and array.dtype.newbyteorder("=").name not in DTYPES:
        raise TnshareError(
            f"a stack must be {', '.join(DTYPES[:-1])} or {DTYPES[-1]}: found {found}; "
            "convert it first, for example with stack.astype(np.float32)"
        )
    return array


def _composed_blocks(
    network: Network, factors: Mapping[str, NDArray], scale: float
) -> Iterator[tuple[slice, NDArray]]:
    """The composed tensor divided by ``scale``, some indices of its first axis at a time.

    Everything is contracted in a chain that starts from the factor with that axis: no product is computed
    twice, and nothing but the factors is larger than a block.
    """
    first = network.output[0]
    head = next(n for n, node in enumerate(network.nodes) if first in node.axes)
    plan = Plan.chain(network, head)
    axis = network.nodes[head].axes.index(first)
    arrays = [factors[node.name] for node in network.nodes]
    step = max(1, _BLOCK // math.prod(network.shape[1:]))
    for start in range(0, network.shape[0], step):
        rows = slice(start, start + step)
        part = arrays[head][(slice(None),) * axis + (rows,)] / scale
        yield rows, plan.run(numpy_ops, [*arrays[:head], part, *arrays[head + 1 :]])


def _wide_blocks(rows: NDArray) -> Iterator[NDArray]:
    """Copies in double precision of some rows of a matrix at a time."""
    step = max(1, _BLOCK // rows.shape[1])
    return (rows[n : n + step].astype(wide(rows.dtype)) for n in range(0, len(rows), step))


def _stored_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype.newbyteorder("=") if dtype.kind in "fc" and dtype.itemsize >= 4 else np.dtype(np.float32)


def _sum_of_squares(array: NDArray) -> float:
    return float(np.vdot(array, array).real)


def _first_bad(rows: NDArray, shape: tuple[int, ...]) -> str:
    """Say where the first entry is that is not finite."""
    before = 0
    for block in _wide_blocks(rows):
        bad = np.flatnonzero(~np.isfinite(block))
        if len(bad):
            where = tuple(int(n) for n in np.unravel_index(before + bad[0], shape))
            return f"a stack must be finite: found {block.flat[bad[0]]} at {where}"
        before += block.size
    raise AssertionError("unreachable: the largest entry was not finite")
