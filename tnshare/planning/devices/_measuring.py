"""Time the operations of a framework."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial, reduce
from itertools import product
from typing import Generic

import numpy as np

from tnshare.ops import Array, NDArray, Ops

from ._profile import _BYTES, _CUBE, _LAYOUTS, _SIDE, GRID, SIZES, Profile

_TURNS = ((1, 0), (0, 2, 1))  # usual changes of order, of a matrix and of a stack of matrices
_LARGEST = 2**27  # flops of the largest product that is measured
_STACK = 2**18  # numbers in the stacks that are measured: they fit into a cache, as the grid is about flops


def measure(
    ops: Ops[Array],
    name: str,
    *,
    wait: Callable[[Array], object] | None = None,
    jit: Callable[[Callable[..., Array]], Callable[..., Array]] | None = None,
    seconds: float = 10.0,
    progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """Measure the device that ``ops`` runs on, with as many threads as it uses now.

    ``wait`` returns when an array is computed; reading its values does so everywhere, if not always fast.
    ``jit`` compiles a function, where programs are compiled: then a view is free, a call is what one more
    operation adds to a program, and turned operands are not told apart, since the compiler chooses orders.
    ``seconds`` is how long it takes, compiling apart; ``progress`` hears of steps that are done, and of all.
    """
    layouts = _LAYOUTS[:1] if jit else _LAYOUTS
    rounds = 1 if jit or seconds < 1 else 2
    total = rounds * (2 * len(layouts) * _CUBE + 10 * len(SIZES))
    budget = 0.6 * seconds / total  # the rest goes by with arrays that are made, and first runs
    watch = Stopwatch(ops, wait or ops.values, jit, budget)
    for _ in range(rounds):
        _time_calls(watch)
        _time_passes(watch)
        for layout in layouts:
            _time_products(watch, layout)
            if progress:
                progress(min(watch.done, total), total)
    if progress:
        progress(total, total)
    return _profile(name, watch.best, len(layouts))


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


def _time_calls(watch: Stopwatch[Array]) -> None:
    """What an operation costs that has nothing to do."""
    ops, tiny, small = watch.ops, watch.array(1, 1), watch.array(8, 8)
    watch.time(("launch",), ops.matmul, tiny, tiny, weight=8)
    if watch.jit:  # the smallest products become part of what is beside them
        for n in (1, 33):
            watch.time((n,), lambda a, b, n=n: reduce(ops.matmul, n * [b], a), small, small, weight=8)
    else:
        watch.time(("reshape",), lambda a: ops.reshape(a, (1, 1, 1)), tiny, weight=8)
        watch.time(("transpose",), lambda a: ops.transpose(a, (1, 0)), tiny, weight=8)


def _time_passes(watch: Stopwatch[Array]) -> None:
    """The sum of two arrays; copies of a matrix and of a stack of matrices into another order."""
    ops = watch.ops

    def turned(a: Array, order: tuple[int, ...], elements: int) -> Array:
        return ops.reshape(ops.transpose(a, order), (elements,))

    for size in SIZES:
        a, b = watch.array(size // (3 * _BYTES)), watch.array(size // (3 * _BYTES))
        watch.time(("add", size), ops.add, a, b, weight=4)
        elements = size // (2 * _BYTES)
        side = 2 ** int(math.log2(elements) / 2)
        shapes = (side, elements // side), (4, side // 2, elements // side // 2)
        for order, shape in zip(_TURNS, shapes, strict=True):
            turn = partial(turned, order=order, elements=elements)
            watch.time(("turn", size, order), turn, watch.array(*shape), weight=2)


def _time_products(watch: Stopwatch[Array], layout: tuple[bool, bool]) -> None:
    """Products over the grid, of two matrices and of two stacks of them."""
    for stack in (False, True):
        run = watch.ops.matmul
        for r, k, c in product(GRID, repeat=3):
            items = _items(stack, r, k, c)
            if 2 * items * r * k * c <= _LARGEST:
                before = (items,) if stack else ()
                left = watch.array(*before, r, k, turned=layout[0])
                right = watch.array(*before, k, c, turned=layout[1])
                watch.time((stack, layout, r, k, c), run, left, right)


def _items(stack: bool, r: int, k: int, c: int) -> int:
    return max(2, min(256, _STACK // (r * k + k * c + r * c))) if stack else 1


def _profile(name: str, times: Mapping[tuple[object, ...], float], layouts: int) -> Profile:
    """What the times say of a device."""
    launch = times["launch",]  # of a program, if there are programs
    if (33,) in times:
        call, view = max(times[33,] - times[1,], launch / 100) / 32, 0.0
    else:
        call, view = launch, (times["reshape",] + times["transpose",]) / 2

    def without(launch: float, took: float) -> float:
        return max(took - launch, took / 10)

    def rates(stack: bool, layout: tuple[bool, bool]) -> list[float]:
        found: list[float] = []
        for n, (r, k, c) in enumerate(product(GRID, repeat=3)):
            took = times.get((stack, layout, r, k, c))
            if took is not None:
                found.append(2 * _items(stack, r, k, c) * r * k * c / without(launch, took))
            else:  # too large: as fast as the fastest that is one size smaller
                steps = zip((_SIDE**2, _SIDE, 1), (r, k, c), strict=True)
                found.append(max(found[n - step] for step, size in steps if size > 1))
        return found

    turns = [[without(launch + view, times["turn", size, order]) for order in _TURNS] for size in SIZES]
    return Profile(
        name,
        "measured",
        call,
        view,
        tuple(size / without(launch, times["add", size]) for size in SIZES),
        tuple(size / math.sqrt(a * b) for size, (a, b) in zip(SIZES, turns, strict=True)),
        tuple(rate for layout in _LAYOUTS[:layouts] for rate in rates(False, layout)),
        tuple(rate for layout in _LAYOUTS[:layouts] for rate in rates(True, layout)),
    )
