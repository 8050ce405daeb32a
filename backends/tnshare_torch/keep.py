"""What inference keeps, and whether a tensor is still what it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from tnshare.keep import Kept

_steps: dict[int, int] = {}  # of optimisers, by the id of a parameter


class KeptTensors(Kept):
    """What was prepared from parameters, without holding them.

    A view would hold its parameter, and `torch.utils.swap_tensors` refuses one that somebody holds.
    """

    def __call__(self, key: Any, factors: Sequence[torch.Tensor], prepare: Callable[[], Any]) -> Any:
        return super().__call__(key, factors, lambda: _detached(prepare()))


def mark(tensor: torch.Tensor) -> Any:
    """Something that changes with the numbers of a tensor, unless they are written through ``.data``.

    None where torch cannot say: inside its transforms, and for tensors made in inference mode. What autocast
    makes of a tensor counts as other numbers.
    """
    try:
        kind = tensor.device.type
        cast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        place = tensor.data_ptr(), tensor.stride(), tensor.dtype, tensor.device
        return tensor._version, _steps.get(id(tensor), 0), cast, *place
    except RuntimeError:
        return None


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor that owns the same memory."""
    _watch_optimisers()
    return tensor.detach()


def _detached(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_detached, value))
    return None if value is None else value.detach()


@cache
def _watch_optimisers() -> None:
    register_optimizer_step_post_hook(_after_step)


def _after_step(optimiser: torch.optim.Optimizer, *_: Any) -> None:
    """Fused optimisers write to parameters without a change of their versions (seen in torch 2.13)."""
    for group in optimiser.param_groups:
        for parameter in group["params"]:
            _steps[id(parameter)] = _steps.get(id(parameter), 0) + 1
