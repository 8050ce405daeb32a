"""The array operations of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

NDArray = np.ndarray[Any, Any]


class TorchOps:
    """What `tnshare.ops.Ops` asks for."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)

    def reshape(self, a: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return a.reshape(tuple(shape))

    def transpose(self, a: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
        return a.permute(tuple(order))

    def add(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b

    def take(self, a: torch.Tensor, ids: Sequence[Any]) -> torch.Tensor:
        # torch reads bytes as a mask and does not index with the other short integers.
        return a[tuple(i.long() if isinstance(i, torch.Tensor) else i for i in ids)]

    def asarray(self, value: NDArray, like: torch.Tensor | None = None) -> torch.Tensor:
        tensor = torch.tensor(value)
        return tensor if like is None else tensor.to(like)

    def values(self, a: Any) -> NDArray | None:
        if torch.compiler.is_compiling():
            return None
        if not isinstance(a, torch.Tensor):
            return np.asarray(a)
        return np.asarray(a.detach().cpu())

    def gradients(
        self, function: Callable[..., torch.Tensor], arrays: Sequence[torch.Tensor], weights: torch.Tensor
    ) -> list[torch.Tensor]:
        """The derivative of ``sum(weights * function(*arrays))`` by each array; tnshare.testing uses it."""
        leaves = [array.detach().clone().requires_grad_() for array in arrays]
        return list(torch.autograd.grad(function(*leaves), leaves, weights))


ops = TorchOps()
