"""Two checkouts are compared by what their planners decide and by their times; a difference is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks import grid
from benchmarks.measuring.checkouts import checkout, run_in
from benchmarks.planner import decisions
from benchmarks.suites import two_checkouts
from tnshare import Linear, TnshareError
from tnshare.planning import WAYS

ROOT = Path(__file__).resolve().parents[2]
POINTS = [
    grid.Point("laf", "low", (8, 6, 5), "mixed", 4, True),
    grid.Point("tt", "low", (16, 6, 5), "each", 4, False),
]


def written(path):
    decisions.write(path, POINTS)
    return decisions.read(path)


def other_planner(home):
    """A checkout whose planner prefers the worst, for rows of mixed tasks."""
    shutil.copytree(ROOT / "tnshare", home / "tnshare", ignore=shutil.ignore_patterns("__pycache__"))
    (home / "backends").symlink_to(ROOT / "backends")
    with (home / "tnshare" / "__init__.py").open("a") as file:
        file.write(
            "\nfrom tnshare.layers import Linear as _Linear\n_found = _Linear.candidates\n"
            "_Linear.candidates = lambda self, way, *a, **k: "
            "_found(self, way, *a, **k)[:: -1 if way == 'mixed' else 1]\n"
        )
    return home


def test_the_grid_has_all_ways():
    assert grid.WAYS == WAYS


def test_everything_that_is_decided_is_compared(tmp_path, monkeypatch):
    before = written(tmp_path / "before")
    assert decisions.differences(before, written(tmp_path / "again")) == {}
    assert len(before) == len(POINTS) * len(decisions.DEVICES)
    found = Linear.candidates

    def others(self, way, batch, **given):
        return found(self, way, batch, **given)[:: -1 if way == "mixed" else 1]

    monkeypatch.setattr(Linear, "candidates", others)
    after = written(tmp_path / "after")
    differs = decisions.differences(before, after)
    assert differs["name"] == [(str(POINTS[0]), device) for device in decisions.DEVICES]
    assert {"name", "seconds", "code", "candidates"} <= differs.keys()
    assert differs.keys().isdisjoint({"traced", "jax"})
    text = decisions.summary(before, after, differs, most=1)
    assert text.startswith("compared: 6 decisions")
    assert text.count("before:") == len(differs)


@pytest.mark.parametrize("field", decisions.FIELDS)
def test_one_changed_thing_is_found(field, tmp_path):
    before = written(tmp_path / "before")
    (key, *_) = before
    after = {**before, key: {**before[key], field: "another"}}
    assert decisions.differences(before, after) == {field: [key]}


def test_times_may_be_summed_in_another_order_and_points_may_not_be_lost(tmp_path):
    before = written(tmp_path / "before")
    (key, *others) = before
    seconds = before[key]["seconds"]
    assert (
        decisions.differences(before, {**before, key: {**before[key], "seconds": seconds * (1 + 1e-12)}})
        == {}
    )
    less = {other: before[other] for other in others}
    assert decisions.differences(before, less) == {"only one side has the point": [key]}


def test_another_planner_is_found_from_its_checkout(tmp_path, capfd):
    given = ["--only", "^laf low .*64->64 T=1000 .* B=16 training", "--unseen", "1"]
    other = other_planner(tmp_path)
    command.main(["decisions", str(ROOT), str(ROOT), *given])
    assert "compared: 12 decisions" in capfd.readouterr().out
    with pytest.raises(SystemExit, match="the two sides decide differently"):
        command.main(["decisions", str(ROOT), str(other), *given])
    told = capfd.readouterr().out
    assert "name     " in told
    assert all(" mixed " in line for line in told.splitlines() if line.startswith("name: "))


def test_a_file_of_decisions_stands_for_a_checkout(tmp_path, capsys):
    path = tmp_path / "before.jsonl"
    written(path)
    command.main(["decisions", str(path), str(path)])
    assert "(nothing)" in capsys.readouterr().out
    path.write_text("{}")
    with pytest.raises(SystemExit, match=r"before\.jsonl must be a file of decisions"):
        command.main(["decisions", str(path), str(path)])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["decisions", "nowhere", "nowhere"], "must be the folder of a checkout, or a file of --write"),
        (["decisions"], "give two checkouts (or files) to compare, or none and --write"),
        (["compare", "tests", "tests"], "must be the folder of a checkout of tnshare: found tests"),
    ],
)
def test_what_is_no_checkout_is_refused(given, told, monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit):
        command.main(given)
    assert told in capsys.readouterr().err


def test_programs_run_with_the_tnshare_of_a_checkout(tmp_path):
    other = other_planner(tmp_path)
    assert checkout(str(other)) == other
    code = "import benchmarks, tnshare; print(benchmarks.__path__[0]); print(tnshare.__file__)"
    mine, theirs = run_in(other, "-c", code).splitlines()
    assert Path(mine).name == "benchmarks"
    assert Path(mine).parent != ROOT
    assert theirs == str(other / "tnshare" / "__init__.py")
    with pytest.raises(TnshareError, match="ZeroDivisionError"):
        run_in(other, "-c", "1 / 0")


def test_times_of_two_checkouts_are_compared_with_their_noise():
    def rounds(*factors):
        return [{("plan", "a"): 1.0 * f, ("plan", "b"): 2.0 * f, ("call", "a"): 3.0} for f in factors]

    plan, call, every = two_checkouts.compared(rounds(1, 1.02), rounds(1.1, 1.122))
    assert (plan["group"], plan["points"], plan["after / before"]) == ("plan", 2, "1.100")
    assert (plan["noise, before"], plan["noise, after"], plan["beyond noise"]) == ("1.020", "1.020", True)
    assert (call["after / before"], call["beyond noise"]) == ("1.000", False)
    assert (every["points"], every["after / before"]) == (3, f"{1.1 ** (2 / 3):.3f}")
    faster = two_checkouts.compared(rounds(1, 1.02), rounds(0.9, 0.9))
    assert faster[0]["beyond noise"] is True
    (alone, *_) = two_checkouts.compared(rounds(1), rounds(1.1))
    assert (alone["noise, before"], alone["beyond noise"]) == (None, None)


def test_both_checkouts_are_measured_in_turns_and_a_stopped_comparison_goes_on(monkeypatch, capsys, tmp_path):
    asked = []

    def answered(where, *arguments):
        asked.append((where.name, arguments[1].split("report(")[1].split(",")[0]))
        return json.dumps([["plan", "a", 1.0 if where.name == ROOT.name else 2.0]])

    monkeypatch.setattr(two_checkouts, "checkout", Path)
    monkeypatch.setattr(two_checkouts, "run_in", answered)
    given = ["compare", str(ROOT), "other", "--keep", str(tmp_path / "kept.jsonl")]
    command.main([*given, "--rounds", "8"])
    firsts = {side for side, _ in asked[::2]}
    assert firsts == {ROOT.name, "other"}  # who is first changes
    assert len(asked) == 8 * 2 * 2
    assert "plan   1       2.000" in capsys.readouterr().out
    command.main([*given, "--rounds", "9"])
    assert len(asked) == 9 * 2 * 2
    assert "plan   1       2.000" in capsys.readouterr().out


def test_points_of_both_kinds_are_measured():
    found = two_checkouts.measured(ROOT, "overheads", "^(cached )?plan: laf .* 'one'|^plan: tt", 1)
    assert found
    assert {group for group, _ in found} <= {"plan", "cached plan"}
    assert all(seconds > 0 for seconds in found.values())
    mixed = two_checkouts.measured(ROOT, "share", "mixed", 1)
    assert len(mixed) == 4
    assert {group for group, _ in mixed} == {"share: mixed"}
