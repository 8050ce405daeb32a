"""The different ways to compute one call of a convolution, with what each costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from tnshare.network import Network
from tnshare.planning import (
    GROUP_AXIS,
    AnyJob,
    AnyOption,
    Form,
    Goal,
    Plan,
    Prices,
    Profile,
    Way,
    best_plans,
    plan_peak,
    priced,
    task_gradients,
)

from ._chains import Chain, chains
from ._conv import Conv

_FEW = 5  # operands
_BLOCK = 16  # output channels that libraries bring together
_WORK = 16384  # bytes of work space that a library may take for a convolution, however small it is
_CALLS = 10  # calls of a product that one of a convolution costs
_BACKWARD = 3  # a training step convolves three times: outputs, gradients of the input, of the kernels


@dataclass(frozen=True)
class ConvJob(AnyJob):
    """What is to be computed: ``rows`` images (of each task for ``"each"``) of ``sizes`` places.

    ``keep``: kernels may be kept between calls, as long as they have no more numbers than that. ``concrete``
    calls may look at the values of ids, so that rows are sorted by task.
    """

    layer: Conv
    way: Way
    rows: int
    sizes: tuple[int, ...]
    training: bool
    keep: int
    concrete: bool

    @property
    def amount(self) -> str:
        return f"{self.rows} rows of {' x '.join(map(str, self.sizes))} places"

    @property
    def tasks(self) -> int:
        """The number of all tasks."""
        return math.prod(self.layer.task_shape)

    @property
    def stacked(self) -> int:
        """How many kernels are at work, if tasks do not enter behind the convolution."""
        if self.way == "one":
            return 1
        if self.way != "mixed":
            return self.tasks
        present = self.tasks * (1 - (1 - 1 / self.tasks) ** self.rows)
        return max(1, math.ceil(present)) if self.concrete else self.rows

    @property
    def images(self) -> int:
        """How many rows there are in all."""
        return self.rows * (self.tasks if self.way == "each" else 1)


@dataclass(frozen=True)
class ConvCandidate(AnyOption):
    """One way to compute a call: a chain, with plans for its kernels and what is before and after.

    ``seconds`` is a prediction, ``peak`` a bound on the bytes alive at once, in single precision. The
    convolution itself takes ``convolving`` flops. ``kept``: the kernels, of all tasks if rows are mixed, are
    computed once and kept in inference.
    """

    name: str
    chain: Chain
    plans: Mapping[str, Plan]
    seconds: float
    convolving: int
    kept: bool = False
    peak: int = 0

    bytes = None  # not predicted

    @property
    def flops(self) -> int:
        return self.convolving + super().flops

    @property
    def parts(self) -> tuple[tuple[str, Plan, bool], ...]:
        return tuple((title, plan, self.kept and title == "kernels") for title, plan in self.plans.items())


@lru_cache(maxsize=4096)
def conv_candidates(job: ConvJob, profile: Profile, form: Form = "any") -> tuple[ConvCandidate, ...]:
    """One candidate for every chain, the one that is predicted to be the fastest first.

    ``"materialised"`` composes whole kernels, ``"factored"`` never does.
    """
    every = chains(job.layer)
    if job.way == "mixed" and not job.concrete:
        # A kernel for every row is slow everywhere, and a program of its own for every number of rows.
        every = tuple(chain for chain in every if chain.late or form == "materialised")
    whole = [chain for chain in every if not chain.before and not chain.after]
    chosen = {
        "any": every,
        "materialised": whole,
        "factored": [chain for chain in every if chain not in whole],
    }[form]
    found = [conv_candidate(job, profile, chain) for chain in chosen]
    return tuple(sorted(found, key=lambda candidate: candidate.seconds))


def conv_candidate(
    job: ConvJob, profile: Profile, chain: Chain, plans: Mapping[str, Plan] | None = None
) -> ConvCandidate:
    """The candidate of a chain, by plans that were made for other rows, or else by the best."""
    geometry = job.layer.geometry
    places, results = math.prod(job.sizes), math.prod(geometry.places(job.sizes))
    kept = 0 < _numbers(chain, job) <= job.keep
    way: Way = "each" if kept and job.way == "mixed" else job.way
    parts = {"before": chain.entering(job.images * geometry.groups, places)} if chain.before else {}
    parts["kernels"] = chain.kernels(way, job.stacked)
    if chain.after:
        rows = job.rows if chain.late else job.images * (job.tasks if job.way == "fan_out" else 1)
        parts["after"] = chain.leaving(job.way, rows, results)
    found = {
        title: priced(plans[title], network, profile, job.training)
        if plans
        else _best(network, profile, job.training)
        for title, network in parts.items()
    }
    seconds, flops = _convolution(job, profile, chain, results)
    seconds += sum(part for title, (part, _) in found.items() if not (title == "kernels" and kept))
    if not chain.late and job.way == "mixed":
        moved = profile.stream(job.rows * _count(chain, chain.inputs) * places)
        moved += profile.stream(job.rows * _count(chain, chain.outputs) * results)
        seconds += moved * (2 if job.training else 1)
    chosen = {title: plan for title, (_, plan) in found.items()}
    candidate = ConvCandidate(chain.name, chain, chosen, seconds, flops, kept)
    return replace(candidate, peak=conv_bytes(job, candidate, job.rows, False, 4))


def conv_bytes(job: ConvJob, candidate: ConvCandidate, rows: int, part: bool, itemsize: int) -> int:
    """A bound on the bytes alive at once for so many rows, which are all or a part of them.

    It is simple and on the safe side: the parts of a call (what is contracted before, the kernels, the
    convolution, what is contracted behind) are counted as if the most that each needs were alive together.
    """
    layer, geometry, chain, training = job.layer, job.layer.geometry, candidate.chain, job.training
    sizes, tasks, plans = chain.network.sizes, job.tasks, candidate.plans
    images = rows * (tasks if job.way == "each" else 1)
    outputs = images * (tasks if job.way == "fan_out" else 1)
    places, results = math.prod(job.sizes), math.prod(geometry.places(job.sizes))
    padded = math.prod(n + sum(ends) for n, ends in zip(job.sizes, geometry.padding, strict=True))
    inputs = geometry.groups * math.prod(sizes[axis] for axis in chain.inputs)
    columns = math.prod(sizes[axis] for axis in chain.outputs)
    present = {"one": 1, "mixed": min(rows, tasks) if job.concrete else rows}.get(job.way, tasks)
    kernels = (1 if chain.late else present) * columns * inputs // geometry.groups * math.prod(layer.kernel)
    convolved = (images if chain.late else outputs) * columns * results
    own = outputs * layer.out_channels * results
    # The rows of a task or of several side by side, padded; and the windows that some libraries write down.
    alive = images * inputs * _copies(job, chain) * places + images * inputs * (padded - places) * 2
    alive += rows * inputs * math.prod(layer.kernel) * results
    # In the order of groups; of each task, put together, and in the order of rows.
    alive += kernels * (4 if training else 2) + convolved * (3 if training else 2)
    alive += own * (2 if training else 1) + outputs * layer.out_channels
    # Libraries bring channels into blocks, kernels twice (oneDNN, of few channels).
    groups = geometry.groups
    blocks = [_BLOCK * math.ceil(channels / groups / _BLOCK) for channels in (inputs, columns)]
    blocked = (1 if chain.late else present) * math.prod(blocks) * (2 * math.prod(layer.kernel) + 1)
    blocked += images * blocks[0] * places + (images if chain.late else outputs) * blocks[1] * results
    alive += groups * blocked * (2 if training else 1)
    if training:
        alive += task_gradients(layer.network, part) + tasks * layer.bias_size
    spread = {"b": images * geometry.groups, "m": places}
    alive += plan_peak(plans["before"], spread, training, part) if "before" in plans else 0
    spread = {"b": rows if chain.late else outputs, "m": results}
    alive += plan_peak(plans["after"], spread, training, part) if "after" in plans else 0
    alive += plan_peak(plans["kernels"], {GROUP_AXIS: present}, training, part)
    if part:
        alive += own + images * layer.in_channels * places * (2 if training else 1)
    return alive * itemsize + _WORK


def _convolution(job: ConvJob, profile: Profile, chain: Chain, results: int) -> tuple[float, int]:
    """Seconds and flops of the convolution itself: the matrix product that it is, and what it moves.

    Libraries bring inputs and outputs into an order of their own, in which output channels come in blocks.
    """
    geometry = job.layer.geometry
    channels = _count(chain, chain.inputs)
    inner = channels * math.prod(geometry.kernel)
    columns = _count(chain, chain.outputs) // geometry.groups
    stack = 1 if chain.late else job.stacked
    if job.way == "fan_out":
        columns, stack = columns * stack, 1
    rows, batch = max(1, job.images // stack) * results, stack * geometry.groups
    seconds = _CALLS * stack * profile.call
    seconds += profile.product(batch, rows, inner, _BLOCK * math.ceil(columns / _BLOCK))
    seconds += 2 * profile.stream(job.images * geometry.groups * channels * math.prod(job.sizes))
    seconds += 2 * profile.stream(batch * rows * columns)
    return seconds * (_BACKWARD if job.training else 1), 2 * batch * rows * inner * columns


def _numbers(chain: Chain, job: ConvJob) -> int:
    """How many numbers the kernels of all tasks have."""
    axes = (*chain.outputs, *chain.inputs, *chain.space)
    return _count(chain, axes) * (1 if chain.late else job.tasks)


def _count(chain: Chain, axes: tuple[str, ...]) -> int:
    return math.prod(chain.network.sizes[axis] for axis in axes)


def _best(network: Network, profile: Profile, training: bool) -> tuple[float, Plan]:
    if len(network.nodes) > _FEW:  # a search takes long, and composing is a small part of the time
        plan = Plan.flop_optimal(network)
        return Prices(network, profile, training).of(plan), plan
    return best_plans(network, profile, Goal(training), 1)[0]


def _copies(job: ConvJob, chain: Chain) -> int:
    """How many times the input of the convolution is alive, with its gradients."""
    several = not chain.late and job.way in ("each", "mixed")
    copies = (
        bool(chain.before) + several + (several and job.way == "mixed") + (job.layer.geometry.mode != "zeros")
    )
    return copies + (2 if job.training else 0)
