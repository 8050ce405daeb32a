"""How many rows are computed at a time where all of them at once need too much memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from tnshare.errors import TnshareError

from ._job import _READ, KEPT, Candidate, Job
from ._peak_memory import peak
from ._plan import Plan
from ._prices import Prices
from ._steps import count
from ._ways import with_input
from .devices._profile import Profile


def largest_part(rows: int, needed: Callable[[int], int], limit: int) -> int:
    """As many rows at a time as the limit allows, so that parts are few; 0 if not even one row fits.

    All parts have about as many. Fewer rows must need no more than many: only all of them at once, which are
    no part, may need less.
    """
    if needed(rows) <= limit:
        return rows
    fits, fails = 0, rows
    while fails - fits > 1:
        middle = (fits + fails) // 2
        fits, fails = (middle, fails) if needed(middle) <= limit else (fits, middle)
    return fits and math.ceil(rows / math.ceil(rows / fits))


def within(
    job: Job, found: tuple[Candidate, ...], profile: Profile, limit: int, itemsize: int, copies: int = 0
) -> Candidate:
    """The fastest candidate that stays within ``limit`` bytes, in chunks of the batch if need be.

    ``copies`` is how many numbers live besides, whatever the candidate.
    """
    rows = max(job.batch, 1)
    best: Candidate | None = None

    def alive(candidate: Candidate, chunk: int) -> int:
        return (needed(job, candidate, chunk, rows) + copies) * itemsize

    measurable = _measurable(found)
    for candidate in measurable:
        own = partial(alive, candidate)
        chunk = largest_part(rows, own, limit)
        if not chunk:
            continue
        seconds = candidate.seconds if chunk == rows else _in_chunks(job, candidate, profile, chunk)
        if best is None or seconds < best.seconds:
            best = replace(candidate, chunk=chunk % rows, peak=own(chunk), seconds=seconds)
    if best is None:
        smallest = min(alive(candidate, chunk) for candidate in measurable for chunk in (rows, 1))
        raise TnshareError(
            f"memory_limit={limit} is too little for {job.batch} rows {_READ[job.way]} in "
            f"{'training' if job.training else 'inference'}: the smallest that works is {smallest} bytes"
        )
    return best


def _in_chunks(job: Job, candidate: Candidate, profile: Profile, chunk: int) -> float:
    """Seconds for so many rows at a time; when training, forwards twice, and each part's gradients added."""
    network = with_input(job.network, job.way, chunk, job.inner)
    plan = Plan.of(network, candidate.plan.moves, candidate.plan.why)
    once = Prices(network, profile, job.training, KEPT if candidate.kept else 0).of(plan)
    if job.training:
        once += Prices(network, profile, False).of(plan)
        once += sum(profile.stream(count(node.axes, job.network.sizes)) for node in job.network.nodes)
    return once * math.ceil(job.batch / chunk)


def _measurable(found: tuple[Candidate, ...]) -> list[Candidate]:
    """How long groups are is not known before, so rows stay as they come."""
    known = [candidate.otherwise if candidate.grouped else candidate for candidate in found]
    if not any(known):
        raise TnshareError(f"no memory_limit can be kept by {found[0].name!r}: how long groups are varies")
    return [candidate for candidate in dict.fromkeys(known) if candidate]


def needed(job: Job, candidate: Candidate, chunk: int, rows: int) -> int:
    """The numbers alive at once when so many of the rows are computed at a time."""
    plan, part = candidate.plan, chunk < rows
    sizes = {**plan.network.sizes, "b": chunk} | ({} if job.inner is None else {"m": job.inner})
    alive = peak(plan, sizes, training=job.training, kept=candidate.kept, bias=_biases(job), part=part)
    alive += _slices(job, part)
    if not part:
        return alive
    # The gradient of a part of x; and of each task's rows, a part is not one piece of memory.
    return alive + count(_input(plan), sizes) * (job.training + (job.way == "each"))


def _biases(job: Job) -> int:
    """The gradient of the bias, for one task together with the slice that is put into it."""
    first, *others = job.network.task_shape
    return (first + (job.way == "one")) * math.prod(others) * job.network.sizes["o"] if job.bias else 0


def _slices(job: Job, part: bool = False) -> int:
    """The gradients of what one task has of the factors: the backward pass uses them at its end.

    They are put where they belong along one task axis after the other.
    """
    if job.way != "one" or not job.training:
        return 0
    sizes, tasks = job.network.sizes, job.network.tasks
    own = [(*tasks, "o"), *(node.axes for node in job.network.nodes if set(tasks) & set(node.axes))]
    wholes = [count(axes, sizes) for axes in own]
    slices = [n // next(sizes[a] for a in axes if a in tasks) for n, axes in zip(wholes, own, strict=True)]
    bias = 0 if job.bias and len(tasks) > 1 else 1  # the slice of a lone task axis is no more than a result
    return sum(slices[bias:]) * min(len(tasks), 2) + (2 * max(wholes[1:]) if part else 0)


def _input(plan: Plan) -> tuple[str, ...]:
    (axes,) = (node.axes for node in plan.network.nodes if node.name == "x")
    return axes


class Timed(Protocol):
    """A candidate."""

    @property
    def seconds(self) -> float: ...


Some = TypeVar("Some", bound=Timed)


_AGAIN = 1.4  # what is computed again in the backward pass takes so much longer


def fitting(
    found: Sequence[Some], rows: int, limit: int, needed: Callable[[Some, int], int]
) -> tuple[Some, int]:
    """The fastest candidate within a limit of bytes, and how many rows it takes at a time; 0 for all.

    ``needed`` gives the bytes of a candidate for so many of the rows at a time.
    """
    rows = max(rows, 1)
    within: list[tuple[float, int, Some, int]] = []
    for candidate in found:
        size = largest_part(rows, partial(needed, candidate), limit)
        if size:
            slower = 1 if size == rows else _AGAIN * (1 + 0.02 * rows / size)
            within.append((candidate.seconds * slower, len(within), candidate, size))
    if not within:
        smallest = min(needed(candidate, size) for candidate in found for size in (rows, 1))
        raise TnshareError(
            f"memory_limit={limit} is too little for {rows} rows: the smallest that works is {smallest} bytes"
        )
    _, _, chosen, size = min(within)
    return chosen, size % rows
