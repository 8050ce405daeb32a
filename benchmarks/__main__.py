"""`python -m benchmarks`: what can be measured so far, as tables."""

from __future__ import annotations

import argparse
from typing import Any

from threadpoolctl import threadpool_limits

from . import decompose, imports


def main() -> None:
    """Run the suites that were asked for."""
    suites = {"imports": imports.run, "decompose": decompose.run}
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("suites", nargs="*", metavar="suite", help=f"any of {', '.join(suites)}; all if none")
    parser.add_argument("--rounds", type=int, default=7, help="rounds in which every program runs once (7)")
    parser.add_argument("--threads", type=int, default=1, help="threads of the linear algebra (1)")
    options = parser.parse_args()
    for name in options.suites:
        if name not in suites:
            parser.error(f"no suite is called {name!r}: expected any of {', '.join(suites)}")
    with threadpool_limits(options.threads):
        for name in options.suites or suites:
            rows = suites[name](options.rounds)
            print(f"\n{name}: {options.threads} thread(s), medians of {options.rounds} rounds")
            print(table(rows))


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as text in columns."""
    cells = [list(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines)


def _cell(value: Any) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
