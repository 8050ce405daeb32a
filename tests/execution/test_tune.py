"""Autotune: the fastest by the clock wins, is remembered, and nothing damaged or foreign is believed."""

from __future__ import annotations

import json
import math
import time
import weakref
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import tnshare as tn
from tnshare.execution import Calls, Kept
from tnshare.execution import _timing as tune
from tnshare.execution._timing import key_on_device, measured, seconds_of_runs
from tnshare.layers import _linear_kind as kind_module
from tnshare.layers import calls_for
from tnshare.layers._linear_kind import SHORTLIST, LinearKind
from tnshare.ops import numpy_ops
from tnshare.ops._operations import NumpyOps
from tnshare.planning import MOST_KEPT_NUMBERS, PROFILES, Device, Job, candidates

CPU = PROFILES["cpu"]
LAYER = tn.Linear(4, 3, tasks=5, spec=tn.Tucker((2, 2, 2)))
JOB = Job(LAYER.network, "one", 4, training=False)
FOUND = candidates(JOB, CPU)
LINEAR = LinearKind(LAYER, numpy_ops)
NAMES = tuple(c.name for c in LINEAR.worth_timing(FOUND))


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TNSHARE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Clock:
    """A clock that goes on only while a candidate runs, by as much as that one is said to take."""

    def __init__(self, monkeypatch, seconds):
        self.now, self.seconds, self.runs = 0.0, seconds, []
        monkeypatch.setattr(tune.time, "perf_counter", lambda: self.now)
        real = kind_module.runner

        def timed(job, candidate, ops, rows):
            run = real(job, candidate, ops, rows)

            def slow(*inputs):
                self.runs.append(candidate.name)
                took = self.seconds[candidate.name]
                self.now += took(self.runs.count(candidate.name)) if callable(took) else took
                return run(*inputs)

            return slow

        monkeypatch.setattr(kind_module, "runner", timed)


class Some(LinearKind):
    """Calls that have these candidates alone."""

    def __init__(self, ops, found):
        super().__init__(LAYER, ops)
        self.found = tuple(found)

    def options(self, *asked):
        return self.found


def tuned(job, found, ops, rows, given):
    """What calls with these candidates choose by the clock."""
    measure = partial(seconds_of_runs, training=job.training, ops=ops, inputs=given)
    return Calls(Some(ops, found), "autotune").choose(job, rows, given[2], measure=measure).chosen


def tuning_key(job, ops, x, names):
    return key_on_device(LINEAR.key(job), ops, x, names)


def inputs(dtype=float, keeper=None):
    params = LAYER.init(0, dtype=dtype)
    factors = [params[node.name] for node in LAYER.network.nodes]
    return factors, params["bias"], np.ones((4, 4), dtype), (2,), keeper


def times(winner, slow=1e-2, fast=9e-3):
    return {name: fast if name == winner else slow for name in (c.name for c in FOUND)}


@pytest.mark.parametrize("winner", range(len(NAMES)))
def test_the_fastest_by_the_clock_wins_and_is_found_again(winner, monkeypatch):
    clock = Clock(monkeypatch, times(NAMES[winner]))
    assert tuned(JOB, FOUND, numpy_ops, (4,), inputs()).name == NAMES[winner]
    assert set(clock.runs) == set(NAMES)
    clock.runs.clear()
    clock.seconds = times(NAMES[winner - 1])
    assert tuned(JOB, FOUND, numpy_ops, (4,), inputs()).name == NAMES[winner]
    assert not clock.runs
    found = measured(tuning_key(JOB, numpy_ops, np.ones(1), NAMES), dict.fromkeys(NAMES))
    assert found == pytest.approx({name: times(NAMES[winner])[name] for name in NAMES})


def test_only_the_shortlist_is_timed(monkeypatch):
    monkeypatch.setattr("tnshare.layers._linear_kind.SHORTLIST", 3)
    assert len(FOUND) > 3
    clock = Clock(monkeypatch, times(FOUND[-1].name, fast=1e-9))
    assert tuned(JOB, FOUND, numpy_ops, (4,), inputs()) in LINEAR.worth_timing(FOUND)
    assert len(set(clock.runs)) == 3
    assert set(clock.runs) == {c.name for c in LINEAR.worth_timing(FOUND)}


@pytest.mark.parametrize(("seconds", "timed"), [(0.01, SHORTLIST), (0.1, SHORTLIST), (1.0, SHORTLIST // 2)])
def test_of_what_takes_long_fewer_are_timed(seconds, timed):
    slow = [replace(FOUND[0], seconds=seconds, name=f"slow {n}") for n in range(20)]
    assert len(LINEAR.worth_timing(slow)) == timed


def test_beyond_the_best_predictions_other_trees_are_timed_first():
    """Predictions err alike for plans that differ in memory orders alone."""
    alike = [replace(FOUND[0], name=f"alike {n}", seconds=1e-3 + n * 1e-6) for n in range(20)]
    (other,) = [c for c in FOUND if c.plan.tree != FOUND[0].plan.tree][:1]
    near, far = replace(other, name="near", seconds=2.9e-3), replace(other, name="far", seconds=3.1e-3)
    assert near in LINEAR.worth_timing([*alike, near])
    assert far not in LINEAR.worth_timing([*alike, far])
    first = LINEAR.worth_timing([*alike, near])[: SHORTLIST // 2 + 1]
    assert [c.name for c in first] == [f"alike {n}" for n in range(SHORTLIST // 2 + 1)]


def test_one_candidate_needs_no_clock(monkeypatch, cache):
    clock = Clock(monkeypatch, times(NAMES[0]))
    assert tuned(JOB, FOUND[:1], numpy_ops, (4,), inputs()) is FOUND[0]
    assert not clock.runs
    assert not cache.exists()


def test_the_first_run_does_not_count_and_rounds_are_several(monkeypatch):
    first = {name: lambda run: 1.0 if run == 1 else 1e-3 for name in NAMES}
    first[NAMES[1]] = lambda run: 1.0 if run == 1 else 0.9e-3
    first[NAMES[2]] = lambda run: 1e-3 if run in (1, 3) else 1.9e-3  # now and then the fastest
    first[NAMES[3]] = lambda run: 0.6e-3 if run == 1 else 1e-3
    clock = Clock(monkeypatch, first)
    assert tuned(JOB, FOUND, numpy_ops, (4,), inputs()).name == NAMES[1]
    assert min(clock.runs.count(name) for name in NAMES) >= 4
    orders = {tuple(clock.runs[n : n + len(NAMES)]) for n in range(0, 4 * len(NAMES), len(NAMES))}
    assert len(orders) > 1  # shuffled


def test_the_hopeless_are_not_timed_to_the_end(monkeypatch):
    clock = Clock(monkeypatch, {**times(NAMES[0], slow=1.0, fast=1e-3), NAMES[1]: 1.5e-3})
    assert tuned(JOB, FOUND, numpy_ops, (4,), inputs()).name == NAMES[0]
    counts = {name: clock.runs.count(name) for name in NAMES}
    assert all(counts[name] == 2 for name in NAMES[2:])
    assert 4 <= counts[NAMES[1]] < counts[NAMES[0]]  # half as slow again: after some rounds that is known


def test_the_time_of_the_hopeless_is_not_taken_from_the_others(monkeypatch):
    clock = Clock(monkeypatch, {**times(NAMES[0], slow=5.0, fast=10e-3), NAMES[1]: 10e-3})
    tuned(JOB, FOUND, numpy_ops, (4,), inputs())
    assert clock.runs.count(NAMES[0]) * 10e-3 >= 0.1


def test_one_lucky_run_does_not_win(monkeypatch):
    lucky = {**times(NAMES[0], slow=2e-3, fast=1e-3), NAMES[1]: lambda run: 0.9e-3 if run == 7 else 1.1e-3}
    Clock(monkeypatch, lucky)
    assert tuned(JOB, FOUND, numpy_ops, (4,), inputs()).name == NAMES[0]


def test_one_lucky_run_in_a_slow_time_does_not_put_the_others_out(monkeypatch):
    def slow_at_first(seconds):
        return lambda run: seconds * (1.3 if run < 12 else 1.0)

    usual, second = slow_at_first(2e-3), slow_at_first(1.1e-3)
    first = {NAMES[0]: slow_at_first(1e-3), NAMES[1]: lambda run: 0.5e-3 if run == 7 else second(run)}
    Clock(monkeypatch, dict.fromkeys(NAMES, usual) | first)
    assert tuned(JOB, FOUND, numpy_ops, (4,), inputs()).name == NAMES[0]


def test_who_ran_more_often_in_better_moments_does_not_win_for_it(monkeypatch):
    def in_moments(seconds, every):
        return lambda run: seconds if run % every == 0 else 2 * seconds

    few, more = in_moments(1e-3, 6), in_moments(1.1e-3, 4)
    Clock(monkeypatch, times(NAMES[0], slow=3e-3) | {NAMES[0]: few, NAMES[1]: more})
    assert tuned(JOB, FOUND, numpy_ops, (4,), inputs()).name == NAMES[0]


def test_who_was_put_out_does_not_win_by_few_rounds_compared_with_others(monkeypatch):
    """Each of the two that are left is interrupted in rounds of its own, beside which 2.5 ms look short."""
    interrupted = {
        NAMES[0]: lambda run: 8e-3 if run in (2, 4) else 1e-3,
        NAMES[1]: lambda run: 8e-3 if run in (6, 8) else 1.1e-3,
        NAMES[2]: 2.5e-3,
    }
    Clock(monkeypatch, times("", slow=5e-3) | interrupted)
    assert tuned(JOB, FOUND, numpy_ops, (4,), inputs()).name == NAMES[0]


def test_who_is_put_out_is_let_go_of_with_what_it_keeps():
    class Slow:
        def __call__(self):
            time.sleep(0.06)

    slow = Slow()
    gone, alive = [], weakref.ref(slow)
    programs = {"quick": lambda: gone.append(alive() is None), "slow": slow}
    del slow
    assert tune.time_in_rounds(programs)["slow"] > 0
    assert not gone[0]
    assert gone[-1]


def test_what_takes_no_time_is_not_timed_forever(monkeypatch):
    clock = Clock(monkeypatch, times(NAMES[0], slow=1e-7, fast=1e-8))
    tuned(JOB, FOUND, numpy_ops, (4,), inputs())
    assert clock.runs.count(NAMES[0]) == 1000


def test_who_was_interrupted_in_the_first_rounds_is_timed_again(monkeypatch):
    disturbed = {**times(NAMES[0], slow=3e-3, fast=2e-3), NAMES[1]: lambda run: 6e-3 if run < 5 else 1e-3}
    Clock(monkeypatch, disturbed)
    assert tuned(JOB, FOUND, numpy_ops, (4,), inputs()).name == NAMES[1]


def test_a_training_step_is_timed_with_its_gradients(monkeypatch):
    job = replace(JOB, training=True)
    found = candidates(job, CPU)

    class Deriving(NumpyOps):
        def __init__(self):
            self.given, self.waited = [], []

        def gradients(self, function, arrays, weights):
            assert weights.flags.c_contiguous  # however a candidate leaves its result
            self.given.append(([a.shape for a in arrays], weights.shape))
            return [function(*arrays), "gradient"]

        def wait(self, a):
            self.waited.append(a)

    ops = Deriving()
    clock = Clock(monkeypatch, {c.name: 1.0 for c in found} | {found[2].name: 0.9})
    assert tuned(job, found, ops, (4,), inputs()) is found[2]
    shapes = [*LAYER.network.shapes.values(), (5, 3), (4, 4)]
    assert all(given == (shapes, (4, 3)) for given in ops.given)
    assert ops.waited[1::2] == ["gradient"] * len(ops.given)
    assert len(clock.runs) == len(ops.given) + len(
        LINEAR.worth_timing(found)
    )  # once for the shape of the result


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: text.replace('"value"', '"worth"'),
        lambda text: json.dumps({**json.loads(text), "value": {}}),
        lambda text: json.dumps({**json.loads(text), "value": []}),
        lambda text: json.dumps({**json.loads(text), "value": {"another": 1.0}}),
        lambda text: json.dumps({**json.loads(text), "value": {NAMES[0]: 1}}),
        lambda text: json.dumps({**json.loads(text), "value": {NAMES[0]: 0.0}}),
        lambda text: json.dumps({**json.loads(text), "value": {NAMES[0]: -1.0, NAMES[1]: 1.0}}),
        lambda text: json.dumps({**json.loads(text), "value": {NAMES[0]: "fast"}}),
        lambda text: json.dumps({**json.loads(text), "value": {NAMES[0]: math.inf}}),
        lambda text: json.dumps({**json.loads(text), "value": {NAMES[0]: math.nan}}),
        lambda text: json.dumps({**json.loads(text), "key": {}}),
        lambda text: json.dumps({**json.loads(text), "format": 99}),
    ],
)
def test_what_is_damaged_or_foreign_is_measured_again_and_rewritten(damage, monkeypatch, cache):
    clock = Clock(monkeypatch, times(NAMES[1]))
    tuned(JOB, FOUND, numpy_ops, (4,), inputs())
    (file,) = (path for path in cache.rglob("*") if path.is_file())
    before = file.read_text()
    file.write_text(damage(before))
    clock.runs.clear()
    assert tuned(JOB, FOUND, numpy_ops, (4,), inputs()).name == NAMES[1]
    assert clock.runs
    assert set(json.loads(file.read_text())["value"]) == set(NAMES)


class There(NumpyOps):
    def __init__(self, **changes):
        self.changes = changes

    def device(self, like):
        return replace(Device("numpy", "2", "cpu", "this one", 1), **self.changes)


KEY = (JOB, There(), np.ones((4, 4)), NAMES)
X = KEY[2]


@pytest.mark.parametrize(
    "other",
    [
        (JOB, There(), X.astype(np.float32), NAMES),
        (JOB, There(threads=2), X, NAMES),
        (JOB, There(model="that one"), X, NAMES),
        (JOB, There(version="3"), X, NAMES),
        (JOB, numpy_ops, X, NAMES),
        (replace(JOB, way="fan_out"), There(), X, NAMES),
        (replace(JOB, batch=8), There(), X, NAMES),
        (replace(JOB, inner=2), There(), X, NAMES),
        (replace(JOB, training=True), There(), X, NAMES),
        (replace(JOB, keep=MOST_KEPT_NUMBERS), There(), X, NAMES),
        (replace(JOB, bias=False), There(), X, NAMES),
        (replace(JOB, network=tn.Tucker((2, 2, 1)).network(i=4, o=3, task=5)), There(), X, NAMES),
        (replace(JOB, network=tn.Tucker((2, 2, 2)).network(i=4, o=3, t=5)), There(), X, NAMES),
        (JOB, There(), X, NAMES[:-1]),
        (JOB, There(), X, NAMES[::-1]),
    ],
)
def test_the_key_tells_everything_apart_that_matters(other):
    key = tuning_key(*KEY)
    assert json.loads(json.dumps(key)) == key
    assert tuning_key(*other) != key
    assert tuning_key(replace(JOB), There(), X + 1, NAMES) == key


def test_versions_do_not_believe_each_other(monkeypatch):
    key = tuning_key(*KEY)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "99")
    assert tuning_key(*KEY) != key


# As a strategy


def ids_of(rows):
    return np.arange(rows) % 5


def test_calls_are_tuned_by_the_strategy_and_explained(monkeypatch, cache):
    keeper = Kept(lambda a: a.tobytes(), np.copy)
    factors, bias, *_ = inputs()
    calls = calls_for(LAYER, numpy_ops, "autotune")
    found = candidates(calls.job("mixed", (6,), training=False, keep=True, concrete=True), CPU)
    winner = found[3]
    clock = Clock(monkeypatch, {c.name: 0.8 if c == winner else 1.0 for c in found})
    chosen = []
    monkeypatch.setattr(Calls, "function", lambda c, d, rows: chosen.append(d.chosen) or (lambda *a: 0))
    for _ in range(2):
        calls.apply(factors, bias, np.ones((6, 4)), ids_of(6), False, keeper)
    assert chosen == [winner]
    assert clock.runs
    text = calls.explain("mixed", 6, np.ones((6, 4)), training=False)
    table = [line.split("  ") for line in text.splitlines()]
    (marked,) = (line for line in text.splitlines() if line.startswith(">"))
    assert winner.name in marked
    assert marked.endswith("800,000.0 us")
    assert sum(row[-1].strip() == "1,000,000.0 us" for row in table) == min(SHORTLIST, len(found)) - 1
    sources = [
        calls_for(LAYER, numpy_ops, c).source("mixed", 6, np.ones((6, 4)), training=False) for c in found[:4]
    ]
    assert sources[0] != sources[3] == calls.source("mixed", 6, np.ones((6, 4)), training=False)
    clock.runs.clear()
    calls_for(LAYER, numpy_ops, "autotune").apply(factors, bias, np.ones((6, 4)), ids_of(6), False, keeper)
    assert chosen == [winner, winner]  # another layer of the same kind, say in another process
    assert not clock.runs


def test_candidates_do_not_put_out_what_others_keep_while_they_are_timed(monkeypatch):
    prepared = []

    class Counting(Kept):
        def _made(self, prepare):
            prepared.append(self)
            return super()._made(prepare)

    job = replace(JOB, way="each", keep=MOST_KEPT_NUMBERS)
    found = [c for c in candidates(job, CPU) if c.kept][:4]
    factors, bias, *_ = inputs()
    clock = Clock(monkeypatch, {c.name: 1.0 for c in found})
    own = Counting(lambda a: a.tobytes(), np.copy, most=60)  # room for all weights, once
    tuned(job, found, numpy_ops, (4,), (factors, bias, np.ones((5, 4, 4)), None, own))
    assert len(clock.runs) >= 3 * len(found) == 12
    assert len(prepared) == len(found)
    assert own not in prepared
    assert not len(own)


@pytest.mark.parametrize("why", ["no rows", "traced x", "traced ids", "auto", "memory"])
def test_nothing_is_timed_that_has_no_values_or_is_not_asked_for(why, monkeypatch, cache):
    class Traced(NumpyOps):
        def concrete(self, a):
            return why != "traced x"

        def values(self, a):
            return None if why == "traced ids" else super().values(a)

    monkeypatch.setattr(tune, "time_in_rounds", None)
    factors, bias, *_ = inputs()
    strategy, limit = "auto" if why == "auto" else "autotune", 10**6 if why == "memory" else None
    rows = 0 if why == "no rows" else 6
    calls = calls_for(LAYER, Traced(), strategy, limit)
    assert calls.apply(factors, bias, np.ones((rows, 4)), ids_of(rows), False).shape == (rows, 3)
    assert not cache.exists()
