"""Random pytrees, shared in JAX, by the thousand: ``python tests/deep/trees.py --minutes 60``.

Each ten seeds (see `helpers/random_trees.py`) are a line of the log, so what was interrupted goes on where it
was. ``--seed 1234`` shows one. It fails if the log has any that broke the law.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "helpers"), str(ROOT), str(ROOT / "backends")]

import jax  # noqa: E402
import random_trees  # noqa: E402

CHUNK = 10


def done(log: Path) -> list[dict[str, Any]]:
    """What the log has; the last line may be half a line."""
    found = []
    for line in log.read_text().splitlines() if log.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def chunk(first: int, count: int, folder: Path) -> dict[str, Any]:
    """The verdicts on some seeds."""
    found = {seed: random_trees.verdict(seed, folder) for seed in range(first, first + count)}
    broken = [{"seed": seed, "verdict": text} for seed, text in found.items() if text.startswith("BROKEN")]
    counts = Counter(text.partition(":")[0] for text in found.values())
    jax.clear_caches()  # every tree has programs of its own
    return {"first": first, "count": count, **counts, "broken": broken}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("MINUTES", 60)))
    parser.add_argument("--log", type=Path, default=ROOT / "build" / "deep" / "trees.jsonl")
    parser.add_argument("--seed", type=int, help="one tree, and what comes of it")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as name:
        if given.seed is not None:
            sys.stdout.write(random_trees.verdict(given.seed, Path(name)) + "\n")
            return 0
        given.log.parent.mkdir(parents=True, exist_ok=True)
        first = max((line["first"] + line["count"] for line in done(given.log)), default=0)
        end = time.monotonic() + 60 * given.minutes
        while time.monotonic() < end:
            line = chunk(first, CHUNK, Path(name))
            first += CHUNK
            with given.log.open("a") as file:
                file.write(json.dumps(line) + "\n")
            sys.stdout.write(f"{line}\n")
            sys.stdout.flush()
    lines = done(given.log)
    broken = [one for line in lines for one in line["broken"]]
    sys.stdout.write(f"{sum(line['count'] for line in lines):,} trees, {len(broken)} broken {broken[:5]}\n")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
