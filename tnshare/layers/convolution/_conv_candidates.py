"""The different ways to compute one call of a convolution, with what each costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from tnshare.network import Network
from tnshare.planning import Form, Goal, Plan, Prices, Profile, Way, best_plans, priced

from ._chains import Chain, chains
from ._conv import Conv
from ._conv_memory import BLOCK, conv_bytes

_FEW = 5  # operands
_CALLS = 10  # calls of a product that one of a convolution costs
_BACKWARD = 3  # a training step convolves three times: outputs, gradients of the input, of the kernels


@dataclass(frozen=True)
class ConvJob:
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
        """How much is computed, as users read it."""
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
class ConvCandidate:
    """One way to compute a call: a chain, with plans for its kernels and what is before and after.

    ``seconds`` is a prediction, ``peak`` a bound on the bytes alive at once, in single precision. ``kept``:
    the kernels, of all tasks if rows are mixed, are computed once and kept in inference.
    """

    name: str
    chain: Chain
    plans: Mapping[str, Plan]
    seconds: float
    flops: int
    kept: bool = False
    peak: int = 0

    bytes = None  # that are moved: not predicted

    @property
    def parts(self) -> tuple[tuple[str, Plan, bool], ...]:
        """The plans, each with what it is of, and whether its result is kept."""
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
    flops += sum(plan.flops for plan in chosen.values())
    candidate = ConvCandidate(chain.name, chain, chosen, seconds, flops, kept)
    return replace(candidate, peak=conv_bytes(job, candidate, job.rows, False, 4))


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
    seconds += profile.product(batch, rows, inner, BLOCK * math.ceil(columns / BLOCK))
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
