"""Numbers of the paper's experiments that documents cite.

`4.44<!-- paper/mnist.json: DMTRL-TT 1 % -->` is a mean over seeds: see `benchmarks.showing.citing`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path

from benchmarks.paper.finished_runs import read

from .stats import Row, by_layer, by_seed, fall, mean_of, paired

_MEASURES = {
    "multiclass_error": "",
    "binary_error": ", binary",
    "parameters": ", parameters",
    "kept": ", kept",
}
_LAYERED = ("sharing", "similarity")


def facts(path: Path) -> dict[str, float]:
    """All numbers of a file of results that a document may cite, by what they are called there."""
    rows: list[Row] = read(path)["runs"]
    found: dict[str, float] = {"runs": len(rows)}
    found["hours"] = sum(row.get("cpu_seconds", 0) for row in rows) / 3600
    for fraction in sorted({row["fraction"] for row in rows}):
        seconds = sum(row.get("cpu_seconds", 0) for row in rows if row["fraction"] == fraction)
        found[f"hours {100 * fraction:g} %"] = seconds / 3600
        methods = list(dict.fromkeys(row["method"] for row in rows if row["fraction"] == fraction))
        for method in methods:
            found |= _about(rows, method, fraction)
        for ours, other in permutations(methods, 2):
            found |= _compared(rows, ours, other, fraction)
    return found


def _about(rows: Sequence[Row], method: str, fraction: float) -> dict[str, float]:
    """Means over seeds, how many these are, and what layers share."""
    name = f"{method} {100 * fraction:g} %"
    found: dict[str, float] = {}
    for measure, words in _MEASURES.items():
        if mean := mean_of(rows, method, fraction, measure):
            found |= {f"{name}{words}": mean.mean, f"{name}, seeds": mean.count}
            each_seed = by_seed(rows, method, fraction, measure)
            found |= {f"{name}{words}, seed {seed}": value for seed, value in each_seed.items()}
    for measure in _LAYERED:
        for layer, values in by_layer(rows, method, fraction, measure).items():
            found[f"{name}, {measure} {layer}"] = sum(values) / len(values)
        if difference := fall(rows, method, fraction, measure):
            found[f"{name}, {measure} falls"] = difference.mean
            if not math.isnan(difference.half):
                found[f"{name}, {measure} falls, half"] = difference.half
    return found


def _compared(rows: Sequence[Row], ours: str, other: str, fraction: float) -> dict[str, float]:
    """By how much one method is below another on the seeds that both have: the mean, the least, per cent."""
    name = f"{ours} below {other} {100 * fraction:g} %"
    found: dict[str, float] = {}
    for measure, words in list(_MEASURES.items())[:2]:
        difference = paired(rows, ours, other, fraction, measure)
        mine, theirs = (by_seed(rows, method, fraction, measure) for method in (ours, other))
        if difference is None:
            continue
        base = sum(theirs[seed] for seed in theirs if seed in mine) / difference.count
        found[f"{name}{words}"] = difference.mean
        found[f"{name}{words}, least"] = min(theirs[seed] - mine[seed] for seed in mine if seed in theirs)
        found[f"{name}{words}, in per cent"] = 100 * difference.mean / base
        if not math.isnan(difference.half):
            found[f"{name}{words}, half"] = difference.half
    return found
