"""Programs are compared, promises can hold and fail, reports say what was measured."""

from __future__ import annotations

import io
import re

import pytest
from measured import entry, full_result, per_row, process_row, result, roofline_row, row

from benchmarks.measuring import records, result_files
from benchmarks.showing import bars, comparison, page

KINDS = [f"{suite}-tucker-training" for suite in ("scale", "memory", "mixed")]


def test_programs_are_compared_with_tnshare():
    rows = [row("way"), row("way", programs={"tnshare": entry(1e-3), "dense": entry(1e-3, peak=1000)})]
    (dense,) = comparison.compared(rows)
    assert dense["time / tnshare"] == pytest.approx(2)
    assert dense["memory / tnshare"] == pytest.approx((3200 / 1200) ** 0.5)
    assert dense["points of memory"] == 2
    assert dense["slower"] == "1 of 2"
    assert dense["single runs"] == 0
    slow = row("way", programs={"tnshare": entry(1e-3), "dense": entry(0.9, rounds=0)})
    assert comparison.compared([*rows, slow])[0]["single runs"] == 1
    told = {"suite": "apply", "point": slow["name"], "program": "dense", "time": "900 ms"}
    assert comparison.single_runs(result(apply=[*rows, slow])) == [told]
    noisy = [row("way", noise=5.0)]
    assert comparison.compared(noisy)[0]["slower"] == "0 of 1"
    assert comparison.left_out(rows) == [{"program": "PEFT", "why": "is not installed", "points": 2}]
    assert comparison.compared([]) == []


def test_memory_is_that_of_parameters_gradients_and_the_peak_at_every_point():
    nothing = {"tnshare": entry(1e-3, peak=0, parameters=10), "dense": entry(1e-3, peak=0, parameters=1000)}
    rows = [
        row("memory", programs=nothing),
        row("memory", programs={**nothing, "dense": entry(1e-3, peak=180)}),
    ]
    (dense,) = comparison.compared(rows)
    assert dense["memory / tnshare"] == pytest.approx((100 * 19) ** 0.5)
    assert dense["points of memory"] == 2
    told = comparison.bytes_held(rows[1:])[1]
    assert told["point"] == rows[1]["name"]
    parts = ("parameters", "gradients", "peak beyond", "together")
    assert [told[part] for part in parts] == ["100 B", "100 B", "180 B", "380 B"]
    without = {name: {**own} for name, own in nothing.items()}
    del without["dense"]["peak"]  # not measured, as in maps
    assert comparison.compared([row("map", programs=without)])[0]["points of memory"] == 0


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
    assert comparison.verdicts(result(**{suite: good}))[place].holds is True
    assert comparison.verdicts(result(**{suite: bad}))[place].holds is False
    assert comparison.verdicts(result())[place].holds is None


def test_a_report_has_its_figures_in_it_and_says_where_it_was_measured(tmp_path):
    path = result_files.write(tmp_path, "quick", full_result())
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
    told = page.as_text(result_files.read(path))
    assert "dense" in told
    assert "memory: bytes" in told
    assert "1.20 to 1.90" in told
    assert "too slow for rounds" in told
    assert "700 ms" in told
    assert "what must hold" in told


@pytest.mark.parametrize("last", [1.2, 1.97, 3.0])
def test_the_legend_of_the_roofline_covers_no_number(last):
    figure = bars.roofline([roofline_row(times) for times in (1.4, 2.3, last)])
    figure.savefig(io.BytesIO())
    (axis,) = figure.axes
    legends = [*figure.legends, *filter(None, [axis.get_legend()])]
    assert len(legends) == 1
    covered = legends[0].get_window_extent()
    assert not [text.get_text() for text in axis.texts if covered.overlaps(text.get_window_extent())]
