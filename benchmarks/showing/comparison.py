"""What a run found, in short: how each peer compares with tnshare, and whether what is promised holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median as middle
from typing import Any

from benchmarks.measuring.rounds import in_rounds, median

from .cells import duration, memory

Row = Mapping[str, Any]
OURS = "tnshare"
COMPARED = ("compose", "apply", "conv", "mixed", "memory", "scale")
HELD = {"parameters": "parameters", "gradients": "gradients", "peak": "peak beyond"}  # bytes, by name
ROOFLINE, GIGABYTES, CONSTANT = 1.5, 2e9, 1.2


@dataclass(frozen=True)
class Verdict:
    """A promise, what was found, and whether it holds (None: it was not measured)."""

    claim: str
    found: str
    holds: bool | None


def compared(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """For each program: how many times as long as tnshare it takes, and how much memory it holds.

    Geometric means over the points where it runs; "slower" is at how many of them it takes longer than
    tnshare by more than the noise of the point, "single runs" at how many it was too slow for rounds.
    """
    good = [row for row in rows if "error" not in row and OURS in row["programs"]]
    names = dict.fromkeys(name for row in good for name in row["programs"] if name != OURS)
    found = []
    for name in names:
        points = [row for row in good if name in row["programs"]]
        ratios = [median(row, name) / median(row, OURS) for row in points]
        beaten = sum(r > row["noise"] for r, row in zip(ratios, points, strict=True))
        found.append(
            {
                "program": name,
                "points": len(points),
                "time / tnshare": mean(ratios),
                "forward": mean(_parts(points, name, "forward")),
                "backward": mean(_parts(points, name, "backward")),
                "slower": f"{beaten} of {len(points)}",
                "single runs": sum(not in_rounds(row["programs"][name]) for row in points),
                "memory / tnshare": mean(both := _memories(points, name)),
                "points of memory": len(both),
                "left out": sum(name in row["skipped"] for row in good),
            }
        )
    return found


def single_runs(result: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What was too slow for rounds, and how long the quickest of its first runs took."""
    return [
        {"suite": suite, "point": row["name"], "program": name, "time": duration(median(row, name))}
        for suite, rows in result["suites"].items()
        for row in rows
        for name, entry in row.get("programs", {}).items()
        if not in_rounds(entry)
    ]


def bytes_held(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """What each program needs at each point, in parts."""
    return [
        {
            "point": row["name"],
            "program": name,
            "time": duration(median(row, name)),
            **{title: memory(entry[part]) for part, title in HELD.items()},
            "together": memory(held(entry)),
        }
        for row in rows
        for name, entry in row["programs"].items()
    ]


def product_alone(facts: Mapping[str, Any]) -> float | None:
    """The thin product of a line of the roofline, in blocks that stay in a cache, in times the least."""
    found: float | None = facts.get("thin product")
    return found


def left_out(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Why peers are not there, each reason once."""
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        for name, why in row.get("skipped", {}).items():
            counts[name, why] = counts.get((name, why), 0) + 1
    return [{"program": name, "why": why, "points": n} for (name, why), n in counts.items()]


def noise(result: Mapping[str, Any]) -> dict[str, float] | None:
    """How far apart the same program seems to be from itself: in the middle, and at worst."""
    found = [row["noise"] for rows in result["suites"].values() for row in rows if row.get("noise")]
    return {"median": middle(found), "worst": max(found)} if found else None


def verdicts(result: Mapping[str, Any]) -> list[Verdict]:
    """The three things that must hold, by the noise of each point."""
    return [_roofline(result), _process(result), _per_row(result)]


def mean(values: Iterable[float]) -> float | None:
    """The geometric mean, if there is anything."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs)) if logs else None


def _parts(rows: Sequence[Row], name: str, part: str) -> list[float]:
    pairs = [(median(row, name, part), median(row, OURS, part)) for row in rows]
    return [theirs / ours for theirs, ours in pairs if theirs > 0 and ours > 0]


def held(entry: Mapping[str, Any]) -> int:
    """Bytes of a program at its peak, with its parameters and their gradients."""
    return sum(entry[part] for part in HELD)


def _memories(rows: Sequence[Row], name: str) -> list[float]:
    pairs = [(row["programs"][name], row["programs"][OURS]) for row in rows]
    return [held(theirs) / held(ours) for theirs, ours in pairs if theirs.keys() & ours.keys() >= HELD.keys()]


def of(result: Mapping[str, Any], suite: str, kind: str) -> list[Row]:
    """The lines of a suite that are of a kind."""
    rows = result["suites"].get(suite, [])
    return [row for row in rows if "error" not in row and row["kind"] == kind]


def _roofline(result: Mapping[str, Any]) -> Verdict:
    claim = f"composing all weights by LAF, 5 million and more: within {ROOFLINE} times of the roofline"
    rows = of(result, "roofline", "compose")
    if not rows:
        return Verdict(claim, "not measured", None)
    found = [row["facts"]["times the least"][OURS] for row in rows]
    holds = all(f <= ROOFLINE * row["noise"] for f, row in zip(found, rows, strict=True))
    return Verdict(claim, ", ".join(f"{f:.2f}" for f in found) + " times", holds)


def _process(result: Mapping[str, Any]) -> Verdict:
    claim = "a factored training step of 1024 x 1024, T = 10,000, Tucker 64/64/16: process under 2 GB"
    rows = of(result, "memory", "process")
    if not rows:
        return Verdict(claim, "not measured", None)
    facts = rows[0]["facts"]
    text = f"{memory(facts['process bytes'])}, of it {memory(facts['of it imports'])} for imports"
    dense = memory(facts["dense bytes"])
    return Verdict(claim, f"{text}; dense weights alone are {dense}", facts["process bytes"] < GIGABYTES)


def _per_row(result: Mapping[str, Any]) -> Verdict:
    claim = "cost of a mixed row from T = 100 to 100,000: constant within 20 %"
    rows = of(result, "scale", "per row")
    if not rows:
        return Verdict(claim, "not measured", None)
    found = {}
    for row in rows:
        times = [median(row, name, "forward") for name in row["programs"]]
        found[row["case"]["method"]] = (max(times) / min(times), row["noise"])
    text = ", ".join(f"{method} {ratio:.2f} (noise {noise:.2f})" for method, (ratio, noise) in found.items())
    return Verdict(claim, text, all(ratio <= CONSTANT * noise for ratio, noise in found.values()))
