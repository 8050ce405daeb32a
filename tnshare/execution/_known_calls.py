"""Programs of calls that are like one before: found by what arrays say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from ._runners import Runner

EVERY = object()  # in place of a task: the same x through every task
_MOST = 512  # kinds of calls that are remembered


class Known:
    """Remembers which program ran, so that a call of the same kind need not be looked at again.

    A call is of a kind with another if x and ids agree in the attributes ``told``, such as shape, dtype and
    device. ``tasks`` is the number of tasks, or 0 where a task is more than one number.
    """

    def __init__(self, told: Sequence[str], tasks: int) -> None:
        self._told, self._tasks = attrgetter(*told), tasks
        self._runs: dict[Any, Runner] = {}

    def find(self, x: Any, task: Any, training: bool, bare: bool) -> tuple[Runner, Any] | None:
        """The program of such a call, and the ids to give it; None if it has to be looked at."""
        try:
            if task is None or task is EVERY:
                run = self._runs.get((task, training, bare, self._told(x)))
                return None if run is None else (run, None)
            if type(task) is int:
                run = self._runs.get((int, training, bare, self._told(x)))
                return None if run is None or not 0 <= task < self._tasks else (run, (task,))
            run = self._runs.get((self._told(task), training, bare, self._told(x)))
            return None if run is None else (run, (task,))
        except AttributeError:  # not arrays: lists, say
            return None

    def keep(self, x: Any, task: Any, training: bool, bare: bool, run: Runner) -> None:
        """Calls of this kind run so. ``task`` is None, `EVERY`, a whole number, or ids (rows,)."""
        if len(self._runs) >= _MOST:
            self.forget()
        asked = task if task is None or task is EVERY else int if type(task) is int else self._told(task)
        self._runs[asked, training, bare, self._told(x)] = run

    def forget(self) -> None:
        """Look at all calls again."""
        self._runs = {}
