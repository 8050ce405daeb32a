"""Calls of a layer: checked and planned once for each kind, right by every strategy."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tnshare as tn
from tnshare.execution import Kept
from tnshare.execution import _call_cache as cache_module
from tnshare.layers import _linear_kind as kind_module
from tnshare.layers import calls_for
from tnshare.ops import numpy_ops
from tnshare.ops._operations import NumpyOps
from tnshare.planning import MOST_KEPT_NUMBERS, PROFILES, WAYS, Device, Job
from tnshare.testing import linear_cases
from tnshare.testing.oracles import close, looped, magnitudes

STRATEGIES = ("auto", "factored", "materialised")
LAYER = tn.Linear(4, 3, tasks=5, spec=tn.Tucker((2, 2, 2)))
SQUARE = tn.Linear(4, 3, tasks=4, spec=tn.LAF(2))
PAIRS = tn.Linear(4, 3, tasks={"site": 2, "user": 3}, spec=tn.LAF(2))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TNSHARE_CACHE", str(tmp_path))


def parts(layer, params):
    named = {**params, **{k: v.astype(float) for k, v in layer.frozen.items()}}
    return [named[node.name] for node in layer.network.nodes], params.get("bias")


def call(calls, way, factors, bias, x, task, training=False, keeper=None):
    if way == "fan_out":
        return calls.fan_out(factors, bias, x, training, keeper)
    return calls.apply(factors, bias, x, task, training, keeper)


@given(linear_cases(("float64",)), st.sampled_from(STRATEGIES), st.booleans(), st.booleans())
def test_every_strategy_gives_what_the_loop_gives(case, strategy, training, keeps):
    calls, params, x = calls_for(case.layer, numpy_ops, strategy), case.params(), case.x()
    keeper = Kept(lambda a: a.tobytes(), np.copy) if keeps else None
    bound = looped(case, magnitudes(params), np.abs(x), absolute=True)
    for _ in range(2):
        y = call(calls, case.way, *parts(case.layer, params), x, case.task(), training, keeper)
        close(numpy_ops, y, looped(case, params, x), bound, case.terms)


@pytest.fixture
def planned(monkeypatch):
    """The jobs that were planned."""
    jobs = []

    def noting(job, profile, form="any"):
        jobs.append((job, profile, form))
        return candidates(job, profile, form)

    candidates = kind_module.candidates
    monkeypatch.setattr(kind_module, "candidates", noting)
    return jobs


def kinds():
    """Calls that differ in what a program depends on: way, shape of x, training, keeping."""
    ids = np.array([0, 4, 4])
    keeper = Kept(lambda a: a.tobytes(), np.copy)
    yield "one", np.ones((3, 4)), 2, False, None
    yield "one", np.ones((2, 4)), 2, False, None
    yield "one", np.ones((1, 3, 4)), 2, False, None
    yield "one", np.ones((3, 4)), 2, True, None
    yield "one", np.ones((3, 4)), 2, False, keeper
    yield "mixed", np.ones((3, 4)), ids, False, None
    yield "mixed", np.ones((3, 2, 4)), ids, False, None
    yield "each", np.ones((5, 3, 4)), None, False, None
    yield "fan_out", np.ones((5, 3, 4)), None, False, None


def test_each_kind_of_call_is_planned_once_and_others_anew(planned):
    calls, params = calls_for(LAYER, numpy_ops), LAYER.init(0, dtype=float)
    for count, (way, x, task, training, keeper) in enumerate(kinds(), 1):
        for _ in range(2):
            call(calls, way, *parts(LAYER, params), x, task, training, keeper)
        assert len(planned) == count
    call(calls, "one", *parts(LAYER, params), np.ones((3, 4)), 4)  # another task is no other kind
    call(calls, "mixed", *parts(LAYER, params), np.ones((3, 4)), [1, 2, 3])
    assert len(planned) == 9
    calls.forget()
    call(calls, "one", *parts(LAYER, params), np.ones((3, 4)), 4)
    assert len(planned) == 10


def test_what_is_planned_is_what_was_called(planned):
    calls, params = calls_for(LAYER, numpy_ops, "factored"), LAYER.init(0, dtype=float)
    for way, x, task, training, keeper in kinds():
        call(calls, way, *parts(LAYER, params), x, task, training, keeper)
    jobs = [job for job, _, _ in planned]
    assert {form for _, _, form in planned} == {"factored"}
    assert [job.batch for job in jobs] == [4, 2, 4, 4, 4, 4, 4, 4, 16]
    assert [job.inner for job in jobs] == [None] * 6 + [2, None, None]
    assert [job.training for job in jobs] == [False] * 3 + [True] + [False] * 5
    assert [job.keep for job in jobs] == [0] * 4 + [MOST_KEPT_NUMBERS // 5] + [0] * 4
    assert [job.way for job in jobs] == ["one"] * 5 + ["mixed"] * 2 + ["each", "fan_out"]
    assert all(job.concrete and job.bias for job in jobs)


def test_kinds_that_are_remembered_are_limited(planned, monkeypatch):
    monkeypatch.setattr(cache_module, "_MOST", 3)
    calls, params = calls_for(LAYER, numpy_ops), LAYER.init(0, dtype=float)
    for rows in (1, 2, 3, 4, 4, 1, 4):
        call(calls, "one", *parts(LAYER, params), np.ones((rows, 4)), 0)
        assert len(calls.cache._runs) <= 3
    assert len(planned) == 5


def test_only_calls_with_values_are_concrete(planned):
    class Traced(NumpyOps):
        def values(self, a):
            return None

    params = LAYER.init(0, dtype=float)
    ids = np.array([0, 4, 4])
    names = [n for n in dir(numpy_ops) if n[0] != "_" and n != "concrete"]  # what all backends have
    bare = type("Bare", (), {name: staticmethod(getattr(numpy_ops, name)) for name in names})()
    for ops, x, task in (
        (numpy_ops, np.ones((0, 4)), np.array([], int)),
        (Traced(), np.ones((3, 4)), ids),
        (numpy_ops, np.ones((3, 0, 4)), ids),
        (bare, np.ones((3, 4)), ids),
    ):
        calls_for(LAYER, ops).apply(*parts(LAYER, params), x, task, False)
    assert [job.concrete for job, _, _ in planned] == [False] * 4


def test_a_traced_call_after_an_eager_one_of_the_same_shape_looks_at_no_values():
    class Tracing(NumpyOps):
        traced = False

        def values(self, a):
            return None if self.traced else super().values(a)

    layer = tn.Linear(64, 64, tasks=3, spec=tn.LAF(3))
    params, ops = layer.init(0, dtype=float), Tracing()
    calls, x, ids = calls_for(layer, ops), np.random.default_rng(0).normal(size=(512, 64)), np.arange(512) % 3
    assert layer.candidates("mixed", 512)[0].grouped
    eager = calls.apply(*parts(layer, params), x, ids, True)
    ops.traced = True
    np.testing.assert_allclose(calls.apply(*parts(layer, params), x, ids, True), eager, atol=1e-12)


def test_plans_are_for_the_device_of_x(planned):
    class There(NumpyOps):
        def device(self, like):
            return Device("numpy", "2", "cuda", f"NVIDIA {'H100' if like.dtype == float else 'A100'}", 1)

    params = LAYER.init(0, dtype=float)
    for ops, dtype in ((There(), float), (There(), np.float32), (numpy_ops, float)):
        calls_for(LAYER, ops).apply(*parts(LAYER, params), np.ones((3, 4), dtype), 0, False)
    assert [profile.name for _, profile, _ in planned] == ["h100", "a100", "cpu"]


@pytest.mark.parametrize(
    ("layer", "x", "task", "message"),
    [
        (LAYER, (3,), 0, "expected x of shape (..., 4), in_features last: found (3,)"),
        (LAYER, (), 0, "expected x of shape (..., 4), in_features last: found ()"),
        (LAYER, (4, 3), [0] * 4, "expected x of shape (..., 4), in_features last: found (4, 3)"),
        (
            LAYER,
            (3, 4),
            [0, 1],
            "one task id for each row: expected x of shape (2, ..., 4) with 2 ids, found (3, 4)",
        ),
        (
            LAYER,
            (4,),
            [0] * 4,
            "one task id for each row: expected x of shape (4, ..., 4) with 4 ids, found (4,)",
        ),
        (
            LAYER,
            (3, 4),
            None,
            "without a task, row t of x belongs to task t: expected x of shape (5, ..., 4), found (3, 4); "
            "give a task, or ids, or use fan_out",
        ),
        (LAYER, (4,), None, "expected x of shape (5, ..., 4), found (4,)"),
        (SQUARE, (4,), None, "expected x of shape (4, ..., 4), found (4,)"),
        (PAIRS, (2, 4), None, "expected x of shape (2, 3, ..., 4), found (2, 4)"),
        (PAIRS, (3, 2, 4), None, "expected x of shape (2, 3, ..., 4), found (3, 2, 4)"),
        (LAYER, (3, 4), [0, 5, 7], "task 5 in row 1 is out of range: expected 0 <= task <= 4"),
        (LAYER, (3, 4), 5, "task 5 is out of range: expected 0 <= task <= 4"),
        (LAYER, (3, 4), -1, "task -1 is out of range"),
        (LAYER, (3, 4), True, "task ids must be whole numbers: found dtype bool"),
        (PAIRS, (3, 4), (1, 3), "user 3 is out of range: expected 0 <= user <= 2"),
    ],
)
def test_what_does_not_fit_is_refused(layer, x, task, message):
    params = layer.init(0, dtype=float)
    with pytest.raises(tn.TnshareError, match=re.escape(message)):
        calls_for(layer, numpy_ops).apply(*parts(layer, params), np.ones(x), task, False)


def test_ids_that_a_framework_guards_are_looked_at_only_when_something_is_wrong():
    class Guarding(NumpyOps):
        def __init__(self):
            self.looked = 0

        def guards(self, ids):
            return isinstance(ids, np.ndarray) and ids.ndim == 1

        def take(self, a, ids):
            if any(np.min(column, initial=0) < 0 for column in ids):
                raise IndexError("negative")
            return super().take(a, ids)

    params, ops = LAYER.init(0, dtype=float), Guarding()
    calls = calls_for(LAYER, ops)
    x, ids = np.random.default_rng(0).normal(size=(6, 4)), np.array([0, 4, 4, 1, 2, 0])
    expected = calls_for(LAYER, numpy_ops).apply(*parts(LAYER, params), x, ids, False)
    np.testing.assert_allclose(calls.apply(*parts(LAYER, params), x, ids, False), expected, atol=1e-12)
    for wrong in (-2, 5):
        ids[3] = wrong
        with pytest.raises(tn.TnshareError, match=f"^task {wrong} in row 3 is out of range"):
            calls.apply(*parts(LAYER, params), x, ids, False)
    with pytest.raises(tn.TnshareError, match="one task id for each row"):
        calls.apply(*parts(LAYER, params), x, np.array([0, 1]), False)


@pytest.mark.parametrize("strategy", ["fast", None, "Auto", 1])
def test_other_strategies_are_refused(strategy):
    found = re.escape(f"'autotune'): found {strategy!r}")
    with pytest.raises(tn.TnshareError, match=r"^strategy must be one of \('auto', 'factored', .*" + found):
        calls_for(LAYER, numpy_ops, strategy)


@pytest.mark.parametrize("limit", [-1, 1.5, True, "1 MB", np.float32(3)])
def test_a_memory_limit_is_a_whole_number(limit):
    message = f"memory_limit must be a whole number of at least 0: found {limit!r}"
    with pytest.raises(tn.TnshareError, match=f"^{re.escape(message)}$"):
        calls_for(LAYER, numpy_ops, memory_limit=limit)
    assert calls_for(LAYER, numpy_ops, memory_limit=np.int64(3)).memory_limit == 3


def test_a_candidate_is_a_strategy_too():
    params, x = LAYER.init(0, dtype=float), np.random.default_rng(0).normal(size=(6, 4))
    expected = calls_for(LAYER, numpy_ops).apply(*parts(LAYER, params), x, 3, True)
    for candidate in LAYER.candidates("one", 6):
        calls = calls_for(LAYER, numpy_ops, candidate)
        assert calls.options(Job(LAYER.network, "one", 6), PROFILES["cpu"]) == (candidate,)
        y = calls.apply(*parts(LAYER, params), x, 3, True)
        np.testing.assert_allclose(y, expected, atol=1e-12)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("lead", [(1,), (3,), (16,), (40,), (3, 2), ()])
def test_traced_calls_use_the_nearest_of_the_plans_made_ahead(way, lead):
    calls, params = calls_for(LAYER, numpy_ops), LAYER.init(0, dtype=float)
    calls.ahead(params["bias"], (16, 1, 4))
    ids = {"one": (3,), "mixed": (np.arange(lead[0]) % 5,)} if len(lead) == 1 else {"one": (3,)}
    if way == "mixed" and len(lead) != 1:
        return
    x = np.random.default_rng(0).normal(size=(*((5,) if way == "each" else ()), *lead, 4))
    asked = []
    expected = call(calls, way, *parts(LAYER, params), x, ids.get(way, (None,))[0])
    y = calls.traced(way, ids.get(way), *parts(LAYER, params), x, False, lambda c: asked.append(c) or c)
    np.testing.assert_allclose(y, expected, atol=1e-12)
    rows = int(np.prod(lead))
    assert asked == [rows <= 16, rows <= 4, rows <= 1]
    assert [most for most, _ in calls.plans_ahead[way, False]] == [1, 4, 16]
    runs = [run for _, run in calls.plans_ahead[way, False]]
    used = []
    calls.plans_ahead[way, False] = [
        (m, lambda *a, n=n: used.append(n) or runs[n](*a)) for n, m in enumerate((1, 4, 16))
    ]
    calls.traced(way, ids.get(way), *parts(LAYER, params), x, False, lambda condition: condition)
    assert used == [0 if rows <= 1 else 1 if rows <= 4 else 2 if rows <= 16 else 1]
    calls.forget()
    assert not calls.plans_ahead
