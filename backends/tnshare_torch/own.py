"""Where a shared network keeps its tensors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

import tnshare as tn


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


def array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """A tensor in NumPy, which has no bfloat16."""
    plain = tensor.detach().cpu()
    found: np.ndarray[Any, Any] = (plain.float() if plain.dtype == torch.bfloat16 else plain).numpy()
    return found


def key_of(name: str) -> str:
    """The name of a weight as a module can have it: no dots, and none that a module has itself, as "keys"."""
    return name.replace(".", "/") if "." in name else f"/{name}"


def has_task(network: tn.Network, node: tn.Node) -> bool:
    """Whether a factor holds the codes of tasks."""
    return bool(set(node.axes) & set(network.tasks))


def for_tasks(network: tn.Network, tasks: int) -> tn.Network:
    """The same network for another number of tasks."""
    (axis,) = network.tasks
    renamed = network.rename(axis, f"{axis}*", tasks).rename(f"{axis}*", axis)
    return tn.Network(renamed.nodes, renamed.output, (axis,))
