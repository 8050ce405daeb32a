"""What an adapter's layer or network holds, without its framework."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from tnshare.decomposition import Decomposition
from tnshare.ops import NDArray

Saved = Decomposition | NDArray


@dataclass(frozen=True, eq=False)
class Keys:
    """Keys of random numbers, as JAX has them: their numbers, and what they are for."""

    implementation: str
    numbers: NDArray


Constant = NDArray | Keys | bool | int | float | str


@dataclass(frozen=True, eq=False)
class State:
    """Numbers by name: ``entries`` of all tasks, ``tasks[t]`` what task t has of its own; tasks' names.

    Softly shared weights are decompositions among the entries, with the codes of all tasks. ``constants`` are
    never trained: of each there is one for all tasks, or one for each.
    """

    entries: Mapping[str, Saved]
    tasks: tuple[Mapping[str, Saved], ...] = ()
    names: tuple[str, ...] = ()
    constants: Mapping[str, tuple[Constant, ...]] = field(default_factory=dict)


class Stateful(Protocol):
    """What `tnshare.save` takes of an adapter."""

    def state(self) -> State:
        """All its numbers."""
