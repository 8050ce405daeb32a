"""Measure programs in shuffled rounds: medians and quartiles of both passes, peaks, the noise floor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .meters import Laps, Meter
from .peers.common import Programs, said
from .timing import AGAIN, allot, laps, timing

Row = dict[str, Any]
NEAR_OURS = 4  # times as long as the fastest, up to which tnshare's programs run in all rounds
_LONG, _SHORT = 3.0, 0.1  # seconds: not run again, run some more times


def measure(
    made: Programs, meter: Meter, seconds: float, *, memory: bool = True, always: Sequence[str] = ()
) -> Row:
    """A line of results: what each program takes in about so many seconds of rounds, and what it needs.

    Every program runs a few times before it counts (plans, compiled programs and caches are made then). The
    first, those of tnshare that are not slow and those named in ``always`` run in all rounds, others in
    fewer; one that would take too long is told by its first runs. One that raises is left out, with what it
    says, unless it is the first.
    """
    first = _first(made, meter)
    once = {name: min(map(sum, own)) for name, own in first.items()}
    near = NEAR_OURS * min(once.values())
    ours = [name for name in once if name.startswith("tnshare") and once[name] <= near]
    rounds = allot(once, seconds, always=[*ours, *always])
    found = laps(made.run, meter.seconds, rounds=rounds, warm=False)
    programs = {name: _entry(own) for name, own in found.items() if not name.endswith(AGAIN)}
    programs |= {name: _entry(own) for name, own in first.items() if name not in programs}
    if memory:
        for name, entry in programs.items():
            entry["peak"] = meter.peak(made.run[name])
    again = next(name for name in found if name.endswith(AGAIN))
    return {"programs": programs, "noise": _noise(found, again), "skipped": made.skipped, "facts": made.facts}


def median(row: Mapping[str, Any], name: str, part: str = "total") -> float:
    """Seconds of a program in a line of results."""
    found: float = row["programs"][name][part][0]
    return found


def _first(made: Programs, meter: Meter) -> dict[str, list[Laps]]:
    """Some runs of each; the first of all does not count, unless it took too long."""
    taken: dict[str, list[Laps]] = {}
    for name, program in list(made.run.items()):
        try:
            found = [meter.seconds(program)]
            if sum(found[0]) < _LONG or program.analyse is not None or name.startswith("tnshare"):
                found = [meter.seconds(program)]
                if sum(found[0]) < _SHORT:
                    found += [meter.seconds(program) for _ in range(2)]
            taken[name] = found
        except Exception as error:  # a peer's, say: the others are measured all the same
            if not taken:
                raise
            del made.run[name]
            made.skipped[name] = said(error)
    return taken


def _entry(own: Sequence[tuple[float, ...]]) -> Row:
    """Median, lower and upper quartile of all parts."""
    parts = {
        "total": [sum(lap) for lap in own],
        "forward": [lap[0] for lap in own],
        "backward": [lap[1] for lap in own],
    }
    entry: Row = {name: _spread(values) for name, values in parts.items()}
    return {**entry, "rounds": len(own)}


def _spread(values: Sequence[float]) -> list[float]:
    found = timing(values)
    return [found.median, found.low, found.high]


def _noise(found: Mapping[str, Sequence[tuple[float, ...]]], again: str) -> float:
    """How far apart the same program, timed twice, seems to be from itself (at least 1)."""
    once, twice = (timing([sum(lap) for lap in found[name]]) for name in (again.removesuffix(AGAIN), again))
    ratio = once.median / twice.median
    return max(ratio, 1 / ratio)
