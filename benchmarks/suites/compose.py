"""compose: the weights of all tasks, and of one, from their factors; and backwards to the factors."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product

from benchmarks.case import METHODS, Case, low_ranks
from benchmarks.measuring.rounds import Row, measure

from . import Bench, Job

SHAPES = ((1024, 512, 10), (256, 256, 50), (64, 64, 1000))


def jobs(bench: Bench, full: bool) -> Iterator[Job]:
    """Low ranks; in full, ranks of half of what is possible too."""
    for shape, method, one in product(SHAPES, METHODS, (False, True)):
        for ranks in (low_ranks(method, *shape), *([high_ranks(method, *shape)] if full else [])):
            case = Case(method, ranks, *shape, "one", 1, True)
            yield _name(case, one), partial(_measure, bench, case, one)


def high_ranks(method: str, i: int, o: int, tasks: int) -> tuple[int, ...]:
    """Half of the largest."""
    half = max(tasks // 2, 1)
    high = {"laf": (half,), "tucker": (i // 2, o // 2, half), "tt": (min(i, o * half) // 2, half)}
    return tuple(Case(method, high[method], i, o, tasks, "one", 1, True).spec.ranks)


def _measure(bench: Bench, case: Case, one: bool, seconds: float) -> Row:
    row = measure(bench.compose(case, one), bench.meter, seconds)
    return {"case": case.json, "kind": "one task" if one else "all tasks", **row}


def _name(case: Case, one: bool) -> str:
    ranks = "/".join(map(str, case.ranks))
    return f"{case.method} {ranks} {case.i}x{case.o} T={case.tasks}, {'one task' if one else 'all tasks'}"
