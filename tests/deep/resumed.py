"""Seeds one after the other for as long as one likes; what was interrupted goes on behind the last one.

A line of the log is a seed and what became of it: "equal", "refused" or "failed", with a text. A last line
that was cut off does not count.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

ROOT = Path(__file__).resolve().parents[2]


class Outcome(Protocol):
    """What became of a seed."""

    kind: str
    text: str


def seeds(part: str, outcome: Callable[[int], Outcome], described: Callable[[int], str], about: str) -> int:
    """Run seeds until the time is up, as the command line says; 1 if one has failed."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("MINUTES", "60")))
    parser.add_argument("--log", type=Path, default=ROOT / "build" / "deep" / f"{part}.jsonl")
    parser.add_argument("--seed", type=int, help="show what becomes of one seed")
    given = parser.parse_args()
    if given.seed is not None:
        found = outcome(given.seed)
        say(f"{described(given.seed)}\n{found.kind}: {found.text}")
        return int(found.kind == "failed")
    lines, end = done(given.log), time.monotonic() + 60 * given.minutes
    counts, seed = (
        Counter(line["kind"] for line in lines),
        max((line["seed"] for line in lines), default=-1) + 1,
    )
    given.log.parent.mkdir(parents=True, exist_ok=True)
    say(f"{given.log}: from seed {seed}, for {given.minutes:g} minutes")
    while time.monotonic() < end:
        found = outcome(seed)
        counts[found.kind] += 1
        _write(given.log, {"seed": seed, "kind": found.kind, "text": found.text})
        if found.kind == "failed":
            say(f"seed {seed} failed: {found.text}\n  {described(seed)}")
        elif seed % 50 == 0:
            say(f"seed {seed}: {dict(counts)}")
        seed += 1
    say(f"{sum(counts.values())} seeds: {dict(counts)}")
    return int(counts["failed"] > 0)


def done(log: Path) -> list[dict[str, Any]]:
    """The lines of a log that are whole."""
    found = []
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def say(text: str) -> None:
    """Tell how far it is."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _write(log: Path, line: dict[str, Any]) -> None:
    with log.open("a") as file:
        file.write(json.dumps(line) + "\n")
