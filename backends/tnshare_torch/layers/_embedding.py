"""Embeddings of many tasks as one module."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

import tnshare as tn
from tnshare.layers import Tasks
from tnshare.network import Spec
from tnshare_torch._ops import autocasts

from ._task_layer import TaskLayer


class Embedding(TaskLayer):
    """``torch.nn.Embedding`` for every one of many tasks, their tables softly shared.

    Inputs are whole numbers of any shape; ``layer(x, ids)`` gives row b of x (B, ...) the task ``ids[b]``.
    The vector of ``padding_idx`` is 0; ``norm_type`` is of ``max_norm``, which factors do
    not have. Other keywords are those of `TaskLayer`.
    """

    description: tn.Embedding

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        tasks: Tasks,
        spec: Spec,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        **keywords: Any,
    ) -> None:
        for name, value in {
            "max_norm": max_norm,
            "scale_grad_by_freq": scale_grad_by_freq,
            "sparse": sparse,
        }.items():
            if value not in (None, False):
                raise tn.TnshareError(
                    f"{name}={value!r} is for a table, and tables of tasks are made of factors, whose rows "
                    f"and gradients are dense and serve many tokens: leave {name} out"
                )
        description = tn.Embedding(
            num_embeddings, embedding_dim, tasks=tasks, spec=spec, padding_idx=padding_idx
        )
        super().__init__(description, **keywords)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = description.padding_idx

    def forward(self, x: torch.Tensor, task: Any = None) -> torch.Tensor:
        """The vectors of tokens x, of one task, of a task for each row, or of all tasks on their own rows."""
        with _as_stored(x):
            return super().forward(x, task)

    def fan_out(self, x: torch.Tensor) -> torch.Tensor:
        """The vectors of tokens x (...) in every task: (T, ..., embedding_dim)."""
        with _as_stored(x):
            return super().fan_out(x)

    def extra_repr(self) -> str:
        """What the constructor was given."""
        d = self.description
        padding = "" if d.padding_idx is None else f", padding_idx={d.padding_idx}"
        return f"{d.num_embeddings}, {d.embedding_dim}, {self._tasks_repr()}{padding}"

    @staticmethod
    def _alike(x: Any, factor: torch.Tensor) -> bool:
        return False  # tokens never have the dtype of a table

    def _check_dtype(self, x: torch.Tensor, factor: torch.Tensor) -> None:
        if x.is_floating_point() or x.is_complex() or x.dtype == torch.bool:
            raise tn.TnshareError(
                f"x must be whole numbers, the rows of the table: found {x.dtype}; convert it with x.long()"
            )

    def _layout(self) -> tuple[int, ...]:
        return (0, 1)


def _as_stored(x: Any) -> AbstractContextManager[object]:
    """Products of factors are not shortened by autocast: looking rows up is not, in torch."""
    if isinstance(x, torch.Tensor) and autocasts(x.device.type):
        return torch.autocast(x.device.type, enabled=False)
    return nullcontext()
