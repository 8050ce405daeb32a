"""Run a module with other tensors in the place of its own, without touching it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only


class Replacing(TorchFunctionMode):
    """Every torch function that is given a placeholder is given its tensor instead.

    The table is by the id of placeholders, which lie on the meta device: one that were missed would fail
    loudly, not compute with some task's numbers. A mode belongs to a thread, and so several may run at once.
    """

    def __init__(self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> None:
        super().__init__()
        self.tensors = {id(placeholder): tensor for placeholder, tensor in pairs}
        self.placeholders = {id(tensor): placeholder for placeholder, tensor in pairs}

    def real(self, tree: Any) -> Any:
        """The same with tensors where it has placeholders."""
        return tree_map_only(torch.Tensor, lambda tensor: self.tensors.get(id(tensor), tensor), tree)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        args, kwargs = self.real((args, dict(kwargs or {})))
        result = func(*args, **kwargs)
        # What was written to in place is the placeholder again, so that `self.count += 1` assigns no tensor.
        return self.placeholders.get(id(result), result)
