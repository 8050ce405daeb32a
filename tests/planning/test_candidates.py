"""Candidates: however a call is computed, it gives what a loop over rows and tasks gives."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from drawn import profiles
from hypothesis import given
from hypothesis import strategies as st

import tnshare as tn
from tnshare.execution import Kept
from tnshare.layers._linear_runner import runner
from tnshare.ops import numpy_ops
from tnshare.ops._operations import NumpyOps
from tnshare.planning import (
    MOST_KEPT_NUMBERS,
    PROFILES,
    WAYS,
    Candidate,
    Goal,
    Job,
    Prices,
    Step,
    best_plans,
    candidates,
)
from tnshare.planning._peak_memory import peak
from tnshare.planning._row_groups import longest_group
from tnshare.testing import linear_cases
from tnshare.testing.cases import LinearCase
from tnshare.testing.oracles import close, looped, magnitudes

CPU = PROFILES["cpu"]
FORMS = ("any", "factored", "materialised")
DOUBLE = ("float64",)
CASES = linear_cases(DOUBLE)
KEEPS = st.sampled_from((0, 1, 20, MOST_KEPT_NUMBERS))


def job_of(case, training=False, keep=0, concrete=True):
    """The job of a case, as a call makes it."""
    several = case.way == "mixed" and len(case.lead) > 1
    rows = case.lead[0] if several else math.prod(case.lead)
    inner = math.prod(case.lead[1:]) if several else None
    concrete = concrete and 0 not in case.lead  # no rows, no groups
    return Job(case.layer.network, case.way, rows, inner, training, keep, concrete, case.layer.bias)


def inputs_of(case, params):
    """Factors in the order of the nodes, bias, x, ids."""
    named = {**params, **{k: v.astype(case.dtype) for k, v in case.layer.frozen.items()}}
    factors = [named[node.name] for node in case.layer.network.nodes]
    task = case.task()
    ids = None if task is None else tuple(np.moveaxis(np.atleast_1d(task), -1, 0))
    if task is not None and len(case.layer.task_shape) == 1:
        ids = (task,)
    if case.way == "one":
        ids = tuple(int(n) for n in ids)
    return factors, params.get("bias"), case.x(), ids


def checker(case, params):
    """Whether a result is what the loop gives."""
    x = case.x()
    bound = looped(case, magnitudes(params), np.abs(x), absolute=True)
    expected = looped(case, params, x)
    return lambda result: close(numpy_ops, result, expected, bound, case.terms)


def keeper(most=MOST_KEPT_NUMBERS):
    return Kept(lambda array: array.tobytes(), np.ndarray.view, most)


class Counting(NumpyOps):
    """NumPy that counts its products."""

    def __init__(self):
        self.products = 0

    def matmul(self, a, b):
        self.products += 1
        return super().matmul(a, b)

    def multiply(self, a, b):
        self.products += 1
        return super().multiply(a, b)


@st.composite
def crowds(draw):
    """Rows of mixed tasks, more of them, so that grouping them pays."""
    case = draw(CASES.filter(lambda case: case.way == "mixed"))
    return replace(case, lead=(draw(st.integers(5, 70)), *case.lead[1:]))


@given(CASES | crowds(), profiles(), st.sampled_from(FORMS), KEEPS, st.booleans(), st.booleans())
def test_every_candidate_gives_what_the_loop_gives(case, device, form, keep, training, concrete):
    job, params = job_of(case, training, keep, concrete), case.params()
    inputs, check = inputs_of(case, params), checker(case, params)
    found = candidates(job, device, form)
    assert found
    for candidate in found:
        run = runner(job, candidate, numpy_ops, case.lead)
        check(run(*inputs))
        check(run(*inputs, keeper()))


@given(CASES | crowds(), profiles(), st.sampled_from(FORMS), st.sampled_from((1, 20, MOST_KEPT_NUMBERS)))
def test_what_is_kept_is_not_computed_again_and_never_stale(case, device, form, keep):
    job, params = job_of(case, keep=keep), case.params()
    inputs, check = inputs_of(case, params), checker(case, params)
    runs = [(c, Counting(), keeper()) for c in candidates(job, device, form)]
    for candidate, ops, kept in runs:
        run = runner(job, candidate, ops, case.lead)
        check(run(*inputs, kept))
        first, ops.products = ops.products, 0
        check(run(*inputs, kept))
        assert ops.products <= first
        if candidate.kept:
            assert len(kept) == 1
            assert ops.products == sum(map(varying, candidate.plan.steps))
    for value in params.values():
        value[...] = 2 * value + 1  # the same arrays, other numbers
    check = checker(case, params)
    for candidate, ops, kept in runs:
        check(runner(job, candidate, ops, case.lead)(*inputs, kept))
    other = {name: value - 1 for name, value in params.items()}
    inputs, check = inputs_of(case, other), checker(case, other)
    for candidate, ops, kept in runs:
        check(runner(job, candidate, ops, case.lead)(*inputs, kept))


@pytest.mark.parametrize("spec", [tn.LAF(2), tn.Tucker((2, 2, 2)), tn.TT((2, 2))], ids=repr)
@pytest.mark.parametrize("way", WAYS)
def test_every_parameter_that_changes_alone_is_noticed_and_so_is_every_task(way, spec):
    case = LinearCase(tn.Linear(4, 3, tasks=3, spec=spec), way, (5,), "float64", 0)
    job, params = job_of(case, keep=MOST_KEPT_NUMBERS), case.params()
    factors, bias, x, ids = inputs_of(case, params)
    for candidate in candidates(job, CPU):
        kept, run = keeper(), runner(job, candidate, numpy_ops, case.lead)
        for name in (None, *params):
            if name:
                params = {**params, name: params[name] + 1}
                factors, bias, *_ = inputs_of(case, params)
            weights = np.einsum(case.layer.network.equation, *factors)
            for task in range(3) if way == "one" else (0,):
                y = run(factors, bias, x, (task,) if way == "one" else ids, kept)
                if way == "one":
                    np.testing.assert_allclose(y, x @ weights[..., task] + bias[task], atol=1e-9)
                else:
                    checker(case, params)(y)


def varying(step):
    return isinstance(step, Step) and bool({"b", "m"} & set(step.result))


@given(CASES | crowds(), profiles(), st.booleans())
def test_weights_are_built_before_they_meet_the_input_or_never(case, device, training):
    job = job_of(case, training)
    for candidate in candidates(job, device, "materialised"):
        assert_built_first(candidate.plan)
        assert job.way != "mixed" or bool(candidate.grouped) == job.concrete
    for candidate in candidates(job, device, "factored"):
        assert_never_built(candidate.plan)
        assert candidate.ungrouped is None or assert_never_built(candidate.ungrouped.plan) is None


def assert_built_first(plan):
    (x,) = (n for n, node in enumerate(plan.network.nodes) if node.name == "x")
    *before, last = plan.steps
    assert x in last.operands
    assert not any(x in step.operands for step in before)


def assert_never_built(plan):
    met = [node.name == "x" for node in plan.network.nodes]
    given = len(met)
    for step in plan.steps:
        met.append(any(met[n] for n in step.operands))
        made = isinstance(step, Step) or step.operands[0] >= given
        assert met[-1] or not made or not {"i", "o"} <= set(step.result)


@given(CASES | crowds(), profiles(), st.sampled_from(FORMS), KEEPS, st.booleans())
def test_candidates_come_in_order_with_names_of_their_own(case, device, form, keep, training):
    job = job_of(case, training, keep)
    found = candidates(job, device, form)
    assert [c.seconds for c in found] == sorted(c.seconds for c in found)
    assert len({c.name for c in found}) == len(found)
    for c in found:
        assert 0 < c.seconds < math.inf
        assert not (c.kept and (training or not keep))
        prices = Prices(c.plan.network, device, training, keep if c.kept else 0)
        own = prices.of(c.plan)
        own += (len(c.plan.network.nodes) + 2) * device.view / 2 if c.kept else 0
        assert c.seconds == pytest.approx(own)
        assert c.bytes == prices.bytes(c.plan)
        assert c.flops == c.plan.flops
        assert c.grouped or c.ungrouped is None
        if c.grouped:
            assert isinstance(c.ungrouped, Candidate)
            assert not c.ungrouped.grouped
            assert c.name.split(" #")[0].endswith(f"rows grouped ({c.grouped})")
            assert ("task" in c.plan.network.tasks or "site" in c.plan.network.tasks) == (c.grouped == "all")


@pytest.mark.parametrize("way", WAYS)
def test_only_rows_of_mixed_tasks_whose_ids_are_known_are_grouped(way):
    layer = tn.Linear(64, 64, tasks=4, spec=tn.LAF(4))
    for training, concrete in ((True, True), (True, False), (False, True), (False, False)):
        keep = 0 if training else MOST_KEPT_NUMBERS
        found = candidates(Job(layer.network, way, 256, None, training, keep, concrete), CPU)
        kinds = {c.grouped for c in found}
        grouped = {"present"} if training else {"present", "all"}
        assert kinds == ({"", *grouped} if way == "mixed" and concrete else {""})


def test_many_rows_of_few_tasks_are_grouped_and_few_are_not():
    layer = tn.Linear(256, 256, tasks=10, spec=tn.LAF(8))
    assert layer.candidates("mixed", 1024)[0].grouped
    assert not layer.candidates("mixed", 1)[0].grouped
    assert layer.plan("mixed", 1024) == next(c.plan for c in layer.candidates("mixed", 1024) if not c.grouped)


def test_over_all_tasks_rows_are_grouped_only_if_that_is_not_mostly_padding():
    layer = tn.Linear(16, 16, tasks=100, spec=tn.LAF(4))
    few, many = (
        candidates(Job(layer.network, "mixed", n, keep=MOST_KEPT_NUMBERS, training=False), CPU)
        for n in (8, 512)
    )
    assert "all" not in {c.grouped for c in few}
    assert "all" in {c.grouped for c in many}


@given(st.integers(1, 200), st.integers(1, 50))
def test_the_longest_group_is_expected_between_the_mean_and_all_rows(rows, groups):
    assert rows / groups <= longest_group(rows, groups) <= rows
    assert longest_group(rows, 1) == rows


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("way", WAYS)
def test_what_is_too_much_to_keep_is_not_kept_but_computed(way, form):
    case = LinearCase(tn.Linear(5, 4, tasks=3, spec=tn.Tucker((3, 3, 2))), way, (6,), "float64", 0)
    params = case.params()
    inputs, check = inputs_of(case, params), checker(case, params)
    for keep in (1, 10, 19, 20, 59, 60, MOST_KEPT_NUMBERS):
        found = candidates(job_of(case, keep=keep), CPU, form)
        assert found
        for c in found:
            run, kept = runner(job_of(case, keep=keep), c, numpy_ops, case.lead), keeper()
            check(run(*inputs, kept))
            arrays = [a for e in kept._entries.values() for a in arrays_in(e.value)]
            made = [a for a in arrays if not any(np.shares_memory(a, p) for p in params.values())]
            assert all(a.size <= keep for a in made)


def arrays_in(value):
    if isinstance(value, tuple):
        return [array for part in value for array in arrays_in(part)]
    return [] if value is None else [value]


def test_what_needs_more_memory_than_machines_have_is_left_out_where_others_need_less():
    layer = tn.Linear(64, 64, tasks=1000, spec=tn.LAF(500), bias=False)
    found = layer.candidates("each", 1024)
    assert all(c.peak <= max(1 << 30, 4 * min(d.peak for d in found)) for c in found)
    network = found[0].plan.network
    plans = [plan for _, plan in best_plans(network, PROFILES["cpu"], Goal(training=True), 1000)]
    peaks = [4 * peak(plan, network.sizes, training=True, bias=0) for plan in plans]
    assert max(peaks) > 1 << 34  # codes times inputs, for all rows: 16 GiB and more
    assert len(found) < len(plans)
