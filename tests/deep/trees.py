"""Random pytrees for as long as one likes: ``make test-deep PART=trees MINUTES=60``.

A seed that failed is shown again by ``python tests/deep/trees.py --seed 17``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "helpers"), str(ROOT), str(ROOT / "backends")]
# Most of the time XLA compiles, each program for one call.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jax  # noqa: E402
from random_trees import Outcome, drawn, outcome  # noqa: E402
from resumed import seeds  # noqa: E402

EVERY = 50  # seeds after which what is compiled is forgotten, which would fill the memory


def run(seed: int) -> Outcome:
    """What becomes of a seed."""
    if seed % EVERY == 0:
        jax.clear_caches()
    return outcome(seed)


if __name__ == "__main__":
    sys.exit(seeds("trees", run, lambda seed: drawn(seed).text, __doc__ or ""))
