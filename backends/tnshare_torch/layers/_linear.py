"""Linear layers of many tasks as one module."""

from __future__ import annotations

from typing import Any

import torch

import tnshare as tn
from tnshare.layers import Tasks
from tnshare.network import Spec
from tnshare.planning import Way

from ._task_layer import TaskLayer


class Linear(TaskLayer):
    """``torch.nn.Linear`` for every one of many tasks, their weights softly shared.

    ``layer(x, 3)`` is task 3, ``layer(x, ids)`` gives each row a task of its own, ``layer(xs)`` sends row t
    through task t, ``layer.fan_out(x)`` the same x through every task. Parameters are the factors, under the
    names of ``layer.description.network``, and the bias (T, out); frozen codes are buffers. Keywords are
    those of `TaskLayer`.
    """

    description: tn.Linear

    def __init__(
        self,
        in_features: int,
        out_features: int,
        tasks: Tasks,
        spec: Spec,
        bias: bool = True,
        **keywords: Any,
    ) -> None:
        super().__init__(tn.Linear(in_features, out_features, tasks=tasks, spec=spec, bias=bias), **keywords)
        self.in_features, self.out_features = in_features, out_features

    def extra_repr(self) -> str:
        """What the constructor was given."""
        d = self.description
        return (
            f"in_features={d.in_features}, out_features={d.out_features}, {self._tasks_repr()}, bias={d.bias}"
        )

    def _layout(self) -> tuple[int, ...]:
        return (1, 0)

    def _traced(self, way: Way, ids: Any, *inputs: Any) -> torch.Tensor:
        x = inputs[2]
        if way == "mixed" and x.ndim > 2:  # rows and their vectors are folded into one axis
            ids = [column.reshape(-1, *[1] * (x.ndim - 2)).expand(x.shape[:-1]).reshape(-1) for column in ids]
        return super()._traced(way, ids, *inputs)
