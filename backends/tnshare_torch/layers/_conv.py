"""Convolutions of many tasks as one module."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import tnshare as tn
from tnshare.checks import is_whole
from tnshare.layers import Tasks
from tnshare.network import Spec
from tnshare.ops import PaddingMode

from ._task_layer import TaskLayer

Size = int | Sequence[int]


class _Conv(TaskLayer):
    """``torch.nn.Conv...`` for every one of many tasks, their kernels softly shared.

    Arguments are torch's, and ``tasks`` and ``spec``: ranks are in the order of the kernel's dimensions,
    input channels, output channels, task. Inputs are (..., channels, *places); for ``layer(x, ids)`` one
    image has one task: (B, channels, *places). Other keywords are those of `TaskLayer`.
    """

    description: tn.Conv
    dims: ClassVar[int]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        tasks: Tasks,
        spec: Spec,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: PaddingMode = "zeros",
        **keywords: Any,
    ) -> None:
        sized = is_whole(kernel_size) or isinstance(kernel_size, Sequence)
        kernel: Any = self._entries(kernel_size) if sized else ()
        if len(kernel) != self.dims:
            raise tn.TnshareError(
                f"kernel_size must be a number, or {self.dims}, one for each dimension: found {kernel_size!r}"
            )
        where: Any = stride, padding, dilation, padding_mode
        description = tn.Conv(in_channels, out_channels, kernel, tasks, spec, groups, bias, *where)
        super().__init__(description, **keywords)
        self._padding = padding
        self.in_channels, self.out_channels, self.kernel_size = in_channels, out_channels, kernel
        self.stride, self.padding, self.dilation = map(self._entries, (stride, padding, dilation))
        self.groups, self.padding_mode = groups, padding_mode

    def extra_repr(self) -> str:
        """What the constructor was given."""
        d = self.description
        parts = [f"{d.in_channels}, {d.out_channels}, kernel_size={d.kernel}, stride={d.stride}"]
        parts += [self._tasks_repr()]
        if any(map(any, d.geometry.padding)):
            parts.append(f"padding={self._padding!r}")
        if set(d.geometry.dilation) != {1}:
            parts.append(f"dilation={d.dilation}")
        if d.groups != 1:
            parts.append(f"groups={d.groups}")
        if not d.bias:
            parts.append("bias=False")
        if d.padding_mode != "zeros":
            parts.append(f"padding_mode={d.padding_mode!r}")
        return ", ".join(parts)

    def _entries(self, size: Any) -> Any:
        """One for each dimension, as torch's modules have them; words as they are."""
        return (size,) * self.dims if is_whole(size) else size if isinstance(size, str) else tuple(size)

    def _layout(self) -> tuple[int, ...]:
        return (self.dims + 1, self.dims, *range(self.dims))


class Conv1d(_Conv):
    """``torch.nn.Conv1d`` for every one of many tasks, their kernels softly shared: see its base."""

    dims = 1


class Conv2d(_Conv):
    """``torch.nn.Conv2d`` for every one of many tasks, their kernels softly shared: see its base."""

    dims = 2


class Conv3d(_Conv):
    """``torch.nn.Conv3d`` for every one of many tasks, their kernels softly shared: see its base."""

    dims = 3
