"""Memory: what is alive at once is what was said, and a limit is kept, in chunks if need be."""

from __future__ import annotations

import re
import weakref
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from drawn import arrays_of, profiles
from hypothesis import given
from hypothesis import strategies as st
from test_candidates import checker, inputs_of, job_of

import tnshare as tn
from tnshare.execution import Calls, Decision
from tnshare.layers import calls_for
from tnshare.layers._linear_kind import LinearKind
from tnshare.layers._linear_runner import runner
from tnshare.ops import numpy_ops
from tnshare.ops._operations import NumpyOps
from tnshare.planning import (
    MOST_KEPT_NUMBERS,
    PROFILES,
    WAYS,
    Goal,
    Step,
    best_plans,
    candidates,
    fastest_within,
    linear_peak,
    seconds_in_parts,
    with_input,
)
from tnshare.planning._memory_limit import largest_part
from tnshare.planning._peak_memory import peak
from tnshare.testing import linear_cases
from tnshare.testing.cases import LinearCase

CPU = PROFILES["cpu"]
CASES = linear_cases(("float64",))
FORMS = st.sampled_from(["any", "factored", "materialised"])
LAYERS = {
    "laf": tn.Linear(6, 5, tasks=4, spec=tn.LAF(3)),
    "tucker": tn.Linear(6, 5, tasks=4, spec=tn.Tucker((3, 4, 2)), bias=False),
    "tt": tn.Linear(6, 5, tasks={"site": 2, "user": 3}, spec=tn.TT((3, 4, 2))),
}


class Watching(NumpyOps):
    """NumPy that writes down, at every operation, the memory that is alive of all that was made so far."""

    def __init__(self):
        self.alive, self.numbers, self.made = (
            {},
            {},
            0,
        )  # by number, since the id of what is gone is used again
        self.most = []

    def seen(self, result, *given):
        owner = result if result.base is None else result.base
        if not any(np.shares_memory(result, array) for array in given):
            self.made += 1
            self.numbers[id(owner)] = self.made
            self.alive[self.made] = owner.size
            weakref.finalize(owner, self.alive.pop, self.made)
        self.most.append(dict(self.alive))
        return result

    def matmul(self, a, b):
        return self.seen(super().matmul(a, b), a, b)

    def multiply(self, a, b):
        return self.seen(super().multiply(a, b), a, b)

    def add(self, a, b):
        return self.seen(super().add(a, b), a, b)

    def reshape(self, a, shape):
        return self.seen(super().reshape(a, shape), a)

    def transpose(self, a, order):
        return self.seen(super().transpose(a, order), a)

    def take(self, a, ids):
        return self.seen(super().take(a, ids), a)

    def peak(self, result):
        """The most that was alive beyond a result."""
        own = self.numbers.get(id(result if result.base is None else result.base))
        return max((sum(n for k, n in at.items() if k != own) for at in self.most), default=0)


@given(CASES, profiles(), FORMS, st.integers(1, 7), st.none() | st.integers(1, 3))
def test_the_peak_of_a_plan_is_what_was_alive(case, device, form, rows, inner):
    network = with_input(case.layer.network, case.way, rows, inner)
    given_, _ = arrays_of(network)
    for _, plan in best_plans(network, device, Goal(False, form=form)):
        ops = Watching()
        found = ops.peak(plan.run(ops, given_))
        bound = peak(plan, network.sizes, training=False, bias=False)
        assert found <= bound
        products = [step for step in plan.steps if isinstance(step, Step)]
        copies = any(any(step.copies) for step in products)
        # Entries times entries may lie in another order, if an operand does.
        copies |= any(not step.inner and (step.left_order or step.right_order) for step in products)
        if not copies and not plan.needs_final_transpose and min(network.sizes.values()) > 1:
            assert found == bound
        assert peak(plan, network.sizes, training=True, bias=False) >= bound
        assert peak(plan, network.sizes, training=False, bias=True) >= bound


@given(CASES.filter(lambda case: 0 not in case.lead), profiles(), FORMS)
def test_the_peak_of_a_call_is_an_upper_bound(case, device, form):
    job = job_of(case)
    inputs = inputs_of(case, case.params())
    rows = max(job.batch, 1)
    for candidate in candidates(replace(job, concrete=False), device, form):
        ops = Watching()
        y = runner(job, candidate, ops, case.lead)(*inputs)
        assert ops.peak(y) <= linear_peak(job, candidate, rows, rows)
        assert candidate.peak >= 4 * ops.peak(y)


@given(CASES.filter(lambda case: 0 not in case.lead), profiles(), st.sampled_from((20, MOST_KEPT_NUMBERS)))
def test_what_is_kept_counts(case, device, keep):
    job = job_of(case, keep=keep, concrete=False)
    inputs = inputs_of(case, case.params())
    for candidate in candidates(job, device):
        kept = {}

        def keeper(key, factors, prepare, kept=kept):
            return kept.setdefault(key, None) or kept.update({key: prepare()}) or kept[key]

        ops = Watching()
        run = runner(job, candidate, ops, case.lead)
        run(*inputs, keeper)
        ops.most.clear()
        y = run(*inputs, keeper)  # the first call makes more on its way to what it keeps
        allowed = candidate.peak // 4 + (case.layer.out_features if case.way == "one" else 0)
        assert ops.peak(y) <= allowed


# Limits


class Some(LinearKind):
    """Calls that have these candidates alone."""

    def __init__(self, job, found, ops=numpy_ops):
        super().__init__(SimpleNamespace(network=job.network, task_shape=job.network.task_shape), ops)
        self.found = tuple(found)

    def options(self, *asked):
        return self.found


def within(job, found, limit, itemsize, ops=numpy_ops, lead=None):
    """What calls with these candidates choose under a limit, and how they run."""
    rows = lead or ((job.batch,) if job.inner is None else (job.batch, job.inner))
    calls = Calls(Some(job, found, ops), memory_limit=limit)
    like = SimpleNamespace(dtype=SimpleNamespace(itemsize=itemsize))
    decision = calls.choose(job, rows, like)
    return decision, calls.function(decision, rows)


def smallest(job, found, itemsize=4):
    """The smallest limit that works, as the error says it."""
    try:
        within(job, found, 0, itemsize)
    except tn.TnshareError as error:
        return int(re.search(r"the smallest that works is (\d+) bytes$", str(error))[1])
    return 0


@given(CASES.filter(lambda case: 0 not in case.lead), profiles(), FORMS, st.booleans(), st.booleans())
def test_exactly_the_smallest_limit_works(case, device, form, training, concrete):
    job = job_of(case, training, concrete=concrete)
    found = candidates(job, device, form)
    for itemsize in (4, 8):
        least = smallest(job, found, itemsize)
        decision, _ = within(job, found, least, itemsize)
        assert decision.peak <= least
        assert not decision.chosen.grouped
        if least:
            with pytest.raises(tn.TnshareError, match=f"smallest that works is {least} bytes$"):
                within(job, found, least - 1, itemsize)


@st.composite
def limited(draw):
    case = draw(CASES.filter(lambda case: 0 not in case.lead))
    lead = (draw(st.integers(1, 20)), *case.lead[1:])
    return replace(case, lead=lead)


@given(limited(), profiles(), FORMS, st.floats(0, 1))
def test_a_limit_is_kept_and_changes_no_number(case, device, form, part):
    job, params = job_of(case, concrete=False), case.params()
    found = candidates(job, device, form)
    least, most = smallest(job, found, 1), max(c.peak // 4 for c in found)
    limit = least + int(part * max(most - least, 0))
    ops = Watching()
    decision, run = within(job, found, limit, 1, ops, case.lead)
    y = run(*inputs_of(case, params))
    checker(case, params)(y)
    assert ops.peak(y) <= decision.peak <= limit
    assert decision.rows_at_a_time < max(job.batch, 2)


def in_parts(layer, job, lead, size, ops):
    """The best candidate, so many rows at a time."""
    found = candidates(job, CPU)
    return calls_for(layer, ops).function(Decision(job, found, found[0], rows_at_a_time=size), lead)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 6, 7, 8])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", LAYERS)
def test_chunks_of_every_size_give_the_same(method, way, size):
    for lead in ((7,), (7, 2), (2, 3)):
        case = LinearCase(LAYERS[method], way, lead, "float64", 0)
        job, params = job_of(case, concrete=False), case.params()
        run = in_parts(LAYERS[method], job, lead, size, numpy_ops)
        checker(case, params)(run(*inputs_of(case, params)))


def test_chunks_are_asked_of_the_framework():
    seen = []

    class Chunking(NumpyOps):
        def in_chunks(self, function, arrays, x, ids, axis, result_axis, size):
            seen.append((len(arrays), axis, result_axis, size, len(ids)))
            return super().in_chunks(function, arrays, x, ids, axis, result_axis, size)

    class Plain(NumpyOps):
        in_chunks = None

    for way in WAYS:
        case = LinearCase(LAYERS["tt"], way, (7,), "float64", 0)
        job = job_of(case, concrete=False)
        in_parts(LAYERS["tt"], job, (7,), 3, Chunking())(*inputs_of(case, case.params()))
        with pytest.raises(tn.TnshareError, match=r"^memory_limit asks for chunks .* which Plain cannot do$"):
            in_parts(LAYERS["tt"], job, (7,), 3, Plain())
    assert seen == [(5, 0, 0, 3, 0), (5, 0, 0, 3, 2), (5, 2, 2, 3, 0), (5, 0, 2, 3, 0)]


@given(st.integers(1, 3000), st.integers(0, 100), st.integers(1, 50), st.integers(0, 100_000))
def test_parts_are_as_few_as_the_limit_allows_and_of_about_one_size(rows, fixed, each, limit):
    def needed(some):
        return fixed + each * some + (0 if some == rows else 7)  # a part needs something besides

    part = largest_part(rows, needed, limit)
    fitting = [some for some in range(1, rows + 1) if needed(some) <= limit]
    assert (part == 0) == (not fitting)
    if fitting:
        parts = -(-rows // part)
        assert needed(part) <= limit
        assert parts == -(-rows // max(fitting))
        assert (part - 1) * parts < rows


def test_as_many_rows_at_a_time_as_the_limit_allows_of_the_fastest():
    fast, slow = SimpleNamespace(seconds=1.0), SimpleNamespace(seconds=3.0)

    def chosen(limit, peak_bytes=lambda option, rows: 10 * rows, in_parts=1.5):
        seconds = lambda option, rows: option.seconds * in_parts  # noqa: E731
        return fastest_within([fast, slow], 20, limit, peak_bytes, seconds, "of one task in inference")

    assert chosen(200) == (fast, 0)
    assert chosen(55) == (fast, 5)
    assert chosen(195) == (fast, 10)
    assert chosen(75) == (fast, 7)
    assert chosen(55, lambda option, rows: rows * (100 if option is fast else 1)) == (slow, 0)
    assert chosen(55, lambda option, rows: rows * (10 if option is fast else 1)) == (fast, 5)
    assert chosen(55, lambda option, rows: rows * (10 if option is fast else 1), 4.0) == (slow, 0)
    with pytest.raises(
        tn.TnshareError,
        match=r"^memory_limit=9 is too little for 20 rows of one task in inference: the smallest .* 10 bytes",
    ):
        chosen(9)


def test_a_part_of_a_training_step_is_priced_forwards_twice_with_its_gradients():
    network = LAYERS["laf"].network
    streams = sum(CPU.stream(int(np.prod(node.shape))) for node in network.nodes)
    once = {True: 3.0, False: 1.0}.__getitem__
    assert seconds_in_parts(network, CPU, 4, False, once) == 4.0
    assert seconds_in_parts(network, CPU, 4, True, once) == pytest.approx(4 * (4.0 + streams))


def test_less_memory_is_never_said_to_be_faster():
    layer = tn.Linear(64, 64, tasks=10, spec=tn.Tucker((32, 32, 8)))
    for way in WAYS:
        job = job_of(LinearCase(layer, way, (256,), "float32", 0), training=True, concrete=False)
        found = candidates(job, CPU)
        least = smallest(job, found)
        limits = [least, 2 * least, 8 * least, 2**40]
        chosen = [within(job, found, limit, 4)[0] for limit in limits]
        rows = [d.rows_at_a_time or job.batch for d in chosen]
        assert rows == sorted(rows)
        assert chosen[-1].chosen is found[0]
        assert all(a.peak <= b.peak for a, b in pairwise(chosen))


@pytest.mark.parametrize("strategy", ["auto", "factored", "materialised", "autotune"])
@pytest.mark.parametrize("way", WAYS)
def test_calls_keep_a_limit(way, strategy):
    layer, params = LAYERS["tucker"], LAYERS["tucker"].init(0, dtype=float)
    case = LinearCase(layer, way, (9,), "float64", 0)
    factors, bias, x, ids = inputs_of(case, params)

    def call(limit, ops=numpy_ops):
        calls = calls_for(layer, ops, strategy, limit)
        if way == "fan_out":
            return calls, calls.fan_out(factors, bias, x, False)
        return calls, calls.apply(factors, bias, x, ids if ids is None else ids[0], False)

    read = {
        "one": "of one task",
        "mixed": "of mixed tasks",
        "each": "of each task",
        "fan_out": "for every task",
    }
    with pytest.raises(
        tn.TnshareError, match=f"^memory_limit=0 is too little for 9 rows {read[way]} in inference: "
    ) as e:
        call(0)
    least = int(re.search(r"(\d+) bytes$", str(e.value))[1])
    assert least % 8 == 0  # numbers are of eight bytes
    ops = Watching()
    calls, y = call(least, ops)
    assert 8 * ops.peak(y) <= least
    checker(case, params)(y)
    with pytest.raises(tn.TnshareError, match=f"works is {least} bytes"):
        call(least - 1)
    text = calls.explain(way, 9, x, training=False)
    told = re.search(r"\nin chunks of \d rows, ([\d,]+) bytes at once, computed again backwards\n", text)
    assert strategy == "materialised" or int(told[1].replace(",", "")) <= least
    assert "in chunks" not in calls_for(layer, numpy_ops, strategy, 10**6).explain(way, 9, x, training=False)
