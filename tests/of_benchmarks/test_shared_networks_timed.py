"""The plain ways that shared networks are timed against train the same networks; goals can be missed."""

from __future__ import annotations

import copy

import pytest
import tnshare_torch as tnt
import torch
from tolerances import close

from benchmarks.measuring import records, result_files
from benchmarks.showing import citing
from benchmarks.suites import lenets, shared_networks


@pytest.fixture(scope="module")
def nets():
    torch.manual_seed(0)
    made = tnt.replicate(lenets.LeNet(), lenets.TASKS)
    with torch.no_grad():
        for parameter in (p for net in made for p in net.parameters()):
            parameter.add_(0.01 * torch.randn_like(parameter))
    return made


def test_the_plain_ways_compute_the_same(nets):
    xs = torch.randn(lenets.TASKS, 2, 1, 28, 28)
    expected = torch.stack([net(x) for net, x in zip(nets, xs, strict=True)])
    assert expected.shape == (lenets.TASKS, 2, 1)
    close(lenets.Grouped(nets)(xs), expected, 800 + 25 * 20 + 500)


def test_every_way_takes_a_step_and_leaves_the_given_networks(nets):
    xs = torch.randn(lenets.TASKS, 2, 1, 28, 28)
    targets = torch.ones(lenets.TASKS, 2)
    before = copy.deepcopy([net.state_dict() for net in nets])
    ways = lenets.plain_ways(nets, xs, targets)
    assert list(ways) == ["loop", shared_networks.SUM, "vmap", "grouped convolutions"]
    for run in ways.values():
        run()
    shared = tnt.share(nets, "laf", ranks=1)
    weights = [p.detach().clone() for p in shared.parameters()]
    shared_networks.shared_step(shared, xs, targets)()
    assert any(not torch.equal(a, b) for a, b in zip(weights, shared.parameters(), strict=True))
    for net, state in zip(nets, before, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())


def test_batches_are_one_digit_against_the_others():
    ((xs, targets),) = lenets.batches(1)
    assert xs.shape == (10, 60, 1, 28, 28)
    assert set(targets.unique().tolist()) == {-1.0, 1.0}
    assert 0.02 < float((targets == 1).float().mean()) < 0.2
    scores = torch.tensor([[[2.0]], [[-2.0]]])
    assert float(lenets.hinge(scores, torch.ones(2, 1))) == 3.0


def result(seconds=1.2, peak=1.05, conversion=1.1, times=5.5):
    def row(way, seconds, peak):
        return {"way": way, "seconds": seconds, "peak": peak, "beyond": peak}

    rows = [row("loop", 1.0, 0.5), row(shared_networks.SUM, 1.1, 1.0), row("shared, tucker", seconds, peak)]
    mixed = [{"way": shared_networks.LOOP, "/ mixed": times}]
    conversions = [{"method": "tucker", "share / SVDs": conversion}]
    return {"steps": rows, "conversions": conversions, "mixed": mixed}


def holds(**given):
    return [row["holds"] for row in shared_networks.verdicts(result(**given))]


def test_goals_can_be_met_and_missed():
    assert holds() == [True, True, None, True, True]
    assert holds(seconds=1.26) == [False, True, None, True, True]
    assert holds(peak=1.11) == [True, False, None, True, True]
    assert holds(conversion=1.21) == [True, True, None, False, True]
    assert holds(times=4.9) == [True, True, None, True, False]


def test_rows_of_mixed_tasks_are_compared_with_a_loop(monkeypatch):
    monkeypatch.setattr(shared_networks, "keep_memory", lambda: "")
    loop, mixed = shared_networks.mixed(1)
    assert (loop["way"], mixed["way"], mixed["/ mixed"]) == (shared_networks.LOOP, "mixed", 1)
    assert min(loop["forward"], loop["backward"], mixed["forward"], mixed["backward"]) > 0


def test_a_part_alone_is_a_result_alone(monkeypatch, tmp_path):
    monkeypatch.setattr(shared_networks, "trained", lambda: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda threads: None)
    for part, rows in result().items():
        monkeypatch.setattr(shared_networks, part, lambda *given, rows=rows: rows)
    monkeypatch.setattr(records, "commit", lambda: {"commit": "a" * 40, "dirty": False})
    (tmp_path / "share.json").write_text("cited")
    for arguments in ([], ["--part", "mixed"]):
        shared_networks.main([*arguments, "--rounds", "7", "--results", str(tmp_path)])
    whole = result_files.read_suites(tmp_path / "share-aaaaaaaaaaaa.json")
    assert list(whole["suites"]) == ["share: steps", "share: conversions", "share: mixed", "share: verdicts"]
    assert whole["settings"] == {"threads": 1, "rounds": 7}
    part = result_files.read_suites(tmp_path / "share-aaaaaaaaaaaa-2.json")
    assert part["suites"] == {"share: mixed": result()["mixed"]}
    assert citing.facts(whole) == {}
    assert (tmp_path / "share.json").read_text() == "cited"
