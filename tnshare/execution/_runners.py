"""What runs in a call, whatever the layer: its arguments, and some rows at a time.

Every runner takes the factors in the order of the nodes, the bias or None, x, ids, and a keeper or None. Ids
are a tuple with one entry for each task axis: a whole number, or an array (b,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tnshare.errors import TnshareError
from tnshare.ops import Ops
from tnshare.planning import BATCH_AXES, GROUP_AXIS, Plan, Way

Runner = Callable[..., Any]
Shape = tuple[int, ...]
# Factors in the order of the nodes, bias, x, ids, keeper.
Inputs = tuple[Sequence[Any], Any, Any, Any, "Keeper | None"]


class Keeper(Protocol):
    """Keeps what was prepared from factors, for as long as the factors stay what they were."""

    def __call__(self, key: Any, factors: Sequence[Any], prepare: Callable[[], Any]) -> Any:
        """What is kept under the key, or else what ``prepare`` makes."""

    def empty(self) -> Keeper:
        """Another one of the same kind, with nothing in it."""


def chunked(run: Runner, ops: Ops[Any], way: Way, tasks: Shape, rows: Shape, size: int) -> Runner:
    """Some rows at a time, of an x whose axes ``rows`` are folded into one first; those of mixed tasks are.

    Nothing is kept for the backward pass, which computes them again. ``run`` takes any number of rows.
    """
    in_chunks = getattr(ops, "in_chunks", None)
    if in_chunks is None:
        raise TnshareError(f"memory_limit asks for chunks of the batch, which {type(ops).__name__} cannot do")
    before, after = tasks if way == "each" else (), tasks if way in ("each", "fan_out") else ()

    def in_parts(factors: Any, bias: Any, x: Any, ids: Any, keeper: Any = None) -> Any:
        def part(arrays: Sequence[Any], x: Any, rows: Any) -> Any:
            own = arrays[-1] if bias is not None else None
            return run(arrays[: len(factors)], own, x, rows or ids, keeper)

        arrays = [*factors, *(() if bias is None else (bias,))]
        return in_chunks(part, arrays, x, ids if way == "mixed" else (), len(before), len(after), size)

    if way == "mixed" or len(rows) == 1:
        return in_parts

    def folded(factors: Any, bias: Any, x: Any, ids: Any, keeper: Any = None) -> Any:
        rest = tuple(x.shape)[len(before) + len(rows) :]
        y = in_parts(factors, bias, ops.reshape(x, (*before, math.prod(rows), *rest)), ids, keeper)
        return ops.reshape(y, (*after, *rows, *tuple(y.shape)[len(after) + 1 :]))

    return folded


def fixed_axes(plan: Plan) -> tuple[str, ...]:
    """The axes whose sizes are the same in every call."""
    return tuple(axis for axis in plan.network.sizes if axis not in (*BATCH_AXES, GROUP_AXIS))
