"""One more task for a shared network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn

import tnshare as tn
from tnshare.model import code_of

from .own import Own, array_of, key_of
from .template import check_like, tensors_of

if TYPE_CHECKING:
    from .shared import Shared


def mean_task(shared: Shared) -> Own:
    """A task whose codes, weights and buffers are the means of all others'."""
    states = [own.state_dict() for own in shared.tasks]
    made = shared.own(0).like()
    for name, tensor in made.state_dict().items():
        shapes = {state[name].shape for state in states}
        if len(shapes) > 1:
            raise tn.TnshareError(
                f"{name} has another shape in every task, so there is no mean: give add_task a network"
            )
        values = torch.stack([state[name] for state in states])
        mean = values.mean(0) if values.is_floating_point() or values.is_complex() else values[0]
        tensor.copy_(mean)
    return made


def fitted_task(shared: Shared, model: nn.Module) -> Own:
    """A task whose codes fit a network's weights; the rest is copied from it."""
    check_like(shared._template, model, "the new one", dtypes=False)
    given, expected = tensors_of(model), tensors_of(shared._template)
    codes: dict[str, tuple[Any, torch.Tensor]] = {}
    own: dict[str, torch.Tensor] = {}
    for name, (network, factors) in shared.decompositions().items():
        if given[name].shape != expected[name].shape:
            raise tn.TnshareError(
                f"{name} must have shape {tuple(expected[name].shape)}: found {tuple(given[name].shape)}"
            )
        weight = array_of(given[name]).transpose(shared.orders[name])
        for node, code in code_of(network, factors, weight)[0].items():
            like = next(iter(shared.shared(key_of(name)).values()))
            codes[f"{key_of(name)}:{node}"] = code, like
    for name, tensor in given.items():
        if name not in shared.networks and key_of(name) not in shared.common:
            like = shared.own(0).get(key_of(name))  # the network may be of another precision by now
            moved = tensor.detach().to(like.device, like.dtype)
            parameter = isinstance(tensor, nn.Parameter)
            own[key_of(name)] = nn.Parameter(moved, tensor.requires_grad) if parameter else moved
    return Own(codes, own)
