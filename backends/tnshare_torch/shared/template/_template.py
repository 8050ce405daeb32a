"""A module without numbers: what T models of one architecture have in common."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

import tnshare as tn

from ._held_functions import hooks, refuse_captured
from ._placeholder import Placeholder

_NORMS = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.modules.batchnorm._NormBase,
    nn.LocalResponseNorm,
)


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


def check_alike(models: Sequence[nn.Module]) -> None:
    """Refuse models that are not of one architecture, or that hold tensors which nobody would share."""
    for number, model in enumerate(models):
        check_like(models[0], model, f"model {number}")


def check_like(first: nn.Module, model: nn.Module, called: str, dtypes: bool = True) -> None:
    """Refuse a model that is not of the architecture of the first."""
    if not isinstance(model, nn.Module):
        raise tn.TnshareError(f"models must be torch modules: found {type(model).__name__} as {called}")
    if any(isinstance(part, torch.jit.ScriptModule) for part in model.modules()):
        raise tn.TnshareError(f"{called} has scripted parts, whose weights cannot be replaced")
    if any(is_lazy(parameter) for parameter in model.parameters()):
        raise tn.TnshareError(f"{called} has parameters that have no shape yet: run it once")
    refuse_captured(model, called)
    for what, own, theirs in _parts(first, model, dtypes):
        if own != theirs:
            one, other = set(own) - set(theirs), set(theirs) - set(own)
            raise tn.TnshareError(
                f"models must have one architecture: {called} differs from the first in its {what}"
                f" ({_some(one)} only in the first, {_some(other)} only in {called})"
            )
    for name, tensor in _loose(model):
        twin = dict(_loose(first)).get(name)
        if twin is None or twin.shape != tensor.shape or not torch.equal(twin, tensor):
            raise tn.TnshareError(
                f"{called} has a tensor {name!r} that is neither parameter nor buffer and differs from the "
                "first's: register it with register_buffer or as a parameter"
            )


def _parts(
    one: nn.Module, other: nn.Module, dtypes: bool
) -> Iterator[tuple[str, list[object], list[object]]]:
    def modules(m: nn.Module, like: Mapping[str, nn.Module]) -> list[object]:
        return [
            (name, type(part).__name__, *_constants(part, like.get(name)), *hooks(part))
            for name, part in m.named_modules()
        ]

    def names(m: nn.Module) -> list[object]:
        return [(name, t.dtype if dtypes else "") for name, t in named_tensors(m).items()]

    yield "modules", modules(one, dict(other.named_modules())), modules(other, dict(one.named_modules()))
    yield "parameters and buffers", names(one), names(other)


def _constants(module: nn.Module, other: nn.Module | None) -> list[object]:
    """The numbers and words of a torch layer, as strides; not of one that differs in shape, as heads may."""
    own, theirs = module, other or module
    shapes = [[(n, t.shape) for n, t in m.named_parameters()] for m in (own, theirs)]
    if not type(module).__module__.startswith("torch.nn.modules") or shapes[0] != shapes[1]:
        return []
    kinds = (bool, int, float, str, tuple)
    return [(n, v) for n, v in vars(module).items() if isinstance(v, kinds) and n != "training"]


def _loose(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    registered = set(map(id, named_tensors(model).values()))
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if name in ("_parameters", "_buffers", "_modules"):
                continue
            for number, leaf in enumerate(tree_leaves(value)):
                if isinstance(leaf, torch.Tensor) and id(leaf) not in registered:
                    where = name if leaf is value else f"{name}[{number}]"
                    yield f"{path}.{where}".lstrip("."), leaf


def _some(names: set[object]) -> str:
    return ", ".join(sorted(map(str, names))[:3]) or "none"
