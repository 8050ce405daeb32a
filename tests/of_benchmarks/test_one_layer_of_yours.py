"""The answer for a layer of one's own."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from measured import entry

import tnshare as tn
from benchmarks import __main__ as command
from benchmarks import yours
from benchmarks.case import Case
from benchmarks.suites.decompose import aligned

SIZES = ["--sizes", "i=24,o=16,task=6"]
QUICK = ["--batch", "8", "--seconds", "0.02"]


def ask(arguments, capsys):
    threads = torch.get_num_threads()
    try:
        command.main(["yours", *arguments, *QUICK])
    finally:
        torch.set_num_threads(threads)
    return capsys.readouterr().out


def test_ranks_are_measured_and_the_winner_is_the_last_line(capsys):
    told = ask([*SIZES, "--method", "tucker", "--ranks", "8,8,3", "--predict", "a100", "h100"], capsys)
    *_, code, last = told.splitlines()
    found = re.fullmatch(r"winner: (factored|materialised) (\d+\.\d\d)", last)
    assert found
    assert float(found[2]) >= 1
    assert code == (f'layer = tnt.Linear(24, 16, tasks=6, spec=tn.Tucker((8, 8, 3)), strategy="{found[1]}")')
    namespace = {"tn": tn, "tnt": __import__("tnshare_torch")}
    exec(code, namespace)  # the line runs
    assert namespace["layer"](torch.randn(2, 24), 1).shape == (2, 16)
    assert "predicted, not measured" in told
    assert "a100" in told
    for name in ("tnshare factored", "dense", "opt_einsum", "authors", "LoRA, batched"):
        assert f"\n{name} " in told
    assert "measured on cpu, noise floor" in told


def test_eps_without_a_stack_uses_a_synthetic_one_and_says_so(capsys):
    told = ask([*SIZES, "--method", "tt", "--eps", "0.1", "--inference", "--way", "one"], capsys)
    assert "no --stack: ranks are those of a synthetic one" in told
    assert re.search(r"eps=0\.1: TT\(\(\d+, \d+\)\), error 0\.0\d+", told)
    assert told.splitlines()[-1].startswith("winner: ")


def test_a_stack_gives_the_sizes_and_the_ranks(tmp_path, capsys):
    rng = np.random.default_rng(0)
    stack = np.einsum("iok,kt->iot", rng.standard_normal((12, 10, 2)), rng.standard_normal((2, 5)))
    np.save(tmp_path / "stack.npy", stack)
    told = ask(["--stack", str(tmp_path / "stack.npy"), "--method", "laf", "--eps", "1e-6"], capsys)
    assert "LAF(2)" in told
    assert "laf 2 12->10 T=5 mixed B=8 training" in told
    assert "synthetic" not in told


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--sizes", "i=3,o=4", "--ranks", "1"], "--sizes must read i=...,o=...,task=..."),
        (
            ["--sizes", "i=3,o=0,task=2", "--ranks", "1"],
            "the sizes of a linear layer: found 'i=3,o=0,task=2'",
        ),
        (["--ranks", "1"], "give --sizes"),
        ([*SIZES, "--ranks", "1,2"], r"laf of a linear layer has 1 rank\(s\) \(k\)"),
        (["--stack", "nothing.npy", "--eps", "0.1"], "--stack must be a file of numpy.save"),
        (
            ["--sizes", "i=3,o=4,task=2,task=3", "--ranks", "1"],
            "the sizes of a linear layer: found 'i=3,o=4,",
        ),
        (["--sizes", "i=²,o=4,task=2", "--ranks", "1"], "with whole numbers, the sizes of a linear layer"),
        (["--sizes", "h=3,w=3,c=4,m=4,task=2", "--ranks", "1"], "the sizes of a linear layer: found 'h=3,"),
        (
            ["--sizes", "i=99999,o=9999,task=999", "--eps", "0.1"],
            r"here of 7442\.\d GiB, more than --memory 2",
        ),
        ([*SIZES, "--ranks", "1", "--memory", "1e-6"], r"factors are 0\.0 GiB, more than --memory 1e-06 GiB"),
        (
            [*SIZES, "--ranks", "6", "--memory", "1.2e-5"],
            r"needs 0\.0 GiB, more than --memory 1.2e-05 GiB: give",
        ),
        ([*SIZES, "--ranks", "1", "--batch", "999999999999"], r"factors are 149\d+\.\d GiB, more than --mem"),
        ([*SIZES, "--ranks", "1", "--device", "cuda:7"], r"device must be one that is here: .* no 'cuda:7'"),
    ],
)
def test_what_is_wrong_is_told(arguments, text):
    with pytest.raises(SystemExit, match=text):
        yours.main([*QUICK, "--method", "laf", *arguments])


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "No data left in file"),
        (b"hello", "must be a file of numpy.save: no array in it"),
        (b"half", "must be a file of numpy.save: .*(could only read|cannot reshape)"),  # NumPy 2.5, 2.0
        (b"archive", r"found an archive of \['a'\]"),
        (b"nan", r"a stack must be finite: found nan at \(1, 2, 0\)"),
        (b"kernels", r"the weights of a linear layer of every task: found shape \(3, 3, 4, 4, 2\)"),
        (b"empty", r"found shape \(3, 4, 0\)"),
    ],
)
def test_damaged_stacks_are_told_apart(content, text, tmp_path):
    path, good = tmp_path / "stack.npy", np.ones((12, 10, 5))
    path.write_bytes(content)
    if content == b"half":
        np.save(path, good)
        path.write_bytes(path.read_bytes()[:2000])
    elif content == b"archive":
        with path.open("wb") as file:
            np.savez(file, a=good)
    elif content == b"nan":
        good[1, 2, 0] = np.nan
        np.save(path, good)
    elif content in (b"kernels", b"empty"):
        np.save(path, np.ones((3, 3, 4, 4, 2) if content == b"kernels" else (3, 4, 0)))
    with pytest.raises(SystemExit, match=text):
        yours.main(["--stack", str(path), "--method", "tt", "--eps", "0.1", *QUICK])


@pytest.mark.parametrize("option", ["batch", "threads", "seconds", "memory"])
def test_numbers_that_make_no_sense_are_refused(option, capsys):
    with pytest.raises(SystemExit):
        yours.main([*SIZES, "--method", "laf", "--ranks", "1", *QUICK, f"--{option}", "0"])
    assert re.search(rf"argument --{option}: must be a .*: found 0", capsys.readouterr().err)


def test_stacks_of_another_form_are_refused(tmp_path):
    np.save(tmp_path / "flat.npy", np.zeros((3, 4)))
    with pytest.raises(tn.TnshareError, match=r"\(in, out, task\).*: found shape \(3, 4\)"):
        yours.load(tmp_path / "flat.npy")
    np.save(tmp_path / "stack.npy", np.zeros((3, 4, 5)))
    options = yours._options(
        ["--stack", str(tmp_path / "stack.npy"), *SIZES, "--method", "laf", "--ranks", "1", "--batch", "1"]
    )
    with pytest.raises(tn.TnshareError, match=r"do not agree with the stack's \(3, 4, 5\)"):
        yours.read(options)


def test_ranks_beyond_use_are_cut_and_that_is_said():
    options = yours._options([*SIZES, "--method", "laf", "--ranks", "40", "--batch", "1"])
    case, notes = yours.read(options)
    assert case.ranks == (6,)
    assert notes == ["ranks (40,) are more than useful: (6,) are taken"]


def told(factored, materialised, noise=1.0, auto=1e-3):
    case = Case("laf", (2,), 4, 4, 4, "one", 1, True)
    programs = {"tnshare": entry(auto)}
    programs |= {"tnshare factored": entry(factored)} if factored else {}
    programs |= {"tnshare materialised": entry(materialised)} if materialised else {}
    return yours.conclusion(case, {"programs": programs, "noise": noise, "skipped": {}})


def test_the_winner_is_the_faster_one_by_how_much_the_other_is_slower():
    assert told(1e-3, 3e-3)[-1] == "winner: factored 3.00"
    assert told(3e-3, 1.5e-3)[-1] == "winner: materialised 2.00"
    assert 'strategy="auto" takes 0.50 times as long as the winner' in told(3e-3, 2e-3)
    assert any("do not differ by more than the noise, 1.20" in line for line in told(1e-3, 1.1e-3, 1.2))
    assert not any("noise" in line for line in told(1e-3, 1.3e-3, 1.2))
    alone = told(1e-3, None)
    assert "materialised was not measured: it did not run" in alone
    assert alone[-1] == "winner: factored 1.00"


def test_the_synthetic_stack_is_the_documented_one():
    stack = aligned((20, 16, 8)).astype(np.float64)
    assert np.array_equal(stack, aligned((20, 16, 8)))
    mean = stack.mean(axis=2, keepdims=True)
    assert np.linalg.norm(stack - mean) / np.linalg.norm(mean * np.ones(8)) == pytest.approx(0.1, rel=1e-4)
    values = np.linalg.svd((stack - mean).reshape(-1, 8), compute_uv=False)
    assert values[0] > 2 * values[3]
    alone = aligned((20, 16, 1))
    assert np.linalg.norm(alone) == pytest.approx(1)
