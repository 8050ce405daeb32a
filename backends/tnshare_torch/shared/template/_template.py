"""A module without numbers: what T models of one architecture have in common."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

import tnshare as tn

from ._differences import differences
from ._held_functions import refuse_captured
from ._placeholder import Placeholder

_NORMS = (nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.modules.batchnorm._NormBase, nn.LocalResponseNorm)


def template_of(model: nn.Module) -> nn.Module:
    """A copy whose parameters and buffers are placeholders; tied ones stay tied."""

    # As a memo of what is copied already, wherever the network has them: in an RNN's own list of weights too.
    return copy.deepcopy(model, {id(t): Placeholder(t, name) for name, t in named_tensors(model).items()})


def named_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name; of tied ones, the first name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def filled_copy(template: nn.Module, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """A plain module with these tensors."""
    return copy.deepcopy(template, {id(p): tensors[name] for name, p in named_tensors(template).items()})


def orders_of(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """The weights that can be shared softly, with the order of axes in which they are stacked.

    That is (..., in, out), as in the paper: kernel, input channels, output channels; biases and what belongs
    to norms is not among them.
    """
    found = {}
    for name, parameter in module.named_parameters():
        owner = module.get_submodule(name.rpartition(".")[0])
        floating = parameter.is_floating_point() or parameter.is_complex()
        if parameter.ndim >= 2 and floating and not isinstance(owner, _NORMS):
            found[name] = _order(owner, parameter.ndim)
    return found


def _order(owner: nn.Module, ndim: int) -> tuple[int, ...]:
    if isinstance(owner, nn.modules.conv._ConvTransposeNd):
        return (*range(2, ndim), 0, 1)
    if isinstance(owner, nn.modules.conv._ConvNd) or (ndim == 2 and not isinstance(owner, nn.Embedding)):
        return (*range(2, ndim), 1, 0)
    return tuple(range(ndim))


def check_alike(models: Sequence[nn.Module], ignore: Sequence[str] = ()) -> None:
    """Refuse models that differ in anything but tensors: all would have it from the first."""
    for number, model in enumerate(models):
        check_like(models[0], model, f"model {number}", ignore)


def check_module(model: Any, called: str) -> None:
    """Refuse what is no module, such as the class of one, or its state."""
    if not isinstance(model, nn.Module):
        found = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise tn.TnshareError(f"models must be torch modules: found {found} as {called}")


def check_like(
    first: nn.Module, model: nn.Module, called: str, ignore: Sequence[str] = (), dtypes: bool = True
) -> None:
    """Refuse a model that differs from the first in anything but tensors and what is to be ignored."""
    check_module(model, called)
    if any(isinstance(part, torch.jit.ScriptModule) for part in model.modules()):
        raise tn.TnshareError(f"{called} has scripted parts, whose weights cannot be replaced")
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise tn.TnshareError(f"{called} has parameters that have no shape yet: run it once")
    refuse_captured(model, called)
    for difference in differences(first, model, ignore, dtypes):
        path, (one, other) = difference.path, difference.values()
        if isinstance(difference.first, torch.Tensor) or isinstance(difference.other, torch.Tensor):
            raise tn.TnshareError(
                f"{called} has a tensor {path!r} that is neither parameter nor buffer and differs from the "
                "first's: register it with register_buffer or as a parameter"
            )
        raise tn.TnshareError(
            f"models must have one architecture: {called} differs from the first in "
            f"{path or 'its class'}, which is {one} in the first, {other} in {called}; if that does not "
            f"matter, say share(..., ignore=[{path!r}])"
        )
