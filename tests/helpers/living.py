"""Layers and shared networks for the tests of living in torch, with plain networks that compute the same."""

from __future__ import annotations

import tnshare_torch as tnt
import torch
from torch import nn

import tnshare as tn

T = 3
# Of the sums behind an output: kernel, norm, two layers, and the bonds of each; behind a gradient, those of
# the rows, places and tasks too; and the roundings where numbers are short.
TERMS, SUMMED, SHORT = 64, 64 + 5 * 20 * T, 6


class Net(nn.Module):
    """A convolution, a norm, a functional call, two linear layers."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.conv = nn.Conv1d(2, 4, 3, dtype=dtype)
        self.norm = nn.GroupNorm(2, 4, dtype=dtype)
        self.hidden, self.head = nn.Linear(8, 6, dtype=dtype), nn.Linear(6, 3, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x))).flatten(1)
        return nn.functional.linear(torch.tanh(self.hidden(x)), self.head.weight, self.head.bias)


class Matrices(nn.Module):
    """Linear layers alone, which torch knows for complex numbers too."""

    def __init__(self, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.hidden, self.head = nn.Linear(4, 6, dtype=dtype), nn.Linear(6, 3, dtype=dtype)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.tanh(self.hidden(x)))


def nets(kind: type[nn.Module] = Net, dtype: torch.dtype | None = None, count: int = T) -> list[nn.Module]:
    """Networks that differ a little."""
    torch.manual_seed(0)
    made = tnt.replicate(kind(dtype), count)
    with torch.no_grad():
        for parameter in (p for net in made for p in net.parameters()):
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def shared(
    method: str = "tucker", kind: type[nn.Module] = Net, dtype: torch.dtype | None = None
) -> tnt.Shared:
    """A shared network, some of whose ranks are less than full."""
    return tnt.share(nets(kind, dtype), method, eps=0)


def x(rows: int, dtype: torch.dtype | None = None, seed: int = 0) -> torch.Tensor:
    """Input of `Net`."""
    return torch.randn(rows, 2, 4, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def linear(spec: tn.Spec | None = None, **options: object) -> tnt.Linear:
    """A layer with plans for few rows, so that it is made quickly."""
    return tnt.Linear(6, 4, T, spec or tn.Tucker((3, 3, 2)), **{"plan_for": (8,), "seed": 1, **options})


def conv(**options: object) -> tnt.Conv2d:
    """A convolution."""
    spec = tn.Tucker((2, 2, 2, 3, 2))
    return tnt.Conv2d(2, 4, 3, T, spec, padding=1, **{"plan_for": (8,), "seed": 1, **options})


def embedding(**options: object) -> tnt.Embedding:
    """An embedding."""
    return tnt.Embedding(7, 4, T, tn.TT((3, 2)), **{"plan_for": (8,), "seed": 1, **options})


def twin(layer: tnt.Linear | tnt.Conv2d, task: int) -> nn.Module:
    """torch's own layer with the weights of a task."""
    weight = layer.weight(task).detach()
    if isinstance(layer, tnt.Linear):
        plain: nn.Module = nn.Linear(weight.shape[1], weight.shape[0], dtype=weight.dtype)
    else:
        plain = nn.Conv2d(weight.shape[1], weight.shape[0], weight.shape[2:], padding=1, dtype=weight.dtype)
    plain.load_state_dict({"weight": weight, "bias": layer.bias[task].detach()})
    return plain
