"""What inference keeps, and whether a tensor is still what it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._C import _is_any_autocast_enabled
from torch.optim.optimizer import register_optimizer_step_post_hook

from tnshare.execution import Kept
from tnshare_torch._ops import autocasts


class KeptTensors(Kept):
    """What was prepared from parameters, without holding them.

    A view would hold its parameter, and `torch.utils.swap_tensors` refuses one that somebody holds.
    """

    _seen = 0

    def __call__(self, key: Any, factors: Sequence[torch.Tensor], prepare: Callable[[], Any]) -> Any:
        if self._seen != _optimisers.steps:
            self.drop()
            self._seen = _optimisers.steps
        if _is_any_autocast_enabled() and autocasts(kind := factors[0].device.type):
            key = key, torch.get_autocast_dtype(kind)  # what it makes of a tensor is something else to keep
        entry = self._entries.get(key)
        if entry is not None and entry.marks == self._marks(factors):
            return entry.value
        return super().__call__(key, factors, prepare)

    def _marks(self, factors: Sequence[torch.Tensor]) -> tuple[tuple[int, Any], ...]:
        try:  # `mark` of each, without a call for it
            return tuple(
                [
                    (id(t), (t._version, t.data_ptr(), None if t.is_contiguous() else t.stride(), t.dtype))
                    for t in factors
                ]
            )
        except RuntimeError:
            return super()._marks(factors)

    def _made(self, prepare: Callable[[], Any]) -> Any:
        return _detached(prepare())


def mark(tensor: torch.Tensor) -> Any:
    """Something that changes with the numbers of a tensor, unless they are written through ``.data``.

    None where torch cannot say: inside its transforms, and for tensors made in inference mode.
    """
    try:
        order = None if tensor.is_contiguous() else tensor.stride()
        return tensor._version, tensor.data_ptr(), order, tensor.dtype
    except RuntimeError:
        return None


def alias(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor that owns the same memory."""
    _optimisers.watch()
    return tensor.detach()


def _detached(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_detached, value))
    return None if value is None else value.detach()


class _Optimisers:
    """Counts the steps of all optimisers, from the first time that something is kept.

    Fused ones write to parameters without a change of their versions (seen in torch 2.13).
    """

    def __init__(self) -> None:
        self.steps, self._watched = 0, False

    def watch(self) -> None:
        if not self._watched:
            self._watched = True
            register_optimizer_step_post_hook(self._after_step)

    def _after_step(self, *_: Any) -> None:
        self.steps += 1


_optimisers = _Optimisers()
