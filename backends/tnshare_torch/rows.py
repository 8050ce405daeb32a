"""Outputs of several tasks as one."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

import tnshare as tn


def on(x: torch.Tensor, index: np.ndarray[Any, Any]) -> torch.Tensor:
    """An index where x is."""
    return torch.as_tensor(index, device=x.device)


def stacked(outputs: list[Any], must: bool) -> Any:
    """Outputs of all tasks as one, a task axis first; a list where their shapes differ, if that may be."""
    leaves = [tree_flatten(output) for output in outputs]
    shapes = {(str(spec), tuple(getattr(leaf, "shape", None) for leaf in flat)) for flat, spec in leaves}
    tensors = all(leaf is None or isinstance(leaf, torch.Tensor) for leaf in leaves[0][0])
    if (len(shapes) > 1 or not tensors) and must:
        raise tn.TnshareError(
            "the outputs of tasks differ in shape, or are no tensors: give a list of inputs, and get a list"
        )
    if len(shapes) > 1 or not tensors:
        return outputs
    columns = zip(*(flat for flat, _ in leaves), strict=True)
    put = [None if column[0] is None else torch.stack(column) for column in columns]
    return tree_unflatten(put, leaves[0][1])


def joined(outputs: list[Any], counts: Any, back: torch.Tensor, dim: int) -> Any:
    """Outputs of groups put together, rows in their old places."""
    leaves = [tree_flatten(output) for output in outputs]
    put: list[torch.Tensor | None] = []
    for column in zip(*(flat for flat, _ in leaves), strict=True):
        if all(part is None for part in column):
            put.append(None)
            continue
        for part, count in zip(column, counts, strict=True):
            if not isinstance(part, torch.Tensor) or part.ndim <= dim or part.shape[dim] != count:
                raise tn.TnshareError(
                    f"rows of mixed tasks need outputs with rows along axis {dim}: run one task at a time"
                )
        if len({tuple(n for d, n in enumerate(part.shape) if d != dim) for part in column}) > 1:
            raise tn.TnshareError(
                "rows of mixed tasks cannot be put together, tasks have heads of different sizes: run one "
                "task at a time, or give a list of inputs"
            )
        put.append(torch.cat(column, dim).index_select(dim, back))
    return tree_unflatten(put, leaves[0][1])
