"""Results are kept, reports say what they say, promises can hold and fail, documents cite what was found."""

from __future__ import annotations

import gc
import io
import json
import re
from pathlib import Path

import pytest
import torch

import tnshare as tn
from benchmarks import __main__ as command
from benchmarks import bars, looks, page, readme, records, results, summary
from benchmarks.case import Case
from benchmarks.records import Records
from benchmarks.run import run

ROOT = Path(__file__).resolve().parent.parent
KINDS = [f"{suite}-tucker-training" for suite in ("scale", "memory", "mixed")]


def entry(total, forward=None, peak=1000):
    forward = total / 2 if forward is None else forward
    spread = lambda value: [value, 0.9 * value, 1.1 * value]  # noqa: E731
    return {
        "total": spread(total),
        "forward": spread(forward),
        "backward": spread(total - forward),
        "rounds": 5,
        "peak": peak,
    }


def row(kind, way="each", programs=None, *, ranks=(8, 8, 4), batch=16, tasks=16, noise=1.0, **facts):
    case = Case("tucker", ranks, 64, 64, tasks, way, batch, True)
    programs = {"tnshare": entry(1e-3), "dense": entry(4e-3, peak=3000)} if programs is None else programs
    return {
        "suite": "any",
        "name": f"{kind} {case}",
        "budget": 1.0,
        "case": case.json,
        "kind": kind,
        "programs": programs,
        "noise": noise,
        "skipped": {"PEFT": "is not installed"},
        "facts": facts,
    }


def roofline_row(times, kind="compose"):
    facts = {"times the least": {"tnshare": times, "einsum": 3.0}, "bound by": "bytes", "least seconds": 1e-3}
    facts["least seconds, one after the other"] = 2e-3
    facts["thin product, seconds"] = 1.7e-3
    return row(kind, **facts, bandwidth=1e10, **{"peak flops": 1e11})


def process_row(size):
    facts = {"process bytes": size, "of it imports": 3e8, "dense bytes": 4.2e10}
    return row("process", programs={}, noise=None, **facts)


def per_row(times, noise=1.0):
    return row("per row", programs={f"T={n}": entry(t, t) for n, t in enumerate(times)}, noise=noise)


def result(**suites):
    at = {"commit": "a" * 40, "dirty": False}
    settings = {"backend": "torch", "device": "cpu", "threads": 1, "seconds": 1.0, "full": False}
    settings |= {"clock": "time.perf_counter", "memory": "events", "allocator": "glibc"}
    return {"commit": at, "machine": records.machine(), "settings": settings, "suites": suites}


def full_result():
    both = {"tnshare factored": entry(1e-3), "tnshare materialised": entry(2e-3)}
    programs = {"tnshare": entry(1e-3), **both, "dense": entry(4e-3, peak=3000)}
    limited = {**programs, "tnshare within 1/2": entry(2e-3, peak=400)}
    maps = [row("map", programs=programs, ranks=(r, r, 4), batch=b) for r in (8, 16) for b in (1, 64)]
    ways = [row("way", way, programs) for way in looks.WAYS]
    scale = [row("scale", "mixed", programs, tasks=t) for t in (1, 1000)]
    return result(
        apply=[*ways, *maps],
        memory=[*(row("memory", way, limited) for way in looks.WAYS), process_row(1e9)],
        mixed=[row("mixed", "mixed", programs, batch=b) for b in (16, 128)],
        scale=[*scale, per_row([1e-3, 1.1e-3])],
        roofline=[roofline_row(1.4)],
        predicted=[
            row("predicted", programs={}, **{"predicted seconds": {"tnshare": 1e-3}, "profile": "a100"})
        ],
        conv=[{"suite": "conv", "name": "lost", "budget": 1.0, "error": "ValueError"}],
    )


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
    assert not any("error" in r for r in Records(path).of("apply"))


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
def test_devices_that_are_not_here_are_named(backend, device):
    with pytest.raises(tn.TnshareError, match=rf"is here: {backend} [\d.]+\S* sees no '{device}'"):
        command.make_bench(backend, device, 2**30)


def test_cuda_measures_the_device_that_was_asked_for(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for device in ("cuda", "cuda:2"):
        assert command.make_bench("torch", device, 2**30).device == device
    assert chosen == [0, 2]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, r"quick\.json cannot be read: No such file"),
        ("{", r"quick\.json must be a file of results, in JSON: Expecting property name"),
        ("[]", r"quick\.json must be a file of results: found a list in it"),
        ("{}", r"quick\.json must be a file of results with 'commit': found nothing"),
        ('{"commit": {}, "machine": 1}', "with 'machine': found commit, machine"),
    ],
)
def test_reports_of_damaged_results_are_refused(content, text, tmp_path):
    path = tmp_path / "quick.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(SystemExit, match=text):
        command.main(["report", str(path)])
    assert [p.name for p in tmp_path.iterdir()] == ["quick.json"] * (content is not None)


def test_reports_need_a_file():
    with pytest.raises(SystemExit, match="give the result files that reports are to be made of"):
        command.main(["report"])


def test_a_damaged_result_is_kept_beside_a_new_one(tmp_path):
    for text in ("{", "[]"):
        (tmp_path / "quick.json").write_text(text)
        results.write(tmp_path, "quick", result(apply=[row("way")]))
    names = ["quick-damaged-2.json", "quick-damaged.json", "quick.json"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert (tmp_path / "quick-damaged.json").read_text() == "{"


def test_no_result_is_overwritten(tmp_path):
    first, second = result(apply=[row("way")]), result(apply=[row("way", "one")])
    path, note = results.write(tmp_path, "quick", first)
    assert note == ""
    assert results.write(tmp_path, "quick", first) == (path, "")
    assert "kept as quick-aaaaaaaaaaaa.json" in results.write(tmp_path, "quick", second)[1]
    assert "kept as quick-aaaaaaaaaaaa-2.json" in results.write(tmp_path, "quick", first)[1]
    kept = [
        results.read(tmp_path / name)["suites"]["apply"][0]["case"]["way"]
        for name in sorted(p.name for p in tmp_path.iterdir())
    ]
    assert sorted(kept) == ["each", "each", "one"]
    assert results.rounded({"a": [0.123456, 7], "b": "c"}) == {"a": [0.1235, 7], "b": "c"}


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


def test_programs_are_compared_with_tnshare():
    rows = [row("way"), row("way", programs={"tnshare": entry(1e-3), "dense": entry(1e-3, peak=1000)})]
    (dense,) = summary.compared(rows)
    assert dense["time / tnshare"] == pytest.approx(2)
    assert dense["peak memory / tnshare"] == pytest.approx(3**0.5)
    assert dense["slower"] == "1 of 2"
    noisy = [row("way", noise=5.0)]
    assert summary.compared(noisy)[0]["slower"] == "0 of 1"
    assert summary.left_out(rows) == [{"program": "PEFT", "why": "is not installed", "points": 2}]
    assert summary.compared([]) == []


@pytest.mark.parametrize(
    ("suite", "good", "bad"),
    [
        ("roofline", [roofline_row(1.49)], [roofline_row(1.2), roofline_row(1.51)]),
        ("memory", [process_row(1.99e9)], [process_row(2.01e9)]),
        ("scale", [per_row([1e-3, 1.19e-3])], [per_row([1e-3, 1.1e-3]), per_row([1.21e-3, 1e-3])]),
    ],
)
def test_promises_can_hold_and_fail(suite, good, bad):
    place = ["roofline", "memory", "scale"].index(suite)
    assert summary.verdicts(result(**{suite: good}))[place].holds is True
    assert summary.verdicts(result(**{suite: bad}))[place].holds is False
    assert summary.verdicts(result())[place].holds is None


def test_a_report_has_its_figures_in_it_and_says_where_it_was_measured(tmp_path):
    path, _ = results.write(tmp_path, "quick", full_result())
    written = page.write(path)
    text = (tmp_path / "quick.html").read_text()
    pictures = [p for p in written if p.suffix == ".png"]
    assert {p.stem for p in pictures} == {
        f"quick-{n}" for n in ("map-tucker-each-training", "ways", "roofline", *KINDS)
    }
    assert text.count("data:image/png;base64,") == len(pictures)
    assert not re.search(r"(src|href)='(?!data:)", text)
    machine = records.machine()
    assert text.count(f"Measured on {machine['cpu']}") == 1 + len(pictures)
    assert "predicted, not measured" in text
    assert "lost" in text
    assert "does not hold" not in text
    told = page.as_text(results.read(path))
    assert "dense" in told
    assert "what must hold" in told


def test_numbers_in_documents_are_those_of_their_files(tmp_path):
    path, _ = results.write(tmp_path, "quick", full_result())
    known = readme.facts(results.read(path))
    assert known["apply dense"] == pytest.approx(4)
    assert known["process, GB"] == pytest.approx(1)
    good = "4.0<!-- quick.json: apply dense --> and 1 GB<!-- quick.json: process, GB -->"
    assert readme.citations(good) == 2
    assert readme.disagreements(good, tmp_path) == []
    assert readme.disagreements("4.1<!-- quick.json: apply dense -->", tmp_path) == [
        "apply dense: 4.1 is written, 4 was found"
    ]
    assert "says nothing" in readme.disagreements("4<!-- quick.json: else -->", tmp_path)[0]
    assert "says nothing" in readme.disagreements("4<!-- none.json: apply dense -->", tmp_path)[0]
    stale = good.replace("4.0<", "3.7<").replace("1 GB", "2 GB")
    assert len(readme.disagreements(stale, tmp_path)) == 2
    assert readme.updated(stale, tmp_path) == good
    assert readme.agrees("1,024", 1024.4)
    assert not readme.agrees("2.60", 2.606)
    assert readme.agrees("2.6", 2.64)


@pytest.mark.parametrize("last", [1.2, 1.97, 3.0])
def test_the_legend_of_the_roofline_covers_no_number(last):
    figure = bars.roofline([roofline_row(times) for times in (1.4, 2.3, last)])
    figure.savefig(io.BytesIO())
    (axis,) = figure.axes
    legends = [*figure.legends, *filter(None, [axis.get_legend()])]
    assert len(legends) == 1
    covered = legends[0].get_window_extent()
    assert not [text.get_text() for text in axis.texts if covered.overlaps(text.get_window_extent())]


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_every_cited_number_agrees_with_its_file(path):
    text = path.read_text()
    assert readme.disagreements(text) == []
    if path.name in ("README.md", "paper.md"):
        assert readme.citations(text) >= 10


def test_documents_are_updated_all_or_none(tmp_path, capsys):
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text("0<!-- planner.json: points -->")
    bad.write_text("4.1<!-- none.json: apply dense -->")
    with pytest.raises(SystemExit, match=r"none\.json says nothing of 'apply dense', which the text cites"):
        readme.main([str(good), str(bad)])
    assert good.read_text() == "0<!-- planner.json: points -->"
    with pytest.raises(SystemExit, match=r"error: .*missing\.md"):
        readme.main([str(tmp_path / "missing.md")])
    readme.main([str(good)])
    assert readme.disagreements(good.read_text()) == []
    assert capsys.readouterr().out == ""


def test_the_planners_numbers_can_be_cited():
    known = readme.facts(results.read(ROOT / "benchmarks/results/planner.json"))
    assert known["points"] > 300
    assert 0 < known["by hand"] < 2
    assert known["by hand, over 1.1, %"] >= known["by hand, over 1.1 and noise, %"]


@pytest.mark.parametrize(
    ("arguments", "stem", "suites"),
    [
        ([], "quick", command.QUICK),
        (["--full"], "full", command.FULL),
        (["apply", "mixed"], "apply-mixed", ("apply", "mixed")),
        (["--backend", "jax"], "quick-jax", command.JAX),
        (["--device", "cuda:1"], "quick-cuda1", command.QUICK),
    ],
)
def test_the_command_knows_what_it_is_asked(arguments, stem, suites):
    options = command._options(arguments)
    assert command._stem(options) == stem
    assert options.suites == suites
    assert command._limit(options) >= 2**29


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["apples"], "no suite for torch is called 'apples'"),
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
