"""What an adapter's layer or network holds, without its framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from .decompose import Decomposition
from .ops import NDArray

Saved = Decomposition | NDArray


@dataclass(frozen=True, eq=False)
class State:
    """Numbers by name: ``entries`` of all tasks, ``tasks[t]`` what task t has of its own; tasks' names.

    Softly shared weights are decompositions among the entries, with the codes of all tasks.
    """

    entries: Mapping[str, Saved]
    tasks: tuple[Mapping[str, Saved], ...] = ()
    names: tuple[str, ...] = ()


class Stateful(Protocol):
    """What `tnshare.save` takes of an adapter."""

    def state(self) -> State:
        """All its numbers."""
