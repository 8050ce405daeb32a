"""Which weights of a stack are copies of one another: ten copies of one network are one network."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from tnshare.ops import NDArray

_BEGINNING = 64  # numbers that tell most weights apart, so that few are read whole


def distinct(weights: Sequence[NDArray]) -> list[int]:
    """For each weight its number among those that differ, bit by bit, in the order in which they come."""
    beginnings = [(weight.shape, weight.flat[:_BEGINNING].tobytes()) for weight in weights]
    keys = beginnings if len({*beginnings}) == len(weights) else [_whole(weight) for weight in weights]
    numbers: dict[tuple[object, bytes], int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def columns(stack: NDArray, tasks: int) -> list[NDArray]:
    """The weight of each task, as views of a stack whose last axes are of so many tasks together."""
    return list(np.moveaxis(stack.reshape(-1, tasks), -1, 0))


def _whole(weight: NDArray) -> tuple[tuple[int, ...], bytes]:
    return weight.shape, blake2b(np.ascontiguousarray(weight).reshape(-1).view(np.uint8).data).digest()
