"""Random networks for as long as one likes: ``TNSHARE_MINUTES=60 python tests/deep/models.py results.jsonl``.

Seeds that are done, and what became of them, are lines of the file: started again, it goes on behind them.
A seed that failed is shown again by ``python tests/deep/models.py --seed 17``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from random_modules import Outcome, drawn, outcome

LOG = Path(__file__).parents[2] / "build" / "deep" / "models.jsonl"
EVERY = 100  # seeds of which one is compiled too, which takes seconds


def run(seed: int) -> Outcome:
    """What became of a seed; every so often in compiled code too."""
    return outcome(seed, compiled=seed % EVERY == EVERY - 1)


def done(path: Path) -> dict[int, str]:
    """The seeds in a file, and what became of them; a last line that was cut off does not count."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        found[entry["seed"]] = entry["kind"]
    return found


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def main(arguments: list[str]) -> int:
    """Run seeds until the time is up; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", nargs="?", default=LOG, type=Path)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("TNSHARE_MINUTES", "60")))
    parser.add_argument("--seed", type=int, help="show what becomes of one seed")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        found = run(given.seed)
        _say(f"{drawn(given.seed).text}\n{found.kind}: {found.text}")
        return int(found.kind == "failed")
    until, known = time.monotonic() + 60 * given.minutes, done(given.path)
    counts, seed = Counter(known.values()), max(known, default=-1) + 1
    _say(f"{given.path}: from seed {seed}, for {given.minutes:g} minutes")
    given.path.parent.mkdir(parents=True, exist_ok=True)
    with given.path.open("a") as file:
        while time.monotonic() < until:
            found = run(seed)
            counts[found.kind] += 1
            entry = {"seed": seed, "kind": found.kind, "calls": found.calls, "refused": found.refused}
            if found.kind != "equal":
                entry |= {"text": found.text, "networks": drawn(seed).text}
            file.write(json.dumps(entry) + "\n")
            file.flush()
            if found.kind == "failed":
                _say(f"seed {seed} failed: {found.text}\n  {drawn(seed).text}")
            elif seed % 100 == 0:
                _say(f"seed {seed}: {dict(counts)}")
            seed += 1
    _say(f"{sum(counts.values())} seeds: {dict(counts)}")
    return int(counts["failed"] > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
