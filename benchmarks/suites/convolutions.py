"""conv: shared convolutions, of one task, of each task on its own images, and of images of mixed tasks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from benchmarks.case import METHODS
from benchmarks.measuring.rounds import Row, measure
from tnshare.planning import Way

from . import Job

WAYS: tuple[Way, ...] = ("one", "each", "mixed")
BATCH = {"one": 32, "each": 4, "mixed": 32}
# Channels, output channels, kernel, side of the images, tasks.
SHAPES = ((64, 64, 3, 14, 10), (16, 32, 5, 28, 10), (128, 128, 3, 8, 50))
LOW = {"laf": (2,), "tucker": (3, 3, 16, 16, 5), "tt": (3, 8, 32, 5)}
HIGH = {"laf": (5,), "tucker": (3, 3, 48, 48, 8), "tt": (3, 9, 128, 8)}


def jobs(bench: Any, full: bool) -> Iterator[Job]:
    """In short one shape and low ranks, in training."""
    from benchmarks.peers.conv_in_torch import ConvCase

    shapes, levels = (SHAPES, (LOW, HIGH)) if full else (SHAPES[:1], (LOW,))
    for (c, m, kernel, side, tasks), ranks, method, way in product(shapes, levels, METHODS, WAYS):
        for training in (True, False) if full else (True,):
            layer = method, ranks[method], c, m, kernel, side, tasks
            case = ConvCase(*layer, way, BATCH[way], training)
            yield str(case), partial(_measure, bench, case)


def _measure(bench: Any, case: Any, seconds: float) -> Row:
    from benchmarks.peers.conv_in_torch import programs

    return {"case": case.json, "kind": "conv", **measure(programs(bench, case), bench.meter, seconds)}
