"""Calls that are planned once for all batches when they are traced: of convolutions and embeddings."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from tnshare.execution import Calls, Runner, chunked
from tnshare.planning import WAYS, Profile, Way, bucket


class PlannedOnce(Calls):
    """Calls whose plan, while they are traced, does not depend on the number of rows."""

    def _folding(self, run: Runner, way: Way, lead: tuple[int, ...], size: int) -> Runner:
        """Some rows at a time, of an x whose axes ``lead`` are folded into one; those of mixed tasks are."""
        tasks, ops = self.layer.task_shape, self.ops
        parts = chunked(run, ops, way, len(tasks), size)
        before, after = tasks if way == "each" else (), tasks if way in ("each", "fan_out") else ()
        first = len(before) + len(lead)

        def folded(factors: Any, bias: Any, x: Any, ids: Any, keeper: Any = None) -> Any:
            if way == "mixed":
                return parts(factors, bias, x, ids, keeper)
            rest = tuple(x.shape)[first:]
            y = parts(factors, bias, ops.reshape(x, (*before, math.prod(lead), *rest)), ids, keeper)
            return ops.reshape(y, (*after, *lead, *tuple(y.shape)[len(after) + 1 :]))

        return folded

    @abstractmethod
    def _for_rows(self, way: Way, rows: int, training: bool, profile: Profile) -> Runner:
        """What runs for so many rows, whose ids have no values yet."""

    def ahead(self, like: Any, batches: Sequence[int]) -> None:
        if self.planned:
            return
        self._refuse_limit()
        rows, profile = bucket(sorted(batches)[len(batches) // 2]), self.profile(like)
        for way, training in product(WAYS, (True, False)):
            self.planned[way, training] = [(rows, self._for_rows(way, rows, training, profile))]

    def traced(
        self,
        way: Way,
        ids: Any,
        factors: Sequence[Any],
        bias: Any,
        x: Any,
        training: bool,
        known: Callable[[Any], bool],
    ) -> Any:
        self._lead(way, None, tuple(x.shape))
        ((_, run),) = self.planned[way, training]
        return run(factors, bias, x, ids)
