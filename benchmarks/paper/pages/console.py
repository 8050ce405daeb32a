"""What a command prints when it is done: the means of all runs that there are, and where the rest is."""

from __future__ import annotations

from pathlib import Path

from benchmarks.paper.finished_runs import read
from benchmarks.showing.cells import aligned

from .stats import Row, mean_of

_MEASURES = {"multiclass_error": "error in per cent", "kept": "parameters kept, as a fraction"}


def table(path: Path) -> str:
    """Means of every method on every fraction, with their seeds, and 95 % intervals if these are three."""
    if not path.exists():
        return "nothing was run"
    rows: list[Row] = read(path)["runs"]
    measure = next(name for name in _MEASURES if any(name in row for row in rows))
    fractions = sorted({row["fraction"] for row in rows})
    lines = [[_MEASURES[measure], *(f"{100 * fraction:.3g} %" for fraction in fractions)]]
    lines += [
        [method, *(_mean(rows, method, fraction, measure) for fraction in fractions)]
        for method in dict.fromkeys(row["method"] for row in rows)
    ]
    page = path.with_name("report.html")
    return f"{aligned(lines)}\n{page}, by python -m benchmarks paper report, has tables and figures"


def _mean(rows: list[Row], method: str, fraction: float, measure: str) -> str:
    found = mean_of(rows, method, fraction, measure)
    if found is None:
        return ""
    return f"{found} ({found.count})" if found.count > 2 else f"{found.mean:.2f} ({found.count})"
