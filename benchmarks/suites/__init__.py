"""The suites: each yields jobs, which measure for about so many seconds and give a line of results."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from benchmarks.case import Case
    from benchmarks.measuring.meters import Meter
    from benchmarks.measuring.rounds import Row
    from benchmarks.peers.common import Programs

QUICK = ("imports", "compose", "apply", "conv", "mixed", "memory", "scale", "roofline", "predicted")
FULL = (*QUICK, "decompose")
JAX = ("compose", "apply", "mixed")
Job = tuple[str, Callable[[float], "Row"]]


class Bench(Protocol):
    """A framework on a device."""

    name: str
    device: str
    limit: int  # bytes beyond which a program is left out
    meter: Meter

    def apply(self, case: Case, peers: Any = None) -> Programs:
        """Programs of one call, tnshare first; of the peers those named, or all."""

    def compose(self, case: Case, one: bool) -> Programs:
        """Programs that give the weights of all tasks, or of one."""


Suite = Callable[[Any, bool], Iterator[Job]]  # of a bench, and whether all of it is wanted
