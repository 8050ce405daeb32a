"""Misuse of the benchmarks' command lines: an exit that says why, and no file is written."""

from __future__ import annotations

from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
from misused import Misuse, catalogue, refused

pytest.importorskip("torch")  # whose random state is looked at

from benchmarks.__main__ import COMMANDS, main

SIZES = ("yours", "--sizes", "i=8,o=4,task=3", "--batch", "4", "--method", "laf", "--ranks", "2")


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> SimpleNamespace:
    for each in COMMANDS.values():  # an import may draw random numbers
        import_module(f"benchmarks.{each.module}")
    path = tmp_path_factory.mktemp("results")
    (path / "damaged.json").write_text("{")
    np.save(path / "flat.npy", np.ones(3))
    np.save(path / "whole.npy", np.ones((2, 3, 4), int))
    (path / "text.npy").write_text("weights")
    return SimpleNamespace(path=path)


def command(*given):
    """A command line; `{path}` is the folder of results."""
    return lambda w: main([part.replace("{path}", str(w.path)) for part in given])


def yours(*given):
    return command("yours", "--batch", "4", "--method", "laf", *given)


def stack(name):
    return yours("--eps", "0.1", "--stack", "{path}/" + name)


LINES = catalogue(*(
    (name, text, call, SystemExit) for name, text, call in (
    ("an unknown command", r"no command or suite is called 'apples': there are", command("apples")),
    ("a command in capitals", r"no command or suite is called 'YOURS'", command("YOURS")),
    ("an empty command", r"no command or suite is called ''", command("")),
    ("an unknown suite", r"no suite for torch is called 'aply': expected imports", command("suites", "aply")),
    ("a suite that JAX has not", r"no suite for jax is called 'conv'|no suite for jax", command("suites", "imports", "--backend", "jax")),
    ("an unknown backend", r"argument --backend: invalid choice: 'tensorflow'", command("suites", "--backend", "tensorflow")),
    ("an unknown device", r"argument --device: .*: found '?tpu", command("suites", "apply", "--device", "tpu")),
    ("0 seconds", r"argument --seconds: must be a finite number of more than 0: found 0", command("suites", "apply", "--seconds", "0")),
    ("NaN seconds", r"argument --seconds: must be a finite number .*: found nan", command("suites", "apply", "--seconds", "nan")),
    ("more threads than cores", r"argument --threads: .*cores of this machine: found 100000", command("suites", "apply", "--threads", "100000")),
    ("half a thread", r"argument --threads: .*: found 0\.5", command("suites", "apply", "--threads", "0.5")),
    ("results in a file", r"argument --results: must be a folder: found '.*damaged\.json', a file", command("suites", "imports", "--results", "{path}/damaged.json")),
    ("yours without sizes", r"--sizes", yours("--ranks", "2")),
    ("yours with sizes too few", r"--sizes must read i=\.\.\.,o=\.\.\.,task=\.\.\..*: found 'i=8'", yours("--ranks", "2", "--sizes", "i=8")),
    ("yours with a size of 0", r"--sizes must read .*: found 'i=0,o=4,task=3'", yours("--ranks", "2", "--sizes", "i=0,o=4,task=3")),
    ("yours with a size twice", r"--sizes must read", yours("--ranks", "2", "--sizes", "i=8,i=8,o=4,task=3")),
    ("yours with ranks in words", r"argument --ranks: must be .*: found", yours("--sizes", "i=8,o=4,task=3", "--ranks", "two")),
    ("yours with ranks too many", r"laf of a linear layer has 1 rank\(s\) \(k\): found \(2, 2\)", yours("--sizes", "i=8,o=4,task=3", "--ranks", "2,2")),
    ("yours with ranks and eps", r"not allowed with argument --ranks", yours("--sizes", "i=8,o=4,task=3", "--ranks", "2", "--eps", "0.1")),
    ("yours with eps=1", r"argument --eps: .*0 <= number < 1: found 1", yours("--eps", "1", "--stack", "{path}/flat.npy")),
    ("yours with a stack of one axis", r"--stack must be a floating array \(in, out, task\).*: found shape \(3,\)", stack("flat.npy")),
    ("yours with a stack of whole numbers", r"--stack must be a floating array .*: found shape \(2, 3, 4\), int64", stack("whole.npy")),
    ("yours with a stack that is a text", r"--stack must be a file of numpy\.save", stack("text.npy")),
    ("yours with a stack that is a folder", r"--stack must be a file of numpy\.save", stack("")),
    ("yours with a stack that is not there", r"--stack must be a file of numpy\.save", stack("none.npy")),
    ("yours with no rows", r"argument --batch: must be a whole number of at least 1: found 0", command("yours", "--batch", "0", "--method", "laf", "--ranks", "2")),
    ("yours with an unknown way", r"argument --way: invalid choice: 'mix'", command(*SIZES, "--way", "mix")),
    ("yours with no memory", r"argument --memory: must be .*: found 0", command(*SIZES, "--memory", "0")),
    ("yours on an unknown device", r"argument --predict: invalid choice: 'tpu'", command(*SIZES, "--predict", "tpu")),
    ("the planner with a broken pattern", r"argument --only: must be a regular expression", command("planner", "--only", "(")),
    ("the planner without a point", r"no point has the pattern 'zzz'", command("planner", "--only", "zzz", "--results", "{path}/new")),
    ("the planner's report of nothing", r"planner\.json cannot be read", command("planner", "--report", "--results", "{path}")),
    ("a profile that is unknown", r"no device is called 'nope'", command("profile", "--profile", "nope")),
    ("a profile of no shapes", r"argument --shapes: must be a whole number of at least 1: found 0", command("profile", "--shapes", "0")),
    ("sharing in no rounds", r"argument --rounds: must be a whole number of at least 1: found 0", command("share", "--rounds", "0")),
    ("the paper without a command", r"error", command("paper")),
    ("the paper's unknown experiment", r"invalid choice: 'cifar'", command("paper", "cifar")),
    ("the paper's unknown method", r"no method is called 'foo': expected any of STL", command("paper", "mnist", "--methods", "foo", "--results", "{path}", "--work", "{path}")),
    ("the paper with a fraction of 0", r"argument --fractions: must be a number with 0 < number", command("paper", "mnist", "--fractions", "0")),
    ("the paper with a negative seed", r"argument --seeds", command("paper", "mnist", "--seeds", "-1")),
    ("a report of nothing", r"none\.json", command("report", "{path}/none.json")),
    ("a report of what is damaged", r"damaged\.json", command("report", "{path}/damaged.json")),
    ("a report of a folder", r"error", command("report", "{path}")),
    ("a report of no file", r"required|usage", command("report")),
    ("citing an unknown option", r"unrecognized arguments: --nope", command("cite", "--nope")),
    ("comparing with nothing", r"required|error", command("compare")),
    ("comparing with a folder that is none", r"the following arguments are required: CHECKOUT", command("compare", "{path}/none")),
    ("decisions of a folder that is none", r"none", command("decisions", "{path}/none")),
)))  # fmt: skip


@LINES
def test_commands(misuse, world, capsys):
    def said(w: SimpleNamespace) -> None:
        """With what the parser has printed, as the text of the exit."""
        with pytest.raises(SystemExit) as exited:
            misuse.call(w)
        assert exited.value.code not in (0, None)
        raise SystemExit(f"{exited.value.code}\n{capsys.readouterr().err}")

    refused(Misuse(misuse.name, misuse.text, said, SystemExit), world)
