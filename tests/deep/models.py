"""Random networks in torch for as long as one likes: ``make test-deep PART=models MINUTES=60``.

A seed that failed is shown again by ``python tests/deep/models.py --seed 17``.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "helpers"), str(ROOT), str(ROOT / "backends")]

from random_modules import Outcome, drawn, outcome  # noqa: E402
from resumed import seeds  # noqa: E402

EVERY = 100  # seeds of which one is compiled too, which takes seconds


def run(seed: int) -> Outcome:
    """What became of a seed; every so often in compiled code too."""
    return outcome(seed, compiled=seed % EVERY == EVERY - 1)


if __name__ == "__main__":
    sys.exit(seeds("models", run, lambda seed: drawn(seed).text, __doc__ or ""))
