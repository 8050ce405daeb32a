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

    def __init__(self, table: Mapping[int, torch.Tensor]) -> None:
        super().__init__()
        self.table = table

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        table = self.table

        def real(tensor: torch.Tensor) -> torch.Tensor:
            return table.get(id(tensor), tensor)

        args, kwargs = tree_map_only(torch.Tensor, real, (args, dict(kwargs or {})))
        return func(*args, **kwargs)
