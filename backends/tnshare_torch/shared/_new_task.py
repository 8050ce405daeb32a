"""One more task for a shared network."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tnshare.decomposition import Fit, fit_codes
from tnshare_torch._ops import array_of

from .running._weights import CallTasks, TaskTensors, mean_of
from .template._template import check_like, named_tensors, orders_of


def fitted(tasks: CallTasks, model: nn.Module) -> Fit[torch.Tensor]:
    """Least squares of a network's weights onto the shared factors."""
    weights = tasks.weights
    ignored = (*weights.ignore, "training")  # it may come from evaluation, where the network trains
    check_like(weights.template, model, "the new one", ignored, dtypes=False)
    given, orders = named_tensors(model), orders_of(weights.template)
    shared = dict[str, Any](tasks.decompositions()) | {n: array_of(t) for n, t in tasks.hard().items()}
    found, errors = fit_codes(shared, orders, {name: array_of(given[name]) for name in shared})
    parts = []
    for name, codes in found.items():
        like = tasks.like(name)
        parts += [torch.as_tensor(code.reshape(-1)).to(like.device, like.dtype) for code in codes.values()]
    return Fit(torch.cat(parts) if parts else torch.zeros(0), errors)


def mean_task(tasks: CallTasks) -> TaskTensors:
    """A task whose codes, weights and buffers are the means of all others'."""
    codes = torch.stack([tasks.code(task) for task in range(len(tasks))])
    return described_task(tasks, mean_of(codes))


def described_task(tasks: CallTasks, code: torch.Tensor) -> TaskTensors:
    """A task with a code; what is not shared is the mean of the others'."""
    first, found = CallTasks.own(tasks, 0), tasks.mean()
    return _made(
        tasks,
        code,
        {
            name: nn.Parameter(value, first[name].requires_grad)
            if isinstance(first[name], nn.Parameter)
            else value
            for name, value in found.items()
        },
    )


def fitted_task(tasks: CallTasks, model: nn.Module, fit: Fit[torch.Tensor]) -> TaskTensors:
    """A task with the code that fits a network's weights; the rest is copied from it."""
    given, rest = named_tensors(model), {}
    for name, like in tasks.own(0).items():  # the network may be of another precision by now
        moved = given[name].detach().to(like.device, like.dtype)
        parameter = isinstance(given[name], nn.Parameter)
        rest[name] = nn.Parameter(moved, given[name].requires_grad) if parameter else moved
    return _made(tasks, fit.code, rest)


def _made(tasks: CallTasks, code: torch.Tensor, rest: dict[str, torch.Tensor]) -> TaskTensors:
    """What a task has of its own: its codes, taken from all of them in a row, and the rest."""
    weights = tasks.weights
    kept: dict[str, torch.Tensor] = {}
    for part, values in weights.layout.split(code.detach()):
        trains = tasks.like(part.weight).requires_grad
        kept[weights.programs[part.weight].code_key] = nn.Parameter(values, trains)
    return TaskTensors({**kept, **{weights.own[name]: tensor for name, tensor in rest.items()}})
