"""Programs in torch that compose weights from factors, and bring gradients back to them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tnshare_torch as tnt
import torch
from torch import Tensor

from benchmarks.case import Case

from . import tensorly_torch
from .common import NUMBER, Programs, left_to_right, optimal
from .torch_calls import own_layout


def weights(case: Case, one: bool, limit: int) -> Programs:
    """The weights of all tasks, or of one, and the gradients of the factors."""
    found = Programs()
    layer = tnt.Linear(case.i, case.o, case.tasks, case.spec, bias=False).train(case.training)
    factors = [getattr(layer, name) for name in case.layer.network.shapes]
    task = case.task if one else None
    network = layer.description.network
    asked = network.drop("task") if one else network
    size = NUMBER * case.i * case.o * (1 if one else case.tasks)

    def add(name: str, needs: int, forward: Callable[[], Tensor], leaves: Sequence[Tensor] = factors) -> None:
        found.add(name, needs, limit, lambda: own_layout(forward, leaves, case.training))

    def operands() -> list[Tensor]:
        return factors if task is None else [*factors[:-1], factors[-1][task]]

    def authors() -> Tensor:
        W, axes = left_to_right(network, factors, torch.tensordot)
        composed: Tensor = W.permute(*(axes.index(axis) for axis in network.output))
        return composed if task is None else composed[..., task]

    add("tnshare", 2 * size, lambda: layer.weight(task))
    add("einsum", 2 * size, lambda: torch.einsum(asked.equation, *operands()))
    expression, needs = optimal(asked)
    add("opt_einsum", 2 * needs, lambda: expression(*operands(), backend="torch"))
    add("authors", 2 * NUMBER * case.i * case.o * case.tasks, authors)
    tensorly_torch.add_composing(found, limit, case, factors, task)
    return found
