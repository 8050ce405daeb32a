"""The tasks of a shared model: how many there are, what they are called, and which of them is meant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from tnshare.checks import printable
from tnshare.errors import TnshareError
from tnshare.ops import Ops
from tnshare.planning import Choice, read_tasks


@dataclass(frozen=True)
class Roster:
    """``count`` tasks, numbered from 0; with ``names``, or without any."""

    count: int
    names: tuple[str, ...] = ()

    @staticmethod
    def of(tasks: Mapping[str, Any] | Sequence[Any], what: str) -> Roster:
        """The roster of what was given for each task: a list, or a dict whose keys are the tasks' names."""
        if isinstance(tasks, Set):
            raise TnshareError(
                f"{what} must be a list, one for each task, in order: found {type(tasks).__name__}"
            )
        if not len(tasks):
            raise TnshareError(f"no {what} were given: expected a list of them, one for each task")
        names = tuple(tasks) if isinstance(tasks, Mapping) else ()
        if not all(isinstance(name, str) for name in names):
            raise TnshareError(f"the names of tasks must be strings: found {names}")
        for name in names:
            printable("the names of tasks", name)
        return Roster(len(tasks), names)

    def choice(self, task: Any, ops: Ops[Any]) -> Choice:
        """One task, by its name or its number, or a task for each row, by ids; ids may be traced."""
        if isinstance(task, str):
            if task not in self.names:
                raise TnshareError(f"no task is called {task!r}: expected one of {self.names}")
            return Choice((self.names.index(task),), None)
        return read_tasks(task, ("task",), (self.count,), ops)

    def index(self, task: Any, ops: Ops[Any]) -> int:
        """The number of one task, which is known now."""
        choice = self.choice(task, ops)
        if choice.rows is not None or ops.values(choice.ids[0]) is None:
            raise TnshareError(f"one task is expected, by its number or its name: found {task!r}")
        return int(choice.ids[0])

    def grown(self, name: str | None) -> Roster:
        """One more task at the end."""
        if (name is None) == bool(self.names):
            raise TnshareError(
                "tasks have names: give the new one a name" if self.names else "tasks have no names"
            )
        if not isinstance(name, str | None):
            raise TnshareError(f"the names of tasks must be strings: found {name!r}")
        if name in self.names:
            raise TnshareError(f"a task is called {name!r} already: found {self.names}")
        names = self.names if name is None else (*self.names, printable("the names of tasks", name))
        return Roster(self.count + 1, names)

    def without(self, number: int) -> Roster:
        """One task less; those behind it move up by one."""
        if self.count == 1:
            raise TnshareError("the last task cannot be removed")
        return Roster(self.count - 1, self.names[:number] + self.names[number + 1 :])
