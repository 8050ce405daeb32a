"""What the page on the paper shows and judges, from made results."""

from __future__ import annotations

import json

import numpy as np

from benchmarks.paper.pages import paper_figures, whole_page
from benchmarks.paper.pages.published import THOUSAND
from benchmarks.paper.pages.stats import estimate


def rows_of(errors, fraction=0.01):
    """Runs with given errors: {method: [of each seed]}."""
    return [
        {"method": m, "fraction": fraction, "seed": s, "multiclass_error": e}
        for m, each in errors.items()
        for s, e in enumerate(each)
    ]


def test_the_report_has_the_papers_tables(tmp_path):
    names = ("Single task, PCA", "GO-MTL, CNN", "STL", "UD-MTL-3", "DMTRL-TT")
    rows = [
        {**row, "binary_error": 1.0, "parameters": 10} for row in rows_of({n: [9.25, 9.75] for n in names})
    ]
    (tmp_path / "mnist.json").write_text(json.dumps({"commit": "c", "runs": rows}))
    page = whole_page.write(tmp_path).read_text()
    assert "<td>Single task</td><td>9.50 ± 3.18</td><td></td><td>16.89</td><td>11.52</td>" in page
    assert "<td>GO-MTL</td><td></td><td>9.50 ± 3.18</td><td>14.08</td><td>9.41</td>" in page
    assert (
        "<td>DMTRL-TT</td><td></td><td>9.50 ± 3.18</td><td>1.00 ± 0.00</td><td>0 K</td><td>1.00</td>" in page
    )
    assert "<td>7.31</td><td>2,187 K</td><td>0.50</td>" in page
    assert '<td class="fails">fails</td><td>9.50 ± 3.18 (2 seeds)</td>' in page
    assert "<td>DMTRL-TT</td><td></td><td>9.50 ± 3.18</td><td></td><td>7.31</td>" in page  # in Table 1
    assert "<td>UD-MTL-3</td><td></td><td>9.50 ± 3.18</td><td></td><td>9.34</td>" in page
    assert "<details><summary>mnist: 10 runs, hours not recorded</summary>" in page


def test_runs_in_jax_stand_beside_those_in_torch_of_the_same_settings(tmp_path):
    def written(name, error, protocols):
        made = rows_of({"STL": [error] * len(protocols)})
        pairs = zip(made, protocols, strict=True)
        runs = [{**row, "binary_error": 1.0, "parameters": 10, "protocol": p} for row, p in pairs]
        (tmp_path / f"{name}.json").write_text(json.dumps({"commit": "c", "runs": runs}))

    written("mnist", 9.25, ["p", "other"])
    assert "in JAX" not in whole_page.write(tmp_path).read_text()
    written("mnist-jax", 9.75, ["p", "p"])
    page = whole_page.write(tmp_path).read_text()
    start = "<td>STL</td><td>1 %</td>"
    assert f"{start}<td>0</td><td>9.75</td><td>9.25</td><td>1.00</td><td>1.00</td>" in page
    assert f"{start}<td>1</td><td>9.75</td><td></td><td>1.00</td><td></td>" in page


def sharing_of(method, values, fraction=0.1):
    """Runs of layers that share so much: rho, and the other way round as the mean cosine."""
    made = zip(rows_of({method: [1.0] * len(values)}, fraction), values, strict=True)
    layers = ("conv1", "conv2", "fc1")
    return [
        {
            **row,
            "sharing": dict(zip(layers, v, strict=True)),
            "similarity": dict(zip(layers, v[::-1], strict=True)),
        }
        for row, v in made
    ]


def write(folder, name, rows, **others):
    """A file of results."""
    whole = [{"binary_error": 1.0, "parameters": 10, **row} for row in rows]
    (folder / f"{name}.json").write_text(json.dumps({"commit": "c", "runs": whole, **others}))


def test_hard_sharing_is_compared_with_as_the_best_the_validated_and_the_papers(tmp_path):
    tested = {"UD-MTL-1": [6.0], "UD-MTL-2": [5.0], "UD-MTL-3": [4.6], "UD-MTL-Large": [4.5]}
    write(tmp_path, "mnist", rows_of({"STL": [5.0], "DMTRL-TT": [4.0], **tested}))
    tried = {"UD-MTL-1, rate 0.004": [6.8], "UD-MTL-1, rate 0.008": [9.7], "UD-MTL-3, rate 0.001": [7.5]}
    write(tmp_path, "mnist-validation", rows_of(tried))
    page = whole_page.write(tmp_path).read_text()
    roles = {
        "UD-MTL-Large": "best hard sharing",
        "UD-MTL-1": "N by cross-validation",
        "UD-MTL-3": "the paper&#x27;s N",
    }
    for name, role in roles.items():
        assert f"<td>{name} ({role})</td>" in page
        assert f"<th>{name} ({role}) minus it</th>" in page
        assert f"<td>DMTRL-TT beats {name} with 1 % of the images</td>" in page
    assert "<td>DMTRL-TT</td><td>1.00</td><td>0.50</td><td>2.00</td><td>0.60</td>" in page
    assert "<td>UD-MTL-2</td>" in page
    assert "15 % below UD-MTL-Large" in page
    assert "15 % below UD-MTL-1" not in page
    write(tmp_path, "mnist-validation", rows_of({**tried, "UD-MTL-3, rate 0.001": [6.0]}))
    assert "UD-MTL-3 (N by cross-validation, the paper&#x27;s N)" in whole_page.write(tmp_path).read_text()


def settings(name, eps):
    return {name: {"method": {"share": {"method": "laf", "eps": eps}}}}


def test_a_search_shows_rates_and_eps_in_columns_and_the_best_of_each_method(tmp_path):
    tried = {
        "DMTRL-LAF, rate 0.002": [7.5, 8.5],
        "DMTRL-LAF, rate 0.002, eps 0.1": [7.0],
        "STL, rate 0.001": [6.0],
    }
    rows = [*rows_of(tried), *rows_of({"STL, rate 0.001, distorted": [5.0]})]
    write(tmp_path, "mnist-validation", rows, protocol=settings("DMTRL-LAF, rate 0.002", 0.2))
    page = whole_page.write(tmp_path).read_text()
    laf = "<td>DMTRL-LAF</td><td>0.002</td>"
    assert f'{laf}<td>0.2</td><td></td><td>2</td><td class="">8.00</td>' in page
    assert f'{laf}<td>0.1</td><td></td><td>1</td><td class="best">7.00</td>' in page
    assert '<td>STL</td><td>0.001</td><td></td><td>distorted</td><td>1</td><td class="best">5.00</td>' in page
    write(tmp_path, "new-tasks-search", rows_of({"from scratch, rate 0.001": [70.0]}))
    assert (
        "new-tasks-search: error on the test drawings of seed 100" in whole_page.write(tmp_path).read_text()
    )


def test_runs_with_another_eps_stand_below_the_method(tmp_path):
    soft = {"DMTRL-LAF": [4.5], "DMTRL-LAF, eps 0.3": [4.7], "STL": [5.0]}
    write(tmp_path, "mnist", rows_of(soft), protocol=settings("DMTRL-LAF", 0.2))
    write(tmp_path, "mnist-eps", rows_of({"DMTRL-LAF": [4.9]}), protocol=settings("DMTRL-LAF", 0.1))
    page = whole_page.write(tmp_path).read_text()
    places = [
        page.index(f"<td>DMTRL-LAF{more}</td><td>{eps}</td><td>{error}</td>")
        for more, eps, error in (("", 0.2, "4.50"), (", eps 0.1", 0.1, "4.90"), (", eps 0.3", 0.3, "4.70"))
    ]
    assert places == sorted(places)
    assert "<td>DMTRL-LAF, eps 0.1</td><td>0.10</td>" in page  # STL minus it


def test_the_page_shows_other_fractions_and_all_that_was_run_with_a_thousand_images(tmp_path):
    rows = [*rows_of({"STL": [5.0, 5.0]}), *rows_of({"STL": [3.0, 3.5], "DMTRL-TT": [2.0, 2.5]}, 0.02)]
    rows += rows_of({"STL": [3.9], "UD-MTL-3": [3.6], "DMTRL-TT": [3.5]}, THOUSAND)
    write(tmp_path, "mnist", rows)
    page = whole_page.write(tmp_path).read_text()
    assert "Errors with more of the images, 2 seeds" in page
    assert "<td>DMTRL-TT</td><td>2.25 ± 3.18</td><td>1.00 ± 0.00</td>" in page
    assert "<td>Kang et al. 2011, PCA (not built here)</td><td></td><td></td><td></td><td>14</td>" in page
    assert "<td>GO-MTL, PCA</td><td></td><td></td><td></td><td>13.4</td>" in page
    for name, error in (("STL", "3.90"), ("UD-MTL-3", "3.60")):
        assert f"<td>{name}</td><td>{error}</td><td>1.00</td><td>1</td><td></td>" in page
        assert f"<td>DMTRL-TT beats {name} with 1,000 images</td>" in page


def test_alphabets_have_parameters_intervals_by_layer_and_rows_that_say_not_run(tmp_path):
    rows = sharing_of("DMTRL-TT", [(0.9, 0.5, 0.2), (0.5, 0.5, -0.1)])
    related = [{"fc1": {"most": [0, 1], "least": [1, 2]}}, {"fc1": {"most": [0, 3], "least": [1, 2]}}]
    rows = [{**row, "related": each} for row, each in zip(rows, related, strict=True)]
    write(tmp_path, "omniglot", [*rows, *rows_of({"STL": [2.0, 3.0], "UD-MTL-2": [2.0, 3.0]}, 0.1)])
    (tmp_path / "alphabets.png").write_bytes(b"")
    page = whole_page.write(tmp_path).read_text()
    assert '<td>UD-MTL-1</td><td class="open">not run</td>' in page
    assert "10 %: 2 seeds" in page
    assert "<td>STL</td><td>10 ± 0</td>" in page
    assert (
        "<td>0.700 ± 2.541</td><td>0.500 ± 0.000</td><td>0.050 ± 1.906</td><td>0.6500 ± 0.6353</td>" in page
    )
    assert "In 2 runs 2 different pairs come out as the most and 1 as the least related" in page
    assert "Georgian and Inuktitut as the most, Balinese and ULOG as the least" in page


def test_faces_are_means_over_seeds(tmp_path):
    rows = [{**row, "task_errors": [row["multiclass_error"], 20.0]} for row in rows_of({"STL": [40.0, 41.0]})]
    write(tmp_path, "adience", rows)
    page = whole_page.write(tmp_path).read_text()
    assert "<td>STL</td><td>1 %</td><td>2</td><td>40.50 ± 6.35</td><td>20.00 ± 0.00</td>" in page
    assert "Error against the part of the faces" in page


def test_bars_are_drawn_of_three_seeds_or_more():
    found = [estimate([1.0]), estimate([1.0, 2.0]), estimate([1.0, 2.0, 3.0])]
    assert np.isnan(paper_figures._halves(found)).tolist() == [True, True, False]


def drawn_by(monkeypatch, *given, **named):
    """The figure that would be saved."""
    seen = []
    monkeypatch.setattr(paper_figures, "_png", lambda figure: seen.append(figure) or b"")
    paper_figures.curves(*given, **named)
    (figure,) = seen
    figure.canvas.draw()
    return figure


def test_a_panel_of_its_own_has_paired_differences(monkeypatch):
    rows = rows_of({"STL": [5.0, 9.0], "DMTRL-TT": [4.0, 8.0], "UD-MTL-2": [5.5, 9.5]}, 0.1)
    shown = {name: name for name in ("STL", "DMTRL-TT", "UD-MTL-2")}
    figure = drawn_by(monkeypatch, rows, shown, {"multiclass_error": "error, %"}, "drawings, %", base="STL")
    means, differences = figure.axes
    assert [len(means.containers), len(differences.containers)] == [3, 2]
    assert [each[0].get_ydata().tolist() for each in differences.containers] == [[1.0], [-0.5]]
    assert differences.get_ylabel() == "points below STL (more is better)"
    (legend,) = figure.legends
    box = legend.get_window_extent()
    assert not any(box.overlaps(axes.get_tightbbox()) for axes in figure.axes)
    colours = [each[0].get_color() for each in means.containers]
    assert len(set(colours)) == 3
