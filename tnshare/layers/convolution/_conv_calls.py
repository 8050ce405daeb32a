"""Calls of a convolution in a framework: the chosen candidate as a function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tnshare.errors import TnshareError
from tnshare.execution import Contest, Inputs, Runner, fastest, fixed_axes, in_order, placed
from tnshare.layers._planned_once import PlannedOnce
from tnshare.ops import Ops
from tnshare.planning import WAYS, Plan, Profile, Way, bucket, explain_plan, explain_table, fitting

from ._conv import Conv
from ._conv_candidates import ConvCandidate, ConvJob, conv_candidates
from ._conv_memory import conv_bytes
from ._conv_runner import conv_runner

_USUAL = {1: 256, 2: 32, 3: 8}  # places along a dimension, where a traced call does not say


class ConvCalls(PlannedOnce):
    """Calls of one convolution, in one framework, by one strategy.

    Inputs are (..., channels, *places): channels first, as the core sees them.
    """

    layer: Conv

    def __init__(self, layer: Conv, ops: Ops[Any], *rest: Any) -> None:
        if not hasattr(ops, "convolve"):
            raise TnshareError(
                f"{type(ops).__name__} has no `convolve`, which convolutions need: see tnshare.ops.Ops"
            )
        super().__init__(layer, ops, *rest)

    def _for_rows(self, way: Way, rows: int, training: bool, profile: Profile) -> Runner:
        dims = len(self.layer.kernel)
        reach = (
            d * (k - 1) + 1 for k, d in zip(self.layer.kernel, self.layer.geometry.dilation, strict=True)
        )
        sizes = tuple(max(_USUAL[dims], n) for n in reach)
        job = ConvJob(self.layer, way, rows, sizes, training, False, False)
        return conv_runner(job, self.choices(job, profile)[0], self.ops)

    def choices(self, job: ConvJob, profile: Profile) -> tuple[ConvCandidate, ...]:
        """The candidates that the strategy allows, the fastest by the profile first."""
        return conv_candidates(job, profile, self.form)

    def explain(self, way: Way, batch: int, like: Any, *, training: bool, sizes: Sequence[int] = ()) -> str:
        """The candidates for an eager call of so many rows of these sizes, and the parts of the chosen."""
        job = self._job(way, batch, sizes, training, keep=not training)
        profile = self.profile(like)
        found = self.choices(job, profile)
        rows = [
            (">" if n == 0 else "", c.name, f"{c.flops:,}", f"{c.seconds * 1e6:,.1f} us")
            for n, c in enumerate(found)
        ]
        what = "a training step" if training else "inference"
        head = (
            f"{way}, {job.rows} rows of {' x '.join(map(str, job.sizes))} places, {what}; predicted by the "
            f"profile {profile.name!r} ({profile.source})"
        )
        lines = [head, *explain_table([("", "candidate", "flops", "predicted"), *rows])]
        for title, plan in _parts(found[0]):
            lines += ["", f"{title}:", explain_plan(plan)]
        return "\n".join(lines)

    def source(self, way: Way, batch: int, like: Any, *, training: bool, sizes: Sequence[int] = ()) -> str:
        """The parts of what runs for an eager call, each a function, and how they follow one another."""
        chosen = self.choices(self._job(way, batch, sizes, training, not training), self.profile(like))[0]
        return _text(chosen)

    def _job(self, way: Way, batch: int, sizes: Sequence[int], training: bool, keep: bool) -> ConvJob:
        if way not in WAYS:
            raise TnshareError(f"way must be one of {WAYS}: found {way!r}")
        dims = len(self.layer.kernel)
        places = tuple(sizes) or (_USUAL[dims],) * dims
        if len(places) != dims:
            raise TnshareError(f"sizes are one for each of {dims} dimensions: found {places}")
        self.layer.geometry.check(places)
        return ConvJob(self.layer, way, bucket(batch), places, training, keep, True)

    def _made(self, way: Way, rows: int | None, training: bool, inputs: Inputs) -> Runner:
        x = inputs[2]
        shape = tuple(x.shape)
        lead = self._lead(way, rows, shape)
        concrete = 0 not in lead and getattr(self.ops, "concrete", lambda _: False)(x)
        if way == "mixed" and concrete:
            concrete = all(self.ops.values(column) is not None for column in inputs[3])
        sizes = shape[len(shape) - len(self.layer.kernel) :]
        self.layer.geometry.check(sizes)
        keep = inputs[4] is not None and not training and self.memory_limit is None
        if way == "mixed" and not rows:  # no row, no task: whichever has the right shape
            return self._empty(training, inputs)
        job = ConvJob(self.layer, way, bucket(math.prod(lead)), sizes, training, keep, concrete)
        found = self.choices(job, self.profile(x))
        if self.memory_limit is not None:
            return self._within(job, found, lead, x)
        if self.strategy == "autotune" and concrete and len(found) > 1:
            runs = {c.name: conv_runner(job, c, self.ops) for c in found}
            return runs[fastest(self._key(job), runs, training, self.ops, inputs)]
        if hasattr(self.ops, "jit"):
            contest = self.contest(way, rows, training, x, shape)
            return contest.make(contest.chosen)
        return conv_runner(job, found[0], self.ops)

    def contest(
        self, way: Way, rows: int | None, training: bool, like: Any, shape: tuple[int, ...]
    ) -> Contest:
        lead, sizes = self._lead(way, rows, shape), shape[len(shape) - len(self.layer.kernel) :]
        self.layer.geometry.check(sizes)
        job = ConvJob(self.layer, way, bucket(math.prod(lead)), sizes, training, False, False)
        found = {c.name: c for c in self.choices(job, self.profile(like))}
        key = placed(self._key(job), self.ops, like, found)
        return Contest(key, found, lambda c: conv_runner(job, c, self.ops), _text)

    def shape(self, rows: int, sizes: Sequence[int]) -> tuple[int, ...]:
        dims = len(self.layer.kernel)
        if len(sizes) != dims:
            raise TnshareError(
                f"give sizes, the places of x along each of {dims} dimensions: found {tuple(sizes)}"
            )
        return (rows, self.layer.in_channels, *sizes)

    def _key(self, job: ConvJob) -> dict[str, Any]:
        way = [job.way, job.rows, list(job.sizes), job.training, job.keep]
        return {"conv": repr(self.layer), "way": way}

    def _within(self, job: ConvJob, found: Sequence[ConvCandidate], lead: tuple[int, ...], x: Any) -> Runner:
        rows, itemsize = math.prod(lead), getattr(getattr(x, "dtype", None), "itemsize", 4)
        copies = 0 if in_order(x) else 2 * math.prod(x.shape) * itemsize  # of x, and its gradient back
        assert self.memory_limit is not None

        def needed(candidate: ConvCandidate, size: int) -> int:
            return conv_bytes(job, candidate, size, size < rows, itemsize) + copies

        chosen, size = fitting(found, rows, self.memory_limit, needed)
        run = conv_runner(job, chosen, self.ops)
        return self._folding(run, job.way, lead, size) if size else run

    def _empty(self, training: bool, inputs: Inputs) -> Runner:
        factors, bias, x, _, _ = inputs
        first = (0,) * len(self.layer.task_shape)
        run = self._made("one", None, training, (factors, bias, x, first, None))
        return lambda factors, bias, x, ids, keeper: run(factors, bias, x, first)

    def _lead(self, way: Way, rows: int | None, shape: tuple[int, ...]) -> tuple[int, ...]:
        layer, tasks = self.layer, self.layer.task_shape
        dims = len(layer.kernel)
        before = shape[: -dims - 1]
        if len(shape) <= dims or shape[-dims - 1] != layer.in_channels:
            places = ", ".join("dhw"[-dims:])
            raise TnshareError(
                f"expected x of shape (..., {layer.in_channels}, {places}), channels before the places: "
                f"found {shape}"
            )
        if way == "mixed" and (len(before) != 1 or (rows is not None and before[0] != rows)):
            raise TnshareError(
                f"one task id for each row: expected x with {rows} rows and {dims + 2} axes, found {shape}"
            )
        if way != "each":
            return before
        if before[: len(tasks)] != tasks:
            raise TnshareError(
                f"without a task, row t of x belongs to task t: expected x of shape "
                f"({', '.join(map(str, tasks))}, ...), found {shape}; give a task, or ids, or use fan_out"
            )
        return before[len(tasks) :]


def _parts(candidate: ConvCandidate) -> list[tuple[str, Plan]]:
    parts = ("before", candidate.before), ("kernels", candidate.kernels), ("after", candidate.after)
    return [(title, plan) for title, plan in parts if plan is not None]


def _text(candidate: ConvCandidate) -> str:
    texts = [
        plan.source(fixed_axes(plan)).replace("def contract(", f"def {title}(")
        for title, plan in _parts(candidate)
    ]
    return "\n\n\n".join([f"# {candidate.name}", *texts])
