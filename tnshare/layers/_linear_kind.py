"""Calls of a linear layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from tnshare.errors import TnshareError
from tnshare.execution import CallKind, Runner, Shape, fixed_axes
from tnshare.planning import (
    MOST_KEPT_NUMBERS,
    Candidate,
    Form,
    Job,
    Profile,
    Way,
    bucket,
    candidates,
    check_fits,
    keep_limit,
    linear_peak,
    priced,
    with_input,
)

from ._linear_runner import runner
from ._rows_of_x import leading_axes

COMPILED = 18  # candidates that are timed where each is compiled first
_FAR = 3.0  # times as slow by the prediction of a compiler's work: not worth compiling
SHORTLIST = 14  # candidates that are timed; fewer of those that take long
_HOPELESS = 2.0  # times as slow by the prediction: not timed for grouping rows alone


class LinearKind(CallKind[Job, Candidate]):
    """Inputs are (..., in_features); rows of mixed tasks may have several vectors each."""

    def rows_of(self, way: Way, ids: int | None, shape: Shape) -> Shape:
        own = (self.layer.in_features,)
        return leading_axes(way, ids, shape, self.layer.task_shape, own, "in_features last")

    def shape(self, rows: Sequence[int], sizes: Sequence[int] | None) -> Shape:
        return (*rows, *(sizes or ()), self.layer.in_features)

    def job(self, way: Way, rows: Shape, shape: Shape, training: bool, keep: bool, concrete: bool) -> Job:
        network, inner = self.layer.network, bucket(math.prod(rows[1:])) if len(rows) > 1 else None
        if way != "mixed":
            rows, inner = (math.prod(rows),), None
        kept, named = keep_limit(network, way) if keep else 0, hasattr(self.ops, "einsum")
        return Job(network, way, bucket(rows[0]), inner, training, kept, concrete, self.layer.bias, named)

    def options(self, job: Job, profile: Profile, form: Form | Candidate) -> tuple[Candidate, ...]:
        if isinstance(form, Candidate):
            check_fits(form, job)
            return (form,)
        return candidates(job, profile, form)

    def function(self, job: Job, option: Candidate, rows: Shape | None) -> Runner:
        return runner(job, option, self.ops, rows)

    def code(self, option: Candidate) -> str:
        text = option.plan.source(fixed_axes(option.plan), named=option.by_einsum)
        if not option.grouped:
            return text
        return (
            "# Rows are sorted by task and padded to groups of one length: place n of all groups takes row "
            "rows[n],\n# and row n is at the place back[n]; ids are not used. Factors are those of "
            f"{'all tasks' if option.grouped == 'all' else 'the tasks that are present'}.\n{text}"
        )

    def key(self, job: Job) -> dict[str, Any]:
        return {
            "network": [[node.name, list(node.axes), list(node.shape)] for node in job.network.nodes],
            "way": [job.way, job.batch, job.inner, job.training, job.keep, job.bias],
        }

    def peak_bytes(self, job: Job, option: Candidate, rows: Shape, part: int, itemsize: int) -> int:
        exact = job if job.inner is None else replace(job, inner=math.prod(rows[1:]))
        return linear_peak(exact, option, part, max(self.rows_in(job.way, rows), 1)) * itemsize

    def seconds(self, job: Job, option: Candidate, profile: Profile, rows: int, training: bool) -> float:
        network = with_input(job.network, job.way, rows, job.inner)
        keep = MOST_KEPT_NUMBERS if option.kept and training == job.training else 0
        return priced(option.plan, network, profile, training, keep)[0]

    def worth_timing(self, options: Sequence[Candidate]) -> Sequence[Candidate]:
        """Half of them the best predictions, then the best of other trees.

        Predictions err the same way for all that differ in memory orders alone; and where a compiler arranges
        axes, they say little of memory orders. The best that groups rows is always there.
        """
        seconds = options[0].seconds
        near = [c for c in options if c.seconds < _FAR * seconds]
        if any(candidate.by_einsum for candidate in options):
            return _varied(near)[:COMPILED]
        most = SHORTLIST if seconds < 0.2 else SHORTLIST // 2
        chosen = list(dict.fromkeys([*options[: most // 2 + 1], *_varied(near)]))[:most]
        other = next((c for c in options if c.grouped and c.seconds < _HOPELESS * seconds), None)
        return [*chosen, *([other] if other is not None and other not in chosen else [])]

    def measurable(self, options: Sequence[Candidate]) -> Sequence[Candidate]:
        """How long groups are is not known before, so rows stay as they come."""
        known = [candidate.ungrouped if candidate.grouped else candidate for candidate in options]
        if not any(known):
            raise TnshareError(
                f"no memory_limit can be kept by {options[0].name!r}: how long groups are varies"
            )
        return [candidate for candidate in dict.fromkeys(known) if candidate]

    def planned_for(self, batches: Sequence[int]) -> Sequence[int]:
        """For all of them: which plan is the fastest changes with the rows."""
        return batches


def _varied(found: Sequence[Candidate]) -> list[Candidate]:
    """First the best of every tree, then the second of every tree, and so on."""
    trees: dict[object, list[Candidate]] = {}
    for candidate in found:
        trees.setdefault((candidate.plan.tree, candidate.by_einsum, candidate.grouped), []).append(candidate)
    rounds = zip_longest(*trees.values())
    return [candidate for candidates in rounds for candidate in candidates if candidate is not None]
