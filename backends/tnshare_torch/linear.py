"""Linear layers of many tasks as one module."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

import tnshare as tn
from tnshare.layer import Tasks
from tnshare.spec import Spec
from tnshare.ways import Way

from .ops import ops


class Linear(torch.nn.Module):
    """``torch.nn.Linear`` for every one of many tasks, their weights softly shared.

    ``layer(x, 3)`` is task 3, ``layer(x, ids)`` gives each row a task of its own, ``layer(xs)`` sends row t
    through task t, ``layer.fan_out(x)`` the same x through every task. Parameters are the factors, under the
    names of ``layer.description.network``, and the bias (T, out); frozen codes are buffers.
    """

    bias: torch.Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        tasks: Tasks,
        spec: Spec,
        bias: bool = True,
        *,
        seed: int = 0,
        scheme: Literal["direct", "decomposed"] = "direct",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.description = tn.Linear(in_features, out_features, tasks=tasks, spec=spec, bias=bias)
        self.seed, self.scheme = seed, scheme
        dtype = torch.get_default_dtype() if dtype is None else dtype
        if not (dtype.is_floating_point or dtype.is_complex):
            raise tn.TnshareError(f"dtype must be a floating or complex one: found {dtype}")
        for name, shape in self.description.shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        for name, value in self.description.frozen.items():
            self.register_buffer(name, torch.tensor(value, device=device, dtype=dtype))
        if not bias:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Start again from the initial values of the seed."""
        first = next(self.parameters())
        double = first.dtype in (torch.float64, torch.complex128)
        plain = np.complex128 if first.is_complex() else np.float64 if double else np.float32
        with torch.no_grad():
            for name, value in self.description.init(self.seed, plain, self.scheme).items():
                self.get_parameter(name).copy_(torch.from_numpy(value))

    def load_decomposition(self, decomposition: tn.Decomposition) -> None:
        """Go on from a decomposition of trained weights with the axes (in, out, task); the bias is kept."""
        with torch.no_grad():
            for name, value in self.description.adopt(decomposition).items():
                self.get_parameter(name).copy_(torch.from_numpy(value))

    def forward(self, x: torch.Tensor, task: Any = None) -> torch.Tensor:
        """The outputs of one task, of a task for each row, or of all tasks, each on its own row of x."""
        tensors = self._tensors()
        self._check(x, task, tensors)
        training = torch.is_grad_enabled()
        return tn.apply(self.description, tensors, x, task, ops=ops, training=training)

    def fan_out(self, x: torch.Tensor) -> torch.Tensor:
        """The same x (..., in) through every task: (T, ..., out)."""
        tensors = self._tensors()
        self._check(x, None, tensors)
        return tn.fan_out(self.description, tensors, x, ops=ops, training=torch.is_grad_enabled())

    def weight(self, task: Any = None) -> torch.Tensor:
        """Composed weights in torch's layout: (out, in) for one task, (T, out, in) for all or for a list."""
        composed = tn.weight(self.description, self._tensors(), task, ops=ops)
        return composed.permute(*range(2, composed.ndim), 1, 0)

    def explain(self, batch: int, way: Way = "mixed", *, training: bool = True) -> str:
        """What is computed for a batch of that many rows, and what it costs."""
        return self.description.plan(way, batch, training=training).explain()

    def source(self, batch: int, way: Way = "mixed", *, training: bool = True) -> str:
        """What is computed for a batch of that many rows, as torch code that runs when pasted."""
        plan = self.description.plan(way, batch, training=training)
        return f"from torch import matmul, multiply, permute as transpose, reshape\n\n\n{plan.source()}"

    def extra_repr(self) -> str:
        """What the constructor was given."""
        d = self.description
        tasks = d.task_sizes
        count = tasks["task"] if list(tasks) == ["task"] else tasks
        return (
            f"in_features={d.in_features}, out_features={d.out_features}, tasks={count}, "
            f"spec={d.spec!r}, bias={d.bias}"
        )

    def _tensors(self) -> dict[str, torch.Tensor]:
        # By attribute, so that a parametrised factor (weight_norm, pruning) is the computed one.
        return {name: getattr(self, name) for name in (*self.description.shapes, *self.description.frozen)}

    def _check(self, x: torch.Tensor, task: Any, tensors: dict[str, torch.Tensor]) -> None:
        """Say what torch's own errors would not: x and ids that do not go with the layer."""
        if not isinstance(x, torch.Tensor):
            raise tn.TnshareError(f"x must be a torch.Tensor: found {type(x).__name__}")
        factor = next(iter(tensors.values()))
        if x.dtype != factor.dtype and not torch.is_autocast_enabled(x.device.type):
            raise tn.TnshareError(
                f"x must have the dtype of the layer, {factor.dtype}: found {x.dtype}; "
                f"convert it with x.to({factor.dtype})"
            )
        for name, tensor in (("x", x), ("task ids", task)):
            wrong = isinstance(tensor, torch.Tensor) and tensor.device != factor.device
            if wrong and (name == "x" or tensor.is_meta):  # ids on the CPU index an array on any device
                raise tn.TnshareError(
                    f"{name} must be on the device of the layer, {factor.device}: found {tensor.device}; "
                    f"move it with {'x' if name == 'x' else 'ids'}.to({str(factor.device)!r})"
                )
