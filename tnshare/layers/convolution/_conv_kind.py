"""Calls of a convolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tnshare.errors import TnshareError
from tnshare.execution import CallKind, Runner, Shape, fixed_axes
from tnshare.layers._rows_of_x import leading_axes
from tnshare.ops import Ops
from tnshare.planning import MOST_KEPT_NUMBERS, USUAL_PLACES, Candidate, Form, Profile, Way, bucket

from ._conv import Conv
from ._conv_candidates import ConvCandidate, ConvJob, conv_candidate, conv_candidates
from ._conv_memory import conv_bytes
from ._conv_runner import conv_runner


class ConvKind(CallKind[ConvJob, ConvCandidate]):
    """Inputs are (..., channels, *places): channels first, as the core sees them."""

    layer: Conv

    def __init__(self, layer: Conv, ops: Ops[Any]) -> None:
        if not hasattr(ops, "convolve"):
            raise TnshareError(
                f"{type(ops).__name__} has no `convolve`, which convolutions need: see tnshare.ops.Ops"
            )
        super().__init__(layer, ops)

    def rows_of(self, way: Way, ids: int | None, shape: Shape) -> Shape:
        own = (self.layer.in_channels, *"dhw"[-len(self.layer.kernel) :])
        return leading_axes(way, ids, shape, self.layer.task_shape, own, "channels before the places", most=1)

    def shape(self, rows: Sequence[int], sizes: Sequence[int] | None) -> Shape:
        geometry, dims = self.layer.geometry, len(self.layer.kernel)
        if sizes is None:
            reach = (d * (k - 1) + 1 for k, d in zip(geometry.kernel, geometry.dilation, strict=True))
            sizes = [max(USUAL_PLACES[dims], n) for n in reach]
        if len(sizes) != dims:
            raise TnshareError(
                f"give sizes, the places of x along each of {dims} dimensions: found {tuple(sizes)}"
            )
        return (*rows, self.layer.in_channels, *sizes)

    def job(self, way: Way, rows: Shape, shape: Shape, training: bool, keep: bool, concrete: bool) -> ConvJob:
        sizes = shape[len(shape) - len(self.layer.kernel) :]
        self.layer.geometry.check(sizes)
        if way == "mixed" and rows == (0,):  # no row, no task: whichever has the right shape
            way, keep = "one", False
        kept = MOST_KEPT_NUMBERS if keep else 0
        return ConvJob(self.layer, way, bucket(math.prod(rows)), sizes, training, kept, concrete)

    def options(self, job: ConvJob, profile: Profile, form: Form | Candidate) -> tuple[ConvCandidate, ...]:
        assert not isinstance(form, Candidate)
        return conv_candidates(job, profile, form)

    def function(self, job: ConvJob, option: ConvCandidate, rows: Shape | None) -> Runner:
        run = conv_runner(job, option, self.ops)
        if rows != (0,) or job.way != "one":
            return run
        first = (0,) * len(self.layer.task_shape)
        return lambda factors, bias, x, ids, keeper=None: run(factors, bias, x, first, keeper)

    def code(self, option: ConvCandidate) -> str:
        """The parts, each a function, in the order in which they follow one another."""
        texts = [
            plan.source(fixed_axes(plan)).replace("def contract(", f"def {title}(")
            for title, plan, _ in option.parts
        ]
        return "\n\n\n".join([f"# {option.name}", *texts])

    def key(self, job: ConvJob) -> dict[str, Any]:
        way = [job.way, job.rows, list(job.sizes), job.training, bool(job.keep)]
        return {"conv": repr(self.layer), "way": way}

    def peak_bytes(self, job: ConvJob, option: ConvCandidate, rows: Shape, part: int, itemsize: int) -> int:
        return conv_bytes(job, option, part, part < self.rows_in(job.way, rows), itemsize)

    def seconds(
        self, job: ConvJob, option: ConvCandidate, profile: Profile, rows: int, training: bool
    ) -> float:
        part = replace(job, rows=rows, training=training)
        return conv_candidate(part, profile, option.chain, option.plans).seconds
