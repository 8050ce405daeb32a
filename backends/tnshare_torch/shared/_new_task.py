"""One more task for a shared network."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import nn

import tnshare as tn
from tnshare.decomposition import code_of
from tnshare_torch._ops import array_of

from .running._weights import TaskTensors, key_of, means, split
from .template._template import check_like, named_tensors

if TYPE_CHECKING:
    from ._shared_network import Shared


class Fit(NamedTuple):
    """The code with which a shared network comes closest to a given one, and how close, weight by weight.

    Errors are relative, ``||W - W'|| / ||W||``; also those of weights that all tasks have in common, in which
    a task has no say.
    """

    code: torch.Tensor
    errors: dict[str, float]


def fitted(shared: Shared, model: nn.Module) -> Fit:
    """Least squares of a network's weights onto the shared factors."""
    check_like(shared._template, model, "the new one", dtypes=False)
    given, expected = named_tensors(model), named_tensors(shared._template)
    parts, errors = [], {}
    for name, (network, factors) in shared.decompositions().items():
        if given[name].shape != expected[name].shape:
            raise tn.TnshareError(
                f"{name} must have shape {tuple(expected[name].shape)}: found {tuple(given[name].shape)}"
            )
        weight = array_of(given[name]).transpose(shared.orders[name])
        codes, errors[name] = code_of(network, factors, weight)
        like = next(iter(shared.shared(key_of(name)).values()))
        parts += [torch.as_tensor(code.reshape(-1)).to(like.device, like.dtype) for code in codes.values()]
    for name, key in shared.plain.items():
        if key in shared.common:
            own, theirs = array_of(shared.shared(key)["weight"]), array_of(given[name])
            size = float(np.linalg.norm(theirs)) or 1.0
            errors[name] = float(np.linalg.norm(own - theirs)) / size
    return Fit(torch.cat(parts) if parts else torch.zeros(0), errors)


def mean_task(shared: Shared) -> TaskTensors:
    """A task whose codes, weights and buffers are the means of all others'."""
    codes = torch.stack([shared.code(task) for task in range(len(shared.tasks))])
    return described_task(shared, codes.mean(0))


def described_task(shared: Shared, code: torch.Tensor) -> TaskTensors:
    """A task with a code; what is not shared is the mean of the others'."""
    own, found = shared.task_tensors(0), means(shared)
    return _made(
        shared,
        code,
        {
            key: nn.Parameter(value, own.get(key).requires_grad) if key in own._parameters else value
            for key, value in found.items()
        },
    )


def fitted_task(shared: Shared, model: nn.Module, fit: Fit) -> TaskTensors:
    """A task with the code that fits a network's weights; the rest is copied from it."""
    rest: dict[str, torch.Tensor] = {}
    for name, tensor in named_tensors(model).items():
        key = key_of(name)
        if name in shared.plain and key not in shared.common:
            like = shared.task_tensors(0).get(key)  # the network may be of another precision by now
            moved = tensor.detach().to(like.device, like.dtype)
            parameter = isinstance(tensor, nn.Parameter)
            rest[key] = nn.Parameter(moved, tensor.requires_grad) if parameter else moved
    return _made(shared, fit.code, rest)


def _made(shared: Shared, code: torch.Tensor, rest: dict[str, torch.Tensor]) -> TaskTensors:
    """What a task has of its own: its codes, taken from all of them in a row, and the rest."""
    own: dict[str, torch.Tensor] = {}
    for name, node, part in split(shared, code.detach()):
        like = next(iter(shared.shared(key_of(name)).values()))
        own[f"{key_of(name)}:{node}"] = nn.Parameter(part.clone(), like.requires_grad)
    return TaskTensors({}, {**own, **rest})
