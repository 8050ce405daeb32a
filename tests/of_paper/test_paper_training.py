"""Training as in the paper's experiments: losses, steps, errors, and runs that go on where they stopped."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import tnshare_torch as tnt
import torch
from tolerances import close
from torch import nn
from torch.nn import functional

import tnshare as tn
from benchmarks.paper.finished_runs import Runs, digest
from benchmarks.paper.training.experiment import Draw, Experiment, Protocol, described, trained
from benchmarks.paper.training.methods import LARGE, STL, chosen, deep_methods
from benchmarks.paper.training.networks import CharacterNet, FaceNet, LeNet, alike_networks
from benchmarks.paper.training.recipe import Recipe, fit, half_cosine
from benchmarks.paper.training.tasks import OneAgainstRest, OwnClasses, prepared


class Small(nn.Module):
    """Two linear layers that can be run in parts, as the networks of the paper can."""

    layers = ("first", "second")

    def __init__(self, outputs=1):
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, outputs)

    def forward(self, x, first=0, last=2):
        for layer in range(first, last):
            x = functional.relu(self.first(x.flatten(1))) if layer == 0 else self.second(x)
        return x


def nets(count=3, alike=("first",), seed=0, outputs=None):
    makes = [lambda n=n: Small(n) for n in (outputs or [1] * count)]
    return alike_networks(makes, alike, seed)


def images(n=24, classes=3, seed=0):
    """2 x 2 pixels whose class is which of the first pixels is brightest."""
    x = torch.rand(n, 1, 2, 2, generator=torch.Generator().manual_seed(seed))
    return OneAgainstRest(prepared(x), x.flatten(1)[:, :classes].argmax(1), classes)


def draw(fraction=0.5, seed=0):
    return Draw(
        fraction,
        seed,
        images(24),
        images(40, seed=1),
        lambda alike, width: nets(alike=Small.layers[:alike], seed=seed),
        1,
    )


PROTOCOL = Protocol(Recipe(2, 8, 1e-2), Recipe(3, 8, 1e-2))
METHODS = deep_methods(Small.layers, (1,), (1, 1.0), {"eps": 0.1}, 70, {"UD-MTL-1": 3e-2})


@pytest.mark.parametrize("hard", [0, 1])
def test_leaving_out_what_has_no_loss_changes_neither_the_loss_nor_the_gradients(hard):
    tasks, rows = images(), torch.arange(2, 20)
    layers = {"first": "hard", "*": "single"} if hard else {"*": "single"}
    shared = tnt.share(nets(), layers=layers)
    with torch.no_grad():
        for own in shared.tasks:
            own.get("second/bias").fill_(-1.02)  # some are beyond the margin, some are not
    loss = tasks.loss(shared, hard, rows)
    loss.backward()
    found = [p.grad.clone() for p in shared.parameters()]
    shared.zero_grad()
    scores = shared.fan_out(tasks.images[rows])[..., 0]
    signs = torch.stack([2.0 * (tasks.labels[rows] == t) - 1 for t in range(3)])
    beyond = scores * signs >= 1
    assert 0 < beyond.sum() < beyond.numel()
    plain = torch.clamp(1 - scores * signs, min=0).mean(1).sum()
    plain.backward()
    close(loss, plain, 4 + 6 + 3 * 18)
    for gradient, p in zip(found, shared.parameters(), strict=True):
        close(gradient, p.grad, 4 + 6 + 3 * 18)


def test_what_a_call_gave_may_be_given_to_another_call_and_trained_through():
    shared = tnt.share(nets(), layers={"first": "hard", "*": "single"}, strategy="vmap")
    x = torch.rand(4, 1, 2, 2)
    for _ in range(3):  # both paths are compared once, and the input's graph must survive it
        shared.fan_out(shared(x, 0, last=1), first=1).sum().backward()


def test_errors_of_one_against_rest_are_counted_by_sign_and_by_rank():
    class Fixed:
        def fan_out(self, x, first=0):
            return torch.stack([x[:, 0, 0, 0], x[:, 0, 0, 1]])[..., None]

    x = torch.tensor([[2.0, -1], [1, 3], [-1, -2], [-3, -1]]).view(4, 1, 1, 2)
    errors = OneAgainstRest(x, torch.tensor([0, 0, 0, 1]), 2).errors(Fixed(), 0)
    assert errors["task_errors"] == [25.0, 50.0]
    assert errors["binary_error"] == 37.5
    assert errors["multiclass_error"] == 25.0


def test_tasks_without_images_are_refused():
    pixels, labels = torch.zeros(0, 1, 4, 4), torch.zeros(0, dtype=torch.long)
    with pytest.raises(
        tn.TnshareError,
        match="needs an image to train on, and one to test: 1 of 1 have none; give a larger fraction",
    ):
        OneAgainstRest(pixels, labels, 3)
    some, ones = torch.zeros(2, 1, 4, 4), torch.ones(2, dtype=torch.long)
    with pytest.raises(tn.TnshareError, match="1 of 2 have none; give a larger"):
        OwnClasses([some, pixels], [ones, labels])


def test_own_classes_have_losses_and_errors_of_their_own():
    rng = torch.Generator().manual_seed(0)
    sizes, counts = [2, 3], [5, 9]
    x = [torch.randint(0, 2, (n, 1, 2, 2), generator=rng, dtype=torch.uint8) for n in counts]
    y = [torch.randint(0, size, (n,), generator=rng) for n, size in zip(counts, sizes, strict=True)]
    tasks = OwnClasses(x, y)
    plain = nets(outputs=sizes)
    shared = tnt.share(plain, "laf", eps=0.5)
    batches = list(tasks.batches(3, torch.Generator().manual_seed(1)))
    assert len(batches) == 2
    for t, n in enumerate(counts):
        assert sorted(torch.cat([batch[t] for batch in batches]).tolist()) == list(range(n))
    models = shared.unshare()
    rows = batches[0]
    expected = sum(
        functional.cross_entropy(model(given[r].float()), labels[r])
        for model, given, labels, r in zip(models, x, y, rows, strict=True)
    )
    close(tasks.loss(shared, 0, rows), expected, 4 + 6 + 3 * 18)
    wrong = [
        100 * (m(a.float()).argmax(1) != b).float().mean().item()
        for m, a, b in zip(models, x, y, strict=True)
    ]
    assert tasks.errors(shared, 0)["task_errors"] == pytest.approx(wrong)
    assert tasks.errors(shared, 0)["multiclass_error"] == pytest.approx(np.mean(wrong))


def test_single_networks_train_as_plain_ones_do():
    tasks, recipe = images(), Recipe(2, 8, 1e-2)
    plain = nets()
    shared = tnt.share(plain, layers={"*": "single"})
    assert fit(shared, 0, tasks, recipe, seed=3) == 6
    for t, net in enumerate(plain):
        optimiser = torch.optim.AdamW(net.parameters(), lr=1e-2, weight_decay=0)
        generator, step = torch.Generator().manual_seed(3), 0
        for _ in range(2):
            for rows in torch.randperm(24, generator=generator).split(8):
                for group in optimiser.param_groups:
                    group["lr"] = 1e-2 * half_cosine(step / 6)
                optimiser.zero_grad()
                y = 2.0 * (tasks.labels[rows] == t) - 1
                torch.clamp(1 - y * net(tasks.images[rows])[:, 0], min=0).mean().backward()
                optimiser.step()
                step += 1
        for name, value in shared.task_model(t).state_dict().items():
            torch.testing.assert_close(value, net.state_dict()[name], atol=1e-5, rtol=1e-4)


def test_codes_may_have_a_rate_of_their_own():
    def moved(rate):
        shared = tnt.share(nets(alike=()), "laf", eps=0.5)
        before = {name: p.detach().clone() for name, p in shared.named_parameters()}
        fit(shared, 0, images(), Recipe(1, 24, 1e-2, code_rate=rate), 0)
        return {":" in name: not torch.equal(p, before[name]) for name, p in shared.named_parameters()}

    assert moved(1.0) == {True: True, False: True}
    assert moved(0.0) == {True: False, False: True}


def test_the_rate_falls_from_one_to_zero():
    assert [half_cosine(x) for x in (0, 0.5, 1)] == pytest.approx([1, 0.5, 0])


def test_every_method_takes_the_same_number_of_steps_and_counts_its_parameters(tmp_path):
    experiment = Experiment("small", PROTOCOL, METHODS, tmp_path / "work", tmp_path)
    rows = {name: experiment.run(method, draw()) for name, method in METHODS.items()}
    assert {row["steps"] for row in rows.values()} == {3 * (2 + 3)}
    dense = 3 * (4 * 6 + 6 + 6 + 1)
    assert rows[STL]["parameters"] == dense
    assert rows["UD-MTL-1"]["parameters"] == dense - 2 * (4 * 6 + 6)
    assert rows[LARGE]["parameters"] == rows["UD-MTL-1"]["parameters"]  # as wide, here
    assert "first" in rows["DMTRL-TT"]["sharing"]  # the second is kept as it was, if factors of it are larger
    assert "sharing" not in rows[STL]
    for row in rows.values():
        assert 0 <= row["binary_error"] <= 100
        assert len(row["task_errors"]) == 3


def test_similarity_is_the_mean_cosine_between_tasks_and_the_extremes_are_named():
    models = nets(alike=())
    found = described(tnt.share(models, "laf", eps=0))
    flat = torch.stack([net.first.weight.detach().flatten() for net in models])
    pairs = [[0, 1], [0, 2], [1, 2]]
    cosines = [functional.cosine_similarity(flat[i], flat[j], 0).item() for i, j in pairs]
    assert found["similarity"]["first"] == pytest.approx(np.mean(cosines), abs=1e-5)
    extremes = {"most": pairs[int(np.argmax(cosines))], "least": pairs[int(np.argmin(cosines))]}
    assert found["related"]["first"] == extremes


def test_a_run_is_the_same_again_and_the_first_stage_is_trained_once(tmp_path, monkeypatch):
    def run(work):
        return Experiment("small", PROTOCOL, METHODS, work, tmp_path).run(METHODS["DMTRL-Tucker"], draw())

    first = run(tmp_path / "a")
    fits = []
    monkeypatch.setattr("benchmarks.paper.training.experiment.fit", lambda *a: fits.append(a) or fit(*a))
    again, anew = run(tmp_path / "a"), run(tmp_path / "b")
    assert len(fits) == 1 + 2
    for row in (first, again, anew):
        row.pop("cpu_seconds")
    assert first == again == anew


def test_runs_go_on_where_they_stopped_and_a_torn_line_is_run_again(tmp_path, monkeypatch):
    experiment = Experiment("small", PROTOCOL, METHODS, tmp_path / "work", tmp_path)
    jobs = [(METHODS[name], 0.5, seed) for seed in (0, 1) for name in (STL, "UD-MTL-1")]
    drawn = []

    def drawing(fraction, seed):
        drawn.append(seed)
        return draw(fraction, seed)

    experiment.go(jobs[:3], drawing)
    store = experiment.runs.path
    store.write_text(store.read_text()[:-20])
    (tmp_path / "small.json").unlink()
    experiment.go(jobs, drawing)
    store.unlink()  # what was published is finished
    experiment.go(jobs, drawing)
    assert drawn == [0, 1, 1]
    collected = json.loads((tmp_path / "small.json").read_text())
    assert [(r["method"], r["seed"]) for r in collected["runs"]] == [
        (STL, 0),
        (STL, 1),
        ("UD-MTL-1", 0),
        ("UD-MTL-1", 1),
    ]
    assert collected["protocol"][STL]["second"]["epochs"] == 3
    assert collected["protocol"]["UD-MTL-1"]["first"]["rate"] == 3e-2
    assert len(collected["commit"]) == 40
    other = Protocol(Recipe(2, 8, 1e-2), Recipe(3, 8, 2e-2))  # another rate: other runs, but not of UD-MTL
    again = Experiment("small", other, METHODS, tmp_path / "work", tmp_path)
    assert [again.finished(*job) for job in jobs[:2]] == [False, True]


def test_folds_divide_the_images_of_every_class():
    tasks = images(31)
    folds = [tasks.fold(number, 4) for number in range(4)]
    parts = torch.cat([held.images for _, held in folds])
    assert sorted(parts.flatten(1).tolist()) == sorted(tasks.images.flatten(1).tolist())
    for train, held in folds:
        assert len(train.labels) + len(held.labels) == 31
        every = torch.bincount(tasks.labels, minlength=3)
        found = torch.bincount(held.labels, minlength=3)
        assert ((found == every // 4) | (found == -(-every // 4))).all()
        assert not {tuple(x) for x in train.images.flatten(1).tolist()} & {
            tuple(x) for x in held.images.flatten(1).tolist()
        }
    own = OwnClasses([tasks.images, tasks.images[:6]], [tasks.labels, tasks.labels[:6]], scale=0.5)
    train, held = own.fold(1, 3)
    assert [len(labels) for labels in train.labels] == [21, 4]
    assert [len(labels) for labels in held.labels] == [10, 2]
    assert train.scale == held.scale == 0.5


def test_validation_reads_no_test_images_and_trains_on_none_that_it_validates(tmp_path, monkeypatch):
    class Unread:
        def errors(self, *_):
            raise AssertionError

    sizes = []

    def seen(method, draw, *others):
        sizes.append((len(draw.train.labels), len(draw.test.labels)))
        return trained(method, draw, *others)

    monkeypatch.setattr("benchmarks.paper.training.experiment.trained", seen)
    experiment = Experiment("small", PROTOCOL, METHODS, tmp_path / "work", tmp_path).validating(3, 2, METHODS)
    jobs = [(METHODS[name], 0.5, 0) for name in ("UD-MTL-1", "DMTRL-TT")]
    drawn = []
    experiment.go(jobs, lambda *key: drawn.append(key) or replace(draw(*key), test=Unread()))
    assert drawn == [(0.5, 0)]  # no other images than those that the method will have
    rows = json.loads((tmp_path / "small-validation.json").read_text())["runs"]
    for row in rows:
        assert len(row["folds"]) == 2
        assert row["fraction"] == 0.5
        assert row["multiclass_error"] == pytest.approx(np.mean(row["folds"]))
    assert not list((tmp_path / "work").rglob("*.pt"))
    assert len(sizes) == 4
    assert all(train + held == 24 and 6 <= held <= 10 for train, held in sizes)


def test_other_folds_are_other_runs_and_folds_that_leave_nothing_are_refused(tmp_path):
    experiment = Experiment("small", PROTOCOL, METHODS, tmp_path / "work", tmp_path)
    job = (METHODS["UD-MTL-1"], 0.5, 0)
    experiment.validating(3, 1, METHODS).go([job], draw)
    done = {n: experiment.validating(*n, METHODS).finished(*job) for n in ((3, 1), (3, 2), (2, 1))}
    assert done == {(3, 1): True, (3, 2): False, (2, 1): False}
    for folds, repeats in ((1, 1), (3, 4), (3, 0)):
        with pytest.raises(
            tn.TnshareError, match=f"got {folds} folds and {repeats} repeats: expected two folds"
        ):
            experiment.validating(folds, repeats, METHODS)


@pytest.mark.parametrize("folds", [0, 3])
def test_progress_counts_every_epoch_also_those_that_were_kept(tmp_path, folds):
    experiment = Experiment("small", PROTOCOL, METHODS, tmp_path / "work", tmp_path)
    if folds:
        experiment = experiment.validating(folds, 2, METHODS)
    for name in ("STL", "DMTRL-TT", "UD-MTL-1"):  # the second starts from networks of the first
        epochs = []
        experiment.run(METHODS[name], draw(), lambda epochs=epochs: epochs.append(1))
        assert len(epochs) == (PROTOCOL.first.epochs + PROTOCOL.second.epochs) * (2 if folds else 1)


def test_a_store_is_safe_to_add_to_after_a_writer_was_killed(tmp_path):
    runs = Runs(tmp_path / "runs.jsonl", tmp_path / "results.json")
    key = {"method": "a", "fraction": 0.1, "seed": 0, "protocol": "p"}
    runs.results.write_text(json.dumps({"runs": [{**key, "x": 0}, {**key, "method": "c"}]}))
    runs.add({**key, "x": 1})
    with runs.path.open("a") as file:
        file.write('{"method": "b", "fra')
    runs.add({**key, "seed": 1})
    runs.add({**key, "x": 2})
    assert [(r["method"], r["seed"], r.get("x")) for r in runs.rows()] == [
        ("a", 0, 2),  # the store is newer than what was published
        ("c", 0, None),
        ("a", 1, None),
    ]
    assert runs.has(**key)
    assert not runs.has(**{**key, "method": "b"})
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1}) != digest({"a": 1, "b": 3})


def test_methods_are_chosen_by_name():
    assert [m.name for m in chosen(METHODS, ["DMTRL-TT", STL])] == ["DMTRL-TT", STL]
    assert len(chosen(METHODS, [])) == len(METHODS) == 9
    with pytest.raises(tn.TnshareError, match="no method is called 'PCA': expected any of STL, UD-MTL-1"):
        chosen(METHODS, ["PCA"])


def test_the_networks_are_those_of_the_paper():
    def size(net):
        return sum(p.numel() for p in net.parameters())

    assert size(LeNet()) == 558_977
    assert size(CharacterNet(14)) == 126_796 + 65 * 14
    lenet, x = LeNet(), torch.rand(2, 1, 28, 28)
    torch.testing.assert_close(lenet(lenet(x, last=2), first=2), lenet(x))
    assert lenet(x, last=3).shape == (2, 512)
    letters, x = CharacterNet(14), torch.rand(2, 1, 105, 105)
    torch.testing.assert_close(letters(letters(x, last=3), first=3), letters(x))
    assert letters(x, last=4).shape == (2, 64)
    faces, x = FaceNet(8, 67).eval(), torch.rand(2, 3, 67, 67)
    torch.testing.assert_close(faces(faces(x, last=4), first=4), faces(x))
    with torch.device("meta"):
        assert FaceNet(2).fc1.in_features == 384 * 7 * 7


def test_layers_that_start_alike_are_alike_and_the_others_are_not():
    alike = nets()
    assert torch.equal(alike[0].first.weight, alike[2].first.weight)
    assert not torch.equal(alike[0].second.weight, alike[2].second.weight)
    again = nets()
    assert torch.equal(alike[1].second.weight, again[1].second.weight)


def test_hard_layers_are_kept_as_they_start():
    method = METHODS["UD-MTL-1"]
    given = draw()
    still = Protocol(Recipe(1, 24, 0.0), Recipe(1, 24, 0.0))
    method = replace(method, rate=None)
    shared, _ = trained(method, given, still, lambda *_: [])
    torch.testing.assert_close(shared.task_model(2).first.weight, given.networks(1, 1.0)[0].first.weight)
