"""Calls that are traced: candidates are timed when somebody asks for it, and what was found is used later."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tolerances import close

import tnshare as tn
from tnshare.execution import _timing as tune
from tnshare.execution._timing import key_on_device, remember
from tnshare.layers import _compiled_timing as compiled
from tnshare.layers import _linear_kind as kind_module
from tnshare.layers import calls_for
from tnshare.layers._functions import cached_calls
from tnshare.layers._linear_kind import COMPILED, LinearKind
from tnshare.ops._operations import NumpyOps
from tnshare.planning import WAYS
from tnshare.planning.devices import _cache_folder as store

LAYER = tn.Linear(4, 3, tasks=5, spec=tn.Tucker((2, 2, 2)))
CONV = tn.Conv(2, 3, (3, 3), tasks=5, spec=tn.Tucker((2, 2, 2, 2, 2)))
TABLE = tn.Embedding(7, 4, tasks=5, spec=tn.Tucker((2, 2, 2)))
LINEAR = LinearKind(LAYER, tn.ops.numpy_ops)
PARAMS = LAYER.init(0)
X = np.ones((4, 4), np.float32)
TERMS = 2 * 9 + 10 + 6  # the largest kernel, bonds, factors


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


class Asked:
    """What a traced call chooses from, and by which times."""

    def __init__(self, layer, ops, way, training, like, rows=4, sizes=(), calls=None):
        self.calls, self.ops, self.like, self.rows = calls or cached_calls(layer, ops), ops, like, (rows,)
        self.job = self.calls.job(way, self.rows, sizes, training=training, keep=False, concrete=False)
        found = self.calls.options(self.job, self.calls.profile(like))
        self.candidates = {c.name: c for c in self.calls.kind.worth_timing(found)}
        self.key = key_on_device(self.calls.kind.key(self.job), ops, like, self.candidates)

    @property
    def chosen(self):
        return self.calls.choose(self.job, self.rows, self.like).chosen

    def fastest(self, name):
        """As if this one had been measured to be the fastest."""
        times = {other: 0.5 if other == name else 1.0 for other in self.candidates}
        remember(self.key, times)
        return times


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
    fed = (5, 4, 4) if way == "each" else (4, 4)
    assert Asked(LAYER, ops, way, training, X).chosen.name == min(seconds, key=seconds.__getitem__)
    y = ops.waited[-1]
    shape = {"each": (5, 4, 3), "fan_out": (5, 4, 3)}.get(way, (4, 3))
    assert (y[0] if training else y).shape == shape
    assert not training or [g.shape for g in y[1]] == [*map(np.shape, PARAMS.values()), fed]


def watched(patch):
    """The names of candidates from which calls make functions from now on."""
    used, real = [], kind_module.runner

    def noted(job, candidate, *rest):
        used.append(candidate.name)
        return real(job, candidate, *rest)

    patch.setattr(kind_module, "runner", noted)
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
    asked = Asked(LAYER, ops, way, False, x)
    assert any(c.by_einsum for c in asked.candidates.values())
    for best in asked.candidates:
        asked.fastest(best)
        compiled.tune(LAYER, PARAMS, 4, way, training=False, ops=ops)  # measures nothing, and plans anew
        with pytest.MonkeyPatch.context() as patch:
            used = watched(patch)
            close(run(ops), expected, TERMS)
        assert used == [best]
    assert not ops.compiled


def test_without_a_measurement_the_prediction_decides_and_nothing_is_measured(monkeypatch):
    monkeypatch.setattr(tune, "time_in_rounds", None)
    ops = Compiling()
    calls = calls_for(LAYER, ops)
    job = calls.job("one", (4,), training=True, keep=False, concrete=False)
    found = calls.options(job, calls.profile(X))
    assert calls.choose(job, (4,), X).chosen is found[0]
    tn.apply(LAYER, PARAMS, X, 2, ops=ops, training=True)
    tn.apply(CONV, CONV.init(0), np.ones((4, 2, 5, 5), np.float32), 2, ops=ops, training=True)
    tn.apply(TABLE, TABLE.init(0), np.arange(6), 2, ops=ops, training=True)
    assert not ops.compiled


def test_of_every_tree_some_are_timed():
    job = calls_for(LAYER, Compiling()).job("mixed", (64,), training=True, keep=False, concrete=False)
    found = [
        replace(c, seconds=1.0)
        for c in tn.planning._candidates.candidates(job, tn.planning.devices._known_devices.PROFILES["cpu"])
    ]
    some = LINEAR.worth_timing(found)
    assert len(some) == min(COMPILED, len(found))
    assert len(set(some)) == len(some)
    kinds = {(c.plan.tree, c.by_einsum) for c in found}
    assert {(c.plan.tree, c.by_einsum) for c in some[: len(kinds)]} == kinds or len(kinds) > COMPILED
    far = [found[0], *(replace(c, seconds=100.0) for c in found[1:])]
    assert LINEAR.worth_timing(far) == [found[0]]


def test_plans_of_one_tree_differ_in_orders_alone():
    job = calls_for(LAYER, Compiling()).job("mixed", (64,), training=True, keep=False, concrete=False)
    found = tn.planning._candidates.candidates(job, tn.planning.devices._known_devices.PROFILES["cpu"])
    named = [c for c in found if c.by_einsum]
    assert len({c.plan.tree for c in named}) == len(named) == len({c.plan.tree for c in found})
    for c in found:
        assert c.name.endswith(", by einsum") == c.by_einsum or " #" in c.name
        same = [d for d in found if d.plan.tree == c.plan.tree]
        assert {d.flops for d in same} == {c.flops}


@pytest.mark.parametrize(
    ("layer", "batch", "way", "message"),
    [
        (LAYER, 4, "all", r"^way must be one of \('one', 'mixed', 'each', 'fan_out'\): found 'all'$"),
        (LAYER, 0, "one", "^batch must be a whole number of at least 1: found 0$"),
        (LAYER.spec, 4, "one", "^expected a description such as tnshare.Linear: found .*Tucker$"),
        (CONV, 4, "one", r"^give sizes, the places of x along each of 2 dimensions: found \(\)$"),
    ],
)
def test_what_cannot_be_tuned_is_refused(layer, batch, way, message):
    with pytest.raises(tn.TnshareError, match=message):
        compiled.tune(layer, PARAMS, batch, way, training=True, ops=Compiling())
    with pytest.raises(tn.TnshareError, match=message):
        compiled.source(layer, batch, way, training=True, ops=Compiling(), like=X)


def test_parameters_and_sizes_are_looked_at():
    with pytest.raises(tn.TnshareError, match=r"^expected params with \('core', .*'bias'\): found none$"):
        compiled.tune(LAYER, {}, 4, "one", training=True, ops=Compiling())
    with pytest.raises(tn.TnshareError, match=r"^sizes must be a whole number of at least 1: found 0$"):
        compiled.tune(CONV, CONV.init(0), 4, "one", training=True, ops=Compiling(), sizes=(0, 3))
    with pytest.raises(tn.TnshareError, match=r"3 x 3|kernel"):
        compiled.tune(CONV, CONV.init(0), 4, "one", training=True, ops=Compiling(), sizes=(2, 2))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layer", [CONV, TABLE], ids=["conv", "embedding"])
def test_convolutions_and_embeddings_are_timed_and_the_fastest_runs(layer, way, training):
    ops, params = Compiling(), layer.init(0)
    sizes = (4, 5) if layer is CONV else (3,)
    seconds = compiled.tune(layer, params, 4, way, training=training, ops=ops, sizes=sizes)
    shape = (4, 2, *sizes) if layer is CONV else (4, *sizes)
    shape = (5, *shape) if way == "each" else shape
    like = next(iter(params.values()))
    asked = Asked(layer, ops, way, training, like, sizes=sizes)
    assert set(seconds) <= set(asked.candidates)
    assert len(asked.candidates) > 1 or way == "mixed"
    y = ops.waited[-1]
    rest = (3, 2, 3) if layer is CONV else (3, 4)
    before = {"each": (5, 4), "fan_out": (5, 4)}.get(way, (4,))
    assert (y[0] if training else y).shape == (*before, *rest)
    learnt = [np.shape(value) for value in params.values()]
    fed = [shape] if layer is CONV else []  # tokens have no gradient
    assert not training or [g.shape for g in y[1]] == [*learnt, *fed]
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32) if layer is CONV else rng.integers(0, 7, shape)
    task = {"one": 2, "mixed": np.array([0, 4, 2, 2])}.get(way)
    expected = _run(layer, params, x, task, way, tn.ops.numpy_ops)
    for name in asked.candidates:
        times = asked.fastest(name)
        again = compiled.tune(layer, params, 4, way, training=training, ops=ops, sizes=sizes)
        assert again == times
        assert asked.chosen.name == name
        found = _run(layer, params, x, task, way, ops, training)
        close(found, expected, TERMS)
        made = compiled.source(layer, 4, way, training=training, ops=ops, like=like, sizes=sizes)
        assert made.startswith(f"# {name}\n")


@pytest.mark.parametrize("layer", [LAYER, CONV, TABLE], ids=["linear", "conv", "embedding"])
def test_times_are_kept_for_what_they_are_of(layer):
    calls, other = cached_calls(layer, Compiling()), cached_calls(replace(layer, spec=tn.LAF(2)), Compiling())
    more = () if layer is LAYER else (3, 6) if layer is CONV else (3,)

    def key(calls=calls, way="one", training=True, rows=4, sizes=more, dtype=np.float32):
        found = Asked(layer, calls.ops, way, training, np.ones(1, dtype), rows, sizes, calls).key
        return repr({name: value for name, value in found.items() if name != "candidates"})  # they vary too

    changed = [
        {"calls": other},
        {"way": "fan_out"},
        {"training": False},
        {"rows": 512},
        {"dtype": np.float64},
    ]
    changed += [{"sizes": (9, 9) if layer is CONV else (40,)}, {"way": "mixed"}]
    assert len({key(), *(key(**change) for change in changed)}) == 1 + len(changed)
    assert key() == key()
    assert key(rows=3) == key(rows=4)  # of one bucket


def _run(layer, params, x, task, way, ops, training=False):
    if way == "fan_out":
        return tn.fan_out(layer, params, x, ops=ops, training=training)
    return tn.apply(layer, params, x, task, ops=ops, training=training)


def test_jax_tunes_and_never_while_tracing(monkeypatch):
    jax, tnj = pytest.importorskip("jax"), pytest.importorskip("tnshare_jax")
    params = tnj.init(LAYER)
    x, ids = np.ones((6, 4), np.float32), np.arange(6) % 5
    expected = tn.apply(LAYER, PARAMS, x, ids)
    with pytest.raises(tn.TnshareError, match=r"^nothing is measured while tracing: tune before, outside of"):
        jax.jit(lambda params: tnj.tune(LAYER, params, 6))(params)
    for training in (True, False):
        seconds = tnj.tune(LAYER, params, 6, training=training)
        assert seconds == tnj.tune(LAYER, params, 6, training=training)
        monkeypatch.setattr(tune, "time_in_rounds", None)
        monkeypatch.setattr(compiled, "time_in_rounds", None)
        run = jax.jit(lambda p, x, ids, training=training: tnj.apply(LAYER, p, x, ids, training=training))
        close(run(params, x, ids), expected, TERMS)
        monkeypatch.undo()
        monkeypatch.setenv("TNSHARE_CACHE", str(store.folder()))
    every = jax.jit(lambda p, x: tnj.fan_out(LAYER, p, x, training=False))(params, x)
    close(every, tn.fan_out(LAYER, PARAMS, x), TERMS)


@pytest.mark.parametrize("way", WAYS)
def test_the_source_of_jax_runs_when_pasted_and_is_what_was_the_fastest(way):
    jax, tnj = pytest.importorskip("jax"), pytest.importorskip("tnshare_jax")
    params = tnj.init(LAYER) | {"bias": np.zeros((5, 3), np.float32)}
    x = np.random.default_rng(0).standard_normal((5, 4, 4) if way == "each" else (4, 4)).astype(np.float32)
    task = {"one": 2, "mixed": np.array([0, 4, 2, 2])}.get(way)
    expected = _run(LAYER, params, x, task, way, tn.ops.numpy_ops)
    asked = Asked(LAYER, tnj.ops, way, True, x)
    factors = [params[name] for name in LAYER.network.shapes]
    if way == "one":
        factors[-1] = factors[-1][task]
    rest = ((task,),) if way == "mixed" else ()
    for name, candidate in asked.candidates.items():
        asked.fastest(name)
        text = tnj.source(LAYER, 4, way)
        assert ("einsum(" in text) == candidate.by_einsum
        scope = {}
        exec(text, scope)
        with jax.disable_jit():
            found = scope["contract"](*factors, x, *rest)
        close(np.reshape(found, expected.shape), expected, TERMS)


def test_the_sources_of_convolutions_and_embeddings_in_jax_are_code():
    tnj = pytest.importorskip("tnshare_jax")
    for layer, sizes, parts in ((CONV, (4, 5), {"kernels"}), (TABLE, (3,), {"contract"})):
        scope = {}
        exec(tnj.source(layer, 4, "one", sizes=sizes), scope)
        assert parts <= set(scope)
    seconds = tnj.tune(TABLE, tnj.init(TABLE), 4, "one", sizes=(3,), training=False)
    assert set(seconds) <= {"rows looked up, then contracted", "tables composed, then rows looked up"}
    assert f"# {min(seconds, key=seconds.__getitem__)}\n" in tnj.source(
        TABLE, 4, "one", sizes=(3,), training=False
    )


@pytest.mark.parametrize("training", [True, False])
def test_a_matrix_that_meets_a_stack_is_priced_as_repeated_where_axes_are_named(training):
    profile = tn.planning.devices._known_devices.PROFILES["cpu-jax"]
    layer = tn.Linear(64, 32, tasks=5, spec=tn.LAF(4))
    job = calls_for(layer, Compiling()).job("one", (16,), training=training, keep=False, concrete=False)
    named = {c.plan: c.seconds for c in tn.planning._candidates.candidates(job, profile) if not c.by_einsum}
    plain = {
        c.plan: c.seconds for c in tn.planning._candidates.candidates(replace(job, named=False), profile)
    }
    both = named.keys() & plain.keys()
    repeating = {plan for plan in both if any(getattr(s, "variant", "") == "right" for s in plan.steps)}
    assert repeating
    assert both - repeating
    for plan in both:
        sizes, dearer = plan.network.sizes, 0.0
        for step in plan.steps:
            if step.variant == "right":
                b, r, k, c = (
                    tn.planning._steps.count(g, sizes)
                    for g in (step.batch, step.rows, step.inner, step.columns)
                )
                both_ways = [(b, r, k, c), (b, k, r, c)] if training else [(b, r, k, c)]
                dearer += 0.5 * sum(profile.product(*shape, "left") for shape in both_ways)
        if not any(turned for step in plan.steps for turned in step.lies_transposed):
            assert named[plan] == pytest.approx(plain[plan] + dearer)
