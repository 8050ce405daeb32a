"""Compare programs fairly on a busy machine: rounds in which they run in an order that is shuffled anew."""

from __future__ import annotations

import random
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

AGAIN = " (again)"


@dataclass(frozen=True)
class Timing:
    """Seconds for one run of a program: the median over the rounds, and the quartiles."""

    median: float
    low: float
    high: float
    rounds: int


def interleave(
    programs: Mapping[str, Callable[[], object]], *, rounds: int, seed: int = 0, label: str = ""
) -> dict[str, Timing]:
    """Time each program once a round, after a round that does not count.

    The first program also runs a second time in every round, under its name with ``AGAIN``: the ratio of the
    two is the noise floor, which no other ratio can be finer than.
    """
    first = next(iter(programs))
    entries = {**programs, first + AGAIN: programs[first]}
    seconds: dict[str, list[float]] = {name: [] for name in entries}
    order = list(entries)
    shuffle = random.Random(seed).shuffle
    for n in range(rounds + 1):
        shuffle(order)
        for name in order:
            start = time.perf_counter()
            entries[name]()
            if n:
                seconds[name].append(time.perf_counter() - start)
        progress(label, n, rounds)
    return {name: _timing(values) for name, values in seconds.items()}


def ratio(timings: Mapping[str, Timing], name: str, reference: str) -> float:
    """How many times as long the named program takes as the reference."""
    return timings[name].median / timings[reference].median


def noise_floor(timings: Mapping[str, Timing]) -> float:
    """How far apart the same program, timed twice, seems to be from itself (at least 1)."""
    (again,) = (name for name in timings if name.endswith(AGAIN))
    found = ratio(timings, again, again.removesuffix(AGAIN))
    return max(found, 1 / found)


def progress(label: str, done: int, total: int) -> None:
    """A line that overwrites itself, for people only."""
    if sys.stderr.isatty():
        end = "\n" if done == total else ""
        print(f"\r{label}: {done} of {total} rounds", end=end, file=sys.stderr, flush=True)


def _timing(values: list[float]) -> Timing:
    low, median, high = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
    return Timing(median, low, high, len(values))
