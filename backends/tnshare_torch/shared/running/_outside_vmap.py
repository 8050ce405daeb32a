"""Rows under vmap in compiled code: functions that would make a constant of the number of rows.

torch's batching rules of convolutions, norms, pools, concatenations and others read sizes as numbers (torch
2.13), so that a graph would serve one number of rows alone. Here such a function leaves vmap: its operands
get their rows back as a first axis, it is computed for all rows, and the result enters vmap again.
"""

# ruff: noqa: A002 (arguments have torch's names, by which they may be given)

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch.predispatch import _add_batch_dim, _remove_batch_dim
from torch.nn import functional
from torch.utils._pytree import tree_map_only

import tnshare as tn

Function = Callable[..., Any]


class VmappedRows:
    """The rows of a call: how many, and at which level of vmap."""

    def __init__(self, count: int, level: int) -> None:
        self.count, self.level = count, level

    def leave(self, x: torch.Tensor) -> torch.Tensor:
        """A tensor of one row as that of all rows, their axis first."""
        return _remove_batch_dim(x, self.level, self.count, 0)

    def enter(self, x: torch.Tensor, dim: int = 0) -> torch.Tensor:
        """A tensor of all rows as that of one."""
        return _add_batch_dim(x, dim, self.level)


def folding(function: Function) -> Function:
    """A function that treats each entry along the first axis alone: rows are more of these."""

    def folded(rows: VmappedRows, input: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        own = input.shape[0]

        def unfolded(y: torch.Tensor) -> torch.Tensor:
            return rows.enter(y.reshape(rows.count, own, *y.shape[1:]))

        return tree_map_only(
            torch.Tensor, unfolded, function(rows.leave(input).flatten(0, 1), *args, **kwargs)
        )

    return folded


def layer_norm(
    rows: VmappedRows,
    input: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`torch.nn.functional.layer_norm`."""
    y = functional.layer_norm(rows.leave(input), list(normalized_shape), eps=eps)
    return _scaled(rows.enter(y), weight, bias)


def group_norm(
    rows: VmappedRows,
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`torch.nn.functional.group_norm`."""
    y = folding(functional.group_norm)(rows, input, num_groups, eps=eps)
    return _scaled(y, *(_channels(tensor, input) for tensor in (weight, bias)))


def batch_norm(
    rows: VmappedRows,
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> torch.Tensor:
    """`torch.nn.functional.batch_norm` by statistics that are known."""
    if training or running_mean is None or running_var is None:
        raise tn.TnshareError("batch_norm by statistics of the batch: its rows are not independent")
    y = (input - _channels(running_mean, input)) * torch.rsqrt(_channels(running_var, input) + eps)
    return _scaled(y, *(_channels(tensor, input) for tensor in (weight, bias)))


def conv(
    rows: VmappedRows,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> torch.Tensor:
    """`torch.nn.functional.conv1d`, 2d and 3d, as a product of all windows with the row's own kernel."""
    kernel = tuple(weight.shape[2:])
    dims = len(kernel)
    if input.ndim == dims + 1:  # one image that is not in a batch
        return conv(rows, input[None], weight, bias, stride, padding, dilation, groups)[0]
    steps, gaps = _each(stride, dims), _each(dilation, dims)
    x = functional.pad(input, _ends(padding, kernel, gaps))
    for n in range(dims):
        x = x.unfold(2 + n, gaps[n] * (kernel[n] - 1) + 1, steps[n])[..., :: gaps[n]]
    count, places, own = x.shape[0], x.shape[2 : 2 + dims], weight.shape[1]  # x: (n, c, *places, *kernel)
    x = x.reshape(count, groups, own, *x.shape[2:]).movedim(tuple(range(-dims, 0)), tuple(range(3, 3 + dims)))
    size = own * _product(kernel)
    windows = x.reshape(count, groups, size, _product(places))
    y: torch.Tensor = weight.reshape(1, groups, weight.shape[0] // groups, size) @ windows
    y = y.reshape(count, weight.shape[0], *places)
    return y if bias is None else y + _channels(bias, y)


def embedding(
    rows: VmappedRows,
    input: torch.Tensor,
    weight: torch.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> torch.Tensor:
    """`torch.nn.functional.embedding` in the tables of all rows, one below the other."""
    if max_norm is not None or scale_grad_by_freq or sparse:
        every = max_norm, norm_type, scale_grad_by_freq, sparse
        return functional.embedding(input, weight, padding_idx, *every)
    tables, ids = rows.leave(weight), rows.leave(input)
    count, size = tables.shape[1:]
    first = torch.arange(rows.count, device=ids.device).reshape(-1, *[1] * (ids.ndim - 1)) * count
    # An id that is out of range stays so, and does not become one of the next row's table.
    placed = torch.where((ids >= 0) & (ids < count), ids + first, rows.count * count)
    y = functional.embedding(placed, tables.reshape(rows.count * count, size))
    if padding_idx is not None:  # its vector has no gradient
        padded = ids == (padding_idx if padding_idx >= 0 else padding_idx + count)
        y = torch.where(padded.unsqueeze(-1), y.detach(), y)
    return rows.enter(y)


def attention(
    rows: VmappedRows,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    **kwargs: Any,
) -> torch.Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`."""
    if attn_mask is not None:
        ones = [1] * (query.ndim - attn_mask.ndim)
        attn_mask = rows.leave(attn_mask.reshape(*ones, *attn_mask.shape))
    every = rows.leave(query), rows.leave(key), rows.leave(value)
    return rows.enter(functional.scaled_dot_product_attention(*every, attn_mask, **kwargs))


def cat(rows: VmappedRows, tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    """`torch.cat`."""
    return rows.enter(torch.cat([rows.leave(tensor) for tensor in tensors], dim if dim < 0 else dim + 1))


def dropout(
    rows: VmappedRows, input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> torch.Tensor:
    """`torch.nn.functional.dropout`."""
    if not training or p == 0:
        return input
    return input * (torch.rand_like(input) >= p) / (1 - p) if p < 1 else input * 0


def pad(
    rows: VmappedRows,
    input: torch.Tensor,
    pad: Sequence[int],
    mode: str = "constant",
    value: float | None = None,
) -> torch.Tensor:
    """`torch.nn.functional.pad`: modes other than "constant" leave the first axis alone."""
    if mode == "constant":
        return functional.pad(input, list(pad), mode, value)
    found: torch.Tensor = folding(functional.pad)(rows, input, list(pad), mode)
    return found


_FOLDED = (
    functional.max_pool1d,
    functional.max_pool2d,
    functional.max_pool3d,
    functional.avg_pool1d,
    functional.avg_pool2d,
    functional.avg_pool3d,
    functional.adaptive_avg_pool1d,
    functional.adaptive_avg_pool2d,
    functional.adaptive_avg_pool3d,
    functional.adaptive_max_pool1d,
    functional.adaptive_max_pool2d,
    functional.adaptive_max_pool3d,
    functional.interpolate,
    functional.pixel_shuffle,
    functional.unfold,
)
OUTSIDE_VMAP: dict[Function, Function] = {
    **{function: folding(function) for function in _FOLDED},
    **dict.fromkeys((functional.conv1d, functional.conv2d, functional.conv3d), conv),
    **dict.fromkeys((torch.cat, torch.concat, torch.concatenate), cat),
    functional.layer_norm: layer_norm,
    functional.group_norm: group_norm,
    functional.batch_norm: batch_norm,
    functional.embedding: embedding,
    functional.scaled_dot_product_attention: attention,
    functional.dropout: dropout,
    functional.pad: pad,
}


def _scaled(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.Tensor:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _channels(tensor: Any, like: torch.Tensor) -> Any:
    """A number for each channel, where channels are the second axis."""
    return None if tensor is None else tensor.reshape(-1, *[1] * (like.ndim - 2))


def _each(value: Any, dims: int) -> list[int]:
    return [value] * dims if isinstance(value, int) else list(value) * (dims // len(value))


def _ends(padding: Any, kernel: Sequence[int], gaps: Sequence[int]) -> list[int]:
    """What is to be padded, in the order of `functional.pad`: in front and behind, the last axis first."""
    if padding == "same":
        spare = [gap * (size - 1) for gap, size in zip(gaps, kernel, strict=True)]
        return [n for total in reversed(spare) for n in (total // 2, total - total // 2)]
    ends = _each(0 if padding == "valid" else padding, len(kernel))
    return [n for end in reversed(ends) for n in (end, end)]


def _product(sizes: Sequence[int]) -> int:
    found = 1
    for size in sizes:
        found = found * size
    return found
