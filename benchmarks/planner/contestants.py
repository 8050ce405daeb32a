"""What the programs of every framework have in common."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.grid import Point

SHORTLIST = 6  # candidates of its own that tnshare is compared with
MEMORY = 2**31  # bytes of intermediates beyond which a program is left out
EMPTY = "an empty call"  # of a compiled program, with the same operands and results
LONG = 0.2  # seconds beyond which only candidates near the best prediction are run


@dataclass
class Programs:
    """Programs by name, what tnshare's candidates predict, and why some programs are left out."""

    run: dict[str, Callable[[], object]] = field(default_factory=dict)
    own: dict[str, dict[str, float]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    compiled: bool = False  # all programs compile at their first call

    @property
    def same(self) -> list[str]:
        """The programs that are compiled to the very same as tnshare, as far as they say what that is."""
        asked = {name: getattr(run, "text", None) for name, run in self.run.items()}
        texts = {name: ask() for name, ask in asked.items() if ask is not None}
        ours = texts.get("tnshare")
        return [name for name, text in texts.items() if text == ours and not name.startswith("tnshare")]

    def propose(self, candidates: Any, program: Callable[[Any], Callable[[], object]]) -> None:
        """Add the programs of the best candidates, but those that need too much memory or time."""
        quickest = min((candidate.seconds for candidate in candidates), default=0.0)
        for candidate in candidates[:SHORTLIST]:
            name = f"own: {candidate.name}"
            self.own[name] = {k: float(getattr(candidate, k)) for k in ("seconds", "flops", "bytes", "peak")}
            if candidate.peak > MEMORY:
                self.skipped[name] = f"{candidate.peak / 2**30:.1f} GiB"
            elif candidate.seconds > max(2 * quickest, LONG):
                self.skipped[name] = f"predicted to take {candidate.seconds / quickest:.1f} times the best"
            else:
                self.run[name] = program(candidate)


def anonymous(text: str) -> str:
    """A compiled program as XLA writes it, without the names and origins of its steps."""
    numbers: dict[str, str] = {}
    steps = "\n".join(line for line in text.splitlines() if "%" in line)  # the others tell files and lines
    steps = re.sub(r", metadata=\{[^}]*\}", "", steps)
    return re.sub(r"%[\w.-]+", lambda name: numbers.setdefault(name[0], f"%{len(numbers)}"), steps)


def one_task(point: Point) -> int:
    """The task of all rows, where there is one."""
    return min(3, point.shape[2] - 1)


def groups(ids: Any) -> tuple[Any, Any, Any]:
    """The tasks present, the row that each place of the groups takes, and the place of each row.

    All groups are as long as the longest; places that no row has take the first row, for nobody to read.
    """
    present, group, counts = np.unique(ids, return_inverse=True, return_counts=True)
    longest = int(counts.max())
    order = group.argsort(kind="stable")
    within = np.arange(len(ids)) - np.repeat(counts.cumsum() - counts, counts)
    position = np.empty_like(order)
    position[order] = group[order] * longest + within
    source = np.zeros(len(present) * longest, dtype=np.int64)
    source[position] = np.arange(len(ids))
    return present, source, position
