"""One more task for a shared network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from tnshare.decomposition import Fit, fit_codes
from tnshare_torch._ops import array_of

from .running._call_tasks import means, split
from .running._task_tensors import Own, key_of
from .template._template import check_like, tensors_of

if TYPE_CHECKING:
    from ._shared_network import Shared


def fitted(shared: Shared, model: nn.Module) -> Fit[torch.Tensor]:
    """Least squares of a network's weights onto the shared factors."""
    check_like(shared._template, model, "the new one", dtypes=False)
    given, weights = tensors_of(model), dict[str, Any](shared.decompositions())
    for name, key in shared.plain.items():
        if key in shared.common:
            weights[name] = array_of(shared.shared(key)["weight"])
    found, errors = fit_codes(weights, shared.orders, {name: array_of(given[name]) for name in weights})
    parts = []
    for name, codes in found.items():
        like = next(iter(shared.shared(key_of(name)).values()))
        parts += [torch.as_tensor(code.reshape(-1)).to(like.device, like.dtype) for code in codes.values()]
    return Fit(torch.cat(parts) if parts else torch.zeros(0), errors)


def mean_task(shared: Shared) -> Own:
    """A task whose codes, weights and buffers are the means of all others'."""
    codes = torch.stack([shared.code(task) for task in range(len(shared.tasks))])
    return described_task(shared, codes.mean(0))


def described_task(shared: Shared, code: torch.Tensor) -> Own:
    """A task with a code; what is not shared is the mean of the others'."""
    own, found = shared.own(0), means(shared)
    return _made(
        shared,
        code,
        {
            key: nn.Parameter(value, own.get(key).requires_grad) if key in own._parameters else value
            for key, value in found.items()
        },
    )


def fitted_task(shared: Shared, model: nn.Module, fit: Fit[torch.Tensor]) -> Own:
    """A task with the code that fits a network's weights; the rest is copied from it."""
    rest: dict[str, torch.Tensor] = {}
    for name, tensor in tensors_of(model).items():
        key = key_of(name)
        if name in shared.plain and key not in shared.common:
            like = shared.own(0).get(key)  # the network may be of another precision by now
            moved = tensor.detach().to(like.device, like.dtype)
            parameter = isinstance(tensor, nn.Parameter)
            rest[key] = nn.Parameter(moved, tensor.requires_grad) if parameter else moved
    return _made(shared, fit.code, rest)


def _made(shared: Shared, code: torch.Tensor, rest: dict[str, torch.Tensor]) -> Own:
    """What a task has of its own: its codes, taken from all of them in a row, and the rest."""
    own: dict[str, torch.Tensor] = {}
    for name, node, part in split(shared, code.detach()):
        like = next(iter(shared.shared(key_of(name)).values()))
        own[f"{key_of(name)}:{node}"] = nn.Parameter(part.clone(), like.requires_grad)
    return Own({}, {**own, **rest})
