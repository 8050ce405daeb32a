"""The different ways to compute one call of a layer, with what each costs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Literal

from .cost import Profile
from .emit import varies
from .errors import TnshareError
from .group import mostly_padding, padded
from .memory import peak
from .network import Network
from .parts import largest_part
from .plan import Plan
from .price import Prices
from .search import Form, Goal, best_plans
from .step import FREE, Step, count
from .ways import GROUP, Way, of_present, with_input

KEPT = 1 << 24  # numbers that inference may keep for a layer: 64 MB in single precision
_MUCH = 1 << 30  # bytes alive at once, below which time alone decides
_REPEATED = 0.5  # of a product of a matrix with a stack: what it takes longer to repeat the matrix
_PLANS = 16  # candidates that leave rows as they come
_GROUPED = 4  # candidates that group rows, of either kind
Grouping = Literal["", "present", "all"]


def room(network: Network, way: Way) -> int:
    """How many numbers a call in inference may keep; of calls of one task, there are as many as tasks."""
    return KEPT // (math.prod(network.task_shape) if way == "one" else 1)


@dataclass(frozen=True)
class Job:
    """What is to be computed: a way of choosing tasks, a batch, and what for.

    ``keep`` is how many numbers that depend on factors alone may be kept between calls. ``concrete`` calls
    may look at the values of ids, and make arrays of any shape of them; traced ones cannot. ``named``: the
    framework may be told the axes of products, and arrange them itself.
    """

    network: Network
    way: Way
    batch: int
    inner: int | None = None
    training: bool = True
    keep: int = 0
    concrete: bool = True
    bias: bool = True
    named: bool = False


@dataclass(frozen=True)
class Candidate:
    """One way to compute a call: a plan, all rows at once or in chunks, as they come or ``grouped`` by task.

    ``seconds`` is the prediction of a profile; ``bytes`` are moved by the products of the forward pass,
    ``peak`` is the most that is alive at once, beyond operands, result and their gradients; both in single
    precision.
    ``chunk`` rows at a time are computed, and again in the backward pass; 0 means all at once. Groups of very
    different lengths are not grouped but computed ``otherwise``. If ``named``, products are told their axes,
    and not brought into the order of the plan.
    """

    name: str
    plan: Plan
    seconds: float
    bytes: int
    peak: int
    grouped: Grouping = ""
    kept: bool = False
    chunk: int = 0
    otherwise: Candidate | None = None
    named: bool = False

    @property
    def flops(self) -> int:
        """Multiplications and additions of the forward pass."""
        return self.plan.flops


@lru_cache(maxsize=4096)
def candidates(job: Job, profile: Profile, form: Form = "any") -> tuple[Candidate, ...]:
    """All that are worth a look, the one that is predicted to be the fastest first."""
    goal = Goal(job.training, 0 if job.training else job.keep, form)
    network = with_input(job.network, job.way, job.batch, job.inner)
    found = _candidates(job, profile, goal, network, 24 if job.named else _PLANS)
    if job.way == "mixed" and job.concrete:
        others = [replace(c, otherwise=found[0]) for c in _grouped(job, profile, goal)]
        found = others if form == "materialised" else found + others
    if job.named:
        found = [_arranged(job, profile, candidate) for candidate in found]
        found += _named(sorted(found, key=lambda candidate: candidate.seconds))
    found.sort(key=lambda candidate: candidate.seconds)
    return tuple(_with_names(_modest(found)))


def _arranged(job: Job, profile: Profile, candidate: Candidate) -> Candidate:
    """With a price for what XLA was seen to do: it brings operands that lie turned into order, and where a
    matrix meets all of a stack it repeats the matrix, in the gradient of the stack too."""
    plan, sizes = candidate.plan, candidate.plan.network.sizes
    axes = [node.axes for node in plan.network.nodes] + [step.result for step in plan.steps]
    turned = [
        axes[n]
        for step in plan.steps
        if isinstance(step, Step)
        for n, late in zip(step.operands, step.turned, strict=True)
        if late
    ]
    seconds = sum(profile.copy(count(own, sizes)) for own in turned)
    for step in plan.steps:
        if isinstance(step, Step) and step.variant == "right":
            b, r, k, c = (count(g, sizes) for g in (step.batch, step.rows, step.inner, step.columns))
            passes = profile.product(b, r, k, c, "left")
            passes += profile.product(b, k, r, c, "left") if job.training else 0.0
            seconds += _REPEATED * passes
    return replace(candidate, seconds=candidate.seconds + seconds)


def _named(found: list[Candidate]) -> list[Candidate]:
    """The same with axes arranged by the framework: once for all plans that differ in orders alone."""
    best: dict[object, Candidate] = {}
    for candidate in found:
        best.setdefault(candidate.plan.tree, candidate)
    plain = [c for c in best.values() if not c.kept and not c.grouped]
    return [replace(c, name=f"{c.name}, by einsum", named=True) for c in plain]


def _modest(found: list[Candidate]) -> list[Candidate]:
    """Those that need no more memory than a machine has, if others can do with far less."""
    most = max(_MUCH, 4 * min(candidate.peak for candidate in found))
    return [candidate for candidate in found if candidate.peak <= most]


def _candidates(
    job: Job, profile: Profile, goal: Goal, network: Network, most: int = 8, grouping: Grouping = ""
) -> list[Candidate]:
    """The best plans of a network; where all would keep too much, nothing is kept."""
    plans = best_plans(network, profile, goal, most)
    if not plans:
        goal = replace(goal, keep=0)
        plans = best_plans(network, profile, goal, most)
    return [_candidate(job, profile, goal, seconds, plan, grouping) for seconds, plan in plans]


def _candidate(
    job: Job, profile: Profile, goal: Goal, seconds: float, plan: Plan, grouping: Grouping = ""
) -> Candidate:
    # Where nothing is computed from factors alone, looking whether they changed costs more than it saves.
    kept = bool(goal.keep) and not all(varies(step.result) for step in plan.steps)
    prices = Prices(plan.network, profile, goal.training, goal.keep if kept else 0)
    if goal.keep and not kept:
        seconds = prices.of(plan)
    elif kept:
        seconds += (len(plan.network.nodes) + 2) * profile.view / 2  # to look whether a factor has changed
    sizes = plan.network.sizes
    alive = peak(plan, sizes, training=goal.training, kept=kept, bias=_biases(job)) + _slices(job)
    name = plan.text if not grouping else f"{plan.text}, rows grouped ({grouping})"
    return Candidate(name, plan, seconds, prices.bytes(plan), 4 * alive, grouping, kept)


def _grouped(job: Job, profile: Profile, goal: Goal) -> list[Candidate]:
    """Rows sorted by task: over the tasks that are present or, for what is kept of all tasks, over all."""
    tasks, rows = math.prod(job.network.task_shape), max(job.batch, 1)
    present = math.ceil(max(tasks * (1 - (1 - 1 / tasks) ** rows), 1.0))
    network = of_present(job.network, present, rows, job.inner)
    found = _candidates(job, profile, replace(goal, keep=0, grouped=True), network, _GROUPED, "present")
    if goal.keep and not mostly_padding(padded(rows, tasks), rows):
        network = with_input(job.network, "mixed", rows, job.inner)
        found += _candidates(job, profile, replace(goal, grouped=True), network, _GROUPED, "all")
    return found


def _with_names(found: list[Candidate]) -> list[Candidate]:
    """Plans that differ in memory orders only are told apart by a number."""
    seen: dict[str, int] = {}
    named = []
    for candidate in found:
        seen[candidate.name] = seen.get(candidate.name, 0) + 1
        again = seen[candidate.name]
        named.append(candidate if again == 1 else replace(candidate, name=f"{candidate.name} #{again}"))
    return named


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


def check_fits(candidate: Candidate, job: Job) -> None:
    """Refuse a candidate that was made for another layer, or another way of choosing tasks."""
    if candidate.grouped == "present":
        expected = of_present(job.network, 1, 1, job.inner)
    else:
        expected = with_input(job.network, job.way, 1, job.inner)
    if (candidate.grouped and job.way != "mixed") or _kind(candidate.plan.network) != _kind(expected):
        raise TnshareError(
            f"the candidate {candidate.name!r} is for another layer, or not for rows {_READ[job.way]}: take "
            "one of layer.candidates(way, batch) of this layer's description"
        )


def _kind(network: Network) -> tuple[object, ...]:
    """What plans of a network have to agree in: all but the sizes of the batch."""
    changing = (*FREE, GROUP)
    sizes = {axis: size for axis, size in network.sizes.items() if axis not in changing}
    return tuple((node.name, node.axes) for node in network.nodes), network.output, tuple(sizes.items())


def _measurable(found: tuple[Candidate, ...]) -> list[Candidate]:
    """How long groups are is not known before, so rows stay as they come."""
    known = [candidate.otherwise if candidate.grouped else candidate for candidate in found]
    if not any(known):
        raise TnshareError(f"no memory_limit can be kept by {found[0].name!r}: how long groups are varies")
    return [candidate for candidate in dict.fromkeys(known) if candidate]


_READ = {"one": "of one task", "mixed": "of mixed tasks", "each": "of each task", "fan_out": "for every task"}


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
