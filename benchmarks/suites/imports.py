"""`import tnshare` against `import numpy, opt_einsum`, each in a new process."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
from typing import Any

from benchmarks.measuring.timing import progress

PROGRAMS = {"tnshare": "import tnshare", "numpy, opt_einsum": "import numpy, opt_einsum"}
_CODE = "import time; start = time.perf_counter(); {}; print(time.perf_counter() - start)"


def run(rounds: int) -> list[dict[str, Any]]:
    """One row: the ratio of the medians."""
    seconds: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    order = list(PROGRAMS)
    shuffle = random.Random(0).shuffle
    for n in range(rounds + 1):
        shuffle(order)
        for name in order:
            command = [sys.executable, "-c", _CODE.format(PROGRAMS[name])]
            found = subprocess.run(command, check=True, capture_output=True, text=True)
            if n:
                seconds[name].append(float(found.stdout))
        progress("imports", n, rounds)
    ours, theirs = (statistics.median(seconds[name]) for name in PROGRAMS)
    return [{"import": "tnshare / numpy, opt_einsum", "ratio": ours / theirs}]
