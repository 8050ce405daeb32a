"""What the benchmarks compare computes the same thing."""

from __future__ import annotations

import pytest
import tnshare_torch as tnt
import torch

from benchmarks import handwritten
from benchmarks.memory import peak_memory
from benchmarks.planner import Point, _authors, points
from benchmarks.timing import AGAIN, interleave, noise_floor


@pytest.mark.parametrize("way", ["one", "mixed", "each", "fan_out"])
@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_what_is_written_by_hand_is_what_tnshare_computes(method, way):
    torch.manual_seed(0)
    point = Point(method, "low", (16, 12, 10), way, 7, True)
    layer = tnt.Linear(16, 12, 10, point.spec, bias=False, dtype=torch.float64)
    factors = list(layer.parameters())
    x = torch.randn((10, 7, 16) if way == "each" else (7, 16), dtype=torch.float64)
    task = {"one": 3, "mixed": torch.randint(10, (7,))}.get(way)
    expected = layer.fan_out(x) if way == "fan_out" else layer(x, task)
    for name, program in handwritten.programs(method, way, factors, x, task).items():
        torch.testing.assert_close(program(), expected, msg=lambda text, name=name: f"{name}: {text}")
    torch.testing.assert_close(_authors(point, factors, x, task), expected)


def test_the_grid_is_the_stated_one():
    assert len(list(points(quick=True))) == 96
    assert len(set(points(quick=False))) == 3 * 2 * 4 * 4 * 4 * 2


def test_every_program_runs_once_a_round_and_the_first_twice():
    calls = {"a": 0, "b": 0}

    def count(name):
        calls[name] += 1

    timings = interleave({"a": lambda: count("a"), "b": lambda: count("b")}, rounds=5)
    assert calls == {"a": 12, "b": 6}
    assert set(timings) == {"a", "b", "a" + AGAIN}
    assert all(t.low <= t.median <= t.high and t.rounds == 5 for t in timings.values())
    assert noise_floor(timings) >= 1


def test_the_peak_of_a_function_is_what_it_allocates():
    found, how = peak_memory(lambda: torch.ones(2**22).sum())
    assert how
    assert 0.9 * 2**24 < found < 1.5 * 2**24
