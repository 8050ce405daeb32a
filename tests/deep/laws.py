"""Laws of backends and decompositions for as long as one likes: ``make test-deep PART=laws MINUTES=60``.

A round is every law with ten times the examples of the one before, drawn anew. Rounds that are done are in
the log, so what was interrupted begins with the round that it was in.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from resumed import ROOT, done, say

FILES = (
    "tests/layers/test_laws.py",
    "tests/decomposition/test_decompose_laws.py",
    "tests/models/test_size.py",
)
FIRST, MOST = 100, 10_000


def main() -> int:
    """Run rounds until the time is up; 1 if a law was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=float(os.environ.get("MINUTES", "60")))
    parser.add_argument("--log", type=Path, default=ROOT / "build" / "deep" / "laws.jsonl")
    given = parser.parse_args()
    given.log.parent.mkdir(parents=True, exist_ok=True)
    end, number = time.monotonic() + 60 * given.minutes, len(done(given.log))
    while (left := end - time.monotonic()) > 0:
        examples = min(FIRST * 10**number, MOST)
        say(f"round {number}: {examples:,} examples of every law")
        code = round_of(examples, left)
        if code is None:
            say(f"time is up in round {number}; no law was broken")
            return 0
        if code:
            return 1
        with given.log.open("a") as file:
            file.write(json.dumps({"round": number, "examples": examples}) + "\n")
        number += 1
    return 0


def round_of(examples: int, seconds: float) -> int | None:
    """What pytest says of a round; None if the time was up before."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "--dist", "worksteal", *FILES]
    environment = {**os.environ, "TNSHARE_EXAMPLES": str(examples)}
    with subprocess.Popen(command, cwd=ROOT, env=environment) as process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
            return None


if __name__ == "__main__":
    sys.exit(main())
