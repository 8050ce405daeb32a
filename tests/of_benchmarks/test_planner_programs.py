"""What the benchmarks compare computes the same thing, and is timed as it should be."""

from __future__ import annotations

import json
from dataclasses import asdict
from types import SimpleNamespace

import jax
import numpy as np
import pytest
import tnshare_torch as tnt
import torch
from tolerances import close

import tnshare as tn
from benchmarks.grid import Point, points, unseen
from benchmarks.measuring.peak import peak_memory
from benchmarks.measuring.timing import AGAIN, Timing, allot, in_a_row, interleave, laps, noise_floor, once
from benchmarks.planner import __main__ as planner
from benchmarks.planner import jax_programs, torch_programs, verdicts
from benchmarks.planner.contestants import EMPTY, Programs, groups

WAYS = ["one", "mixed", "each", "fan_out"]
TERMS = 16 + 16 + 12 + 10  # x, and bonds of full rank
EQUATIONS = {"laf": "kio,tk->tio", "tucker": "kpq,ip,qo,tk->tio", "tt": "ir,sro,ts->tio"}


def expected(method, way, factors, x, task):
    """By plain einsum in NumPy."""
    W = np.einsum(EQUATIONS[method], *factors)
    if way == "one":
        return x @ W[task]
    if way == "mixed":
        return np.einsum("bi,bio->bo", x, W[task])
    return np.einsum("tbi,tio->tbo" if way == "each" else "bi,tio->tbo", x, W)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
@pytest.mark.parametrize("batch", [1, 7])
def test_the_peers_in_torch_compute_the_layer(method, way, batch):
    torch.manual_seed(0)
    point = Point(method, "low", (16, 12, 10), way, batch, True)
    factors, x, task = torch_programs.arrays(point)
    made = torch_programs.others(point, factors, x, task)
    ids = task.numpy() if way == "mixed" else task
    right = expected(method, way, [f.detach().numpy() for f in factors], x.detach().numpy(), ids)
    assert {"authors", "opt_einsum", "einsum", "by hand: input first"} <= made.keys()
    assert len(made) >= 6
    for name, program in made.items():
        y = program.run()
        close(y.detach().numpy(), right, TERMS, what=name)
        gradients = torch.autograd.grad(y.sum(), [x, *factors])
        assert all(g.abs().sum() > 0 for g in gradients), name
        assert program.flops >= 0
        assert program.elements > 0


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_the_peers_in_jax_compute_the_layer(method, way):
    point = Point(method, "low", (16, 12, 10), way, 5, False)
    factors, x, ids = jax_programs.arrays(point)
    task = {"one": 3, "mixed": ids}.get(way)
    right = expected(method, way, [np.asarray(f) for f in factors], np.asarray(x), task)
    with jax.disable_jit():  # 60 compilations would take longer than all other tests here
        for name, function in jax_programs.others(point).items():
            y = function(factors, x, *([ids] if way == "mixed" else []))
            close(y, right, TERMS, what=name)
        if way == "mixed":
            for make in (jax_programs._composed, jax_programs._authors, jax_programs._middles):
                middle = make is jax_programs._middles
                y = jax_programs.timed_grouped(point, make(point), factors, x, ids, middle=middle)()
                close(y, right, TERMS)


def test_dense_weights_are_multiplied_by_the_rows_of_their_tasks():
    point = Point("laf", "low", (6, 5, 4), "mixed", 9, True)
    _, x, task = torch_programs.arrays(point)
    made, W = torch_programs.dense_programs(point, x, task)
    right = torch.einsum("bi,bio->bo", x, W[task])
    assert set(made) == {"dense", "dense, loop"}
    for program in made.values():
        close(program.run(), right, TERMS)


def test_groups_hold_every_row_once():
    present, source, position = groups(np.array([7, 2, 7, 7, 0]))
    assert present.tolist() == [0, 2, 7]
    assert len(source) == 9
    assert source[position].tolist() == [0, 1, 2, 3, 4]
    assert (position // 3).tolist() == [2, 1, 2, 2, 0]


def test_the_grid_is_the_stated_one():
    assert len(list(points(quick=True))) == 96
    assert len(set(points(quick=False))) == 3 * 2 * 4 * 4 * 4 * 2
    assert set(points(quick=True)) <= set(points(quick=False))
    drawn = list(unseen())
    assert drawn == list(unseen())
    assert len({str(p) for p in drawn}) == 60
    for point in drawn[:10]:
        assert point.spec.ranks == point.ranks
        assert Point.read(json.loads(json.dumps(asdict(point)))) == point


def test_every_program_runs_once_a_round_and_the_first_twice():
    calls = {"a": 0, "b": 0}

    def count(name):
        calls[name] += 1

    timings = interleave({"a": lambda: count("a"), "b": lambda: count("b")}, rounds=5)
    assert calls == {"a": 12, "b": 6}
    assert set(timings) == {"a", "b", "a" + AGAIN}
    assert all(t.low <= t.median <= t.high and t.rounds == 5 for t in timings.values())
    assert noise_floor(timings) >= 1
    interleave({"a": lambda: count("a"), "a" + AGAIN: lambda: count("b")}, rounds=2)
    assert calls == {"a": 15, "b": 9}  # the second one may be given


def test_a_program_is_called_several_times_in_its_turn():
    log, now = [], [0.0]

    def run(name, seconds):
        log.append(name)
        now[0] += seconds

    programs = {"a": lambda: run("a", 3.0), "b": lambda: run("b", 5.0)}
    timings = interleave(programs, rounds=3, calls=4, warm=False, clock=lambda: now[0])
    assert {name: timing.median for name, timing in timings.items()} == {"a": 3.0, "b": 5.0, "a" + AGAIN: 3.0}
    turns = [log[n : n + 4] for n in range(0, len(log), 4)]
    assert all(len(set(turn)) == 1 for turn in turns)
    assert sorted(turn[0] for turn in turns) == [*"aaaaaabbb"]  # the first has two turns a round
    assert [in_a_row(seconds) for seconds in (1e-6, 200e-6, 700e-6, 2.0)] == [20, 5, 1, 1]


def test_a_program_with_fewer_rounds_sits_out_at_random():
    log = []
    programs = {name: lambda name=name: log.append(name) for name in "abc"}
    timings = interleave(programs, rounds={"a": 40, "b": 6, "c": 0}, warm=False)
    assert log.count("a") == 80
    assert log.count("b") == timings["b"].rounds == 6
    assert "c" not in log
    assert "c" not in timings
    rounds = [n for n, name in enumerate(log) if name == "b"]
    assert rounds[-1] - rounds[0] > 20  # spread over the rounds, not at their start


def test_laps_are_found_by_number_of_the_round():
    found = laps({"a": lambda: 1.0, "b": lambda: 2.0}, lambda run: (run(),), rounds={"a": 9, "b": 4})
    assert found["a"] == found["a" + AGAIN] == dict.fromkeys(range(1, 10), (1.0,))
    assert len(found["b"]) == 4
    assert found["b"].keys() < found["a"].keys()


def test_quartiles_are_within_what_was_found():
    two = Timing.of([1.0, 10.0])
    assert (two.low, two.median, two.high) == (3.25, 5.5, 7.75)
    assert (Timing.of([4.0]).low, Timing.of([4.0]).high) == (4.0, 4.0)


def test_what_is_slow_is_repeated_where_that_takes_not_long():
    taken = {"ours": 1e-3, "slow": 0.4, "slower": 0.6}
    assert [allot(taken, 0.2)[name] for name in ("slow", "slower")] == [0, 0]
    assert [allot(taken, 0.2, short=0.5)[name] for name in ("slow", "slower")] == [3, 0]
    all_slow = {"ours": 0.1, "close": 0.12, "slow": 0.4, "slower": 0.6}
    assert list(allot(all_slow, 0.2, short=0.5).values()) == [3, 3, 3, 0]


def test_rounds_are_given_where_precision_matters():
    given = allot({"ours": 1e-3, "peer": 1.1e-3, "slower": 6e-3, "slow": 0.02, "hopeless": 1.0}, 1.0)
    assert given["ours"] == given["peer"] > 50
    assert given["ours"] > given["slower"] > given["slow"] >= 5
    assert given["hopeless"] == 0
    long = allot({"ours": 1.0, "close": 1.2, "far": 2.0}, 2.0)
    assert long == {"ours": 3, "close": 3, "far": 0}
    assert allot({"ours": 1.0, "close": 1.2, "far": 2.0}, 2.0, always=["far"])["far"] == 3
    assert set(allot({"ours": 1e-6, "peer": 1e-6}, 2.0).values()) == {200}
    assert allot({"ours": 1e-3, "dense": 1e-5}, 1.0, reference=1e-3)["ours"] == 200


def test_what_prepares_itself_is_run_twice_before_it_counts(monkeypatch):
    clock = iter([0.0, 5.0, 5.0, 6.0, 6.0, 7.0])
    monkeypatch.setattr("benchmarks.measuring.timing.time.perf_counter", lambda: next(clock))
    assert once({"a": lambda: None, "b": lambda: None}, twice=["a"]) == {"a": 1.0, "b": 1.0}


@pytest.mark.parametrize("training", [True, False])
def test_a_point_is_measured(monkeypatch, training):
    """With stand-ins for strategies and candidates."""

    class Layer(tnt.Linear):
        def __init__(self, *args, strategy, **options):
            super().__init__(*args, **options)

    def candidates(self, way, batch, training):
        return [
            SimpleNamespace(name=n, seconds=1.0, flops=2.0, bytes=3.0, peak=p)
            for n, p in (("x", 4), ("y", 1e12))
        ]

    monkeypatch.setattr(torch_programs, "_Bare", Layer)
    monkeypatch.setattr(tn.Linear, "candidates", candidates, raising=False)
    point = Point("tucker", "low", (16, 12, 10), "mixed", 3, training)
    found = planner.measure(point, torch_programs.programs, 0.05)
    names = {
        "tnshare",
        "tnshare" + AGAIN,
        "tnshare auto",
        "own: x",
        "authors",
        "einsum",
        "opt_einsum",
        "dense",
    }
    assert names <= found["medians"].keys() == found["rounds"].keys()
    assert found["skipped"].keys() == {"own: y"}
    assert found["own"]["own: x"] == {"seconds": 1.0, "flops": 2.0, "bytes": 3.0, "peak": 4.0}
    assert verdicts.noise(found) >= 1
    assert Point.read(json.loads(json.dumps(found))) == point


@pytest.mark.parametrize("way", ["mixed", "each"])
def test_a_point_is_measured_with_its_own_candidates(monkeypatch, tmp_path, way):
    monkeypatch.setenv("TNSHARE_CACHE", str(tmp_path))
    point = Point("tt", "low", (16, 12, 10), way, 3, way == "mixed")
    found = planner.measure(point, torch_programs.programs, 0.01)
    assert 1 <= sum(name.startswith("own: ") for name in found["medians"]) <= 6
    assert len(found["own"]) <= 6


@pytest.mark.parametrize(("way", "training"), [("mixed", False), ("one", True)])
def test_what_is_timed_in_jax_runs(way, training):
    point = Point("laf", "low", (16, 12, 10), way, 3, training)
    made = jax_programs.programs(point)
    names = {"tnshare", "tnshare" + AGAIN, "tnshare auto", "by hand: input first", "authors", "dense", EMPTY}
    assert names <= made.run.keys()
    assert next(iter(made.run)) == "tnshare"
    with jax.disable_jit():
        for run in made.run.values():
            y = run()
            assert (y[0] if training else y).shape == (3, 12)
        if training:  # the gradients of one loss, which is not the sum
            ours, theirs = (jax.tree.leaves(made.run[n]()) for n in ("tnshare", "by hand: input first"))
            for a, b in zip(ours, theirs, strict=True):
                close(a, b, TERMS)
            empty = jax.tree.leaves(made.run[EMPTY]())
            assert [a.shape for a in empty] == [a.shape for a in ours]
            weights = jax_programs._weights(point)
            assert float(abs(weights - 1).min()) > 0


def test_programs_that_are_compiled_to_the_same_are_found():
    x = np.ones((3, 2), np.float32)
    twice = [jax_programs.Compiled(lambda a, b=b: jax.numpy.sin(a @ b)) for b in (x.T, x.T, 2 * x.T)]
    made = Programs(run=dict(zip(("tnshare", "einsum", "dense"), twice, strict=True)) | {"other": print})
    for program in twice:
        program.operands = (x,)
    assert made.same == ["einsum"]
    assert Programs(run={"tnshare": print}).same == []


def test_the_peak_of_a_function_is_what_it_allocates():
    found, how = peak_memory(lambda: torch.ones(2**22).sum())
    assert how
    assert 0.9 * 2**24 < found < 1.5 * 2**24
