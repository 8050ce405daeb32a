"""What the command lines of the benchmarks take, and what they say of the rest."""

from __future__ import annotations

import argparse
import os
from contextlib import suppress

import pytest

from benchmarks import __main__ as command_line
from benchmarks.measuring import options
from benchmarks.measuring.empty_cache import own_cache
from benchmarks.paper import __main__ as paper
from benchmarks.planner import __main__ as planner
from benchmarks.planner import profile_errors
from benchmarks.suites import FULL, shared_networks
from tnshare.planning.devices import _cache_folder as store


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (options.positive, "0.5", 0.5),
        (options.gibibytes, "0.5", 0.5),
        (options.share, "1", 1.0),
        (options.error, "0", 0.0),
        (options.count, "3", 3),
        (options.seed, "0", 0),
        (options.threads, "1", 1),
        (options.device, "cuda:1", "cuda:1"),
        (options.ranks, "8,8,4", (8, 8, 4)),
        (options.pattern, "^laf", "^laf"),
    ],
)
def test_what_makes_sense_is_taken(kind, text, value):
    assert kind(text) == value


@pytest.mark.parametrize(
    ("kind", "texts", "told"),
    [
        (options.positive, ["0", "-1", "nan", "inf", "x", ""], "a finite number of more than 0: found"),
        (options.gibibytes, ["0", "nan"], "a finite number of more than 0: found"),
        (options.gibibytes, ["1e308"], "at most 1048576 GiB: found 1e308"),
        (options.share, ["0", "1.5", "nan", "x"], "0 < number <= 1: found"),
        (options.error, ["-1", "1", "nan", "x"], "0 <= number < 1: found"),
        (options.count, ["0", "-1", "1.5", "x", "²"], "a whole number of at least 1: found"),
        (options.seed, ["-1", "x"], "a whole number of at least 0: found"),
        (options.seed, ["4294967296"], "less than 2\\^32: found 4294967296"),
        (options.threads, [str((os.cpu_count() or 1) + 1)], "the cores of this machine: found"),
        (options.device, ["tpu", "cuda:", "cuda:x", "cudax"], "one of several as cuda:1: found"),
        (options.ranks, ["", "a", "2,", "2;3", "0"], "a whole number of at least 1: found"),
        (options.pattern, ["("], "a regular expression: found '\\('"),
    ],
)
def test_what_makes_none_is_refused(kind, texts, told):
    for text in texts:
        with pytest.raises(argparse.ArgumentTypeError, match=told):
            kind(text)


@pytest.mark.parametrize(
    ("command", "given", "told"),
    [
        (planner, ["--only", "("], "argument --only: must be a regular expression"),
        (planner, ["--seconds", "nan"], "argument --seconds: must be a finite number"),
        (profile_errors, ["--shapes", "0"], "argument --shapes: must be a whole number of at least 1"),
        (profile_errors, ["--passes", "0"], "argument --passes: must be a whole number of at least 1"),
        (shared_networks, ["--rounds", "0"], "argument --rounds: must be a whole number of at least 1"),
        (paper, ["mnist", "--fractions", "0"], "argument --fractions: must be a number with 0 < number"),
        (paper, ["mnist", "--seeds", "-1"], "argument --seeds"),
        (paper, ["mnist", "--rates", "1e-3"], "of a cross-validation: give --folds too"),
    ],
)
def test_commands_say_which_option_is_wrong(command, given, told, capsys):
    with pytest.raises(SystemExit):
        command.main(given)
    assert told in capsys.readouterr().err


def test_what_cannot_be_done_is_said_without_a_traceback(tmp_path, monkeypatch):
    with pytest.raises(SystemExit, match="error: no method is called 'foo': expected any of STL"):
        paper.main(["mnist", "--methods", "foo", "--results", str(tmp_path), "--work", str(tmp_path)])
    monkeypatch.setenv("TNSHARE_CACHE", "mine")
    with pytest.raises(SystemExit, match="error: no point has the pattern 'zzz'"):
        planner.main(["--only", "zzz", "--results", str(tmp_path)])
    assert os.environ["TNSHARE_CACHE"] == "mine"
    with pytest.raises(SystemExit, match=r"error: planner\.json cannot be read"):
        planner.main(["--report", "--results", str(tmp_path)])
    with pytest.raises(SystemExit, match="error: no device is called 'nope'"):
        profile_errors.main(["--profile", "nope"])


@pytest.mark.parametrize("before", ["mine", None])
def test_a_benchmark_has_a_cache_of_its_own_and_leaves_none(before, monkeypatch):
    if before is None:
        monkeypatch.delenv("TNSHARE_CACHE", raising=False)
    else:
        monkeypatch.setenv("TNSHARE_CACHE", before)
    with suppress(KeyboardInterrupt), own_cache():
        found = store.folder()
        assert found.is_dir()
        raise KeyboardInterrupt
    assert not found.exists()
    assert os.environ.get("TNSHARE_CACHE") == before


def test_every_command_says_how_it_is_called(capsys):
    for name in command_line.COMMANDS:
        with pytest.raises(SystemExit, match="0"):
            command_line.main([name, "--help"])
        assert f"usage: python -m benchmarks {name} " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "name", "rest"),
    [
        ([], "suites", []),
        (["suites", "apply"], "suites", ["apply"]),
        (["apply", "mixed", "--full"], "suites", ["apply", "mixed", "--full"]),
        (["--full"], "suites", ["--full"]),
        (["paper", "mnist"], "paper", ["mnist"]),
    ],
)
def test_a_command_is_given_the_rest_of_the_line(given, name, rest, monkeypatch):
    asked = []
    where = f"benchmarks.{command_line.COMMANDS[name].module}.main"
    monkeypatch.setattr(where, asked.append)
    command_line.main(given)
    assert asked == [rest]


def test_an_unknown_command_is_told_what_there_is(capsys):
    with pytest.raises(SystemExit, match="no command or suite is called 'apples'") as refused:
        command_line.main(["apples"])
    assert all(name in str(refused.value) for name in (*command_line.COMMANDS, *FULL))
    command_line.main(["--help"])
    assert str(refused.value).endswith(capsys.readouterr().out.strip())
