"""A run goes on where it stopped, on the device that was asked for, and overwrites nothing."""

from __future__ import annotations

import gc
import json
import subprocess
from pathlib import Path

import jax
import pytest
import torch
from measured import result, row

import tnshare as tn
from benchmarks import __main__ as command
from benchmarks.measuring import records, result_files
from benchmarks.measuring.records import Records
from benchmarks.measuring.resuming import run
from benchmarks.peers.frameworks import make_bench
from benchmarks.showing import citing
from benchmarks.suites import FULL, JAX, QUICK
from benchmarks.suites import __main__ as suites

ROOT = Path(__file__).resolve().parents[2]
AT = {"commit": "a" * 40, "dirty": False}


def test_a_run_goes_on_where_it_stopped(tmp_path):
    path, calls = tmp_path / "bench.jsonl", []

    def job(name, fails=False):
        def measure(seconds):
            calls.append((name, seconds))
            if fails:
                raise ValueError(f"a path, say {tmp_path}")
            return {"programs": {}}

        return name, measure

    run("apply", [job("a"), job("b")], Records(path), 0.5)
    path.write_text(path.read_text()[:-9])  # cut short within the last line
    run("apply", [job("a"), job("b"), job("c", fails=True)], Records(path), 0.5)
    assert calls == [("a", 0.5), ("b", 0.5), ("b", 0.5), ("c", 0.5)]
    assert str(tmp_path) not in path.read_text()
    run("apply", [job("c")], Records(path), 0.5)
    run("mixed", [job("a")], Records(path), 0.5)
    run("apply", [job("a")], Records(path), 2.0)
    assert calls[4:] == [("c", 0.5), ("a", 0.5), ("a", 2.0)]
    assert not any("error" in r for r in Records(path).of("apply", 0.5))
    assert all(r["took"] >= 0 for r in Records(path).rows)


def test_what_was_measured_with_other_seconds_is_another_result(tmp_path):
    path = tmp_path / "bench.jsonl"
    job = [("a", lambda seconds: {"found": seconds})]
    kept = Records(path)
    for seconds in (2.0, 0.2, 2.0):
        run("apply", job, kept, seconds)
    for records_of in (kept, Records(path)):
        assert [row["found"] for row in records_of.rows] == [2.0, 0.2]
        assert [row["found"] for row in records_of.of("apply", 2.0)] == [2.0]
        assert [row["found"] for row in records_of.of("apply", 0.2)] == [0.2]


def test_a_run_goes_on_only_under_the_same_conditions(tmp_path):
    at = {"commit": "a" * 40, "dirty": False}
    under = {**records.machine(), "threads": 1, "limit": 2**29}
    first = records.kept_in(tmp_path, "bench", at, under)
    assert first.path.name.startswith("bench-aaaaaaaaaaaa-")
    same = records.kept_in(tmp_path, "bench", at, {**under, "date": "2001-01-01"})
    assert same.path == first.path
    changes = [{"threads": 2}, {"limit": 2**30}, {"versions": {"torch": "1.0"}}, {"cpu": "another"}]
    others = {records.kept_in(tmp_path, "bench", at, {**under, **change}).path for change in changes}
    others.add(records.kept_in(tmp_path, "bench", {**at, "commit": "b" * 40}, under).path)
    assert len(others - {first.path}) == 5


def test_a_run_says_how_long_it_took_and_what_it_was_limited_to(tmp_path, monkeypatch, capsys):
    def jobs(name, bench, full):
        limits.append(bench.limit)
        return [("a", lambda seconds: found)]

    limits, line = [], row("way")
    found = {part: line[part] for part in line.keys() - {"suite", "name", "budget"}}
    monkeypatch.setattr(suites, "suite_jobs", jobs)
    threads = torch.get_num_threads()
    monkeypatch.setattr(suites, "fix_threads", lambda threads, backend: None)
    for _ in range(2):  # the second has nothing to do
        command.main(["apply", "--results", str(tmp_path), "--seconds", "0.5"])
    assert limits == [2**29] * 2
    (path,) = tmp_path.glob("*.json")
    assert path.name == f"apply-{records.label(records.commit())}.json"
    told = result_files.read(path)
    assert told["settings"]["limit"] == 2**29
    assert told["settings"]["took seconds"] == told["suites"]["apply"][0]["took"]
    assert citing.facts(told)["took, minutes"] > 0
    assert f"wrote {path.name}, {path.stem}.html, {path.stem}-ways.png" in capsys.readouterr().out
    assert {p.stem.removesuffix("-ways") for p in tmp_path.iterdir() if p.suffix != ".jsonl"} == {path.stem}
    assert "programs of up to 537 MB" in (tmp_path / f"{path.stem}.html").read_text()
    assert torch.get_num_threads() == threads


def test_programs_may_need_a_quarter_of_the_memory_of_the_device():
    machine = {"memory_gib": 64.0}
    assert suites.limit(machine, False) == 2**29
    assert suites.limit(machine, True) == 2**34
    assert suites.limit({**machine, "gpu": {"memory_gib": 16.0}}, True) == 2**32
    assert suites.limit({**machine, "gpu": {"memory_gib": None}}, True) == 2**34
    assert suites.limit({"memory_gib": 1.0}, True) == 2**30


def test_a_run_gives_imported_modules_back_to_the_garbage_collector(tmp_path):
    aside = []

    def measure(seconds):
        aside.append(gc.get_freeze_count())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run("apply", [("a", measure)], Records(tmp_path / "bench.jsonl"), 0.5)
    assert aside[0] > 0
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize("backend", ["torch", "jax"])
@pytest.mark.parametrize("device", ["cuda", "cuda:99"])
def test_devices_that_are_not_here_are_named(backend, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(jax, "devices", lambda kind: [])
    with pytest.raises(tn.TnshareError, match=rf"is here: {backend} [\d.]+\S* sees no '{device}'"):
        make_bench(backend, device, 2**30)


def test_cuda_measures_the_device_that_was_asked_for(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for device in ("cuda", "cuda:2"):
        assert make_bench("torch", device, 2**30).device == device
    assert chosen == [0, 2]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # a driver that is too old, say
    with pytest.raises(tn.TnshareError, match="sees no 'cuda:2'"):
        make_bench("torch", "cuda:2", 2**30)


def test_jax_measures_the_device_that_was_asked_for(monkeypatch):
    places = jax.devices("cpu") * 2 + ["the third"]
    monkeypatch.setattr(jax, "devices", {"gpu": places, "cpu": places[:1]}.__getitem__)
    assert make_bench("jax", "cuda:2", 2**30).place == "the third"
    with pytest.raises(tn.TnshareError, match="sees no 'cuda:3'"):
        make_bench("jax", "cuda:3", 2**30)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, r"quick\.json cannot be read: No such file"),
        ("{", r"quick\.json must be a file of results, in JSON: Expecting property name"),
        ("[]", r"quick\.json must be a file of results: found a list in it"),
        ("{}", r"quick\.json must be a file of results with 'commit': found nothing"),
        ('{"commit": {}}', "of this command, with 'commit' in 'commit': found nothing"),
        (json.dumps({"commit": AT, "machine": 1}), "with 'machine': found commit, machine"),
        (json.dumps({"commit": AT, "machine": records.machine()}), "with 'settings': found commit, machine"),
        (
            json.dumps({"commit": AT, "machine": records.machine(), "settings": {"threads": 1}}),
            "of this command, with 'backend' in 'settings': found threads",
        ),
    ],
)
def test_reports_of_damaged_results_are_refused(content, text, tmp_path):
    path = tmp_path / "quick.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SystemExit, match=text):
        command.main(["report", str(path)])
    assert [p.name for p in tmp_path.iterdir()] == ["quick.json"] * (content is not None)


def test_reports_need_a_file(capsys):
    with pytest.raises(SystemExit):
        command.main(["report"])
    assert "the following arguments are required: files" in capsys.readouterr().err


def test_no_result_is_overwritten(tmp_path):
    first, second = result(apply=[row("way")]), result(apply=[row("way", "one")])
    (tmp_path / "quick-aaaaaaaaaaaa-2.json").write_text("{")  # whatever it is
    (tmp_path / "quick.json").write_text("cited")
    path = result_files.write(tmp_path, "quick", first)
    assert path.name == "quick-aaaaaaaaaaaa.json"
    assert result_files.write(tmp_path, "quick", first) == path
    assert result_files.write(tmp_path, "quick", second).name == "quick-aaaaaaaaaaaa-3.json"
    dirty = {**first, "commit": {"commit": "b" * 40, "dirty": True, "digest": "c"}}
    assert result_files.write(tmp_path, "quick", dirty).name == "quick-bbbbbbbbbbbb-dirty-c.json"
    assert result_files.read(path)["suites"]["apply"][0]["case"]["way"] == "each"
    assert (tmp_path / "quick.json").read_text() == "cited"
    assert (tmp_path / "quick-aaaaaaaaaaaa-2.json").read_text() == "{"
    assert result_files.rounded({"a": [0.123456, 7], "b": "c"}) == {"a": [0.1235, 7], "b": "c"}


def test_outside_of_a_repository_a_run_goes_by_what_is_measured(monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    found = records.commit()
    assert (found["commit"], found["dirty"]) == ("unknown", True)
    assert records.label(found) == f"unknown-dirty-{found['digest']}"
    monkeypatch.setenv("PATH", "")
    assert records.commit() == found


def test_benchmarks_are_part_of_what_is_measured_and_their_results_are_not(tmp_path, monkeypatch):
    for name in ("tnshare/a.py", "backends/b.py", "benchmarks/c.py", "benchmarks/results/quick.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    git = ["git", "-c", "user.name=n", "-c", "user.email=e"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *arguments], cwd=tmp_path, check=True)
    monkeypatch.setattr(records, "ROOT", tmp_path)
    assert not records.commit()["dirty"]
    (tmp_path / "benchmarks/results/quick.json").write_text("2")
    (tmp_path / "benchmarks/results/new.json").write_text("2")
    assert not records.commit()["dirty"]
    (tmp_path / "benchmarks/c.py").write_text("2")
    assert records.commit()["dirty"]


def test_results_say_nothing_of_whose_machine_it_is(monkeypatch):
    import getpass
    import socket

    said = json.dumps([records.machine(), records.commit()])
    words = [str(Path.home()), str(Path.cwd()), socket.gethostname()]
    assert not [word for word in words if len(word) > 3 and word in said]
    assert getpass.getuser() == "root" or getpass.getuser() not in said
    gpu = type("P", (), {"name": "NVIDIA H100", "total_memory": 80 * 2**30})
    monkeypatch.setattr("torch.cuda.get_device_properties", lambda device: gpu)
    assert records.machine("cuda")["gpu"]["model"] == "NVIDIA H100"
    assert records.machine("cuda")["gpu"]["memory_gib"] == 80
    stats = {"bytes_limit": 60 * 2**30}
    chip = type("D", (), {"device_kind": "NVIDIA A100", "memory_stats": lambda self: stats})
    monkeypatch.setattr("jax.devices", lambda kind: {"gpu": [None, chip()]}[kind])
    monkeypatch.delattr("torch.cuda.get_device_properties")
    assert records.machine("cuda:1", "jax")["gpu"] == {"model": "NVIDIA A100", "memory_gib": 60}
    stats = None
    assert records.machine("cuda:1", "jax")["gpu"]["memory_gib"] is None


@pytest.mark.parametrize(
    ("arguments", "stem", "chosen"),
    [
        ([], "quick", QUICK),
        (["--full"], "full", FULL),
        (["apply", "mixed"], "apply-mixed", ("apply", "mixed")),
        (["--backend", "jax"], "quick-jax", JAX),
        (["--device", "cuda:1"], "quick-cuda1", QUICK),
    ],
)
def test_the_command_knows_what_it_is_asked(arguments, stem, chosen):
    options = suites._options(arguments)
    assert suites._stem(options) == stem
    assert options.suites == chosen


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["apply", "apples"], "no suite for torch is called 'apples'"),
        (["conv", "--backend", "jax"], "no suite for jax is called 'conv'"),
        (
            ["--device", "tpu"],
            "argument --device: must be cpu, cuda, or one of several as cuda:1: found 'tpu'",
        ),
        (["--seconds", "inf"], "argument --seconds: must be a finite number of more than 0: found inf"),
        (["--seconds", "0"], "argument --seconds: must be a finite number of more than 0: found 0"),
        (["--seconds", "soon"], "argument --seconds: must be a finite number of more than 0: found soon"),
        (["--threads", "1000000"], "argument --threads: must be at most"),
        (["--threads", "0"], "argument --threads: must be a whole number of at least 1: found 0"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(arguments, text, capsys):
    with pytest.raises(SystemExit):
        command.main(arguments)
    assert text in capsys.readouterr().err
