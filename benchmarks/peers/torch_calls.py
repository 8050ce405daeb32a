"""Calls in torch that several peers make: passes that are timed, rows by their tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from benchmarks.case import Case
from benchmarks.measuring.meters import Program

Task = Tensor | int | None


def ids_of(case: Case) -> Tensor:
    """A task for each row: all different where there are enough tasks."""
    order = torch.randperm(case.tasks)
    return order.repeat(-(-case.batch // case.tasks))[: case.batch]


def differentiable(
    forward: Callable[[], Tensor],
    parameters: Sequence[Tensor],
    above: Tensor,
    training: bool,
    x: Tensor | None = None,
) -> Program:
    """A forward pass, and in training a backward pass from ``above`` to the input and all parameters."""
    held = sum(parameter.nbytes for parameter in parameters)
    leaves = [*parameters] if x is None else [x, *parameters]
    if training:
        return Program(forward, lambda y: torch.autograd.grad(y, leaves, above), parameters=held)

    def inference() -> Tensor:
        with torch.no_grad():
            return forward()

    return Program(inference, parameters=held)


def own_layout(forward: Callable[[], Tensor], leaves: Sequence[Tensor], training: bool) -> Program:
    """The same from a gradient that lies in memory as the result does, whatever its order there is."""
    with torch.no_grad():
        above = torch.randn_like(forward())
    return differentiable(forward, leaves, above, training)


def grouped(x: Tensor, ids: Tensor, weights: Tensor) -> Tensor:
    """Rows sorted by task and padded to groups of one length, times the weights (T, i, o) of those present.

    Padding is with some row, whose product nobody reads.
    """
    present, group, counts = torch.unique(ids, return_inverse=True, return_counts=True)
    longest = int(counts.max())
    order = group.argsort(stable=True)
    within = torch.arange(len(ids), device=ids.device) - (counts.cumsum(0) - counts)[group[order]]
    position = torch.empty_like(order)
    position[order] = group[order] * longest + within
    source = torch.zeros(len(present) * longest, dtype=torch.int64, device=ids.device)
    source[position] = torch.arange(len(ids), device=ids.device)
    together = x.index_select(0, source).view(len(present), longest, -1)
    chosen = weights if len(present) == len(weights) else weights.index_select(0, present)
    y = torch.bmm(together, chosen)
    return y.view(-1, y.shape[2]).index_select(0, position)


def looped(x: Tensor, ids: Tensor, apply: Callable[[Tensor, int], Tensor]) -> Tensor:
    """One call for each task present, on its rows."""
    present, group = torch.unique(ids, return_inverse=True)
    order = group.argsort(stable=True)
    counts = torch.bincount(group).tolist()
    parts = x.index_select(0, order).split(counts)  # type: ignore[no-untyped-call]
    y = torch.cat([apply(part, int(task)) for part, task in zip(parts, present.tolist(), strict=True)])
    return torch.empty_like(y).index_copy(0, order, y)


def every_task(case: Case, x: Tensor, task: Task, apply: Callable[[Tensor, int], Tensor]) -> Tensor:
    """The call of a case by a function of the rows of one task."""
    if isinstance(task, int):
        return apply(x, task)
    if isinstance(task, Tensor):
        return looped(x, task, apply)
    return torch.stack([apply(x[t] if case.way == "each" else x, t) for t in range(case.tasks)])
