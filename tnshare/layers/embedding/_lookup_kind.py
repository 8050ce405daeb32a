"""Calls of an embedding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tnshare.execution import CallKind, Runner, Shape, fixed_axes
from tnshare.layers._rows_of_x import leading_axes
from tnshare.planning import MOST_KEPT_NUMBERS, Candidate, Form, Profile, Way, bucket

from ._embedding import Embedding
from ._lookup_candidates import LookupCandidate, LookupJob, lookup_bytes, lookup_candidate, lookup_candidates
from ._lookup_runner import lookup_runner


class LookupKind(CallKind[LookupJob, LookupCandidate]):
    """Inputs are whole numbers of any shape, the tokens."""

    layer: Embedding
    guarded = False  # in a table, with tokens beside it, an id of -1 would be the last task

    def rows_of(self, way: Way, ids: int | None, shape: Shape) -> Shape:
        return leading_axes(way, ids, shape, self.layer.task_shape)

    def shape(self, rows: Sequence[int], sizes: Sequence[int] | None) -> Shape:
        return (*rows, *(sizes or ()))

    def job(
        self, way: Way, rows: Shape, shape: Shape, training: bool, keep: bool, concrete: bool
    ) -> LookupJob:
        inner = bucket(math.prod(rows[1:])) if way == "mixed" else None
        count = bucket(self.rows_in(way, rows))
        return LookupJob(self.layer, way, count, inner, training, MOST_KEPT_NUMBERS if keep else 0, concrete)

    def options(
        self, job: LookupJob, profile: Profile, form: Form | Candidate
    ) -> tuple[LookupCandidate, ...]:
        assert not isinstance(form, Candidate)
        return lookup_candidates(job, profile, form)

    def function(self, job: LookupJob, option: LookupCandidate, rows: Shape | None) -> Runner:
        return lookup_runner(job, option, self.ops)

    def code(self, option: LookupCandidate) -> str:
        """The contraction, of the rows looked up (x) or to the tables."""
        return f"# {option.name}\n{option.plan.source(fixed_axes(option.plan))}"

    def key(self, job: LookupJob) -> dict[str, Any]:
        way = [job.way, job.rows, job.inner, job.training, bool(job.keep)]
        return {"embedding": repr(self.layer), "way": way}

    def peak_bytes(
        self, job: LookupJob, option: LookupCandidate, rows: Shape, part: int, itemsize: int
    ) -> int:
        exact = job if job.inner is None else replace(job, inner=math.prod(rows[1:]))
        return lookup_bytes(exact, option, part, part < self.rows_in(job.way, rows), itemsize)

    def seconds(
        self, job: LookupJob, option: LookupCandidate, profile: Profile, rows: int, training: bool
    ) -> float:
        part = replace(job, rows=rows, training=training)
        return lookup_candidate(part, profile, option.table, option.plan).seconds
