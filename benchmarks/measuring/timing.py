"""Compare programs fairly on a busy machine: rounds in which they run in an order that is shuffled anew."""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

P = TypeVar("P")
AGAIN = " (again)"
TURN, MOST = 1e-3, 20  # seconds and calls: see in_a_row
NEAR, SLOW, CLOSE = 2, 8, 1.5  # times as long as the fastest: see allot
FEW = 3  # rounds, of which there is a median that one disturbance does not move


@dataclass(frozen=True)
class Timing:
    """Seconds for one run of a program: the median over the rounds, and the quartiles."""

    median: float
    low: float
    high: float
    rounds: int

    @staticmethod
    def of(seconds: Sequence[float]) -> Timing:
        """Of what each round took."""
        found = (
            statistics.quantiles(seconds, n=4, method="inclusive") if len(seconds) > 1 else [seconds[0]] * 3
        )
        low, median, high = found
        return Timing(median, low, high, len(seconds))


def interleave(
    programs: Mapping[str, Callable[[], object]],
    *,
    rounds: int | Mapping[str, int],
    calls: int = 1,
    seed: int = 0,
    label: str = "",
    warm: bool = True,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, Timing]:
    """Time each program once a round, in the seconds of ``clock``: see `laps`.

    In its turn a program is called ``calls`` times, of which the mean is taken: see `in_a_row`.
    """
    lap = partial(_lap, clock, calls)
    found = laps(programs, lap, rounds=rounds, seed=seed, label=label, warm=warm)
    return {name: Timing.of([lap for (lap,) in own.values()]) for name, own in found.items()}


def laps(
    programs: Mapping[str, P],
    clock: Callable[[P], tuple[float, ...]],
    *,
    rounds: int | Mapping[str, int],
    seed: int = 0,
    label: str = "",
    warm: bool = True,
) -> dict[str, dict[int, tuple[float, ...]]]:
    """Run each program once a round, after a round that does not count (none, if they are ``warm``=False).

    ``clock`` runs a program and gives the seconds of its parts, which are found by number of the round. The
    first program also runs a second time in every round, under its name with ``AGAIN``: the ratio of the two
    is the noise floor, which no other ratio can be finer than. Where programs are compiled, that second one
    may be given, compiled anew. A program with fewer ``rounds`` of its own than the others sits out rounds at
    random; one with none is not run.
    """
    first = next(iter(programs))
    entries = {first + AGAIN: programs[first], **programs}
    own = dict.fromkeys(programs, rounds) if isinstance(rounds, int) else dict(rounds)
    own[first + AGAIN] = own[first]
    entries = {name: program for name, program in entries.items() if own[name]}
    total = max(own.values())
    rng = random.Random(seed)
    present = {name: set(rng.sample(range(1, total + 1), own[name])) | {0} for name in entries}
    found: dict[str, dict[int, tuple[float, ...]]] = {name: {} for name in entries}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for n in range(0 if warm else 1, total + 1):
            order = [name for name in entries if n in present[name]]
            rng.shuffle(order)
            for name in order:
                lap = clock(entries[name])
                if n:
                    found[name][n] = lap
            if label:
                progress(label, n, total)
    finally:
        if collecting:
            gc.enable()
    return found


def in_a_row(fastest: float) -> int:
    """How often each program is called in its turn, so that the ``fastest`` takes a millisecond.

    A call right after other programs finds the caches of the processor full of them, and may take tens of
    microseconds longer for it, whatever it does.
    """
    return min(max(int(TURN / fastest), 1), MOST)


def allot(
    once: Mapping[str, float],
    seconds: float,
    *,
    reference: float | None = None,
    always: Iterable[str] = (),
    most: int = 200,
    least: int = 5,
    short: float = 0.0,
) -> dict[str, int]:
    """How many rounds each program gets, by the time of one run, so that all of it takes about ``seconds``.

    Close to the ``reference`` (the fastest) precision matters: those up to ``NEAR`` times as slow run in all
    rounds. The slower one is, the fewer it gets, though ``least``; one over ``SLOW`` times as slow gets
    none where that would take long, for one run has shown what it is. Where even ``least`` rounds take longer
    than there is time, only what is ``CLOSE`` runs in them. Whatever is slow, a run that takes less than
    ``short`` seconds is repeated in ``FEW`` rounds. The first program and those named in ``always`` run in
    all of them.
    """
    first = next(iter(once))
    fastest = min(once.values()) if reference is None else reference
    least = FEW if fastest > seconds / 8 else least
    full = {first, *always}
    shares = (taken if name in full else min(taken, NEAR * fastest) for name, taken in once.items())
    affordable = int(seconds / (sum(shares) + once[first]))
    rounds = min(max(affordable, least), most)
    given = {}
    for name, taken in once.items():
        count = min(rounds, int(rounds * NEAR * fastest / taken))
        if count < least:
            cheap = taken <= SLOW * fastest or least * taken <= seconds / 10
            count = least if cheap else 0
        if affordable < least and taken > CLOSE * fastest:
            count = 0
        if taken < short:
            count = max(count, FEW)
        given[name] = rounds if name in full else count
    return given


def once(programs: Mapping[str, Callable[[], object]], *, twice: Iterable[str] = ()) -> dict[str, float]:
    """The time of one run of each; quick ones, and those named in ``twice``, run a second time for it.

    What prepares itself at its first call (a plan, a compiled program) must be named in ``twice``.
    """
    again = set(twice)
    taken = {}
    for name, run in programs.items():
        taken[name] = _seconds(run)
        if name in again or taken[name] < 0.5:
            taken[name] = _seconds(run)
    return taken


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


class Clock:
    """Says how far a long run is and how long it will still take: a line that overwrites itself for people,
    one line every half minute for a file."""

    def __init__(self, total: int, *, every: float = 30.0) -> None:
        self.total, self.every = total, every
        self.start = self.last = time.monotonic()
        self.done = 0

    def tick(self, text: str) -> None:
        """One more is done."""
        self.done += 1
        now = time.monotonic()
        left = (now - self.start) / self.done * (self.total - self.done)
        line = f"{self.done} of {self.total}, {left / 60:.1f} minutes left: {text}"
        if sys.stderr.isatty():
            end = "\n" if self.done == self.total else ""
            print(f"\r\x1b[K{line[:150]}", end=end, file=sys.stderr, flush=True)
        elif now - self.last >= self.every or self.done == self.total:
            self.last = now
            print(line, file=sys.stderr, flush=True)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _lap(clock: Callable[[], float], calls: int, run: Callable[[], object]) -> tuple[float]:
    start = clock()
    for _ in range(calls):
        run()
    return ((clock() - start) / calls,)
