"""TensorLy-Torch: its factorised tensors with the same numbers, applied task by task.

It has Tucker and TT tensors; what LAF is, it has no name for. `FactorizedLinear(n_layers=T)` is its layer for
several tasks, but in 0.5.0 its Tucker raises at the first call (an int is not iterable). It is tried at every
point, and what it raises is noted; what the call would do is done here: index the tensor by task, then
`factorized_linear` in both of its implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from benchmarks.case import Case
from benchmarks.measuring.meters import Program

from .common import NUMBER, Programs
from .torch_calls import every_task, own_layout

if TYPE_CHECKING:
    from .in_torch import Applied

IMPLEMENTATIONS = ("factorized", "reconstructed")
LAYER = "tltorch FactorizedLinear"
_MANY = 200  # tasks; a Python loop over more takes seconds, and shows nothing new


def add(applied: Applied) -> None:
    """Both implementations and its layer, for every way; for many tasks a loop, as it has no other."""
    case = applied.case
    names = [*(f"tltorch {kind}" for kind in IMPLEMENTATIONS), LAYER]
    if not any(map(applied.wants, names)):
        return
    why = _unavailable(case, case.present)
    if why:
        for name in names:
            applied.skip(name, why)
        return

    def made(kind: str | None) -> Program:
        tensor, leaves = factorised(case, applied.factors)
        apply = one_task(case.method, tensor, kind) if kind else _layer(case, tensor, applied.x)
        return applied.program(lambda: every_task(case, applied.x, applied.task, apply), leaves)

    needs = NUMBER * case.i * case.o * (case.present if case.training else 1)
    for name, kind in zip(names, (*IMPLEMENTATIONS, None), strict=True):
        if case.method == "tt" and kind == "factorized":
            applied.skip(name, "a TT tensor is reconstructed in either implementation")
        elif case.method == "tt" and kind is None:
            applied.skip(name, "it takes no TT")
        else:
            applied.add(name, needs, partial(made, kind))


def add_composing(
    found: Programs, limit: int, case: Case, factors: Sequence[Tensor], task: int | None
) -> None:
    """Its dense tensor, of all tasks or of one."""
    why = _unavailable(case, 1)
    if why:
        found.skipped["tltorch"] = why
        return

    def made() -> Program:
        tensor, leaves = factorised(case, factors)
        if task is None:
            return own_layout(tensor.to_tensor, leaves, case.training)
        return own_layout(lambda: chosen(case.method, tensor, task).to_tensor(), leaves, case.training)

    found.add("tltorch", 2 * NUMBER * case.i * case.o * case.tasks, limit, made)


def factorised(case: Case, factors: Sequence[Tensor]) -> tuple[Any, list[Tensor]]:
    """Its tensor of a layer's weights, and what it learns: (task, o, i) for Tucker, (i, o, task) for TT."""
    tltorch = imported()
    copies = [factor.detach() for factor in factors]
    if case.method == "tucker":
        core, U_i, U_o, U_t = copies
        own = [_learnt(a, case.training) for a in (core.transpose(1, 2), U_t, U_o.t(), U_i)]
        shape = (case.tasks, (case.o,), (case.i,))
        return tltorch.factorized_tensors.tensorized_matrices.TuckerTensorized(own[0], own[1:], shape), own
    U_i, U_o, U_t = copies
    parts = (U_i.unsqueeze(0), U_o.permute(1, 2, 0), U_t.t().unsqueeze(2))
    own = [_learnt(a, case.training) for a in parts]
    return tltorch.factorized_tensors.factorized_tensors.TTTensor(own), own


def chosen(method: str, tensor: Any, task: int) -> Any:
    """The factorised weight of one task: (o, i) for Tucker, (i, o) for TT."""
    every = slice(None)
    return tensor[task, every, every] if method == "tucker" else tensor[every, every, task]


def one_task(method: str, tensor: Any, implementation: str) -> Callable[[Tensor, int], Tensor]:
    """Its linear layer of one task."""
    from tltorch.functional import factorized_linear

    def apply(x: Tensor, task: int) -> Tensor:
        weight = chosen(method, tensor, task)
        if method == "tt":
            return torch.mm(x, weight.to_tensor())
        y: Tensor = factorized_linear(x, weight, in_features=x.shape[-1], implementation=implementation)
        return y

    return apply


def _layer(case: Case, tensor: Any, x: Tensor) -> Callable[[Tensor, int], Tensor]:
    """Its own layer for several tasks, called once so that it raises here if it does."""
    from tltorch.factorized_layers import FactorizedLinear

    like = {"device": x.device, "dtype": x.dtype}
    made: Callable[[Tensor, int], Tensor] = FactorizedLinear(
        (case.i,), (case.o,), bias=False, factorization=tensor, n_layers=case.tasks, **like
    )
    with torch.no_grad():
        made(x.reshape(-1, case.i)[:1], case.task)
    return made


def _learnt(array: Tensor, training: bool) -> Tensor:
    return torch.nn.Parameter(array.contiguous().clone(), requires_grad=training)


def _unavailable(case: Case, tasks: int) -> str:
    if case.method == "laf":
        return "it has no such factorisation"
    if tasks > _MANY:
        return f"a loop over {tasks} tasks"
    try:
        imported()
    except ImportError:
        return "is not installed"
    return ""


def imported() -> Any:
    """The library. It makes torch the backend of TensorLy when it is imported, and needs that to stay so."""
    import tensorly
    import tltorch

    tensorly.set_backend("pytorch", local_threadsafe=True)
    return tltorch
