"""Parts of a batch one after the other, with no intermediates kept for the backward pass."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

Function = Callable[[Sequence[torch.Tensor], torch.Tensor, tuple[torch.Tensor, ...]], torch.Tensor]


def in_chunks(
    function: Function,
    arrays: Sequence[torch.Tensor],
    x: torch.Tensor,
    ids: Sequence[torch.Tensor],
    axis: int,
    result_axis: int,
    size: int,
) -> torch.Tensor:
    """``function(arrays, x, ids)`` on ``size`` rows at a time; backwards each part is computed again.

    First derivatives only: the backward pass is no part of a graph itself.
    """
    result: torch.Tensor = _InChunks.apply(  # type: ignore[no-untyped-call]
        function, tuple(ids), axis, result_axis, size, x, *arrays
    )
    return result


class _InChunks(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        function: Function,
        ids: tuple[torch.Tensor, ...],
        axis: int,
        result_axis: int,
        size: int,
        x: torch.Tensor,
        *arrays: torch.Tensor,
    ) -> torch.Tensor:
        ctx.save_for_backward(x, *arrays)
        ctx.function, ctx.ids, ctx.axes, ctx.size = function, ids, (axis, result_axis), size
        device = x.device.type
        ctx.autocast = (device, torch.get_autocast_dtype(device), torch.is_autocast_enabled(device))
        result: torch.Tensor | None = None
        for start, rows, part_ids in _parts(x.shape[axis], size, ids):
            part = function(arrays, x.narrow(axis, start, rows), part_ids)
            if result is None:
                shape = list(part.shape)
                shape[result_axis] = x.shape[axis]
                result = part.new_empty(shape)
            result.narrow(result_axis, start, rows).copy_(part)
            del part
        assert result is not None
        return result

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[Any, ...]:
        x, *arrays = ctx.saved_tensors
        axis, result_axis = ctx.axes
        wants = ctx.needs_input_grad[5:]
        sums = [torch.zeros_like(a) if w else None for a, w in zip((x, *arrays), wants, strict=True)]
        leaves = [a.detach().requires_grad_(w) for a, w in zip(arrays, wants[1:], strict=True)]
        for leaf, total in zip(leaves, sums[1:], strict=True):
            leaf.grad = total  # each gradient is added to it, and let go, as soon as it is found
        device, dtype, enabled = ctx.autocast
        for start, rows, part_ids in _parts(x.shape[axis], ctx.size, ctx.ids):
            part_x = x.detach().narrow(axis, start, rows).requires_grad_(wants[0])
            with torch.enable_grad(), torch.autocast(device, dtype, enabled=enabled):
                part = ctx.function(leaves, part_x, part_ids)
            inputs = [leaf for leaf in (part_x, *leaves) if leaf.requires_grad]
            torch.autograd.backward(part, gradient.narrow(result_axis, start, rows), inputs=inputs)
            del part
            if sums[0] is not None:
                sums[0].narrow(axis, start, rows).copy_(part_x.grad)
        return (None, None, None, None, None, *sums)


def _parts(
    rows: int, size: int, ids: tuple[torch.Tensor, ...]
) -> Iterator[tuple[int, int, tuple[torch.Tensor, ...]]]:
    for start in range(0, rows, size):
        count = min(size, rows - start)
        yield start, count, tuple(column[start : start + count] for column in ids)
