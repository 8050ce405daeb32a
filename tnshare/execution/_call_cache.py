"""Which function ran for which kind of call, found by what arrays say of themselves."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from tnshare.planning import Way

from ._array_facts import is_contiguous
from ._runners import Runner

EVERY = object()  # in place of a task: the same x through every task
_MOST = 512  # kinds of calls that are remembered


class CallCache:
    """Remembers functions by the kind of a call as it is given, and by the kind that a check finds it to be.

    As given, a call is of a kind with another if x and ids agree in the attributes ``told``, such as shape,
    dtype and device: `find` looks at nothing else. ``tasks`` is the number of tasks, or 0 where a task is
    more than one number. With ``order``, whether an x lies in order counts too, as it does for memory.
    """

    def __init__(self, told: Sequence[str], tasks: int, order: bool = False) -> None:
        self._told, self._tasks, self._order = attrgetter(*told), tasks, order
        self._of = partial(_with_order, self._told) if order else self._told
        self._runs: dict[Hashable, Runner] = {}

    def find(self, x: Any, task: Any, training: bool, bare: bool) -> tuple[Runner, Any] | None:
        """What runs for such a call, and the ids to give it; None if it has to be checked first."""
        try:
            if task is None or task is EVERY:
                run = self._runs.get((task, training, bare, self._of(x)))
                return None if run is None else (run, None)
            if type(task) is int:
                run = self._runs.get((int, training, bare, self._of(x)))
                return None if run is None or not 0 <= task < self._tasks else (run, (task,))
            run = self._runs.get((self._told(task), training, bare, self._of(x)))
            return None if run is None else (run, (task,))
        except AttributeError:  # not arrays: lists, say
            return None

    def keep(self, x: Any, task: Any, training: bool, bare: bool, run: Runner) -> None:
        """Calls given so need no check. ``task`` is None, `EVERY`, a whole number, or ids (rows,)."""
        asked = task if task is None or task is EVERY else int if type(task) is int else self._told(task)
        self.remember((asked, training, bare, self._of(x)), run)

    def checked(self, way: Way, ids: int | None, x: Any, training: bool, bare: bool) -> Hashable:
        """The kind of a checked call with so many ids: whatever they came as, and wherever x may lie."""
        key = way, x.shape, ids, training, bare, getattr(x, "dtype", None)
        return (*key, is_contiguous(x)) if self._order else key

    def recall(self, kind: Hashable) -> Runner | None:
        """What runs for a checked call of this kind."""
        return self._runs.get(kind)

    def remember(self, kind: Hashable, run: Runner) -> None:
        """Calls of this kind run so."""
        if len(self._runs) >= _MOST:
            self.forget()
        self._runs[kind] = run

    def forget(self) -> None:
        """Check and plan all calls again."""
        self._runs = {}


def _with_order(told: Any, x: Any) -> tuple[Any, bool]:
    return told(x), is_contiguous(x)
