"""Embeddings without a framework: a table of vectors for each task."""

from __future__ import annotations

from dataclasses import dataclass

from tnshare.checks import whole
from tnshare.errors import TnshareError
from tnshare.layers._layer import Layer, Tasks, read_tasks
from tnshare.network import Spec


@dataclass(frozen=True)
class Embedding(Layer):
    """A table of vectors for each task: weights ``(n, e, task)``, of variance 1 at the start, no bias.

    The vector of ``padding_idx`` is 0 in every task, and no gradient flows through it.
    """

    num_embeddings: int
    embedding_dim: int
    tasks: Tasks
    spec: Spec
    padding_idx: int | None = None

    bias = False

    def __post_init__(self) -> None:
        count = whole("num_embeddings", self.num_embeddings)
        if (padding := self.padding_idx) is not None:
            padding = whole("padding_idx", padding, least=-count)
            if padding >= count:
                raise TnshareError(
                    f"padding_idx is out of range: expected {-count} <= padding_idx <= {count - 1}, found "
                    f"{padding}"
                )
            padding %= count
        self._set(
            num_embeddings=count,
            embedding_dim=whole("embedding_dim", self.embedding_dim),
            tasks=read_tasks(self.tasks, reserved=("b", "m", "n", "e", "g")),
            padding_idx=padding,
        )

    @property
    def weight_sizes(self) -> dict[str, int]:
        return {"n": self.num_embeddings, "e": self.embedding_dim}

    @property
    def variance(self) -> float:
        return 1.0

    @property
    def bias_size(self) -> int:
        return 0
