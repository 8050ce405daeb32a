"""Measure programs in shuffled rounds: medians and quartiles of both passes, memory, the noise floor."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.peers.common import Programs, said

from .meters import Laps, Meter
from .timing import AGAIN, FEW, Timing, allot, laps

Row = dict[str, Any]
NEAR_OURS = 4  # times as long as the fastest, up to which tnshare's programs run in all rounds
_LONG, _SHORT = 3.0, 0.5  # seconds of a run: not repeated, repeated in rounds however slow it is
_QUICK = 0.1  # seconds of a run that costs nothing to repeat before the rounds


@dataclass(frozen=True)
class Measured:
    """The laps of each program by number of the round, and the quickest of its first runs."""

    rounds: Mapping[str, Mapping[int, tuple[float, ...]]]
    first: Mapping[str, Laps]


def measure(made: Programs, meter: Meter, seconds: float, *, memory: bool = True) -> Row:
    """A line of results: what each program takes in about so many seconds of rounds, and what it needs.

    See `rounds_of`. One that is in no rounds has no quartiles.
    """
    return as_row(made, rounds_of(made, meter, seconds), meter if memory else None)


def rounds_of(
    made: Programs, meter: Meter, seconds: float, *, always: Sequence[str] = (), least: int = 0
) -> Measured:
    """Every program runs a few times before it counts (plans, compiled programs and caches are made then).

    The first, those of tnshare that are not slow and those named in ``always`` run in all rounds, of which
    there are at ``least`` so many; others in fewer. One that is far slower than the others and takes more
    than half a second is told by its first runs. One that raises is left out, with what it says, unless it
    is the first.
    """
    first = _first(made, meter)
    once = {name: sum(lap) for name, lap in first.items()}
    near = NEAR_OURS * min(once.values())
    ours = [name for name in once if name.startswith("tnshare") and once[name] <= near]
    rounds = allot(once, seconds, always=[*ours, *always], short=_SHORT)
    for name in (next(iter(once)), *always):
        rounds[name] = max(rounds[name], least)
    return Measured(laps(made.run, meter.seconds, rounds=rounds, warm=False), first)


def as_row(made: Programs, found: Measured, meter: Meter | None) -> Row:
    """The line of results of what was measured; peaks by the meter, if there is one."""
    programs = {}
    for name, program in made.run.items():
        own = found.rounds.get(name)
        entry = _entry([found.first[name]]) if own is None else _entry(list(own.values()))
        entry |= {"rounds": 0 if own is None else len(own)}
        entry |= {"parameters": program.parameters, "gradients": program.gradients}
        programs[name] = entry if meter is None else {**entry, "peak": meter.peak(program)}
    again = next(name for name in found.rounds if name.endswith(AGAIN))
    noise = _noise(found.rounds, again)
    return {"programs": programs, "noise": noise, "skipped": made.skipped, "facts": made.facts}


def median(row: Mapping[str, Any], name: str, part: str = "total") -> float:
    """Seconds of a program in a line of results."""
    found: float = row["programs"][name][part][0]
    return found


def spread(row: Mapping[str, Any], name: str, part: str = "total") -> tuple[float, float, float]:
    """Median, lower and upper quartile; what is in no rounds has none, and seems to be without spread."""
    middle, low, high = row["programs"][name][part]
    return (middle, middle, middle) if low is None else (middle, low, high)


def in_rounds(entry: Mapping[str, Any]) -> bool:
    """Whether the times of a program are those of rounds, enough of them for a median."""
    return bool(entry["rounds"] >= FEW)


def _first(made: Programs, meter: Meter) -> dict[str, Laps]:
    """The quickest of some runs of each; the first of all does not count, unless it took too long.

    One run may be many times too slow, whichever it is: pages of memory are touched for the first time. So
    the quick are repeated, for their number of rounds, and those that may be too slow for rounds.
    """
    taken: dict[str, Laps] = {}
    for name, program in list(made.run.items()):
        try:
            found = [meter.seconds(program)]
            if sum(found[0]) < _LONG or program.analyse is not None or name.startswith("tnshare"):
                found = [meter.seconds(program)]
                while len(found) < FEW and not _enough(found):
                    found.append(meter.seconds(program))
            taken[name] = min(found, key=sum)
        except Exception as error:  # a peer's, say: the others are measured all the same
            if not taken:
                raise
            del made.run[name]
            made.skipped[name] = said(error)
    return taken


def _enough(found: Sequence[Laps]) -> bool:
    """Whether rounds will tell the rest, or there is no time to run again."""
    return _QUICK <= sum(found[-1]) < _SHORT or sum(map(sum, found)) >= FEW * _SHORT


def _entry(own: Sequence[tuple[float, ...]]) -> Row:
    """Median, lower and upper quartile of all parts."""
    return {
        "total": quartiles(sum(lap) for lap in own),
        "forward": quartiles(lap[0] for lap in own),
        "backward": quartiles(lap[1] for lap in own),
    }


def quartiles(values: Iterable[float]) -> list[float | None]:
    """The median, and the quartiles of enough values."""
    found = Timing.of(list(values))
    return [found.median, *((found.low, found.high) if found.rounds >= FEW else (None, None))]


def _noise(found: Mapping[str, Mapping[int, tuple[float, ...]]], again: str) -> float:
    """How far apart the same program, timed twice, seems to be from itself (at least 1)."""
    both = again.removesuffix(AGAIN), again
    once, twice = (Timing.of([sum(lap) for lap in found[name].values()]) for name in both)
    ratio = once.median / twice.median
    return max(ratio, 1 / ratio)
