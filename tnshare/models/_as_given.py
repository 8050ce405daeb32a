"""A weight whose factors would be larger than what came in, kept as it was; and how much came in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tnshare.decomposition import Decomposition, distinct
from tnshare.network import LAF
from tnshare.ops import NDArray

Kept = Decomposition | NDArray | None  # factors, one weight for all tasks, or each task its own


def given_size(weights: Sequence[NDArray]) -> int:
    """The numbers in the weights of all tasks, copies counted once."""
    return sum({number: w.size for number, w in zip(distinct(weights), weights, strict=True)}.values())


def is_exact(keywords: Mapping[str, Any]) -> bool:
    """Whether a size is asked for, or every digit: that is done whatever it takes."""
    return any(keywords.get(k) is not None for k in ("ranks", "max_parameters")) or keywords.get("eps") == 0


def not_larger(d: Decomposition, weights: Sequence[NDArray], stack: NDArray) -> tuple[Kept, str]:
    """What is kept of a weight without an error if that is smaller than its factors, and what to say of it.

    Copies stay one weight: that of all tasks, or with codes that say which of them a task has.
    """
    numbers = distinct(weights)
    count, size, tasks = 1 + max(numbers), weights[0].size, len(weights)
    why = (
        f"within eps, {d.spec!r} would be larger than what came in, {d.network.parameters:,} parameters for "
        f"{count * size:,}; a larger eps=, or ranks= or max_parameters=, shares it all the same"
    )
    if count == 1 < tasks:
        return weights[0], f"kept as it was, one weight for all tasks, since it is the same in all: {why}"
    chosen = count * (size + tasks)
    if chosen < tasks * size and chosen <= d.network.parameters:
        return _copies(d, numbers, stack), f"kept as it was, {count} different weights of {tasks}: {why}"
    if tasks * size <= d.network.parameters:
        return None, f"kept as it was, each task its own: {why}"
    return d, ""


def _copies(d: Decomposition, numbers: Sequence[int], stack: NDArray) -> Decomposition:
    """The weights that differ, and for each task a code that is 1 for its own and 0 for the others."""
    spec = LAF(1 + max(numbers))
    (task,) = d.network.tasks
    network = spec.checked({a: d.network.sizes[a] for a in d.network.weight_axes}, {task: len(numbers)})
    dtype = next(iter(d.factors.values())).dtype
    first = [numbers.index(number) for number in range(spec.rank)]
    found = np.moveaxis(stack, -1, 0)[first], np.eye(spec.rank)[list(numbers)]
    factors = {
        node.name: np.ascontiguousarray(f, dtype) for node, f in zip(network.nodes, found, strict=True)
    }
    return replace(
        d, spec=spec, network=network, factors=factors, error=0.0, deviation_error=0.0, warnings=()
    )
