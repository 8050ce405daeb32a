"""Results are kept, reports say what they say, promises can hold and fail, documents cite what was found."""

from __future__ import annotations

import gc
import io
import json
import re
import subprocess
from pathlib import Path

import jax
import pytest
import torch

import tnshare as tn
from benchmarks import __main__ as command
from benchmarks import bars, looks, page, readme, records, results, summary
from benchmarks.case import Case
from benchmarks.records import Records
from benchmarks.run import run

ROOT = Path(__file__).resolve().parent.parent
AT = {"commit": "a" * 40, "dirty": False}
KINDS = [f"{suite}-tucker-training" for suite in ("scale", "memory", "mixed")]


def entry(total, forward=None, peak=1000, parameters=100, rounds=5):
    forward = total / 2 if forward is None else forward
    ends = (0.9, 1.1) if rounds else ()
    spread = lambda value: [value, *(end * value for end in ends), None, None][:3]  # noqa: E731
    return {
        "total": spread(total),
        "forward": spread(forward),
        "backward": spread(total - forward),
        "rounds": rounds,
        "parameters": parameters,
        "gradients": parameters,
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
    facts |= {"one after the other": 2.0, "thin product": 1.7}
    facts["quartiles"] = {"tnshare": [1.2, 1.9], "peak flops": [9e10, 1.1e11]}
    return row(kind, **facts, bandwidth=1e10, **{"peak flops": 1e11})


def process_row(size):
    facts = {"process bytes": size, "of it imports": 3e8, "dense bytes": 4.2e10}
    return row("process", programs={}, noise=None, **facts)


def per_row(times, noise=1.0):
    return row("per row", programs={f"T={n}": entry(t, t) for n, t in enumerate(times)}, noise=noise)


def result(**suites):
    at = {"commit": "a" * 40, "dirty": False}
    settings = {"backend": "torch", "device": "cpu", "threads": 1, "seconds": 1.0, "full": False}
    settings |= {"limit": 2**29, "took seconds": 90.0}
    settings |= {"clock": "time.perf_counter", "memory": "events", "allocator": "glibc"}
    return {"commit": at, "machine": records.machine(), "settings": settings, "suites": suites}


def full_result():
    both = {"tnshare factored": entry(1e-3), "tnshare materialised": entry(2e-3)}
    programs = {"tnshare": entry(1e-3), **both, "dense": entry(4e-3, peak=3000)}
    limited = {**programs, "tnshare within 1/2": entry(2e-3, peak=400)}
    slow = {**programs, "authors": entry(0.7, rounds=0)}
    maps = [row("map", programs=programs, ranks=(r, r, 4), batch=b) for r in (8, 16) for b in (1, 64)]
    ways = [row("way", way, programs) for way in looks.WAYS]
    scale = [row("scale", "mixed", slow, tasks=t) for t in (1, 1000)]
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
    monkeypatch.setattr(command, "suite_jobs", jobs)
    threads = torch.get_num_threads()
    monkeypatch.setattr(command, "fix_threads", lambda threads, backend: None)
    for _ in range(2):  # the second has nothing to do
        command.main(["apply", "--results", str(tmp_path), "--seconds", "0.5"])
    assert limits == [2**29] * 2
    (path,) = tmp_path.glob("*.json")
    assert path.name == f"apply-{records.label(records.commit())}.json"
    told = results.read(path)
    assert told["settings"]["limit"] == 2**29
    assert told["settings"]["took seconds"] == told["suites"]["apply"][0]["took"]
    assert readme.facts(told)["took, minutes"] > 0
    assert f"wrote {path.name}, {path.stem}.html, {path.stem}-ways.png" in capsys.readouterr().out
    assert {p.stem.removesuffix("-ways") for p in tmp_path.iterdir() if p.suffix != ".jsonl"} == {path.stem}
    assert "programs of up to 537 MB" in (tmp_path / f"{path.stem}.html").read_text()
    assert torch.get_num_threads() == threads


def test_programs_may_need_a_quarter_of_the_memory_of_the_device():
    machine = {"memory_gib": 64.0}
    assert command.limit(machine, False) == 2**29
    assert command.limit(machine, True) == 2**34
    assert command.limit({**machine, "gpu": {"memory_gib": 16.0}}, True) == 2**32
    assert command.limit({**machine, "gpu": {"memory_gib": None}}, True) == 2**34
    assert command.limit({"memory_gib": 1.0}, True) == 2**30


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
        command.make_bench(backend, device, 2**30)


def test_cuda_measures_the_device_that_was_asked_for(monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    for device in ("cuda", "cuda:2"):
        assert command.make_bench("torch", device, 2**30).device == device
    assert chosen == [0, 2]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # a driver that is too old, say
    with pytest.raises(tn.TnshareError, match="sees no 'cuda:2'"):
        command.make_bench("torch", "cuda:2", 2**30)


def test_jax_measures_the_device_that_was_asked_for(monkeypatch):
    places = jax.devices("cpu") * 2 + ["the third"]
    monkeypatch.setattr(jax, "devices", {"gpu": places, "cpu": places[:1]}.__getitem__)
    assert command.make_bench("jax", "cuda:2", 2**30).place == "the third"
    with pytest.raises(tn.TnshareError, match="sees no 'cuda:3'"):
        command.make_bench("jax", "cuda:3", 2**30)


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
    path = results.write(tmp_path, "quick", first)
    assert path.name == "quick-aaaaaaaaaaaa.json"
    assert results.write(tmp_path, "quick", first) == path
    assert results.write(tmp_path, "quick", second).name == "quick-aaaaaaaaaaaa-3.json"
    dirty = {**first, "commit": {"commit": "b" * 40, "dirty": True, "digest": "c"}}
    assert results.write(tmp_path, "quick", dirty).name == "quick-bbbbbbbbbbbb-dirty-c.json"
    assert results.read(path)["suites"]["apply"][0]["case"]["way"] == "each"
    assert (tmp_path / "quick.json").read_text() == "cited"
    assert (tmp_path / "quick-aaaaaaaaaaaa-2.json").read_text() == "{"
    assert results.rounded({"a": [0.123456, 7], "b": "c"}) == {"a": [0.1235, 7], "b": "c"}


def test_git_knows_the_files_that_documents_cite_and_no_others():
    def ignored(name):
        command = ["git", "check-ignore", "-q", "--no-index", f"benchmarks/results/{name}"]
        return subprocess.run(command, cwd=ROOT, check=False).returncode == 0

    if records.commit()["commit"] == "unknown":
        pytest.skip("not in a repository")
    text = "".join(path.read_text() for path in DOCUMENTS)
    cited = set(re.findall(r"<!-- ([\w./-]+\.json): ", text))
    cited |= set(re.findall(r"benchmarks/results/([\w./-]+\.\w+)", text))
    assert {"quick.json", "planner.md", "quick-map-tucker-each-training.png"} < cited
    assert not [name for name in cited if ignored(name)]
    for name in ("quick-0123456789ab.json", "quick-0123456789ab.html", "quick-0123456789ab-scale.png"):
        assert ignored(name)
    assert ignored("bench-0123456789ab-cdef.jsonl")


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


def test_programs_are_compared_with_tnshare():
    rows = [row("way"), row("way", programs={"tnshare": entry(1e-3), "dense": entry(1e-3, peak=1000)})]
    (dense,) = summary.compared(rows)
    assert dense["time / tnshare"] == pytest.approx(2)
    assert dense["memory / tnshare"] == pytest.approx((3200 / 1200) ** 0.5)
    assert dense["points of memory"] == 2
    assert dense["slower"] == "1 of 2"
    assert dense["single runs"] == 0
    slow = row("way", programs={"tnshare": entry(1e-3), "dense": entry(0.9, rounds=0)})
    assert summary.compared([*rows, slow])[0]["single runs"] == 1
    told = {"suite": "apply", "point": slow["name"], "program": "dense", "time": "900 ms"}
    assert summary.single_runs(result(apply=[*rows, slow])) == [told]
    noisy = [row("way", noise=5.0)]
    assert summary.compared(noisy)[0]["slower"] == "0 of 1"
    assert summary.left_out(rows) == [{"program": "PEFT", "why": "is not installed", "points": 2}]
    assert summary.compared([]) == []


def test_memory_is_that_of_parameters_gradients_and_the_peak_at_every_point():
    nothing = {"tnshare": entry(1e-3, peak=0, parameters=10), "dense": entry(1e-3, peak=0, parameters=1000)}
    rows = [
        row("memory", programs=nothing),
        row("memory", programs={**nothing, "dense": entry(1e-3, peak=180)}),
    ]
    (dense,) = summary.compared(rows)
    assert dense["memory / tnshare"] == pytest.approx((100 * 19) ** 0.5)
    assert dense["points of memory"] == 2
    told = summary.bytes_held(rows[1:])[1]
    assert told["point"] == rows[1]["name"]
    parts = ("parameters", "gradients", "peak beyond", "together")
    assert [told[part] for part in parts] == ["100 B", "100 B", "180 B", "380 B"]
    without = {name: {**own} for name, own in nothing.items()}
    del without["dense"]["peak"]  # not measured, as in maps
    assert summary.compared([row("map", programs=without)])[0]["points of memory"] == 0


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
    path = results.write(tmp_path, "quick", full_result())
    written = page.write(path)
    text = path.with_suffix(".html").read_text()
    pictures = [p for p in written if p.suffix == ".png"]
    names = ("map-tucker-each-training", "ways", "roofline", *KINDS)
    assert {p.stem for p in pictures} == {f"{path.stem}-{name}" for name in names}
    assert text.count("data:image/png;base64,") == len(pictures)
    assert not re.search(r"(src|href)='(?!data:)", text)
    machine = records.machine()
    assert text.count(f"Measured on {machine['cpu']}") == 1 + len(pictures)
    assert "predicted, not measured" in text
    assert "lost" in text
    assert "does not hold" not in text
    told = page.as_text(results.read(path))
    assert "dense" in told
    assert "memory: bytes" in told
    assert "1.20 to 1.90" in told
    assert "too slow for rounds" in told
    assert "700 ms" in told
    assert "what must hold" in told


def test_numbers_in_documents_are_those_of_their_files(tmp_path):
    path = tmp_path / "quick.json"
    results.write(tmp_path, "quick", full_result()).rename(path)
    known = readme.facts(results.read(path))
    assert known["apply dense"] == pytest.approx(4)
    assert known["process, GB"] == pytest.approx(1)
    assert known["took, minutes"] == pytest.approx(1.5)
    assert (known["scale, points"], known["scale authors, points"]) == (2, 2)
    assert (known["apply dense, memory"], known["apply dense, memory, points"]) == (pytest.approx(32 / 12), 4)
    assert known[f"roofline {roofline_row(1.4)['name']}, product alone"] == pytest.approx(1.7)
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


def test_the_least_and_the_worst_of_what_must_hold_can_be_cited():
    tucker, laf = per_row([1e-3, 1.02e-3]), per_row([1.1e-3, 1e-3])
    laf["case"] |= {"method": "laf"}
    times = [roofline_row(1.8), roofline_row(2.2), roofline_row(9.0, "one")]
    for place, line in enumerate(times):
        line["name"] += str(place)
    known = readme.facts(result(scale=[tucker, laf], roofline=times))
    assert known["scale per row, worst"] == known["scale per row laf"] == pytest.approx(1.1)
    assert known["scale per row tucker"] == pytest.approx(1.02)
    assert (known["roofline compose, least"], known["roofline compose, most"]) == (1.8, 2.2)
    assert not {key for key in readme.facts(result()) if key.startswith(("scale", "roofline"))}


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
