"""What an operation costs on a device: a profile of it, measured here or named."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from .ops import Array, Ops

# Rows, inner axis and columns of the products that a profile knows the speed of; others lie in between.
GRID = (1, 4, 16, 64, 256, 1024)
_STRIDES = (len(GRID) ** 2, len(GRID), 1)
_LARGEST = 2**27  # flops of the largest product that is measured
_BYTES = 4  # of a number: profiles are of single precision


@dataclass(frozen=True)
class Profile:
    """How fast a device is: what a call costs, an item of a batch, a byte, and a flop in products by shape.

    ``bandwidth`` is that of reading and writing in order, ``turning`` of copying into another order.
    ``rates`` are flops a second of the products of ``GRID`` x ``GRID`` x ``GRID`` (rows, inner, columns).
    """

    name: str
    source: str
    call: float
    item: float
    bandwidth: float
    turning: float
    rates: tuple[float, ...]

    def __hash__(self) -> int:
        return hash((self.name, self.call, self.bandwidth))  # plans are looked up by profile at every call

    @classmethod
    def roofline(cls, name: str, *, peak: float, bandwidth: float, call: float, source: str) -> Profile:
        """A device known by its published figures alone: thin products are bound by what they read."""
        return cls(name, source, call, 0.0, bandwidth, bandwidth, (peak,) * len(GRID) ** 3)

    def product(self, batch: int, rows: int, inner: int, columns: int) -> float:
        """Seconds for a batch of products (rows x inner) (inner x columns)."""
        flops = 2 * batch * rows * inner * columns
        moved = _BYTES * batch * (rows * inner + inner * columns + rows * columns)
        items = self.item * batch if batch > 1 else 0.0
        return self.call + items + max(flops / self.rate(rows, inner, columns), moved / self.bandwidth)

    def outer(self, batch: int, rows: int, columns: int) -> float:
        """Seconds for a batch of outer products, entry by entry."""
        return self.call + _BYTES * batch * (rows + columns + rows * columns) / self.bandwidth

    def copy(self, elements: int) -> float:
        """Seconds for turning an array into another order."""
        return self.call + 2 * _BYTES * elements / self.turning

    def rate(self, rows: int, inner: int, columns: int) -> float:
        """Flops a second, interpolated between the logarithms of the grid."""
        places = [_place(size) for size in (rows, inner, columns)]
        logarithm = 0.0
        for corner in product((0, 1), repeat=3):
            weight = math.prod(part if up else 1 - part for up, (_, part) in zip(corner, places, strict=True))
            if weight:
                index = 0
                for up, (low, _) in zip(corner, places, strict=True):
                    index = index * len(GRID) + low + up
                logarithm += weight * math.log(self.rates[index])
        return math.exp(logarithm)


def measure(
    ops: Ops[Array], name: str, *, wait: Callable[[Array], object] | None = None, seconds: float = 6.0
) -> Profile:
    """Measure the device that ``ops`` runs on, with as many threads as it uses now.

    ``wait`` returns when an array is computed; reading its values does so everywhere, if not always fast.
    """
    finish = wait or ops.values
    rng = np.random.default_rng(0)

    def array(*shape: int) -> Array:
        return ops.asarray(rng.standard_normal(shape).astype(np.float32))

    each = seconds / (len(GRID) ** 3 + 30)
    tiny = array(1, 1)
    call = _seconds(ops.matmul, (tiny, tiny), finish, 10 * each)
    small = array(256, 4, 4)
    item = max(_seconds(ops.matmul, (small, small), finish, 10 * each) - call, 0.0) / 256
    large, other = array(1024, 4096), array(1024, 4096)  # the size of weights
    added = _seconds(ops.add, (large, other), finish, 10 * each)
    turned = ops.transpose(large, (1, 0))
    copied = _seconds(ops.reshape, (turned, (1024 * 4096,)), finish, 10 * each)
    rates: list[float] = []
    for n, (r, k, c) in enumerate(product(GRID, repeat=3)):
        if 2 * r * k * c > _LARGEST:  # as fast as the fastest that is one size smaller
            rates.append(
                max(rates[n - step] for step, size in zip(_STRIDES, (r, k, c), strict=True) if size > 1)
            )
            continue
        took = _seconds(ops.matmul, (array(r, k), array(k, c)), finish, each)
        rates.append(2 * r * k * c / max(took - call, took / 10))
    moved = 2 * _BYTES * 1024 * 4096
    return Profile(name, "measured", call, item, 1.5 * moved / added, moved / copied, tuple(rates))


def _seconds(
    run: Callable[..., Array], operands: tuple[Any, ...], finish: Callable[[Array], object], budget: float
) -> float:
    """The shortest of as many runs as fit into the budget; others were disturbed."""
    finish(run(*operands))
    best, spent = math.inf, 0.0
    while spent < budget:
        start = time.perf_counter()
        finish(run(*operands))
        took = time.perf_counter() - start
        best, spent = min(best, took), spent + took
    return best


def _place(size: int) -> tuple[int, float]:
    """The place of a size on the grid: the point below it, and how far it is on the way to the next."""
    steps = math.log(max(size, 1)) / math.log(GRID[1])
    low = min(int(steps), len(GRID) - 2)
    return low, min(steps - low, 1.0)
