"""Calls of an embedding in a framework."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tnshare.errors import TnshareError
from tnshare.execution import Contest, Inputs, Runner, fastest, fixed_axes, in_order, placed
from tnshare.layers._planned_once import PlannedOnce
from tnshare.planning import WAYS, Profile, Way, bucket, explain_plan, explain_table, fitting

from ._lookup_candidates import LookupCandidate, LookupJob, lookup_candidates
from ._lookup_memory import lookup_bytes
from ._lookup_runner import lookup_runner
from ._table import Embedding


class LookupCalls(PlannedOnce):
    """Calls of one embedding, in one framework, by one strategy; x are whole numbers, the tokens."""

    layer: Embedding
    guarded = False  # in a table, with tokens beside it, an id of -1 would be the last task

    def _for_rows(self, way: Way, rows: int, training: bool, profile: Profile) -> Runner:
        job = LookupJob(self.layer, way, rows, 1 if way == "mixed" else None, training, False)
        return lookup_runner(job, self.choices(job, profile)[0], self.ops)

    def choices(self, job: LookupJob, profile: Profile) -> tuple[LookupCandidate, ...]:
        """The candidates that the strategy allows, the fastest by the profile first."""
        return lookup_candidates(job, profile, self.form)

    def explain(self, way: Way, batch: int, like: Any, *, training: bool) -> str:
        """The candidates for an eager call of so many tokens, and the steps of the chosen."""
        profile = self.profile(like)
        found = self.choices(self._job(way, (batch,), training, not training), profile)
        rows = [
            (">" if n == 0 else "", c.name, f"{c.plan.flops:,}", f"{c.seconds * 1e6:,.1f} us")
            for n, c in enumerate(found)
        ]
        what = "a training step" if training else "inference"
        head = f"{way}, {bucket(batch)} tokens, {what}; predicted by the profile {profile.name!r}"
        table = explain_table([("", "candidate", "flops", "predicted"), *rows])
        return "\n".join([f"{head} ({profile.source})", *table, "", explain_plan(found[0].plan)])

    def source(self, way: Way, batch: int, like: Any, *, training: bool) -> str:
        """The contraction that runs for an eager call, of the rows looked up (x) or to the tables."""
        job = self._job(way, (batch,), training, not training)
        chosen = self.choices(job, self.profile(like))[0]
        return _text(chosen)

    def _job(self, way: Way, lead: tuple[int, ...], training: bool, keep: bool) -> LookupJob:
        if way not in WAYS:
            raise TnshareError(f"way must be one of {WAYS}: found {way!r}")
        if way != "mixed":
            return LookupJob(self.layer, way, bucket(math.prod(lead)), None, training, keep)
        inner = bucket(math.prod(lead[1:]))
        return LookupJob(self.layer, way, bucket(lead[0]), inner, training, keep)

    def _made(self, way: Way, rows: int | None, training: bool, inputs: Inputs) -> Runner:
        x = inputs[2]
        lead = self._lead(way, rows, tuple(x.shape))
        keep = inputs[4] is not None and not training and self.memory_limit is None
        job = self._job(way, lead, training, keep)
        found = self.choices(job, self.profile(inputs[0][0]))
        if self.memory_limit is not None:
            return self._within(job, found, lead, inputs)
        runs = {c.name: lookup_runner(job, c, self.ops) for c in found}
        concrete = 0 not in lead and self.ops.values(x) is not None
        if self.strategy == "autotune" and concrete and len(found) > 1:
            return runs[fastest(self._key(job), runs, training, self.ops, inputs)]
        if hasattr(self.ops, "jit"):
            contest = self.contest(way, rows, training, inputs[0][0], tuple(x.shape))
            return contest.make(contest.chosen)
        return runs[found[0].name]

    def contest(
        self, way: Way, rows: int | None, training: bool, like: Any, shape: tuple[int, ...]
    ) -> Contest:
        job = self._job(way, self._lead(way, rows, shape), training, False)
        found = {c.name: c for c in self.choices(job, self.profile(like))}
        key = placed(self._key(job), self.ops, like, found)
        return Contest(key, found, lambda c: lookup_runner(job, c, self.ops), _text)

    def shape(self, rows: int, sizes: Sequence[int]) -> tuple[int, ...]:
        return (rows, *sizes)

    def _key(self, job: LookupJob) -> dict[str, Any]:
        way = [job.way, job.rows, job.inner, job.training, job.keep]
        return {"embedding": repr(self.layer), "way": way}

    def _within(
        self, job: LookupJob, found: Sequence[LookupCandidate], lead: tuple[int, ...], inputs: Inputs
    ) -> Runner:
        x, rows = inputs[2], lead[0] if job.way == "mixed" else math.prod(lead)
        itemsize = getattr(getattr(inputs[0][0], "dtype", None), "itemsize", 4)
        copies = 0 if in_order(x) else 8 * math.prod(x.shape)
        exact = replace(job, inner=None if job.inner is None else math.prod(lead[1:]))
        assert self.memory_limit is not None

        def needed(candidate: LookupCandidate, size: int) -> int:
            return lookup_bytes(exact, candidate, size, size < rows, itemsize) + copies

        chosen, size = fitting(found, rows, self.memory_limit, needed)
        run = lookup_runner(job, chosen, self.ops)
        return self._folding(run, job.way, lead, size) if size else run

    def _lead(self, way: Way, rows: int | None, shape: tuple[int, ...]) -> tuple[int, ...]:
        tasks = self.layer.task_shape
        if way == "mixed" and (not shape or (rows is not None and shape[0] != rows)):
            raise TnshareError(
                f"one task id for each row: expected x of shape ({rows}, ...) with {rows} ids, found {shape}"
            )
        if way != "each":
            return shape
        if shape[: len(tasks)] != tasks:
            raise TnshareError(
                f"without a task, row t of x belongs to task t: expected x of shape "
                f"({', '.join(map(str, tasks))}, ...), found {shape}; give a task, or ids, or use fan_out"
            )
        return shape[len(tasks) :]


def _text(candidate: LookupCandidate) -> str:
    return f"# {candidate.name}\n{candidate.plan.source(fixed_axes(candidate.plan))}"
