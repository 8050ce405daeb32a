"""Time the operations of a framework."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Generic

import numpy as np

from .ops import Array, NDArray, Ops


class Stopwatch(Generic[Array]):
    """Times operations, each within a budget of seconds, and keeps the best time of each by name.

    The speed of a machine changes within seconds: who times everything twice, at different moments, knows it
    better than who times everything for twice as long.
    """

    def __init__(
        self,
        ops: Ops[Array],
        finish: Callable[[Array], object],
        jit: Callable[[Callable[..., Array]], Callable[..., Array]] | None,
        budget: float,
    ) -> None:
        self.ops, self.finish, self.jit, self.budget = ops, finish, jit, budget
        self.best: dict[tuple[object, ...], float] = {}
        self.done = 0
        self._numbers: NDArray = np.random.default_rng(0).standard_normal(2**16, np.float32)

    def array(self, *shape: int, turned: bool = False) -> Array:
        """An array of random numbers; if turned, as a view whose last two axes have changed places."""
        if not turned:
            return self.ops.asarray(np.resize(self._numbers, shape))
        order = (*range(len(shape) - 2), len(shape) - 1, len(shape) - 2)
        return self.ops.transpose(self.array(*(shape[axis] for axis in order)), order)

    def time(
        self, name: tuple[object, ...], run: Callable[..., Array], *arrays: Array, weight: int = 1
    ) -> None:
        """Keep the shortest of as many runs as fit into the budget; others were disturbed."""
        run = self.jit(run) if self.jit else run
        self.finish(run(*arrays))
        best, spent, repeat = math.inf, 0.0, 1
        while spent < weight * self.budget or not spent:
            start = time.perf_counter()
            for _ in range(repeat - 1):
                run(*arrays)
            self.finish(run(*arrays))
            took = time.perf_counter() - start
            best, spent = min(best, took / repeat), spent + took
            repeat = max(1, min(16, int(2e-5 / max(best, 1e-7))))  # short runs would time the clock
        self.best[name] = min(best, self.best.get(name, math.inf))
        self.done += 1
