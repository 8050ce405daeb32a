"""apply: a layer called in the four ways, training and inference; and where contracting stops to pay."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

from benchmarks.case import METHODS, Case, low_ranks
from benchmarks.measuring.rounds import Row, measure
from tnshare.planning import WAYS, Way

from . import Bench, Job

SHAPES = ((1024, 512, 10), (256, 256, 50), (64, 64, 1000), (128, 10, 10))
BATCHES = (1, 16, 128, 1024)
MAP = (256, 256, 8)  # i, o, tasks of the maps over rank and batch
MAP_RANKS = (8, 32, 64, 128, 192, 256)
MAP_LAF = dict(zip(MAP_RANKS, (1, 2, 3, 4, 6, 8), strict=True))  # its rank is along tasks
MAP_BATCHES = (1, 8, 64, 256, 1024, 4096)
_MAP_SHARE = 0.3  # of the time of a point


def jobs(bench: Bench, full: bool) -> Iterator[Job]:
    """The ways at some points, then the maps."""
    for case in cases(full):
        yield str(case), partial(_measure, bench, case)
    for case in maps(full):
        yield f"map: {case}", partial(_map, bench, case)


def cases(full: bool) -> Iterator[Case]:
    """In short one shape, training at batch 16 and inference at batch 128."""
    for (i, o, tasks), method, way in product(SHAPES if full else SHAPES[1:2], METHODS, WAYS):
        ranks = low_ranks(method, i, o, tasks)
        points = product(BATCHES, (True, False)) if full else ((16, True), (128, False))
        for batch, training in points:
            yield Case(method, ranks, i, o, tasks, way, batch, training)


def maps(full: bool) -> Iterator[Case]:
    """Ranks times batches: of Tucker in training, each task on its own rows, but for the largest batch;
    in full of all methods."""
    both: tuple[Way, ...] = ("each", "mixed")
    kinds = product(METHODS, both, (True, False)) if full else [("tucker", both[0], True)]
    for method, way, training in kinds:
        for rank, batch in product(MAP_RANKS, MAP_BATCHES if full else MAP_BATCHES[:-1]):
            ranks = {"laf": (MAP_LAF[rank],), "tucker": (rank, rank, 4), "tt": (rank, 4)}[method]
            i, o, tasks = MAP
            yield Case(method, ranks, i, o, tasks, way, batch, training)


def _measure(bench: Bench, case: Case, seconds: float) -> Row:
    row = measure(bench.apply(case), bench.meter, seconds)
    return {"case": case.json, "kind": "way", **row}


def _map(bench: Bench, case: Case, seconds: float) -> Row:
    made = bench.apply(case, peers=("dense",))
    row = measure(made, bench.meter, _MAP_SHARE * seconds, memory=False)
    return {"case": case.json, "kind": "map", **row}
