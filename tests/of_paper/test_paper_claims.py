"""Intervals, claims and cited numbers, from made results."""

from __future__ import annotations

import json

import numpy as np
import pytest
from test_paper_page import rows_of, sharing_of

from benchmarks.paper.pages import cited
from benchmarks.paper.pages.claims import (
    mnist_claims,
    new_task_claims,
    omniglot_claims,
    order_claims,
    thousand_claims,
)
from benchmarks.paper.pages.published import THOUSAND
from benchmarks.paper.pages.stats import estimate, mean_of, paired
from benchmarks.showing import citing


def test_intervals_are_students():
    found = estimate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert (found.mean, found.count) == (3.0, 5)
    assert found.half == pytest.approx(2.7764 * np.sqrt(2.5 / 5), rel=1e-4)
    assert str(found) == "3.00 ± 1.96"
    assert str(estimate([2.0])) == "2.00"
    assert estimate([]) is None
    rows = rows_of({"a": [1.0, 2.0], "b": [2.0, 4.0, 9.0]})
    assert paired(rows, "a", "b", 0.01, "multiclass_error").mean == 1.5
    assert mean_of(rows, "c", 0.01, "multiclass_error") is None


def test_claims_can_hold_and_fail():
    def judged(found):
        return {claim.text: claim.holds for claim in found}

    good = {"DMTRL-LAF": [4.0, 4.2], "DMTRL-Tucker": [4.1, 4.3], "DMTRL-TT": [4.0, 4.0]}
    others = {"STL": [5.0, 5.4], "UD-MTL-3": [4.8, 4.9]}
    hard = ("UD-MTL-3",)
    assert set(judged(mnist_claims(rows_of(good | others), hard)).values()) == {True}
    bad = {name: [e + 2 for e in each] for name, each in good.items()}
    assert set(judged(mnist_claims(rows_of(bad | others), hard)).values()) == {False}
    assert set(judged(mnist_claims([], hard)).values()) == {None}
    kinds, classic = ("PCA", "CNN"), ("Single task", "GO-MTL")
    table = {"Single task, PCA": [9.0], "GO-MTL, PCA": [8.0], "Single task, CNN": [7.0], "GO-MTL, CNN": [6.0]}
    assert set(judged(order_claims(rows_of(table | good), kinds, classic)).values()) == {True}
    swapped = table | {"GO-MTL, PCA": [9.5], "GO-MTL, CNN": [7.5], "Single task, CNN": [3.0]}
    assert set(judged(order_claims(rows_of(swapped | good), kinds, classic)).values()) == {False}
    thousand = rows_of({"DMTRL-TT": [5.9], "DMTRL-LAF": [6.1]}, THOUSAND)
    assert list(judged(thousand_claims(thousand, [])).values()) == [False, None, True]
    beside = judged(thousand_claims([*thousand, *rows_of({"STL": [6.0]}, THOUSAND)], ["STL"]))
    assert list(beside.values())[3:] == [False, None, True]
    few = rows_of({"codes only": [40.0], "from scratch": [50.0]}, 0.05)
    assert list(judged(new_task_claims(few, "codes only", "from scratch")).values()) == [True, None]


@pytest.mark.parametrize(
    ("codes", "scratch", "verdict"),
    [
        ([40.0, 41.0, 40.0], [50.0, 52.0, 49.0], "holds, beyond chance"),
        ([40.0, 41.0, 40.0], [50.0, 52.0, 30.0], "holds, within chance"),
        ([50.0, 52.0, 30.0], [40.0, 41.0, 40.0], "fails, within chance"),
        ([50.0, 52.0, 49.0], [40.0, 41.0, 40.0], "fails, beyond chance"),
        ([40.0], [50.0], "holds"),
        ([50.0], [40.0], "fails"),
        ([], [40.0], "not run"),
    ],
)
def test_verdicts_say_what_is_beyond_chance(codes, scratch, verdict):
    rows = rows_of({"codes only": codes, "from scratch": scratch}, 0.05)
    found = new_task_claims(rows, "codes only", "from scratch")[0]
    assert found.verdict == verdict
    assert found.figures.startswith({"holds": "lower by ", "fails": "higher by "}.get(verdict[:5], ""))
    assert "-" not in found.figures


def test_claims_on_depth_are_judged_by_the_difference_within_each_run():
    rows = sharing_of("DMTRL-TT", [(0.9, 0.5, 0.2), (0.5, 0.5, -0.1)])
    rows += sharing_of("DMTRL-LAF", [(0.9, 0.5, 0.2), (0.5, 0.5, 0.4)])
    found = {c.text: c for c in omniglot_claims(rows, ()) if "falls" in c.text}
    falls = found["DMTRL-TT: rho falls from conv1 to fc1"]
    assert falls.verdict == "holds, beyond chance"  # by 0.7 and 0.6, though the runs are far apart
    assert falls.figures.startswith("by 0.6500 ± 0.6353 (2 seeds): conv1 0.700, conv2 0.500, fc1 0.050")
    rises = found["DMTRL-TT: the mean cosine of weights falls from conv1 to fc1"]
    assert rises.verdict == "fails, beyond chance"
    assert found["DMTRL-LAF: rho falls from conv1 to fc1"].verdict == "holds, within chance"
    assert found["DMTRL-Tucker: rho falls with depth"].verdict == "not run"


@pytest.mark.parametrize(
    ("errors", "verdict", "words"),
    [
        ([3.0, 4.0, 5.0], "holds, beyond chance", "33.3 % below: more by 1.10"),
        ([3.0, 4.0, 7.0], "holds, within chance", "22.2 % below: more by 0.43"),
        ([4.8, 5.9, 7.0], "fails, beyond chance", "1.7 % below: too little by 0.80"),
    ],
)
def test_a_share_below_is_judged_seed_by_seed(errors, verdict, words):
    rows = rows_of({"DMTRL-TT": errors, "STL": [5.0, 6.0, 7.0]})
    (found,) = (c for c in mnist_claims(rows, ()) if "15 % below STL" in c.text)
    assert found.verdict == verdict
    assert found.figures.startswith(words)


def test_claims_name_what_an_experiment_has_few_of():
    texts = [c.text for c in (*omniglot_claims([], ("UD-MTL-3",)), *new_task_claims([], "codes", "scratch"))]
    assert "DMTRL-LAF beats UD-MTL-3 with 10 % of the drawings" in texts
    assert "codes beats scratch with two drawings of every character" in texts
    assert not [text for text in texts if "images" in text]
    assert thousand_claims([], [])[0].text == "DMTRL-LAF has an error of at most 6 % with 1,000 images"


def test_documents_cite_what_the_results_say(tmp_path):
    rows = [
        {"method": method, "fraction": 0.01, "seed": seed, "multiclass_error": error, "parameters": 7000}
        for method, errors in {"STL": (5.0, 6.0, 9.0), "DMTRL-TT": (4.0, 4.5)}.items()
        for seed, error in enumerate(errors)
    ]
    rows[-1]["sharing"] = {"conv1": 0.9, "fc1": 0.75}
    rows[-1]["cpu_seconds"] = 36
    (tmp_path / "paper").mkdir()
    (tmp_path / "paper" / "mnist.json").write_text(json.dumps({"runs": rows}))
    found = cited.facts(tmp_path / "paper" / "mnist.json")
    assert found["STL 1 %"] == pytest.approx(20 / 3)
    assert found["STL 1 %, seeds"] == 3
    assert found["STL 1 %, seed 2"] == 9.0
    assert found["STL 1 %, parameters"] == 7000
    assert found["DMTRL-TT 1 %, sharing fc1"] == 0.75
    assert found["DMTRL-TT 1 %, sharing falls"] == pytest.approx(0.15)
    assert found["hours 1 %"] == 0.01
    assert found["DMTRL-TT below STL 1 %"] == pytest.approx(1.25)  # of the two seeds that both have
    assert found["DMTRL-TT below STL 1 %, least"] == 1.0
    assert found["DMTRL-TT below STL 1 %, in per cent"] == pytest.approx(100 * 1.25 / 5.5)
    assert found["DMTRL-TT below STL 1 %, half"] == pytest.approx(12.706 * 0.25, rel=1e-3)
    assert "DMTRL-TT 1 %, binary" not in found
    text = "4.25<!-- paper/mnist.json: DMTRL-TT 1 % --> and 6.6<!-- paper/mnist.json: STL 1 % -->"
    assert citing.disagreements(text, tmp_path) == ["STL 1 %: 6.6 is written, 6.6667 was found"]
    assert citing.updated(text, tmp_path) == text.replace("6.6", "6.7")
