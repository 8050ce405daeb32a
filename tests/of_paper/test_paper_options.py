"""Options of the paper's commands that have no meaning are refused; what commands say when they are done."""

from __future__ import annotations

import json

import pytest
from test_paper_commands import rows_of

from benchmarks.paper import commands
from benchmarks.paper.__main__ import main
from benchmarks.paper.pages import console


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("table1 --methods STL", "table1 has no use for --methods: expected --full, --fractions, --seeds"),
        ("table1 --folds 3", "table1 has no use for --folds: expected --full, --fractions, --seeds"),
        ("ratios --methods STL", "ratios has no use for --methods"),
        ("new-tasks --fractions 0.3", "new-tasks has no use for --fractions: expected --full, --seeds"),
        ("new-tasks --methods STL", "new-tasks has no use for --methods"),
        (
            "mnist-jax --folds 3",
            "mnist-jax has no use for --folds: expected --full, --fractions, --seeds, --methods",
        ),
        ("thousand --folds 3 --rates 1e-3", "thousand has no use for --folds"),
        ("report --full", "report has no use for --full: expected none of these options"),
    ],
)
def test_an_option_that_would_be_ignored_is_refused(given, told, tmp_path):
    with pytest.raises(SystemExit, match=f"error: {told}"):
        main([*given.split(), "--results", str(tmp_path / "r"), "--work", str(tmp_path / "w")])
    assert not list(tmp_path.iterdir())


def test_the_quick_version_of_the_faces_has_a_hundredth_of_them(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(commands, "_run", lambda options, experiment, draws, *_: asked.append(draws))
    for full in (False, True):
        commands.run_adience(commands.Options(full, None, tmp_path / "r", tmp_path / "w"))
    assert asked[0] == [(0.01, 0)]
    assert len(asked[1]) == 50


def test_a_table_of_results_has_no_interval_of_two_seeds(tmp_path):
    rows = rows_of({"STL": [4.0, 5.0, 6.0], "TT": [4.0, 5.0]}) + rows_of({"TT": [1.0]}, 0.1)
    (tmp_path / "it.json").write_text(json.dumps({"runs": rows}))
    lines = console.table(tmp_path / "it.json").splitlines()
    assert [line.split() for line in lines[1:3]] == [
        ["STL", "5.00", "±", "2.48", "(3)"],
        ["TT", "4.50", "(2)", "1.00", "(1)"],
    ]
    assert lines[0].index("10 %") == lines[2].index("1.00")
    assert console.table(tmp_path / "none.json") == "nothing was run"


def test_a_command_says_what_there_is_when_it_is_done(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(commands.table1, "run", lambda *_: None)
    (tmp_path / "table1.json").write_text(json.dumps({"runs": rows_of({"GO-MTL, PCA": [4.0]})}))
    main(["table1", "--results", str(tmp_path), "--work", str(tmp_path)])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["error", "in", "per", "cent", "1", "%"]
    assert lines[1].split() == ["GO-MTL,", "PCA", "4.00", "(1)"]
    page = f"{tmp_path / 'report.html'}, by python -m benchmarks paper report, has tables and figures"
    assert lines[2] == page


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", r"error: mnist\.json must be a file of results, in JSON"),
        ("{}", r"error: mnist\.json must be a file of results with 'runs': found nothing"),
        ('{"protocol": {}, "runs": 1}', "with 'runs': found protocol, runs"),
        (
            '{"protocol": {}, "runs": [{}]}',
            r"error: mnist\.json must have runs with method, fraction, seed: found one",
        ),
    ],
)
@pytest.mark.parametrize("command", ["mnist", "report"])
def test_damaged_results_are_refused_and_left(command, content, told, tmp_path):
    (tmp_path / "mnist.json").write_text(content)
    with pytest.raises(SystemExit, match=told):
        main([command, "--results", str(tmp_path), "--work", str(tmp_path / "work")])
    assert (tmp_path / "mnist.json").read_text() == content
