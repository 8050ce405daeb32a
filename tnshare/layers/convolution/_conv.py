"""Convolutions without a framework: what their kernels are made of, and where they are laid on an input."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from tnshare.checks import is_whole, listed, whole
from tnshare.errors import TnshareError
from tnshare.layers._layer import Layer, Tasks, read_tasks
from tnshare.network import Spec
from tnshare.ops import Geometry, PaddingMode


@dataclass(frozen=True)
class Conv(Layer):
    """A convolution in 1 to 3 dimensions; kernels are stacked ``(d, h, w, c, m, task)``, as in the paper.

    ``kernel`` is its size in each dimension, so it says how many there are. Ranks are in the order of the
    kernel's dimensions, input channels, output channels, task. ``stride``, ``padding`` (also ``"same"`` and
    ``"valid"``) and ``dilation`` are numbers for all dimensions or one for each, as in ``torch.nn``.
    """

    in_channels: int
    out_channels: int
    kernel: tuple[int, ...]
    tasks: Tasks
    spec: Spec
    groups: int = 1
    bias: bool = True
    stride: int | tuple[int, ...] = 1
    padding: int | tuple[int, ...] | tuple[tuple[int, int], ...] | Literal["same", "valid"] = 0
    dilation: int | tuple[int, ...] = 1
    padding_mode: PaddingMode = "zeros"

    def __post_init__(self) -> None:
        one = is_whole(self.kernel) or not isinstance(self.kernel, Iterable)
        several: Any = tuple(self.kernel) if isinstance(self.kernel, str) else self.kernel
        kernel = (self.kernel,) if one else listed("kernel", several, "sizes")
        if not 1 <= len(kernel) <= 3:
            raise TnshareError(f"a kernel has 1, 2 or 3 dimensions: found kernel={self.kernel!r}")
        c, m = whole("in_channels", self.in_channels), whole("out_channels", self.out_channels)
        groups = whole("groups", self.groups)
        if c % groups or m % groups:
            raise TnshareError(f"groups={groups} must divide in_channels={c} and out_channels={m}")
        if self.padding_mode not in get_args(PaddingMode):
            raise TnshareError(
                f"padding_mode must be one of {get_args(PaddingMode)}: found {self.padding_mode!r}"
            )
        sizes = tuple(whole("kernel", size) for size in kernel)
        stride = _entries("stride", self.stride, len(sizes), least=1)
        dilation = _entries("dilation", self.dilation, len(sizes), least=1)
        self._set(
            in_channels=c,
            out_channels=m,
            kernel=sizes,
            groups=groups,
            tasks=read_tasks(self.tasks, reserved=("b", "m", "c", "d", "h", "w", "g", "i", "o")),
            stride=stride,
            dilation=dilation,
            padding=_padding(self.padding, sizes, stride, dilation),
        )

    @cached_property
    def geometry(self) -> Geometry:
        """Where the kernel is laid."""
        laid: Any = self.kernel, self.stride, self.padding, self.dilation, self.groups, self.padding_mode
        return Geometry(*laid)

    @property
    def space(self) -> tuple[str, ...]:
        """The axes of the kernel's dimensions."""
        return tuple("dhw"[-len(self.kernel) :])

    @property
    def weight_sizes(self) -> dict[str, int]:
        spatial = dict(zip(self.space, self.kernel, strict=True))
        return {**spatial, "c": self.in_channels // self.groups, "m": self.out_channels}

    @property
    def variance(self) -> float:
        return 1 / (3 * math.prod(self.kernel) * (self.in_channels // self.groups))

    @property
    def bias_size(self) -> int:
        return self.out_channels if self.bias else 0


def _entries(name: str, value: Any, count: int, least: int) -> tuple[int, ...]:
    """A number for every dimension, given as one for all or as one for each."""
    if not isinstance(value, Iterable) or isinstance(value, str):
        return (whole(name, value, least=least),) * count
    found = tuple(whole(name, part, least=least) for part in value)
    if len(found) not in (1, count):
        raise TnshareError(f"{name} must be one number, or {count}, one for each dimension: found {value!r}")
    return found * (count // len(found))


def _padding(
    value: Any, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> tuple[tuple[int, int], ...]:
    """Places in front and behind, along every dimension."""
    count = len(kernel)
    if value == "valid":
        return ((0, 0),) * count
    if isinstance(value, str) and value == "same":
        if max(stride) > 1:
            raise TnshareError(f"padding='same' needs stride 1, or the sizes would differ: found {stride}")
        spare = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return tuple((n // 2, n - n // 2) for n in spare)
    if isinstance(value, str):
        raise TnshareError(f"padding must be 'same', 'valid' or whole numbers: found {value!r}")
    if isinstance(value, Iterable) and all(isinstance(part, tuple | list) for part in value):
        pairs = tuple(_entries("padding", part, 2, least=0) for part in value)
        if len(pairs) != count:
            raise TnshareError(f"padding needs a pair for each of {count} dimensions: found {value!r}")
        return pairs  # type: ignore[return-value]
    return tuple((n, n) for n in _entries("padding", value, count, least=0))
