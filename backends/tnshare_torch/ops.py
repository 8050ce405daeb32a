"""The array operations of PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from tnshare.ops import NDArray


class TorchOps:
    """What `tnshare.ops.Ops` asks for."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.matmul(a, b)

    def reshape(self, a: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return a.reshape(tuple(shape))

    def transpose(self, a: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
        return a.permute(tuple(order))

    def multiply(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a * b

    def add(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b.to(a.dtype)  # under autocast products are short and parameters are not

    def take(self, a: torch.Tensor, ids: Sequence[Any]) -> torch.Tensor:
        return a[tuple(_index(i, a.device) for i in ids)]

    def asarray(self, value: NDArray, like: torch.Tensor | None = None) -> torch.Tensor:
        tensor = torch.tensor(value)
        return tensor if like is None else tensor.to(like)

    def values(self, a: Any) -> NDArray | None:
        if not isinstance(a, torch.Tensor):
            return np.asarray(a)
        if torch.compiler.is_compiling() or a.is_meta:
            return None
        plain = a.detach().cpu()
        try:
            return np.asarray(plain.float() if a.dtype == torch.bfloat16 else plain)
        except RuntimeError:  # inside torch.func's transforms, and of fake tensors
            return None

    def gradients(
        self, function: Callable[..., torch.Tensor], arrays: Sequence[torch.Tensor], weights: torch.Tensor
    ) -> list[torch.Tensor]:
        """The derivative of ``sum(weights * function(*arrays))`` by each array; tnshare.testing uses it."""
        leaves = [array.detach().clone().requires_grad_() for array in arrays]
        return list(torch.autograd.grad(function(*leaves), leaves, weights))


def _index(ids: Any, device: torch.device) -> Any:
    """Ids as torch takes them: it reads bytes as a mask and does not know the other short integers."""
    if isinstance(ids, torch.Tensor):
        return ids.long()
    return torch.as_tensor(ids.astype(np.int64), device=device) if isinstance(ids, np.ndarray) else ids


ops = TorchOps()
