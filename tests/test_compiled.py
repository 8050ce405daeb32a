"""Calls that are traced: candidates are timed when somebody asks for it, and what was found is used later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tnshare as tn
from tnshare import compiled, store, tune
from tnshare.apply import bound
from tnshare.calls import Calls
from tnshare.ops import NumpyOps
from tnshare.tune import COMPILED, KIND, remembered, shortlisted, tuning_key
from tnshare.ways import WAYS

LAYER = tn.Linear(4, 3, tasks=5, spec=tn.Tucker((2, 2, 2)))
PARAMS = LAYER.init(0)
X = np.ones((4, 4), np.float32)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TNSHARE_CACHE", str(tmp_path / "cache"))


class Compiling(NumpyOps):
    """NumPy as if it compiled functions; counts them."""

    einsum = staticmethod(np.einsum)

    def __init__(self):
        self.compiled, self.waited = 0, []

    def concrete(self, a):
        return False

    def jit(self, function):
        self.compiled += 1
        return function

    def wait(self, a):
        self.waited.append(a)

    def gradients(self, function, arrays, weights):
        assert function(*arrays).shape == weights.shape
        return [np.zeros_like(array) for array in arrays]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_candidates_are_timed_once_and_the_fastest_is_remembered(way, training):
    ops = Compiling()
    seconds = compiled.tune(LAYER, PARAMS, 4, way, training=training, ops=ops)
    first = ops.compiled
    assert first
    assert set(map(type, seconds.values())) == {float}
    assert compiled.tune(LAYER, PARAMS, 4, way, training=training, ops=ops) == seconds
    assert ops.compiled == first
    calls = bound(LAYER, ops)
    job = calls.job(way, (4,), training=training, keep=False, concrete=False)
    found = calls.shortlist(job, calls.profile(X))
    assert remembered(job, found, ops, X).name == min(seconds, key=seconds.__getitem__)
    y = ops.waited[-1]
    shape = {"each": (5, 4, 3), "fan_out": (5, 4, 3)}.get(way, (4, 3))
    assert (y[0] if training else y).shape == shape
    fed = (5, 4, 4) if way == "each" else (4, 4)
    assert not training or [g.shape for g in y[1]] == [*map(np.shape, PARAMS.values()), fed]


def watched(patch):
    """The names of candidates from which calls make functions from now on."""
    used, real = [], tn.calls.runner

    def noted(job, candidate, *rest):
        used.append(candidate.name)
        return real(job, candidate, *rest)

    patch.setattr(tn.calls, "runner", noted)
    return used


@pytest.mark.parametrize("way", WAYS)
def test_what_was_measured_is_what_runs_even_in_calls_of_before(way):
    ops = Compiling()
    task = {"one": 2, "mixed": np.array([0, 4, 2, 2])}.get(way)
    x = np.random.default_rng(0).standard_normal((5, 4, 4) if way == "each" else (4, 4)).astype(np.float32)

    def run(ops):
        if way == "fan_out":
            return tn.fan_out(LAYER, PARAMS, x, ops=ops)
        return tn.apply(LAYER, PARAMS, x, task, ops=ops)

    expected = run(tn.ops.numpy_ops)
    calls = bound(LAYER, ops)
    job = calls.job(way, (4,), training=False, keep=False, concrete=False)
    found = calls.shortlist(job, calls.profile(x))
    names = [c.name for c in shortlisted(found)]
    assert any(c.named for c in shortlisted(found))
    for best in shortlisted(found):
        key = tuning_key(job, ops, x, tuple(names))
        store.write(KIND, key, {name: 0.5 if name == best.name else 1.0 for name in names})
        compiled.tune(LAYER, PARAMS, 4, way, training=False, ops=ops)  # measures nothing, and plans anew
        with pytest.MonkeyPatch.context() as patch:
            used = watched(patch)
            np.testing.assert_allclose(run(ops), expected, atol=1e-5)
        assert used == [best.name]
    assert not ops.compiled


def test_without_a_measurement_the_prediction_decides_and_nothing_is_measured():
    ops = Compiling()
    calls = Calls(LAYER, ops)
    job = calls.job("one", (4,), training=True, keep=False, concrete=False)
    found = calls.shortlist(job, calls.profile(X))
    assert remembered(job, found, ops, X) is found[0]
    tn.apply(LAYER, PARAMS, X, 2, ops=ops, training=True)
    assert not ops.compiled


def test_of_every_tree_some_are_timed():
    job = Calls(LAYER, Compiling()).job("mixed", (64,), training=True, keep=False, concrete=False)
    found = [replace(c, seconds=1.0) for c in tn.candidate.candidates(job, tn.profiles.PROFILES["cpu"])]
    some = shortlisted(found)
    assert len(some) == min(COMPILED, len(found))
    assert len(set(some)) == len(some)
    kinds = {(c.plan.tree, c.named) for c in found}
    assert {(c.plan.tree, c.named) for c in some[: len(kinds)]} == kinds or len(kinds) > COMPILED
    far = [found[0], *(replace(c, seconds=100.0) for c in found[1:])]
    assert shortlisted(far) == [found[0]]


def test_plans_of_one_tree_differ_in_orders_alone():
    job = Calls(LAYER, Compiling()).job("mixed", (64,), training=True, keep=False, concrete=False)
    found = tn.candidate.candidates(job, tn.profiles.PROFILES["cpu"])
    named = [c for c in found if c.named]
    assert len({c.plan.tree for c in named}) == len(named) == len({c.plan.tree for c in found})
    for c in found:
        assert c.name.endswith(", by einsum") == c.named or " #" in c.name
        same = [d for d in found if d.plan.tree == c.plan.tree]
        assert {d.flops for d in same} == {c.flops}


@pytest.mark.parametrize(
    ("layer", "batch", "way", "message"),
    [
        (LAYER, 4, "all", r"^way must be one of \('one', 'mixed', 'each', 'fan_out'\): found 'all'$"),
        (LAYER, 0, "one", "^batch must be a whole number of at least 1: found 0$"),
        (LAYER.spec, 4, "one", "^only tnshare.Linear can be tuned so far: found Tucker$"),
    ],
)
def test_what_cannot_be_tuned_is_refused(layer, batch, way, message):
    with pytest.raises(tn.TnshareError, match=message):
        compiled.tune(layer, PARAMS, batch, way, training=True, ops=Compiling())


def test_jax_tunes_and_never_while_tracing(monkeypatch):
    jax, tnj = pytest.importorskip("jax"), pytest.importorskip("tnshare_jax")
    params = tnj.init(LAYER)
    x, ids = np.ones((6, 4), np.float32), np.arange(6) % 5
    expected = tn.apply(LAYER, PARAMS, x, ids)
    for training in (True, False):
        seconds = tnj.tune(LAYER, params, 6, training=training)
        assert seconds == tnj.tune(LAYER, params, 6, training=training)
        monkeypatch.setattr(tune, "timed", None)
        monkeypatch.setattr(compiled, "timed", None)
        run = jax.jit(lambda p, x, ids, training=training: tnj.apply(LAYER, p, x, ids, training=training))
        np.testing.assert_allclose(run(params, x, ids), expected, atol=1e-5)
        monkeypatch.undo()
        monkeypatch.setenv("TNSHARE_CACHE", str(store.folder()))
    every = jax.jit(lambda p, x: tnj.fan_out(LAYER, p, x, training=False))(params, x)
    np.testing.assert_allclose(every, tn.fan_out(LAYER, PARAMS, x), atol=1e-5)
