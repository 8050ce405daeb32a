"""How long two checkouts take: what `planner --overheads` and `share` measure, in processes that take turns.

`python -m benchmarks compare BEFORE AFTER` measures the tnshare of both checkouts with these very benchmarks,
in an order that is drawn anew in each round. Of each group of points it prints the geometric mean of
after / before, and the noise floor: how far apart the rounds of one and the same checkout are. Two rounds
take about ten minutes on one core. With --keep FILE a comparison that was stopped goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from tqdm import tqdm

from benchmarks.measuring.allocator import keep_memory
from benchmarks.measuring.checkouts import checkout, run_in
from benchmarks.measuring.options import count, pattern, told
from benchmarks.measuring.records import Records
from benchmarks.showing.cells import table

WHAT = ("overheads", "share")
Point = tuple[str, str]  # its group and its name
Seconds = Mapping[Point, float]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure both checkouts in turns, and print how they compare."""
    options = _options(arguments)
    found: list[list[dict[Point, float]]] = [[{} for _ in range(options.rounds)] for _ in options.checkouts]
    turns = [(n, what, side) for n in range(options.rounds) for what in options.what for side in _order(n)]
    with told(), tqdm(turns, unit="process") as bar:
        for n, what, side in bar:
            bar.set_postfix_str(f"{what}, {'after' if side else 'before'}")
            found[side][n] |= _kept(options, n, what, side)
    before, after = found
    print(table(compared(before, after)))


def _kept(options: argparse.Namespace, turn: int, what: str, side: int) -> dict[Point, float]:
    """The seconds of one process, of now or of a file."""
    name = f"{turn} {options.only} {options.checkouts[side]}"
    records = None if options.keep is None else Records(options.keep)
    for row in [] if records is None else records.of(what, options.laps):
        if row["name"] == name:
            return {(group, point): seconds for group, point, seconds in row["seconds"]}
    found = measured(options.checkouts[side], what, options.only, options.laps)
    if records is not None:
        seconds = [(*point, taken) for point, taken in found.items()]
        records.add({"suite": what, "name": name, "budget": options.laps, "seconds": seconds})
    return found


def measured(where: Path, what: str, only: str, laps: int) -> dict[Point, float]:
    """The seconds of one process, which has the tnshare of a checkout."""
    code = f"from benchmarks.suites.two_checkouts import report; report({what!r}, {only!r}, {laps})"
    return {(group, name): seconds for group, name, seconds in json.loads(run_in(where, "-c", code))}


def report(what: str, only: str, laps: int) -> None:
    """Measure the tnshare that Python imports, and print the groups, names and seconds of all points."""
    keep_memory()
    found = overheads(only) if what == "overheads" else shared(only, laps)
    print(json.dumps(list(found)))


def overheads(only: str) -> Iterator[tuple[str, str, float]]:
    """Calls of tiny layers, plans, and one task called again: the whole seconds, by hand or not."""
    import torch

    from benchmarks.planner.overheads import jobs

    torch.set_num_threads(1)
    for name, measure in jobs():
        if re.search(only, name):
            row: dict[str, Any] = measure()
            yield row["kind"], name, float(row.get("whole", row["seconds"]))


def shared(only: str, laps: int) -> Iterator[tuple[str, str, float]]:
    """Steps of shared networks, `share` by the SVDs that it needs, and rows of mixed tasks."""
    import torch

    from benchmarks.suites import shared_networks

    torch.set_num_threads(1)
    parts = [part for part in shared_networks.PARTS if re.search(only, f"share: {part}")]
    rows: dict[str, Any] = dict.fromkeys(shared_networks.PARTS, ())
    rows |= shared_networks.measured(parts, laps) if parts else {}
    for row in rows["steps"]:
        if row["way"].startswith("shared"):
            yield "share: steps", row["way"], row["seconds"]
    for row in rows["conversions"]:
        yield "share: conversions", row["method"], row["share / SVDs"]
    for row in rows["mixed"]:
        for part in ("forward", "backward"):
            yield "share: mixed", f"{row['way']}, {part}", row[part]


def compared(before: Sequence[Seconds], after: Sequence[Seconds]) -> list[dict[str, Any]]:
    """After / before of each group, of the means over rounds, against what rounds of one side differ by."""
    points = [point for point in before[0] if all(point in found for found in (*before, *after))]
    groups = {group: [p for p in points if p[0] == group] for group, _ in points}
    rows = []
    for group, own in {**groups, "all": points}.items():
        ratios = [_mean(found[p] for found in after) / _mean(found[p] for found in before) for p in own]
        ratio, floors = _mean(ratios), [_noise(side, own) for side in (before, after)]
        known = [floor for floor in floors if floor is not None]
        rows.append(
            {
                "group": group,
                "points": len(own),
                "after / before": ratio,
                "least": min(ratios),
                "most": max(ratios),
                "noise, before": floors[0],
                "noise, after": floors[1],
                "beyond noise": max(ratio, 1 / ratio) > max(known) if known else None,
            }
        )
    return [{name: _digits(value) for name, value in row.items()} for row in rows]


def _noise(rounds: Sequence[Seconds], points: Sequence[Point]) -> float | None:
    """The largest ratio of two rounds of one side, if there are two."""
    found = [_mean(one[p] / other[p] for p in points) for one, other in combinations(rounds, 2)]
    return max((max(ratio, 1 / ratio) for ratio in found), default=None)


def _mean(values: Any) -> float:
    """The geometric mean."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def _digits(value: Any) -> Any:
    """With three decimals, as 3 % are to be seen."""
    return f"{value:.3f}" if isinstance(value, float) else value


def _order(turn: int) -> list[int]:
    """Which side is first is drawn anew in each round."""
    return random.Random(turn).sample((0, 1), 2)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks compare",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkouts", type=checkout, nargs=2, metavar="CHECKOUT", help="before, and after")
    parser.add_argument("--what", choices=WHAT, nargs="+", default=WHAT, help="what to measure (both)")
    parser.add_argument("--only", type=pattern, default="", help="points, or 'share: <part>', of a pattern")
    parser.add_argument("--rounds", type=count, default=2, help="processes of each checkout (2)")
    parser.add_argument("--laps", type=count, default=5, help="of share in a process: its --rounds (5)")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="of what is measured, line by line")
    return parser.parse_args(arguments)
