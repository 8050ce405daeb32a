"""Figures can be read by people who see colours differently, and show what they are drawn for."""

from __future__ import annotations

from itertools import combinations, pairwise

import matplotlib.colors
import numpy as np
import pytest
from measured import entry, result, row

from benchmarks.showing import bars, break_even_maps, curves, figures, looks

# Machado, Oliveira and Fernandes (2009), severity 1, of linear red, green and blue.
SEEN = {
    "by most": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
}
XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)
APART = 15  # of Lab; 2 or so is the least that is noticed side by side
UNLIKE = set("os^v<>DPX*")  # markers that are told apart when small


def lab(colour, seen):
    """CIE Lab (D65) of a colour as it is seen."""
    rgb = np.array(matplotlib.colors.to_rgb(colour))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    xyz = XYZ @ np.clip(SEEN[seen] @ linear, 0, 1) / XYZ.sum(1)
    x, y, z = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def alike(found):
    """Pairs of programs whose lines someone cannot tell apart."""
    return [
        (a, b, seen)
        for (a, one), (b, other) in combinations(found.items(), 2)
        for seen in SEEN
        if one.dashes == other.dashes
        and np.linalg.norm(lab(one.colour, seen) - lab(other.colour, seen)) < APART
    ]


def test_lines_are_told_apart_whoever_sees_them():
    assert alike(looks.LOOKS) == []
    orange, olive = looks.Look("#E69F00", "^"), looks.Look("#B8A800", "v")
    assert alike({"orange": orange, "olive": olive}) == [
        ("orange", "olive", "protanopia"),
        ("orange", "olive", "deuteranopia"),
    ]
    assert alike({"orange": orange, "olive": olive._replace(dashes=":")}) == []


def test_the_colours_of_people_who_see_most_of_them_are_those_of_the_textbook():
    np.testing.assert_allclose(lab("#FFFFFF", "by most"), [100, 0, 0], atol=0.01)
    np.testing.assert_allclose(lab("#FF0000", "by most"), [53.24, 80.09, 67.20], atol=0.02)
    for seen in SEEN:  # grey stays grey
        np.testing.assert_allclose(lab("#808080", seen), lab("#808080", "by most"), atol=0.01)


def test_families_have_dashes_and_programs_markers_of_their_own():
    families = {}
    for name, look in looks.LOOKS.items():
        families.setdefault(look.dashes, set()).add(name.split(",")[0].split()[0])
    assert families == {
        "-": {"tnshare", "opt_einsum", "einsum", "authors"},
        "-.": {"dense"},
        ":": {"tltorch"},
        "--": {"LoRA", "PEFT"},
    }
    markers = [(look.marker, look.fill) for look in looks.LOOKS.values()]
    assert len(set(markers)) == len(markers)
    assert {marker for marker, _ in markers} <= UNLIKE


def mapped(materialised, dense=4e-3):
    """Rows of a map: times of materialised for each rank and batch, beside a factored 1 ms."""
    ours = {"tnshare": entry(1e-3)} | ({"dense": entry(dense)} if dense else {})
    return [
        row(
            "map",
            programs=ours
            | ({"tnshare factored": entry(1e-3), "tnshare materialised": entry(time)} if time else {}),
            ranks=(rank, rank, 4),
            batch=batch,
        )
        for rank, times in zip((8, 16), materialised, strict=True)
        for batch, time in zip((1, 64), times, strict=True)
    ]


def test_maps_say_where_they_end_and_where_neither_is_faster():
    figure = break_even_maps.break_even(mapped([(50e-3, 2e-3), (2e-3, 0.5e-3)]))
    left, right, bar = figure.axes
    assert [axis.get_title() for axis in (left, right)] == [
        "time of tnshare materialised / tnshare factored",
        "time of dense / tnshare",
    ]
    assert bar._colorbar.extend == "both"
    assert [text.get_text() for text in left.texts] == ["50", "2", "2", "0.5"]
    edges = {tuple(map(tuple, line.get_xydata())) for line in left.lines}
    assert edges == {((0.5, 0.5), (1.5, 0.5)), ((0.5, 0.5), (0.5, 1.5))}  # around the cell at the top right
    assert not right.lines


def test_maps_without_numbers_are_left_out():
    figure = break_even_maps.break_even(mapped([(None, None), (None, None)]))
    assert [axis.get_title() for axis in figure.axes[:-1]] == ["time of dense / tnshare"]
    nothing = mapped([(None, None), (None, None)], dense=None)
    assert not [plot.name for plot in figures._plots({"apply": nothing}) if plot.rows]
    (plot,) = (p for p in figures._plots({"apply": mapped([(1e-3, 1e-3), (1e-3, 2e-3)])}) if p.rows)
    assert all(words in plot.caption for words in ("composing the weights", "dense / tnshare above 1"))


@pytest.mark.parametrize(("theirs", "left", "right"), [(4e-3, 1, 4), (0.5e-3, 0.5, 1)])
def test_bars_start_where_neither_is_faster(theirs, left, right):
    programs = {"tnshare": entry(1e-3), "dense": entry(theirs)}
    axis = bars.ways([row("way", "each", programs)]).axes[2]
    (patch,) = axis.patches
    ends = patch.get_x(), patch.get_x() + patch.get_width()
    assert sorted(ends) == pytest.approx([left, right])
    low, high = axis.get_xlim()
    assert low < min(left, 1)
    assert high > right


def test_what_parameters_and_gradients_take_is_in_the_figure_of_memory():
    programs = {"tnshare": entry(1e-3, peak=2_000_000), "dense": entry(4e-3, peak=0, parameters=50_000_000)}
    programs["tnshare within 1/2"] = entry(2e-3, peak=1_000_000)
    for each in programs.values():
        each["gradients"] = each["parameters"] = max(each["parameters"], 500_000)
    axis = curves.time_and_memory([row("memory", "each", programs)]).axes[2]
    path = next(line for line in axis.lines if line.get_label() == "with a memory_limit")
    assert path.get_xydata().tolist() == [[1.0, 3.0], [2.0, 2.0]]
    assert [100.0] in [line.get_ydata().tolist() for line in axis.lines]


def test_every_factorisation_and_mode_has_a_figure_of_its_own(tmp_path):
    def other(kind, method, training, way="mixed", tasks=16):
        made = row(kind, way, tasks=tasks)
        made["case"] |= {"method": method, "training": training}
        if not training:
            for program in made["programs"].values():
                program["backward"] = [0.0, 0.0, 0.0]
        return made

    kinds = [("tucker", True), ("tucker", False), ("tt", True)]
    suites = {
        suite: [other(suite, *kind, tasks=tasks) for kind in kinds for tasks in (4, 16)]
        for suite in ("scale", "mixed", "memory")
    }
    modes = ("tucker-training", "tucker-inference", "tt-training")
    pictures = figures.draw(result(**suites), tmp_path, "full")
    assert [p.path.stem for p in pictures] == [
        f"full-{suite}-{mode}" for suite in ("scale", "memory", "mixed") for mode in modes
    ]
    assert "tucker, inference" in next(p for p in pictures if "inference" in p.path.stem).caption
    one = curves.scaling([r for r in suites["scale"] if not r["case"]["training"]])
    assert [axis.get_title() for axis in one.axes] == ["forward"]
    assert len(one.axes[0].lines[0].get_xdata()) == 2


def test_legends_name_tnshare_first():
    figure = curves.growing([row("mixed", "mixed", batch=b) for b in (16, 128)])
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names == ["tnshare", "dense"]
    ticks = [float(text.get_text().replace(",", "")) for text in figure.axes[0].get_yticklabels()]
    assert all(below < above for below, above in pairwise(ticks))
