"""A stack of convolutions, each with a kernel of its own, by torch's."""

from __future__ import annotations

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.nn import functional

from tnshare.ops import Geometry

_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_FEW = 4  # rows of a kernel, up to which one convolution with many groups is faster than many convolutions


def convolve(
    x: torch.Tensor,
    kernels: torch.Tensor,
    counts: tuple[int, ...] | None,
    bias: torch.Tensor | None,
    geometry: Geometry,
) -> torch.Tensor:
    """What `tnshare.ops.Ops` says of ``convolve``."""
    x, padding = _padded(x, geometry)
    many = kernels.shape[0]
    if many == 1:
        return _one(x, kernels[0], None if bias is None else bias[0], padding, geometry)
    if _are_few(x.shape[0], many, counts):
        return _grouped(x, kernels, bias, padding, geometry)
    if counts is None:
        rows = x.reshape(many, x.shape[0] // many, *x.shape[1:]).unbind(0)
    else:
        rows = x.split(list(counts))  # type: ignore[no-untyped-call]
    biases = [None] * many if bias is None else bias.unbind(0)
    parts = zip(rows, kernels.unbind(0), biases, strict=True)
    return torch.cat([_one(part, kernel, own, padding, geometry) for part, kernel, own in parts])


def _are_few(rows: int, many: int, counts: tuple[int, ...] | None) -> bool:
    """Whether each kernel has few rows, and equally many; while compiling, whether each has one."""
    if counts is not None:
        return max(counts) <= _FEW and len(set(counts)) == 1
    if torch.compiler.is_compiling():  # numbers may be symbols, and a question would be asked of each anew
        return statically_known_true(rows == many)
    return rows <= _FEW * many


def _one(
    x: torch.Tensor,
    kernel: torch.Tensor,
    bias: torch.Tensor | None,
    padding: list[int],
    geometry: Geometry,
    groups: int = 1,
) -> torch.Tensor:
    run = _CONVOLUTIONS[len(geometry.kernel)]
    y: torch.Tensor = run(
        _no_view(x), kernel, bias, geometry.stride, padding, geometry.dilation, groups * geometry.groups
    )
    return y


def _grouped(
    x: torch.Tensor, kernels: torch.Tensor, bias: torch.Tensor | None, padding: list[int], geometry: Geometry
) -> torch.Tensor:
    """All at once: the channels of the kernels side by side, in groups that do not see each other."""
    many, outputs = kernels.shape[:2]
    rows, channels, sizes = x.shape[0] // many, x.shape[1], x.shape[2:]
    beside = x.reshape(many, rows, channels, *sizes).transpose(0, 1).reshape(rows, many * channels, *sizes)
    wide = kernels.reshape(many * outputs, *kernels.shape[2:])
    y = _one(beside, wide, None if bias is None else bias.reshape(-1), padding, geometry, many)
    return y.reshape(rows, many, outputs, *y.shape[2:]).transpose(0, 1).reshape(-1, outputs, *y.shape[2:])


def _no_view(x: torch.Tensor) -> torch.Tensor:
    """The same numbers; in compiled training as the result of an operation.

    Inductor keeps the input of a convolution for the backward pass, in an order that it chooses. Of a view
    whose sizes are symbols it asks which stride is the longest, and fails (torch 2.13). A clone it would
    leave out.
    """
    if torch.compiler.is_compiling() and torch.is_grad_enabled():
        return x + 0
    return x


def _padded(x: torch.Tensor, geometry: Geometry) -> tuple[torch.Tensor, list[int]]:
    """What torch's convolutions do not pad themselves: unequal ends, and other things than zeros."""
    pairs = geometry.padding
    if geometry.mode == "zeros" and all(front == back for front, back in pairs):
        return x, [front for front, _ in pairs]
    flat = [n for pair in reversed(pairs) for n in pair]
    mode = "constant" if geometry.mode == "zeros" else geometry.mode
    return functional.pad(x, flat, mode), [0] * len(pairs)
