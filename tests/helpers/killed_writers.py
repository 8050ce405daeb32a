"""Writers that are killed at random moments: ``python killed_writers.py FOLDER COUNT SEED``.

It prints a line of JSON for each: what the file held afterwards, and what was left beside it once the next
writer was done. It imports no framework, as it forks.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import numpy as np

import tnshare as tn

SIZES = (10, 30_000, 1_000_000)  # the larger, the longer writing takes


def content(number: int, size: int) -> dict[str, np.ndarray]:
    return {"number": np.full(size, number, np.int32), "size": np.array(size)}


def whole(path: Path) -> str:
    """Whether the file is one that a writer has finished; if not, what it is."""
    try:
        found = tn.load(path)
    except tn.TnshareError as error:
        return f"refused: {error}"
    numbers = found["number"]
    return "whole" if len(numbers) == found["size"] and (numbers == numbers[0]).all() else "mixed"


def killed(path: Path, draw: random.Random) -> dict[str, object]:
    """Start a writer, kill it, and look at what it leaves."""
    child = os.fork()
    if child == 0:
        number = 0
        while True:
            number += 1
            tn.save(path, content(number, SIZES[number % len(SIZES)]))
    moment = draw.choice([0.003, 0.02, 0.1]) * draw.random()
    time.sleep(moment)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found, left = whole(path), sorted(set(os.listdir(path.parent)) - {path.name})
    tn.save(path, content(0, 10))
    return {
        "moment": moment,
        "found": found,
        "left at once": len(left),
        "left for good": sorted(set(os.listdir(path.parent)) - {path.name}),
    }


def main(folder: str, count: str, seed: str) -> None:
    path, draw = Path(folder) / "file", random.Random(int(seed))
    tn.save(path, content(0, 10))
    for _ in range(int(count)):
        sys.stdout.write(json.dumps(killed(path, draw)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
