"""The verdicts on what was measured can pass and fail, and results are kept."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from benchmarks.grid import Point
from benchmarks.measuring.records import Records, commit, label, machine
from benchmarks.measuring.timing import AGAIN
from benchmarks.planner import __main__ as planner
from benchmarks.planner import planner_report, verdicts
from benchmarks.planner.contestants import EMPTY
from benchmarks.showing import citing


def row(ours=1e-3, again=None, level="low", method="tucker", half=True, **peers):
    """A made measurement: medians in seconds, by the start of the name."""
    names = {"hand": "by hand: outer", "own": "own: a", "auto": "tnshare auto"}
    medians = {"tnshare": ours, "tnshare" + AGAIN: ours if again is None else again}
    medians |= {names.get(k, k): v for k, v in peers.items()}
    point = Point(method, level, (64, 64, 10), "each", 16, True)
    own = {"own: a": {"flops": 1.0 if half else 1e12, "bytes": 1.0}}
    return {**asdict(point), "suite": "torch", "name": str(point), "medians": medians, "own": own}


VERDICTS = {
    "the best by hand: within 1.10": ({"hand": 1e-3 / 1.09}, {"hand": 1e-3 / 1.12}),
    "the best by hand: within 1.3": ({"hand": 1e-3 / 1.29}, {"hand": 1e-3 / 1.32}),
    "the best by hand: at most 1.00": ({"hand": 1.01e-3}, {"hand": 0.99e-3}),
    "the best own candidate": ({"own": 1e-3 / 1.04}, {"own": 1e-3 / 1.06}),
    "the authors: never": ({"authors": 1.01e-3}, {"authors": 0.99e-3}),
    "the authors: 10 times": ({"authors": 1.01e-2}, {"authors": 0.99e-2}),
    "the authors: 2.5 times": (
        {"authors": 2.6e-3, "method": "laf"},
        {"authors": 2.4e-3, "method": "laf"},
    ),
    "opt_einsum: never": ({"opt_einsum": 1e-3}, {"opt_einsum": 0.9e-3}),
    "opt_einsum: 1.5": ({"opt_einsum": 1.6e-3}, {"opt_einsum": 1.4e-3}),
    "torch.einsum: never": ({"einsum": 1e-3}, {"einsum": 0.9e-3}),
    "torch.einsum: 1.5": ({"einsum": 1.6e-3}, {"einsum": 1.4e-3}),
    "dense": ({"dense": 1.1e-3}, {"dense": 0.9e-3}),
}


@pytest.mark.parametrize("claim", VERDICTS)
def test_every_verdict_on_the_grid_can_hold_and_fail(claim):
    def judged(rows):
        (found,) = (v for v in verdicts.grid(rows, "torch") if v.claim.startswith(claim))
        return found

    good, bad = VERDICTS[claim]
    assert judged([row(**good)] * 3).holds is True
    failed = judged([row(**bad)] * 3)
    assert failed.holds is False
    assert "tucker low 64->64 T=10 each B=16 training" in failed.worst[0].replace("laf", "tucker")
    assert judged([]).holds is None
    noisy = judged([row(**bad, again=1.2e-3)] * 3)
    assert noisy.holds is True  # limits are multiplied by the noise floor


def test_shares_levels_and_plans_that_are_no_half_of_dense_are_told_apart():
    rows = [row(hand=1e-3)] * 19 + [row(hand=0.8e-3)]
    found = {v.claim: v for v in verdicts.grid(rows, "torch")}
    assert found["the best by hand: within 1.10 at 95 %"].holds
    assert not {v.claim: v for v in verdicts.grid(rows[1:], "torch")}[
        "the best by hand: within 1.10 at 95 %"
    ].holds
    high = {v.claim: v.points for v in verdicts.grid([row(authors=1e-3, level="high")], "torch")}
    assert high["the authors: never slower"] == 1
    assert high["the authors: 10 times faster, Tucker and TT, low ranks"] == 0
    assert verdicts.grid([row(dense=1e-4, half=False)], "torch")[-1].holds is None


def test_the_verdicts_on_unseen_shapes_and_overheads_can_hold_and_fail():
    near, far = row(auto=1e-3, own=0.9e-3), row(auto=1e-3, own=0.5e-3)
    assert verdicts.unseen([near] * 9 + [far])[0].holds
    assert not verdicts.unseen([near] * 8 + [far] * 2)[0].holds

    def judged(call, plan, cached, again):
        rows = [{"kind": "call", "name": "c", "seconds": call, "noise": 1.0}]
        rows += [{"kind": "plan", "name": "p", "seconds": plan}]
        rows += [{"kind": "cached plan", "name": "p", "seconds": cached}]
        rows += [{"kind": "one task again", "name": "o", "seconds": again, "dense": 1e-4, "noise": 1.0}]
        return [v.holds for v in verdicts.overheads(rows)]

    assert judged(14e-6, 0.049, 0.9e-3, 124e-6) == [True] * 4
    assert judged(16e-6, 0.051, 1.1e-3, 126e-6) == [False] * 4
    assert [v.holds for v in verdicts.overheads([])] == [None] * 4


def test_a_run_goes_on_where_it_stopped_and_a_damaged_line_is_measured_again(tmp_path):
    path = tmp_path / "planner.jsonl"
    calls = []

    def job(name, fails=False):
        def measure():
            calls.append(name)
            if fails:
                raise ValueError(f"a path, say {tmp_path}")
            return {"medians": {}}

        return name, measure

    planner.run("torch", [job("a"), job("b")], Records(path), 2.0)
    path.write_text(path.read_text()[:-9])  # cut short within the last line
    planner.run("torch", [job("a"), job("b"), job("c", fails=True)], Records(path), 2.0)
    assert calls == ["a", "b", "b", "c"]
    assert [json.loads(line)["name"] for line in path.read_text().splitlines()] == ["a", "b", "c"]
    assert str(tmp_path) not in path.read_text()
    planner.run("torch", [job("a"), job("b"), job("c")], Records(path), 2.0)
    assert calls == ["a", "b", "b", "c", "c"]
    assert [("error" in r) for r in Records(path).of("torch", 2.0)] == [False] * 3
    planner.run("jax", [job("a")], Records(path), 2.0)
    assert calls[-1] == "a"
    planner.run("torch", [job("b")], Records(path), 0.1)  # fewer rounds than were asked for before
    assert calls[-1] == "b"


def result(head, rows, **others):
    about = {"commit": {"commit": head * 40, "dirty": False}, "machine": machine()}
    return {**about, "settings": {"threads": 1, "seconds": 2.0}, "suites": {"torch": rows, **others}}


def test_every_run_has_files_of_its_own(tmp_path):
    rows = [row(hand=1e-3, authors=1e-2, own=1e-3, dense=5e-3), row(ours=4e-5, hand=3e-5)]
    failed = {"suite": "torch", "name": "lost", "error": "ValueError"}
    data, table = tmp_path / "planner-aaaaaaaaaaaa.json", tmp_path / "planner-aaaaaaaaaaaa.md"
    assert (
        planner_report.write(tmp_path, result("a", [*rows, failed])) == f"wrote {data.name} and {table.name}"
    )
    first = table.read_text()
    assert "torch: 1 points of 50 us or more" in first
    assert "torch: 1 points under 50 us, apart" in first
    assert "- lost: ValueError" in first
    assert json.loads(data.read_text())["suites"]["torch"][0]["medians"]
    said = planner_report.write(tmp_path, result("a", rows))
    assert said == "wrote planner-aaaaaaaaaaaa-2.json and planner-aaaaaaaaaaaa-2.md"
    planner_report.write(tmp_path, result("b", rows[:1]))
    assert table.read_text() == first
    names = ("planner-aaaaaaaaaaaa", "planner-aaaaaaaaaaaa-2", "planner-bbbbbbbbbbbb")
    assert {p.name for p in tmp_path.iterdir()} == {f"{n}.{end}" for n in names for end in ("json", "md")}
    data.rename(tmp_path / "planner.json")
    planner.main(["--report", "--results", str(tmp_path)])
    assert (tmp_path / "planner.md").read_text() == first


def test_points_in_jax_have_a_file_of_their_own_and_say_what_runs_untuned(tmp_path):
    rows = [row(hand=1e-3, own=1e-3)]
    rows[0]["medians"]["tnshare auto"] = 2e-3
    stem = "planner-jax-aaaaaaaaaaaa"
    said = planner_report.write(tmp_path, result("a", [], jax=rows), "planner-jax")
    assert said == f"wrote {stem}.json and {stem}.md"
    table = (tmp_path / f"{stem}.md").read_text()
    (first,) = (line for line in table.splitlines() if line.startswith("| untuned: within 1.25"))
    assert "0.0%, worst 2.00" in first
    assert "**fails**" in first
    assert "untuned: the best by hand" in table
    assert "untuned" not in planner_report.markdown(result("a", rows))
    (tmp_path / f"{stem}.json").rename(tmp_path / "planner-jax.json")
    planner.main(["--report", "--backend", "jax", "--results", str(tmp_path)])
    assert (tmp_path / "planner-jax.md").read_text() == table
    assert not (tmp_path / "planner.json").exists()


def test_what_missed_a_limit_is_measured_again_and_may_keep_it_then(tmp_path, monkeypatch):
    first = list(planner.grid.points(True))[:3]
    times = [{"opt_einsum": 2e-3}, {"opt_einsum": 0.9e-3}, {"opt_einsum": 0.8e-3}]
    rows = [{**row(**t), **asdict(p), "name": str(p)} for p, t in zip(first, times, strict=True)]
    assert verdicts.missed(rows, "torch") == {str(first[1]), str(first[2])}

    kept = Records(tmp_path / "kept.jsonl")
    monkeypatch.setattr(planner.records, "kept_in", lambda *_: kept)
    for each in rows:
        kept.add({**each, "suite": "torch", "budget": 1.0})
    asked = []

    def measure(point, make, seconds):
        asked.append((str(point), seconds))
        ratio = 1.1 if point == first[1] else 0.8
        return {"medians": {"tnshare": 1e-3, "tnshare" + AGAIN: 1e-3, "opt_einsum": ratio * 1e-3}, "own": {}}

    monkeypatch.setattr(planner, "measure", lambda p, *rest: {**asdict(p), **measure(p, *rest)})
    planner.main(["--misses", "--quick", "--seconds", "1", "--results", str(tmp_path)])
    assert asked == [(str(first[1]), 4.0), (str(first[2]), 4.0)]
    (table,) = tmp_path.glob("planner-*.md")
    text = table.read_text()
    assert (
        "2 points missed a limit above or below 50 us, some of them by chance. 2 of these were tuned" in text
    )
    assert "for longer, after which 1 miss a limit." in text
    *_, once, again = (line for line in text.splitlines() if line.startswith("| opt_einsum: never slower"))
    assert "33.3%, worst 1.25" in once
    assert "66.7%, worst 1.25" in again
    (data,) = tmp_path.glob("planner-*.json")
    known = citing.facts(json.loads(data.read_text()))
    assert (known["missed"], known["missed, again"]) == (2, 1)
    faster = "opt_einsum, faster beyond noise"
    assert (known[faster], known[f"{faster}, again"]) == (2, 1)
    with pytest.raises(SystemExit, match="no point has the pattern 'zzz', or missed a limit"):
        planner.main(["--misses", "--only", "zzz", "--results", str(tmp_path)])


def test_points_that_are_mostly_a_call_are_left_out_of_a_second_table():
    kinds = {"hand": 1e-3, "einsum": 1e-3}
    rows = [row(**kinds, **{EMPTY: 0.94e-3}), row(**kinds, **{EMPTY: 0.96e-3}), row(ours=4e-5)]
    assert [verdicts.mostly_call(r) for r in rows] == [False, True, True]
    table = planner_report.markdown(result("a", [], jax=rows))
    assert "## jax: 2 points of 50 us or more" in table
    assert "## jax: 1 of these that take 50 us or more beyond an empty call" in table
    assert "## jax: 1 points under 50 us, apart" in table
    assert "| by hand | again | empty |" in table.replace("einsum | ", "")
    usual = planner_report.markdown(result("a", [row(**kinds)]))
    assert "empty" not in usual


def test_a_peer_that_is_compiled_to_the_same_program_is_as_fast_whatever_the_clock_says():
    same = row(einsum=0.5e-3, hand=0.5e-3) | {"same": ["einsum"]}
    assert [r for _, r in verdicts.ratios([same], "einsum")] == [1.0]
    assert verdicts.noise(same) == pytest.approx(2.0)  # it is the same program, timed once more
    assert verdicts.noise(row(einsum=0.5e-3)) == 1.0
    assert [r for _, r in verdicts.ratios([same], "by hand: ")] == [2.0]
    same["medians"]["by hand: input first"] = 0.4e-3
    same["same"] = ["by hand: outer"]
    assert [r for _, r in verdicts.ratios([same], "by hand: ")] == [pytest.approx(2.5)]
    text = (
        "a peer is compiled to the very same program as tnshare: opt_einsum at 0, einsum at 0, by hand at 1."
    )
    assert text in planner_report.markdown(result("a", [], jax=[same]))


@pytest.mark.parametrize("backend", ["torch", "jax"])
def test_documents_cite_the_planners_points_of_either_framework(backend):
    rows = [row(hand=0.5e-3, einsum=2e-3), row(hand=2e-3, einsum=0.5e-3), row(ours=1e-6, hand=1e-9)]
    rows[1]["same"] = ["einsum"]
    found = citing.facts({"suites": {backend: rows}})
    assert found["points"] == 2
    assert found["by hand"] == pytest.approx(1.0)
    assert (found["by hand, worst"], found["by hand, over 1.1, %"]) == (2.0, 50.0)
    assert found["einsum"] == pytest.approx(2**0.5)
    assert (found["einsum, the same program"], found["einsum, faster beyond noise"]) == (1, 0)
    assert found["einsum, by the fastest of all"] == pytest.approx(2.0)
    assert citing.facts({"rows": []}) == {}


def test_how_far_einsum_can_be_outdone_is_the_fastest_of_all_programs():
    rows = [row(hand=0.5e-3, einsum=1e-3, dense=1e-5, **{EMPTY: 1e-6}), row(hand=2e-3, einsum=2e-3)]
    assert [verdicts.fastest(r, "einsum") for r in rows] == [0.5e-3, 1e-3]
    assert verdicts.fastest(rows[0], "opt_einsum") is None
    said = "The fastest of all programs of a point, dense weights apart, is 2.00 times faster than einsum."
    assert said in planner_report.markdown(result("a", rows))
    assert "The fastest of all" not in planner_report.markdown(result("a", [row()]))


def test_what_is_said_about_the_machine_names_nobody():
    said = json.dumps([machine(), commit()])
    assert label({"commit": "c" * 40, "dirty": True, "digest": "d"}) == "cccccccccccc-dirty-d"
    assert not any(word in said for word in (str(Path.home()), str(Path.cwd()), "hostname"))
