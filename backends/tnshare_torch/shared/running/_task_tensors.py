"""Where a shared network keeps its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from tnshare.models import SharedModel


class Own(nn.Module):
    """What a task has of its own: codes, weights that are not shared, buffers; under names with slashes."""

    def __init__(
        self, codes: Mapping[str, tuple[Any, torch.Tensor]], tensors: Mapping[str, torch.Tensor]
    ) -> None:
        super().__init__()
        for name, (value, like) in codes.items():
            tensor = torch.as_tensor(np.ascontiguousarray(value)).to(like.device, like.dtype)
            self.register_parameter(name, nn.Parameter(tensor.clone(), requires_grad=like.requires_grad))
        for name, tensor in tensors.items():
            copied = tensor.detach().clone()
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, nn.Parameter(copied, requires_grad=tensor.requires_grad))
            else:
                self.register_buffer(name, copied)

    def get(self, name: str) -> torch.Tensor:
        """A parameter or buffer."""
        found = self._parameters.get(name)
        return self._buffers[name] if found is None else found  # type: ignore[return-value]

    def like(self) -> Own:
        """Another one with tensors of the same shapes."""
        return Own({}, {**self._parameters, **self._buffers})  # type: ignore[dict-item]


def parameters(values: Mapping[str, Any], like: torch.Tensor) -> nn.ParameterDict:
    """Arrays as parameters, where and how ``like`` is."""

    def made(value: Any) -> nn.Parameter:
        tensor = torch.as_tensor(np.ascontiguousarray(value)).to(like.device, like.dtype)
        return nn.Parameter(tensor.clone(), requires_grad=like.requires_grad)

    return nn.ParameterDict({name: made(value) for name, value in values.items()})


def contents(
    model: SharedModel, tensors: Sequence[Mapping[str, torch.Tensor]]
) -> tuple[nn.ModuleDict, nn.ModuleList]:
    """What all tasks have in common, and what each has of its own."""
    first, soft = tensors[0], model.soft
    common = nn.ModuleDict()
    for name, d in soft.items():
        shared = {n.name: d.factors[n.name] for n in d.network.nodes if not d.network.is_coded(n)}
        common[key_of(name)] = parameters(shared, first[name])
    for name, value in model.hard.items():
        common[key_of(name)] = parameters({"weight": value}, first[name])
    codes = [(name, d, n.name) for name, d in soft.items() for n in d.network.nodes if d.network.is_coded(n)]
    own = [*model.single, *(name for name in first if not isinstance(first[name], nn.Parameter))]
    tasks = nn.ModuleList(
        Own(
            {f"{key_of(name)}:{node}": (d.factors[node][t], first[name]) for name, d, node in codes},
            {key_of(name): given[name] for name in own},
        )
        for t, given in enumerate(tensors)
    )
    return common, tasks


def key_of(name: str) -> str:
    """The name of a weight as a module can have it: no dots, and none that a module has itself, as "keys"."""
    return name.replace(".", "/") if "." in name else f"/{name}"
