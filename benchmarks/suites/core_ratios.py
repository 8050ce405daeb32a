"""The suites that are tables of ratios: importing, and decomposing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.measuring.rounds import Row

from . import Job
from . import decompose as _decompose
from . import imports as _imports

ROUNDS = 5


def imports(bench: Any, full: bool) -> Iterator[Job]:
    """`import tnshare` against what it needs."""
    yield "imports", lambda seconds: _row(_imports.run(ROUNDS))


def decompose(bench: Any, full: bool) -> Iterator[Job]:
    """Decomposing against the textbook's SVDs."""
    yield "decompose", lambda seconds: _row(_decompose.run(ROUNDS))


def _row(rows: list[dict[str, Any]]) -> Row:
    return {"kind": "table", "programs": {}, "skipped": {}, "noise": None, "facts": {"rows": rows}}
