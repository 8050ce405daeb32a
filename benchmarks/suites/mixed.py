"""mixed: rows with a task of their own, as rows and tasks grow; against loops, dense weights and adapters."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

from benchmarks.case import METHODS, Case
from benchmarks.measuring.rounds import Row, measure

from . import Bench, Job

SIDE = 256
RANKS = {"laf": (8,), "tucker": (32, 64, 16), "tt": (32, 16)}


def jobs(bench: Bench, full: bool) -> Iterator[Job]:
    """In short Tucker alone, with up to 1,024 rows of up to 1,000 tasks."""
    rows = (16, 128, 1024, 8192) if full else (16, 128, 1024)
    tasks = (10, 100, 1000, 10_000) if full else (10, 100, 1000)
    for method, count, batch, training in product(
        METHODS if full else ("tucker",), tasks, rows, (True, False)
    ):
        case = Case(method, RANKS[method], SIDE, SIDE, count, "mixed", batch, training)
        yield str(case), partial(_measure, bench, case)


def _measure(bench: Bench, case: Case, seconds: float) -> Row:
    return {"case": case.json, "kind": "mixed", **measure(bench.apply(case), bench.meter, seconds)}
