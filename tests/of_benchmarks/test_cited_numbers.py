"""Documents cite what was found."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from measured import full_result, per_row, result, roofline_row

from benchmarks.measuring import records, result_files
from benchmarks.showing import citing

ROOT = Path(__file__).resolve().parents[2]


def test_numbers_in_documents_are_those_of_their_files(tmp_path):
    path = tmp_path / "quick.json"
    result_files.write(tmp_path, "quick", full_result()).rename(path)
    known = citing.facts(result_files.read(path))
    assert known["apply dense"] == pytest.approx(4)
    assert known["process, GB"] == pytest.approx(1)
    assert known["took, minutes"] == pytest.approx(1.5)
    assert (known["scale, points"], known["scale authors, points"]) == (2, 2)
    assert (known["apply dense, memory"], known["apply dense, memory, points"]) == (pytest.approx(32 / 12), 4)
    assert known[f"roofline {roofline_row(1.4)['name']}, product alone"] == pytest.approx(1.7)
    good = "4.0<!-- quick.json: apply dense --> and 1 GB<!-- quick.json: process, GB -->"
    assert citing.citations(good) == 2
    assert citing.disagreements(good, tmp_path) == []
    assert citing.disagreements("4.1<!-- quick.json: apply dense -->", tmp_path) == [
        "apply dense: 4.1 is written, 4 was found"
    ]
    assert "says nothing" in citing.disagreements("4<!-- quick.json: else -->", tmp_path)[0]
    assert "says nothing" in citing.disagreements("4<!-- none.json: apply dense -->", tmp_path)[0]
    stale = good.replace("4.0<", "3.7<").replace("1 GB", "2 GB")
    assert len(citing.disagreements(stale, tmp_path)) == 2
    assert citing.updated(stale, tmp_path) == good
    assert citing.agrees("1,024", 1024.4)
    assert not citing.agrees("2.60", 2.606)
    assert citing.agrees("2.6", 2.64)


def test_the_least_and_the_worst_of_what_must_hold_can_be_cited():
    tucker, laf = per_row([1e-3, 1.02e-3]), per_row([1.1e-3, 1e-3])
    laf["case"] |= {"method": "laf"}
    times = [roofline_row(1.8), roofline_row(2.2), roofline_row(9.0, "one")]
    for place, line in enumerate(times):
        line["name"] += str(place)
    known = citing.facts(result(scale=[tucker, laf], roofline=times))
    assert known["scale per row, worst"] == known["scale per row laf"] == pytest.approx(1.1)
    assert known["scale per row tucker"] == pytest.approx(1.02)
    assert (known["roofline compose, least"], known["roofline compose, most"]) == (1.8, 2.2)
    assert not {key for key in citing.facts(result()) if key.startswith(("scale", "roofline"))}


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: p.name)
def test_every_cited_number_agrees_with_its_file(path):
    text = path.read_text()
    assert citing.disagreements(text) == []
    if path.name in ("README.md", "paper.md"):
        assert citing.citations(text) >= 10


def test_documents_are_updated_all_or_none(tmp_path, capsys):
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text("0<!-- planner.json: points -->")
    bad.write_text("4.1<!-- none.json: apply dense -->")
    with pytest.raises(SystemExit, match=r"none\.json says nothing of 'apply dense', which the text cites"):
        citing.main([str(good), str(bad)])
    assert good.read_text() == "0<!-- planner.json: points -->"
    with pytest.raises(SystemExit, match=r"error: .*missing\.md"):
        citing.main([str(tmp_path / "missing.md")])
    citing.main([str(good)])
    assert citing.disagreements(good.read_text()) == []
    assert capsys.readouterr().out == ""


def test_the_planners_numbers_can_be_cited():
    known = citing.facts(result_files.read(ROOT / "benchmarks/results/planner.json"))
    assert known["points"] > 300
    assert 0 < known["by hand"] < 2
    assert known["by hand, over 1.1, %"] >= known["by hand, over 1.1 and noise, %"]


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
