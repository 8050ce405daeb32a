"""memory_limit is a promise: whatever the layer, no more is alive at once, and every number is the same."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import close, is_close, terms_of

import tnshare as tn
from tnshare.planning import WAYS, linear_peak
from tnshare.testing.cases import specs

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")

from benchmarks.measuring.peak import peak_bytes  # noqa: E402

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class Case:
    """A layer without its limit, and a call of it."""

    options: Any
    way: str
    lead: tuple[int, ...]
    dtype: str
    training: bool
    x_grad: bool
    expanded: bool

    def layer(self, **options):
        return tnt.Linear(**dict(self.options), dtype=DTYPES[self.dtype], seed=1, **options)

    def call(self, layer, of=lambda drawn: drawn):
        """The call and its backward pass; everything that they give."""
        torch.manual_seed(0)
        tasks, dtype = layer.description.task_shape, DTYPES[self.dtype]
        lead = (*tasks, *self.lead) if self.way == "each" else self.lead
        x = of(torch.randn(*lead, layer.description.in_features, dtype=dtype))
        x.requires_grad_(self.training and self.x_grad)
        ids = [torch.randint(size, (max(self.lead[0], 1),)) for size in tasks]
        one = tuple(int(column[0]) for column in ids) if len(tasks) > 1 else int(ids[0][0])
        rows = torch.stack([column[: self.lead[0]] for column in ids], 1) if len(tasks) > 1 else ids[0]
        rows = rows[: self.lead[0]]
        outputs = (*(tasks if self.way in ("each", "fan_out") else ()), *self.lead)
        shape = (*outputs, layer.description.out_features)
        gradient = of(
            torch.ones((), dtype=dtype).expand(shape) if self.expanded else torch.randn(shape, dtype=dtype)
        )

        def run():
            with torch.set_grad_enabled(self.training):
                y = (
                    layer.fan_out(x)
                    if self.way == "fan_out"
                    else layer(x, {"one": one, "mixed": rows}.get(self.way))
                )
            if not self.training:
                return [y]
            y.backward(gradient)
            return [y.detach(), *(t.grad for t in (x, *layer.parameters()) if t.requires_grad)]

        return run

    def close(self, given, expected):
        """Whether two calls gave the same, by the sizes of what a call adds: all of it without its sign."""
        layer = self.layer().double()
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.abs_()
        sizes = self.call(layer, lambda drawn: drawn.abs().double())()
        rows = math.prod(self.lead) * math.prod(layer.description.task_shape)
        described = layer.description
        terms = terms_of(described.network, described.in_features, described.out_features, rows)
        return all(
            is_close(a, b, terms, scale=size) for a, b, size in zip(given, expected, sizes, strict=True)
        )

    def smallest(self, **options):
        """The smallest limit, by the error of a layer that has less."""
        try:
            self.call(self.layer(memory_limit=0, **options))()
        except tn.TnshareError as error:
            (number,) = re.findall(r"the smallest that works is (\d+) bytes", str(error))
            return int(number)
        return 0


@st.composite
def cases(draw):
    size = st.one_of(st.integers(1, 4), st.sampled_from((8, 21)))
    weights = {"i": draw(size), "o": draw(size)}
    tasks = {
        name: draw(st.integers(1, 5))
        for name in draw(st.sampled_from([("task",), ("task",), ("site", "user")]))
    }
    options = {
        "in_features": weights["i"],
        "out_features": weights["o"],
        "tasks": tasks,
        "spec": draw(specs(weights, tasks)),
        "bias": draw(st.booleans()),
    }
    lead = (draw(st.integers(0, 33)), *draw(st.sampled_from([(), (), (3,), (2, 2)])))
    flags = [draw(st.booleans()) for _ in range(3)]
    return Case(
        tuple(options.items()), draw(st.sampled_from(WAYS)), lead, draw(st.sampled_from(list(DTYPES))), *flags
    )


STRATEGIES = st.sampled_from(("auto", "factored", "materialised"))


@settings(max_examples=max(20, settings().max_examples // 3))
@given(cases(), STRATEGIES, st.floats(0, 1))
def test_every_limit_is_kept_and_changes_no_number(case, strategy, share):
    plain = case.layer(strategy=strategy)
    expected, unlimited = case.call(plain)(), peak_bytes(case.call(case.layer(strategy=strategy)))
    smallest = case.smallest(strategy=strategy)
    for limit in {smallest, smallest + int(share * max(unlimited - smallest, 0))}:
        assert peak_bytes(case.call(case.layer(strategy=strategy, memory_limit=limit))) <= limit
        assert case.close(case.call(case.layer(strategy=strategy, memory_limit=limit))(), expected)
    if smallest:
        with pytest.raises(
            tn.TnshareError, match=f"memory_limit={smallest - 1} is too little .* {smallest} bytes"
        ):
            case.call(case.layer(strategy=strategy, memory_limit=smallest - 1))()


@settings(max_examples=max(20, settings().max_examples // 3))
@given(cases(), st.data())
def test_the_peak_of_a_candidate_is_an_upper_bound(case, data):
    calls = case.layer()._calls
    job = calls.job(case.way, case.lead, training=case.training, keep=False, concrete=0 not in case.lead)
    found = calls.options(job, calls.profile(torch.empty(0)))
    candidate = data.draw(st.sampled_from([c for c in found if not c.grouped]))
    measured = peak_bytes(case.call(case.layer(strategy=candidate)))
    assert measured <= candidate.peak * (2 if case.dtype == "float64" else 1)


# Each has a plan of a kind that others lack: outer products, repeated operands, copies, slices of slices.
SHAPES = {
    "wide laf": (3, 40, 3, tn.LAF(3)),
    "wide tt": (3, 40, 3, tn.TT((3, 1))),
    "narrow tt": (40, 3, 6, tn.TT((4, 4))),
    "hard": (8, 32, 6, tn.LAF.hard_sharing()),
    "two laf": (2, 5, {"site": 2, "user": 4}, tn.LAF(2)),
    "two tucker": (21, 8, {"site": 2, "user": 2}, tn.Tucker((2, 1, 2, 1))),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", SHAPES)
def test_no_candidate_needs_more_than_it_says(shape, way):
    options = dict(zip(("in_features", "out_features", "tasks", "spec"), SHAPES[shape], strict=True))
    leads = [(16, 2), (1, 2, 2)] if way == "mixed" else [(32,), (1,)]
    for lead, training in itertools.product(leads, [True, False]):
        case = Case(tuple(options.items()), way, lead, "float32", training, True, lead != (1,))
        calls = case.layer()._calls
        job = calls.job(way, lead, training=training, keep=False, concrete=True)
        for candidate in calls.options(job, calls.profile(torch.empty(0))):
            if not candidate.grouped:
                assert peak_bytes(case.call(case.layer(strategy=candidate))) <= candidate.peak
                limit = 4 * linear_peak(job, candidate, 1, job.batch)
                layer = case.layer(strategy=candidate, memory_limit=limit)
                assert peak_bytes(case.call(layer)) <= limit


LARGE = {"laf": tn.LAF(5), "tucker": tn.Tucker((24, 16, 5)), "tt": tn.TT((16, 5))}


def large(method, way, training, lead=(128,)):
    options = {"in_features": 96, "out_features": 48, "tasks": 10, "spec": LARGE[method]}
    return Case(tuple(options.items()), way, lead, "float32", training, True, False)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["laf", "tucker"])
def test_limits_are_not_much_larger_than_what_is_used(method, way, training):
    case = large(method, way, training)
    smallest = case.smallest()
    for limit in (smallest, 3 * smallest):
        layer = case.layer(memory_limit=limit)
        case.call(layer)()
        layer.zero_grad()
        used, chosen = peak_bytes(case.call(layer)), said(case, layer)
        assert used <= chosen <= min(limit, 2.2 * used)


def said(case, layer):
    """What the plan of a call is said to need."""
    calls, like = layer._calls, next(layer.parameters())
    return calls._asked(case.way, case.lead[0], like, case.training, None).peak


@pytest.mark.parametrize("way", WAYS)
def test_chunks_make_limits_possible_that_no_plan_for_all_rows_keeps(way):
    case = large("tucker", way, True)
    layer = case.layer(memory_limit=case.smallest())
    assert "in chunks of 1 rows" in layer.explain(128, way)
    assert case.smallest() < peak_bytes(case.call(case.layer())) / 3


@pytest.mark.parametrize("share", [1, 4])
@pytest.mark.parametrize("way", WAYS)
def test_a_backward_pass_may_be_gone_through_twice(way, share):
    case = large("tucker", way, True, (40,))
    limit = share * case.smallest()
    layer, x = case.layer(memory_limit=limit), torch.randn(10, 40, 96)
    x = x if way == "each" else x[0].contiguous()
    ids = torch.arange(40) % 10

    def twice():
        layer.zero_grad()
        y = layer.fan_out(x) if way == "fan_out" else layer(x, {"one": 2, "mixed": ids}.get(way))
        y.sum().backward(retain_graph=True)
        first = [p.grad for p in layer.parameters()]
        layer.zero_grad()
        y.sum().backward()
        return y.detach(), first, [p.grad for p in layer.parameters()]

    _, first, second = twice()
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert peak_bytes(twice) <= limit + 8  # two sums


@pytest.mark.parametrize("way", WAYS)
def test_gradients_may_be_added_to_others(way):
    """Then those of this pass are no longer the caller's, but they are gradients of factors."""
    case = large("tt", way, True, (40,))
    limit = case.smallest()
    layer = case.layer(memory_limit=limit)
    case.call(layer)()
    gradients = sum(parameter.nbytes for parameter in layer.parameters())
    assert peak_bytes(case.call(layer)) <= limit + gradients


@pytest.mark.parametrize("way", WAYS)
def test_some_factors_may_be_frozen(way):
    case = large("tucker", way, True, (40,))
    layer, plain = case.layer(memory_limit=case.smallest()), case.layer()
    for one in (layer, plain):
        one.core.requires_grad_(False)
        one.bias.requires_grad_(False)
    run = case.call(layer)
    close(run(), case.call(plain)(), 96 + 96 + 40 * 10 + 30)
    assert layer.core.grad is None


def test_nothing_is_kept_under_a_limit():
    case = large("laf", "one", False)
    layer = case.layer(memory_limit=case.smallest()).eval()
    case.call(layer)()
    assert len(layer._kept) == 0


def test_chunks_follow_autocast():
    case = large("tucker", "mixed", True, (40,))
    results = []
    for layer in (case.layer(memory_limit=case.smallest()), case.layer()):
        with torch.autocast("cpu", torch.bfloat16):
            y = layer(torch.ones(40, 96), torch.arange(40) % 10)
        y.float().square().sum().backward()
        results.append((y.dtype, layer.core.grad))
    assert [dtype for dtype, _ in results] == [torch.bfloat16] * 2
    close(results[0][1], results[1][1], 6, dtype=torch.bfloat16)  # six products, each rounded


def test_derivatives_of_derivatives_are_refused_rather_than_wrong():
    case = large("tucker", "one", True, (40,))
    layer, x = case.layer(memory_limit=case.smallest()), torch.randn(40, 96, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x, 1).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"), contextlib.ExitStack():
        gradient.sum().backward()
