"""What tnshare costs beyond the arithmetic: a call, a plan, and one task called again in inference."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

import tnshare_torch as tnt
import torch
from torch.nn.functional import linear

import tnshare as tn
from benchmarks.grid import BATCHES, METHODS, SHAPES, WAYS, Point, unseen
from benchmarks.measuring.timing import MOST, Timing, in_a_row, interleave, noise_floor, once

from . import handwritten
from .torch_programs import arrays, called, layer

Job = tuple[str, Callable[[], dict[str, Any]]]
_TINY = (8, 8, 4)
_ROUNDS = 300


def jobs() -> Iterator[Job]:
    """Every measurement by its name."""
    for method in METHODS:
        for way in WAYS:
            for training in (True, False):
                point = Point(method, "low", _TINY, way, 4, training)
                yield f"call: {point}", partial(call, point)
    for point in unseen(50, seed=1):
        yield f"plan: {point}", partial(plan, point)
        yield f"cached plan: {point}", partial(cached_plan, point)
    for method in METHODS:
        for shape in SHAPES:
            for batch in BATCHES:
                point = Point(method, "low", shape, "one", batch, False)
                yield f"one task again: {point}", partial(again, point)


def call(point: Point) -> dict[str, Any]:
    """How much longer the forward call of a tiny layer takes than the quickest version written by hand."""
    torch.manual_seed(0)
    factors, x, task = arrays(point)
    ours = called(point, layer(point, factors, "auto"), x, task)
    by_hand = handwritten.programs(point.method, point.way, factors, x, task)
    programs: dict[str, Callable[[], object]] = {"tnshare": ours}
    programs |= {f"by hand: {name}": program.run for name, program in by_hand.items()}
    with torch.set_grad_enabled(point.training):
        hot = interleave(programs, rounds=_ROUNDS, calls=MOST)
        cold = interleave(programs, rounds=_ROUNDS)
    seconds, after_others = (_above_best(timings) for timings in (hot, cold))
    found = {"seconds": seconds, "after others": after_others, "noise": noise_floor(hot)}
    return {"kind": "call", "whole": hot["tnshare"].median, **found}


def plan(point: Point) -> dict[str, Any]:
    """The time of making the plan of a shape that was not met before."""
    _plan(Point("laf", "random", (5, 5, 5), point.way, 3, point.training, (2,)))  # imports, and what is lazy
    seconds, own = _plan(point)
    return {"kind": "plan", "seconds": seconds, "whole": own}


def cached_plan(point: Point) -> dict[str, Any]:
    """The time of asking for it again; the longest of ten, as the first of them may still fill a cache."""
    _plan(point)
    found = [_plan(point) for _ in range(10)]
    seconds, own = max(wall for wall, _ in found), median(own for _, own in found)
    return {"kind": "cached plan", "seconds": seconds, "whole": own}


def again(point: Point) -> dict[str, Any]:
    """One task in inference, called again, and a dense layer with the same weight and bias."""
    made = tnt.Linear(*point.shape, point.spec, strategy="auto").eval()
    x = torch.randn(point.batch, point.shape[0])
    with torch.no_grad():
        weight, bias = made.weight(3).contiguous(), made.get_parameter("bias")[3].clone()
        programs: dict[str, Callable[[], object]] = {
            "tnshare": lambda: made(x, 3),
            "dense": lambda: linear(x, weight, bias),
        }
        made(x, 3)
        timings = interleave(programs, rounds=200, calls=in_a_row(min(once(programs).values())))
    found = {name: timing.median for name, timing in timings.items()}
    noise = noise_floor(timings)
    return {"kind": "one task again", "seconds": found["tnshare"], "dense": found["dense"], "noise": noise}


def _above_best(timings: Mapping[str, Timing]) -> float:
    """The seconds by which tnshare takes longer than the quickest version written by hand."""
    return timings["tnshare"].median - min(
        t.median for name, t in timings.items() if name.startswith("by hand")
    )


def _plan(point: Point) -> tuple[float, float]:
    """Seconds by the clock, and of the process alone."""
    description = tn.Linear(*point.shape, spec=point.spec, bias=False)
    start, own = time.perf_counter(), time.process_time()
    description.candidates(point.way, point.batch, training=point.training)  # what a first call asks for
    return time.perf_counter() - start, time.process_time() - own
