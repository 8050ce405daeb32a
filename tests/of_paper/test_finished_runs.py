"""Finished runs and the file of results: nothing is lost, each run has its commit."""

from __future__ import annotations

import json
import threading

import pytest

from benchmarks.measuring.records import commit
from benchmarks.paper import collected, finished_runs
from benchmarks.paper.collected import collect
from benchmarks.paper.finished_runs import Runs

CLEAN = {"commit": "c" * 40, "dirty": False}


def run_of(seed, **others):
    return {"method": "STL", "fraction": 0.01, "seed": seed, "protocol": "p", **others}


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path / "work" / "runs.jsonl", tmp_path / "results" / "it.json")


def written(runs):
    return json.loads(runs.results.read_text())


def test_a_run_says_which_commit_it_was_begun_at_and_whether_there_were_changes(runs, monkeypatch):
    monkeypatch.setattr(finished_runs, "commit", lambda: CLEAN)
    begun = Runs(runs.path, runs.results)
    monkeypatch.setattr(finished_runs, "commit", lambda: {"commit": "d" * 40, "dirty": True, "digest": "abc"})
    begun.add(run_of(0))
    Runs(runs.path, runs.results).add(run_of(1))
    first, second = runs.rows()
    assert first == run_of(0, commit="c" * 40)
    assert second == run_of(1, commit="d" * 40, dirty=True, digest="abc")


def test_results_are_rewritten_only_for_a_run_that_they_lack(runs, monkeypatch):
    collect(runs, {"a": 1}, {"p"})
    assert not runs.results.exists()  # nothing was run
    runs.add(run_of(0))
    monkeypatch.setattr(collected, "commit", lambda: CLEAN)
    collect(runs, {"a": 1}, {"p"})
    runs.results.write_text(json.dumps({**written(runs), "note": "by hand"}))
    before = runs.results.read_text()
    monkeypatch.setattr(collected, "commit", lambda: {"commit": "d" * 40, "dirty": False})
    collect(runs, {"a": 1}, {"p"})
    assert runs.results.read_text() == before
    runs.add(run_of(1))
    collect(runs, {"a": 1}, {"p"})
    found = written(runs)
    assert (found["commit"], found["note"]) == ("d" * 40, "by hand")
    assert [row["seed"] for row in found["runs"]] == [0, 1]


def test_runs_of_other_settings_are_not_mixed_in(runs):
    runs.add(run_of(0, protocol="old"))
    collect(runs, {}, {"old"})
    runs.add(run_of(0))
    collect(runs, {}, {"p"})
    assert [row["protocol"] for row in written(runs)["runs"]] == ["p"]


def test_who_collects_slowly_does_not_lose_what_was_collected_meanwhile(runs):
    slow, has_read, other_done = Runs(runs.path, runs.results), threading.Event(), threading.Event()

    def rows():
        found = runs.rows()
        has_read.set()
        other_done.wait(0.5)  # never, as it must wait for us
        return found

    slow.rows = rows
    slow.add(run_of(0))
    first = threading.Thread(target=collect, args=(slow, {}, {"p"}))
    first.start()
    assert has_read.wait(10)
    runs.add(run_of(1))
    collect(runs, {}, {"p"})
    other_done.set()
    first.join()
    assert [row["seed"] for row in written(runs)["runs"]] == [0, 1]
    assert [path.name for path in runs.results.parent.iterdir()] == ["it.json"]


def test_the_commit_is_that_of_this_repository(runs):
    runs.add(run_of(0))
    assert runs.rows()[0]["commit"] == commit()["commit"]
