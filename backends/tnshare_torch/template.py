"""A module without numbers: what T models of one architecture have in common."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import nn

import tnshare as tn

_NORMS = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.modules.batchnorm._NormBase,
    nn.LocalResponseNorm,
)


def template_of(model: nn.Module) -> nn.Module:
    """A copy whose parameters and buffers are placeholders on the meta device; tied ones stay tied."""
    made: dict[int, torch.Tensor] = {}

    def placeholder(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in made:
            empty = torch.empty_like(tensor, device="meta")
            plain = nn.Parameter(empty, requires_grad=False) if isinstance(tensor, nn.Parameter) else empty
            made[id(tensor)] = plain
        return made[id(tensor)]

    copied = copy.deepcopy(model)
    for module in copied.modules():
        for name, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            setattr(module, name, placeholder(parameter))  # an RNN's own list of weights is renewed by it
        for name, buffer in list(module.named_buffers(recurse=False, remove_duplicate=False)):
            setattr(module, name, placeholder(buffer))
    return copied


def tensors_of(module: nn.Module) -> dict[str, torch.Tensor]:
    """Parameters and buffers by name; of tied ones, the first name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def fill(template: nn.Module, tensors: Mapping[str, torch.Tensor]) -> nn.Module:
    """A plain module with these tensors."""
    copied = copy.deepcopy(template)
    by_placeholder = {id(p): tensors[name] for name, p in tensors_of(copied).items()}
    for module in copied.modules():
        for name, parameter in list(module.named_parameters(recurse=False, remove_duplicate=False)):
            setattr(module, name, by_placeholder[id(parameter)])
        for name, buffer in list(module.named_buffers(recurse=False, remove_duplicate=False)):
            setattr(module, name, by_placeholder[id(buffer)])
    return copied


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
    first = models[0]
    for number, model in enumerate(models):
        if not isinstance(model, nn.Module):
            raise tn.TnshareError(f"models must be torch modules: found {type(model).__name__} at {number}")
        for what, own, theirs in _parts(first, model):
            if own != theirs:
                one, other = set(own) - set(theirs), set(theirs) - set(own)
                raise tn.TnshareError(
                    f"models must have one architecture: model {number} differs from model 0 in its {what}"
                    f" ({_some(one)} only in model 0, {_some(other)} only in model {number})"
                )
        for name, tensor in _loose(model):
            twin = dict(_loose(first)).get(name)
            if twin is None or twin.shape != tensor.shape or not torch.equal(twin, tensor):
                raise tn.TnshareError(
                    f"model {number} has a tensor {name!r} that is neither parameter nor buffer and differs "
                    "from model 0's: register it with register_buffer or as a parameter"
                )


def _parts(one: nn.Module, other: nn.Module) -> Iterator[tuple[str, list[object], list[object]]]:
    def modules(m: nn.Module) -> list[object]:
        return [(name, type(part).__name__) for name, part in m.named_modules()]

    def names(m: nn.Module) -> list[object]:
        return [(name, t.dtype) for name, t in tensors_of(m).items()]

    yield "modules", modules(one), modules(other)
    yield "parameters and buffers", names(one), names(other)


def _loose(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                yield f"{path}.{name}".lstrip("."), value


def _some(names: set[object]) -> str:
    return ", ".join(sorted(map(str, names))[:3]) or "none"
