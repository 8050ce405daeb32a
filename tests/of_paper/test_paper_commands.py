"""The paper's experiments from the command line to the report, on made data in the official layouts."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
import tnshare_torch as tnt
import torch
from test_paper_images import archives_in, digits_in, faces_in
from test_paper_page import rows_of
from tolerances import close

from benchmarks.paper import commands
from benchmarks.paper.__main__ import main
from benchmarks.paper.data.adience_files import adience as faces
from benchmarks.paper.experiments import adience, mnist, new_tasks, omniglot, ratios, table1
from benchmarks.paper.finished_runs import digest
from benchmarks.paper.pages import claims, whole_page
from benchmarks.paper.pages.published import THOUSAND
from benchmarks.paper.pages.report_digits import validated
from benchmarks.paper.training.experiment import Experiment, Protocol
from benchmarks.paper.training.networks import CharacterNet, alike_networks
from benchmarks.paper.training.recipe import Recipe

SHORT = Protocol(Recipe(1, 30, 1e-3), Recipe(1, 30, 1e-3))


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """Made data, and results of their own."""
    digits_in(tmp_path / "data" / "mnist", count=120)
    archives_in(
        tmp_path / "data" / "omniglot",
        {"images_background": {"Greek": 2, "Latin": 3}, "images_evaluation": {"Tengwar": 2}},
    )
    faces_in(tmp_path / "data" / "adience", folds=5, each=6)
    for module in (mnist, omniglot, adience):
        monkeypatch.setattr(module, "PROTOCOL", SHORT)
    return tmp_path


def run(folders, *arguments):
    places = {"--data": "data", "--work": "w", "--results": "r"}
    main([*arguments, *(word for option, name in places.items() for word in (option, str(folders / name)))])
    return {p.name: p for p in (folders / "r").iterdir()}


def test_the_digits_from_the_command_line_to_the_report(folders, capsys):
    found = run(folders, "mnist", "--fractions", "0.5", "--methods", "STL", "UD-MTL-3", "DMTRL-LAF")
    rows = json.loads(found["mnist.json"].read_text())["runs"]
    assert [(r["method"], r["steps"]) for r in rows] == [("DMTRL-LAF", 4), ("STL", 4), ("UD-MTL-3", 4)]
    before = found["mnist.json"].read_text()
    (folders / "data").rename(folders / "elsewhere")  # what is finished needs no images
    capsys.readouterr()
    run(folders, "mnist", "--fractions", "0.5", "--methods", "STL", "UD-MTL-3", "DMTRL-LAF")
    assert before == found["mnist.json"].read_text()
    assert capsys.readouterr().err == ""  # no empty bar
    page = run(folders, "report")["report.html"].read_text()
    assert "<img alt" in page
    assert "nothing was measured" in page  # of the faces


def test_digits_with_validated_rates_stand_in_the_report_instead_of_the_others(folders, monkeypatch):
    monkeypatch.setattr(mnist, "VALIDATED", {"UD-MTL-3": 3e-3})
    run(folders, "mnist", "--fractions", "0.5", "--methods", "STL", "UD-MTL-3")
    found = run(folders, "mnist-validated", "--fractions", "0.5", "--methods", "UD-MTL-3")
    files = [json.loads(found[f"{name}.json"].read_text()) for name in ("mnist", "mnist-validated")]
    assert [each["protocol"]["UD-MTL-3"]["second"]["rate"] for each in files] == [2e-3, 3e-3]
    single, first, again = *files[0]["runs"], *files[1]["runs"]
    assert validated(files[0]["runs"], files[1]["runs"]) == [again, single]
    assert first["protocol"] != again["protocol"]


def test_omniglot_draws_the_most_and_the_least_related_alphabets(folders):
    found = run(folders, "omniglot", "--methods", "UD-MTL-2", "DMTRL-TT")
    rows = json.loads(found["omniglot.json"].read_text())["runs"]
    assert [r["method"] for r in rows] == ["DMTRL-TT", "UD-MTL-2"]
    assert set(rows[0]["related"]["fc1"]) == {"most", "least"}
    assert len(rows[0]["task_errors"]) == 3
    assert found["alphabets.png"].read_bytes().startswith(b"\x89PNG")
    (folders / "data").rename(folders / "elsewhere")
    run(folders, "omniglot", "--methods", "UD-MTL-2", "DMTRL-TT")  # finished: no drawings are needed
    assert "The most and the least related" in run(folders, "report")["report.html"].read_text()


def test_the_picture_of_related_alphabets_has_every_seed_and_no_run_of_other_settings(folders, monkeypatch):
    drawn = []
    monkeypatch.setattr(omniglot, "characters", lambda *given: drawn.append(given) or b"")
    work, results = folders / "w", folders / "r"
    made = omniglot.experiment(work, results)
    related = {"fc1": {"most": [0, 1], "least": [1, 2]}}

    def add(name, seed, protocol):
        made.runs.add(
            {"method": name, "fraction": 0.1, "seed": seed, "protocol": protocol, "related": related}
        )

    current = {n: digest(made.settings(made.methods[n])) for n in ("DMTRL-TT", "DMTRL-Tucker")}
    results.mkdir()
    add("DMTRL-Tucker", 0, "stale")
    omniglot.draw_alphabets(made, folders / "data", results / "alphabets.png")
    assert drawn == []
    for seed in (1, 0):
        add("DMTRL-TT", seed, current["DMTRL-TT"])
    omniglot.draw_alphabets(made, folders / "data", results / "alphabets.png")
    titles, lines = drawn.pop()
    assert titles == ["most related, by DMTRL-TT's fc1", "least related, by DMTRL-TT's fc1"]
    assert list(lines) == ["seed 0", "seed 1"]
    assert [name for name, _ in lines["seed 1"]] == ["Greek", "Latin", "Latin", "Tengwar"]
    add("DMTRL-Tucker", 3, current["DMTRL-Tucker"])
    omniglot.draw_alphabets(made, folders / "data", results / "alphabets.png")
    assert list(drawn.pop()[1]) == ["seed 3"]


def test_new_alphabets_are_fitted_in_three_ways(folders, monkeypatch):
    settings = new_tasks.NewTasks(SHORT, Recipe(1, 16, 1e-3), {"codes only": 0.5}, fraction=0.1, held_out=1)
    rates, fit = [], new_tasks.fit
    monkeypatch.setattr(new_tasks, "fit", lambda *given: rates.append(given[3].rate) or fit(*given))
    data, work, results = folders / "data", folders / "w", folders / "r"
    monkeypatch.setattr(new_tasks, "DRAWN", (1, 2))
    fitted, tested = [], new_tasks.tested

    def killed(*given):
        fitted.append(given[-2:])
        if len(fitted) == 3:
            raise KeyboardInterrupt
        return tested(*given)

    monkeypatch.setattr(new_tasks, "tested", killed)
    with pytest.raises(KeyboardInterrupt):
        new_tasks.run(data, work, results, [0], settings)
    assert len(json.loads((results / "new-tasks.json").read_text())["runs"]) == 2
    new_tasks.run(data, work, results, [0], settings)  # goes on with the one that was killed
    assert fitted[3] == fitted[2]
    assert len(fitted) == 3 + 4
    rows = json.loads((results / "new-tasks.json").read_text())["runs"]
    assert {(r["method"], r["drawings"]) for r in rows} == {
        (way, n) for way in ("codes only", "from scratch", "fine-tuned") for n in (1, 2)
    }
    assert rates[-3:] == [0.5, 1e-3, 1e-3]  # two drawings: codes, scratch, fine-tuned
    sizes = {r["method"]: r["parameters"] for r in rows}
    assert sizes["from scratch"] == sizes["fine-tuned"] > 100 * sizes["codes only"]
    monkeypatch.setattr(new_tasks, "trained", None)
    new_tasks.run(folders / "none", work, results, [0], settings)  # finished: nothing is read or trained


def test_networks_of_the_known_alphabets_are_kept_for_those_held_out(folders):
    data = omniglot.omniglot(folders / "data")
    for held_out in (1, 2, 1):
        settings = new_tasks.NewTasks(SHORT, Recipe(1, 16, 1e-3), fraction=0.1, held_out=held_out)
        shared, new = new_tasks.known_alphabets(data, folders / "w", settings, seed=0)
        assert (len(shared.tasks), len(new)) == (3 - held_out, held_out)
    assert len(list((folders / "w").rglob("*.pt"))) == 2


def test_fitting_codes_leaves_what_is_shared_alone():
    known = tnt.share(
        alike_networks([lambda: CharacterNet(3), lambda: CharacterNet(4)], (), 0), "laf", ranks=2
    )
    heads = alike_networks([lambda: CharacterNet(5)], (), 1)
    head = heads[0].fc2.weight.detach().clone()
    fresh = new_tasks.with_new_tasks(known, heads)
    assert len(fresh.tasks) == 1
    assert len(known.tasks) == 2
    model = fresh.task_model(0)
    mean = torch.stack([net.fc1.weight for net in known.unshare()]).mean(0)
    close(model.fc1.weight, mean, 2 + 2 + 2)
    torch.testing.assert_close(model.fc2.weight.detach(), head)
    started = new_tasks.started(new_tasks.CODES, known, [5], 1)
    trains = {name for name, p in started.named_parameters() if p.requires_grad}
    assert all(name.startswith("tasks.") for name in trains)
    assert any(":" in name for name in trains)


def test_alphabets_are_split_into_known_and_new_ones():
    known, new = new_tasks.split(50, 10, seed=0)
    assert sorted(known + new) == list(range(50))
    assert len(new) == 10
    assert new_tasks.split(50, 10, seed=1)[1] != new


def test_the_drawings_of_every_character_are_divided(folders):
    data = omniglot.omniglot(folders / "data")
    draw = omniglot.drawer(data, range(3))(0.1, 0)
    assert [len(labels) for labels in draw.train.labels] == [2 * 2, 2 * 3, 2 * 2]
    for train, test in zip(draw.train.labels, draw.test.labels, strict=True):
        assert (torch.bincount(train) == 2).all()
        assert (torch.bincount(test) == 18).all()
    seen = {image.numpy().tobytes() for image in torch.cat(list(draw.train.images))}
    assert not seen & {image.numpy().tobytes() for image in torch.cat(list(draw.test.images))}


def test_faces_are_trained_on_as_published(folders):
    size = 35
    draw = adience.drawer(faces(folders / "data", (1, 2)), faces(folders / "data", (0,)), size)
    given = draw(0.5, 0)
    assert [len(labels) for labels in given.train.labels] == [6, 6]
    experiment = Experiment("adience", SHORT, adience.methods(size), folders / "w", folders / "r")
    jobs = [(experiment.methods[name], 0.5, 0) for name in ("STL", "UD-MTL-5", "DMTRL-LAF")]
    experiment.go(jobs, draw)
    rows = {r["method"]: r for r in experiment.runs.rows()}
    assert len(rows["STL"]["task_errors"]) == 2
    assert set(rows["DMTRL-LAF"]["sharing"]) == {"conv1", "conv2", "conv3", "fc1", "fc2"}  # not the heads
    assert rows["UD-MTL-5"]["parameters"] < 0.6 * rows["STL"]["parameters"]
    experiment.collect()
    assert "Error of each task" in whole_page.write(folders / "r").read_text()


def test_classic_methods_go_on_where_they_were_killed(folders, monkeypatch):
    grids = {name: (model, {"C": (1.0,)}) for name, (model, _) in list(table1.GRIDS.items())[:2]}
    monkeypatch.setattr(table1, "GRIDS", grids)
    monkeypatch.setattr("benchmarks.paper.experiments.shallow_table.GRIDS", grids)
    called, searched = [], table1.searched

    def killed(*given):
        called.append(given[0])
        if len(called) == 4:
            raise KeyboardInterrupt
        return searched(*given)

    monkeypatch.setattr(table1, "searched", killed)
    with pytest.raises(KeyboardInterrupt):
        run(folders, "table1", "--fractions", "1")
    found = run(folders, "table1", "--fractions", "1")
    assert called == [*grids, *grids, list(grids)[1]]
    rows = json.loads(found["table1.json"].read_text())["runs"]
    assert [r["method"] for r in rows] == sorted(
        f"{name}, {kind}" for name in grids for kind in ("CNN", "PCA")
    )
    assert rows[0]["chosen"] == {"C": 1.0}
    assert [r["steps"] for r in rows] == [8, 0, 8, 0]
    assert all({"cpu_seconds", "commit"} <= r.keys() for r in rows)
    monkeypatch.setattr(table1, "searched", None)
    run(folders, "table1", "--fractions", "1")


def test_features_of_a_fold_have_not_seen_what_it_holds_out(folders, monkeypatch):
    seen, trained = [], table1.trained
    monkeypatch.setattr(table1, "trained", lambda *given: seen.append(given[1].train) or trained(*given))
    draw = mnist.load(folders / "data")(1.0, 0)
    folds, whole, _ = table1.parts_of(draw, "CNN")
    assert [len(tasks.labels) for tasks in seen] == [80, 80, 80, 120]
    held = []
    for part, tasks in zip(folds, seen, strict=False):
        known = {image.numpy().tobytes() for image in tasks.images}
        held.append({image.numpy().tobytes() for image in part.held.images})
        assert not known & held[-1]
        assert [len(each) for each in part.features] == [80, 40]
    assert len(set.union(*held)) == 120  # every image is held out once
    assert len(whole.features[1]) == len(draw.test.labels)
    assert table1.settings()["network"]["method"]["rate"] == mnist.VALIDATED.get("UD-MTL-3")


def test_ratios_are_those_of_trained_networks_by_both_rules(folders, monkeypatch):
    monkeypatch.setattr(ratios, "EPS", (0.3,))
    monkeypatch.setattr(ratios, "FACTORISATIONS", {"TT": "tt"})
    found = run(folders, "ratios", "--fractions", "0.2")
    rows = {r["method"]: r for r in json.loads(found["ratios.json"].read_text())["runs"]}
    bound, per_svd = rows["TT, one bound, eps 0.3"], rows["TT, per SVD, eps 0.3"]
    assert 0 < per_svd["kept"] < bound["kept"]  # the authors' rule cuts more
    assert bound["parameters"] == round(bound["kept"] * mnist.DENSE)
    assert all({"cpu_seconds", "commit"} <= row.keys() for row in rows.values())
    monkeypatch.setattr(ratios, "kept_parameters", None)
    (folders / "data").rename(folders / "elsewhere")
    run(folders, "ratios", "--fractions", "0.2")  # finished: nothing is read or shared


@pytest.mark.parametrize("command", ["mnist", "table1", "ratios", "new-tasks"])
def test_a_run_that_was_kept_but_not_collected_is_collected_by_the_next_command(
    folders, command, monkeypatch
):
    settings = new_tasks.NewTasks(SHORT, Recipe(1, 16, 1e-3), fraction=0.1, held_out=1)
    monkeypatch.setattr(new_tasks.run, "__defaults__", (settings,))
    monkeypatch.setattr(new_tasks, "DRAWN", (1,))
    monkeypatch.setattr(table1, "GRIDS", {"Single task": (table1.GRIDS["Single task"][0], {"C": (1.0,)})})
    monkeypatch.setattr("benchmarks.paper.experiments.shallow_table.GRIDS", table1.GRIDS)
    monkeypatch.setattr(ratios, "EPS", (0.3,))
    monkeypatch.setattr(ratios, "FACTORISATIONS", {"TT": "tt"})
    if command == "mnist":
        options = ["--fractions", "0.5", "--methods", "UD-MTL-2", "UD-MTL-3"]
    else:
        options = [] if command == "new-tasks" else ["--fractions", "1"]
    path = run(folders, command, *options)[f"{command}.json"]
    whole = json.loads(path.read_text())["runs"]
    for kept in ([], whole[:-1]):
        path.write_text(json.dumps({"runs": kept}))
        run(folders, command, *options)
        assert json.loads(path.read_text())["runs"] == whole


def test_a_thousand_images_have_a_table_of_their_own(folders, monkeypatch):
    called = []
    monkeypatch.setattr(commands, "run_mnist", called.append)
    monkeypatch.setattr(commands, "run_table1", called.append)
    commands.run_thousand(commands.Options(True, None, None, None))
    assert [(each.fractions, tuple(each.methods)) for each in called] == [([THOUSAND], claims.SOFT)] * 2
    assert round(THOUSAND * 60_000) == 1_000
    rows = [
        {**row, "binary_error": 1.0, "parameters": 10}
        for row in rows_of({"GO-MTL, PCA": [12.5], "DMTRL-TT": [4.5]}, THOUSAND)
    ]
    (folders / "mnist.json").write_text(json.dumps({"commit": "c", "runs": rows}))
    page = whole_page.write(folders).read_text()
    assert "<td>GO-MTL, PCA</td><td>12.50</td><td>1.00</td><td>1</td><td>13.4</td>" in page
    assert "<td>DMTRL-TT</td><td>4.50</td><td>1.00</td><td>1</td><td>below 6</td>" in page


def test_quick_and_full_versions():
    options = commands.Options(False, None, None, None)
    assert options.draws(0.1, (0.05, 0.1), (0, 1)) == [(0.1, 0)]
    full = replace(options, full=True)
    assert full.draws(0.1, (0.05, 0.1), (0, 1)) == [(0.05, 0), (0.05, 1), (0.1, 0), (0.1, 1)]
    assert replace(full, fractions=[0.2], seeds=[3]).draws(0.1, (0.05,), (0, 1)) == [(0.2, 3)]


def test_the_command_line_says_what_there_is(capsys):
    with pytest.raises(SystemExit):
        main(["letters"])
    assert "invalid choice: 'letters'" in capsys.readouterr().err
    assert sys.modules["benchmarks.paper.commands"] is commands


def test_rates_and_eps_are_cross_validated_under_names_of_their_own(folders):
    def validate(*others):
        options = ("--folds", "3", "--repeats", "1", "--fractions", "0.2", *others)
        found = run(folders, "mnist", *options)
        assert "mnist.json" not in found  # nothing was tested
        return json.loads(found["mnist-validation.json"].read_text())

    validate("--methods", "UD-MTL-3", "DMTRL-LAF", "--rates", "1e-3", "2e-3", "--eps", "0.1", "0.3")
    found = validate("--methods", "UD-MTL-3", "--rates", "4e-3")  # what was tried before is kept
    names = {f"UD-MTL-3, rate 0.00{n}" for n in (1, 2, 4)}
    names |= {f"DMTRL-LAF, rate 0.00{n}, eps {eps}" for n in (1, 2) for eps in (0.1, 0.3)}
    assert {row["method"] for row in found["runs"]} == set(found["protocol"]) == names
    for name, settings in found["protocol"].items():
        assert f"rate {settings['second']['rate']:g}" in name
        assert "eps" not in name or name.endswith(f"eps {settings['method']['share']['eps']:g}")
    assert all(row["steps"] == 2 for row in found["runs"])  # of 24 images in batches of 30, in two stages
    assert "UD-MTL-3, rate 0.004" in run(folders, "report")["report.html"].read_text()
