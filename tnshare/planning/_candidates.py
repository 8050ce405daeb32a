"""The different ways to compute one call of a layer, with what each costs."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import get_args

from tnshare.errors import TnshareError
from tnshare.network import Network

from ._job import Candidate, Grouping, Job
from ._peak_memory import bias_gradients, peak, slice_gradients
from ._plan import Plan
from ._prices import Prices
from ._row_groups import mostly_padding, padded
from ._search import Form, Goal, best_plans
from ._steps import Step, count, depends_on_batch
from ._ways import of_present, with_input
from .devices._profile import Profile, check_profile

_MUCH = 1 << 30  # bytes alive at once, below which time alone decides
_REPEATED = 0.5  # of a product of a matrix with a stack: what it takes longer to repeat the matrix
_PLANS = 16  # candidates that leave rows as they come
_GROUPED = 4  # candidates that group rows, of either kind


@lru_cache(maxsize=4096)
def candidates(job: Job, profile: Profile, form: Form = "any") -> tuple[Candidate, ...]:
    """All that are worth a look, the one that is predicted to be the fastest first."""
    if not isinstance(job, Job):
        raise TnshareError(f"a job must be a tnshare.planning.Job: found {type(job).__name__}")
    check_profile(profile)
    if form not in get_args(Form):
        raise TnshareError(f"form must be one of {get_args(Form)}: found {form!r}")
    goal = Goal(job.training, 0 if job.training else job.keep, form)
    network = with_input(job.network, job.way, job.batch, job.inner)
    found = _candidates(job, profile, goal, network, 24 if job.named else _PLANS)
    if job.way == "mixed" and job.concrete:
        others = [replace(c, ungrouped=found[0]) for c in _grouped(job, profile, goal)]
        found = others if form == "materialised" else found + others
    if job.named:
        found = [_priced_for_compiler(job, profile, candidate) for candidate in found]
        found += _named(sorted(found, key=lambda candidate: candidate.seconds))
    found.sort(key=lambda candidate: candidate.seconds)
    return tuple(_with_names(_affordable(found)))


def _priced_for_compiler(job: Job, profile: Profile, candidate: Candidate) -> Candidate:
    """With a price for what XLA was seen to do: it brings operands that lie turned into order, and where a
    matrix meets all of a stack it repeats the matrix, in the gradient of the stack too."""
    plan, sizes = candidate.plan, candidate.plan.network.sizes
    axes = [node.axes for node in plan.network.nodes] + [step.result for step in plan.steps]
    turned = [
        axes[n]
        for step in plan.steps
        if isinstance(step, Step)
        for n, late in zip(step.operands, step.lies_transposed, strict=True)
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
    return [replace(c, name=f"{c.name}, by einsum", by_einsum=True) for c in plain]


def _affordable(found: list[Candidate]) -> list[Candidate]:
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
    kept = bool(goal.keep) and not all(depends_on_batch(step.result) for step in plan.steps)
    prices = Prices(plan.network, profile, goal.training, goal.keep if kept else 0)
    if goal.keep and not kept:
        seconds = prices.of(plan)
    elif kept:
        seconds += (len(plan.network.nodes) + 2) * profile.view / 2  # to look whether a factor has changed
    sizes = plan.network.sizes
    alive = peak(plan, sizes, training=goal.training, kept=kept, bias=bias_gradients(job)) + slice_gradients(
        job
    )
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
