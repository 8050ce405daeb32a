"""The suites have the points they say, and each kind of job gives a line of results."""

from __future__ import annotations

import json

import pytest
import torch

import tnshare as tn
from benchmarks.case import Case, low_ranks
from benchmarks.measuring.meters import CpuMeter, Program
from benchmarks.measuring.rounds import Measured, measure, spread
from benchmarks.measuring.timing import AGAIN
from benchmarks.peers import in_torch
from benchmarks.peers.common import Programs
from benchmarks.suites import FULL, JAX, QUICK, apply, compose, memory_limits, predicted, roofline, scale
from benchmarks.suites.__main__ import suite_jobs
from tnshare.planning import PROFILES


@pytest.mark.parametrize("suite", FULL)
def test_quick_points_are_among_those_of_the_full_run(suite):
    bench = in_torch.Bench()
    quick = [name for name, _ in suite_jobs(suite, bench, False)]
    full = [name for name, _ in suite_jobs(suite, bench, True)]
    assert quick
    assert len(set(full)) == len(full)
    assert set(quick) <= set(full)
    assert set(JAX) <= set(QUICK) <= set(FULL)


def small(way="mixed", method="tucker", training=True, tasks=6):
    return Case(method, low_ranks(method, 16, 12, tasks), 16, 12, tasks, way, 5, training)


def checked(row):
    assert {"case", "kind", "programs", "noise", "skipped", "facts"} <= row.keys()
    assert json.loads(json.dumps(row)) == row
    for entry in row["programs"].values():
        for part in ("total", "forward", "backward"):
            assert len(entry[part]) == 3
        assert entry["total"][0] > 0
    return row


def test_jobs_give_lines_of_results():
    bench = in_torch.Bench()
    assert checked(compose._measure(bench, small(), False, 0.01))["kind"] == "all tasks"
    assert checked(compose._measure(bench, small(), True, 0.01))["kind"] == "one task"
    assert "dense" in checked(apply._measure(bench, small("each"), 0.01))["programs"]
    mapped = checked(apply._map(bench, small("each"), 0.01))
    assert set(mapped["programs"]) == {"tnshare", "tnshare factored", "tnshare materialised", "dense"}
    assert "LoRA, batched" in checked(scale._measure(bench, small(), 0.01))["programs"]
    limited = checked(
        memory_limits._measure(bench, Case("tucker", (8, 8, 3), 64, 64, 6, "mixed", 64, True), 0.01)
    )
    assert "tnshare within 1/2" in limited["programs"]
    programs = limited["programs"]
    assert programs["tnshare within 1/8"]["peak"] <= programs["tnshare"]["peak"] / 4


def test_limits_of_memory_are_between_the_least_that_works_and_the_peak():
    assert memory_limits.limits(800, 0) == {f"tnshare within 1/{n}": 800 // n for n in (2, 4, 8)}
    assert list(memory_limits.limits(800, 400).values()) == [600, 500, 450]
    assert memory_limits.limits(800, 900) == memory_limits.limits(0, 0) == {}


@pytest.mark.parametrize("way", ["one", "each"])
def test_all_ways_have_a_point_within_a_limit(way):
    bench = in_torch.Bench()
    case = Case("tucker", (8, 8, 3), 64, 64, 6, way, 64, True)
    smallest = memory_limits.least(bench, case)
    row = checked(memory_limits._measure(bench, case, 0.01))
    within = {name: entry["peak"] for name, entry in row["programs"].items() if " within " in name}
    assert len(within) == 3
    assert not [name for name in row["skipped"] if name.startswith("tnshare")]
    assert all(peak < row["programs"]["tnshare"]["peak"] for peak in within.values())
    low = {"below": {"memory_limit": smallest - 1}}
    with pytest.raises(tn.TnshareError, match=f"the smallest that works is {smallest} bytes"):
        bench.apply(case, peers=(), ours=low).run["below"]()


def test_the_roofline_is_that_of_the_same_rounds():
    bench = in_torch.Bench()
    row = checked(roofline._compose(bench, small("one", "laf", False), 0.02))
    facts = row["facts"]
    assert facts["flops"] == 2 * 16 * 12 * 6 * row["case"]["ranks"][0]
    assert facts["bytes"] == 4 * 16 * 12 * 6
    assert facts["rounds"] >= roofline.ROUNDS == 20
    assert row["programs"]["tnshare"]["rounds"] == facts["rounds"]
    assert not [name for name in row["programs"] if name.startswith("machine")]
    assert facts["thin product"] > 0
    assert facts["one after the other"] >= 1
    for name in ("tnshare", "peak flops", "least seconds", "thin product"):
        low, high = facts["quartiles"][name]
        assert low <= (facts | facts["times the least"])[name] <= high
    called = checked(roofline._apply(bench, small("each", training=False), 0.02))["facts"]
    assert called["rounds"] >= 20
    assert called["bound by"] in ("flops", "bytes")
    assert "thin product" not in called


def test_a_time_is_divided_by_the_least_of_the_same_round(monkeypatch):
    """On a machine that is twice as slow in every next round, and all programs with it."""

    def lapped(seconds, rounds=(1, 2, 3)):
        return {n: (seconds * 2.0**n, 0.0) for n in rounds}

    taken = {"tnshare": 3.0, "tnshare" + AGAIN: 3.0, roofline.COPY: 9.0, roofline.PRODUCT: 1e-9}
    rounds = {name: lapped(seconds) for name, seconds in taken.items()}
    rounds |= {roofline.WRITE: lapped(2.0), "einsum": lapped(4.0, [2])}
    found = Measured(rounds, {"slow": (80.0, 0.0)})
    monkeypatch.setattr(roofline, "rounds_of", lambda *given, **options: found)
    made = Programs({name: Program(lambda: None) for name in ("tnshare", "einsum", "slow")})
    row = roofline._row(in_torch.Bench(), made, small("one", "laf", False), "compose", 1, 4, 1, 1.0)
    facts = row["facts"]
    assert facts["times the least"] == {"tnshare": 1.5, "einsum": 2.0, "slow": 10.0}
    assert facts["quartiles"]["tnshare"] == [1.5, 1.5]
    assert facts["quartiles"]["einsum"] == facts["quartiles"]["slow"] == [None, None]
    assert facts["quartiles"]["least seconds"] == [6.0, 12.0]
    assert row["programs"].keys() == {"tnshare", "einsum", "slow"}


@pytest.mark.parametrize(("i", "o", "tasks", "rank"), roofline.LAF)
def test_thin_products_do_the_flops_of_composing_within_a_cache(i, o, tasks, rank, monkeypatch):
    done = []
    monkeypatch.setattr("torch.mm", lambda a, b, out: done.append((a.shape, b.shape, out.numel())))
    roofline.thin(in_torch.Bench(), Case("laf", (rank,), i, o, tasks, "one", 1, False)).forward()
    flops = sum(2 * rows * inner * columns for (rows, inner), (_, columns), _ in done)
    assert flops == pytest.approx(2 * i * o * tasks * rank, rel=0.02)
    assert {inner for (_, inner), _, _ in done} == {rank}
    assert max(numbers for _, _, numbers in done) <= 2**16


def test_what_inference_keeps_is_no_flop_of_a_call():
    case = Case("tucker", (64, 128, 10), 512, 512, 20, "one", 1024, False)
    best = case.layer.candidates("one", 1024, training=False)[0]
    assert best.kept
    assert roofline.flops_of(in_torch.Bench(), case) < best.flops


def test_a_process_of_its_own_tells_its_memory():
    row = checked(memory_limits.process(small(), 0.1))
    facts = row["facts"]
    assert facts["finite"]
    assert 5e7 < facts["of it imports"] <= facts["process bytes"] < 2e9
    assert facts["dense bytes"] == 4 * 16 * 12 * 6


def test_predictions_follow_the_profile():
    case = Case("tucker", (128, 256, 25), 1024, 1024, 100, "each", 64, True)
    slow, fast = (predicted.predict(case, PROFILES[name]) for name in ("laptop", "h100"))
    assert set(slow) == {"tnshare", "tnshare factored", "tnshare materialised", "dense"}
    assert all(slow[name] > fast[name] for name in slow)
    assert slow["tnshare"] == min(slow["tnshare"], slow["tnshare factored"], slow["tnshare materialised"])
    row = checked(predicted._row(case, PROFILES["a100"], 0.1))
    assert row["facts"]["profile"] == "a100"
    assert row["programs"] == {}


def test_the_quick_map_reaches_both_sides_of_breaking_even():
    """By the model, so that it does not depend on what else runs here."""
    predictions = [predicted.predict(case, PROFILES["cpu"]) for case in apply.maps(False)]
    for above, below in (("tnshare materialised", "tnshare factored"), ("dense", "tnshare")):
        ratios = [found[above] / found[below] for found in predictions]
        assert sum(ratio < 0.9 for ratio in ratios) >= 3
        assert sum(ratio > 1.1 for ratio in ratios) >= 10


def test_a_peer_that_raises_is_left_out_and_the_first_is_not():
    def raising():
        raise RuntimeError("no")

    made = Programs({"tnshare": Program(lambda: torch.ones(2)), "peer": Program(raising)})
    row = measure(made, CpuMeter(), 0.01)
    assert set(row["programs"]) == {"tnshare"}
    assert row["skipped"] == {"peer": "raises RuntimeError: no"}
    with pytest.raises(RuntimeError):
        measure(Programs({"tnshare": Program(raising)}), CpuMeter(), 0.01)


def test_medians_quartiles_and_the_noise_floor_are_those_of_the_rounds():
    class Meter(CpuMeter):
        def __init__(self):
            self.laps = 0

        def seconds(self, program):
            self.laps += 1
            return program.forward(), 1.0

    made = Programs({"tnshare": Program(lambda: 1.0), "slower": Program(lambda: 2.0)})
    row = measure(made, Meter(), 40.0, memory=False)
    assert row["noise"] == 1
    assert row["programs"]["slower"]["forward"] == [2.0, 2.0, 2.0]
    assert row["programs"]["slower"]["total"] == [3.0, 3.0, 3.0]
    assert row["programs"]["tnshare"]["backward"] == [1.0, 1.0, 1.0]
    assert row["programs"]["tnshare"]["rounds"] >= 3


class Laps(CpuMeter):
    """Each program is a list of its laps, of which the last goes on."""

    def seconds(self, program):
        own = program.forward()
        return (own.pop(0) if len(own) > 1 else own[0]), 0.0


def scripted(**programs):
    return Programs({name: Program(lambda own=list(laps): own) for name, laps in programs.items()})


def test_a_program_whose_first_laps_are_slow_is_told_by_rounds():
    """As where pages of memory are touched for the first time: the laps of opt_einsum that were seen."""
    made = scripted(tnshare=[8e-3], opt_einsum=[0.0195, 0.0751, 0.1240, 6.5e-3])
    found = measure(made, Laps(), 0.2, memory=False)["programs"]["opt_einsum"]
    assert found["total"] == [6.5e-3] * 3
    assert found["rounds"] == 3
    made = scripted(tnshare=[8e-3], opt_einsum=[0.0195, 0.0751, 0.0992, 6.5e-3])
    assert measure(made, Laps(), 0.2, memory=False)["programs"]["opt_einsum"]["rounds"] >= 5


def test_slow_peers_are_in_rounds_and_what_is_not_has_no_quartiles():
    made = scripted(tnshare=[1e-3], slow=[2.0, 0.4], slower=[0.9, 0.9, 0.6], slowest=[5.0, 1.0])
    row = measure(made, Laps(), 0.2, memory=False)
    found = {name: (entry["rounds"], entry["total"]) for name, entry in row["programs"].items()}
    assert found["slow"] == (3, [0.4, 0.4, 0.4])
    assert found["slower"] == (0, [0.6, None, None])  # the quickest of its first runs
    assert found["slowest"] == (0, [5.0, None, None])  # not run again
    assert spread(row, "slower") == (0.6, 0.6, 0.6)


def test_per_row_lines_of_all_numbers_of_tasks_run_in_the_same_rounds(monkeypatch):
    monkeypatch.setattr(scale, "TASKS", (1, 10, 20, 40))
    monkeypatch.setattr(scale, "LARGE", 16)
    monkeypatch.setattr(scale, "RANKS", {"tucker": (4, 4, 3)})
    row = checked(scale._per_row(in_torch.Bench(), "tucker", 0.01))
    assert set(row["programs"]) == {f"{scale.PER_ROW}, T={t}" for t in (20, 40)}
    assert len({entry["rounds"] for entry in row["programs"].values()}) >= 1
