"""The digits in JAX are those in torch: the same scores, the same steps, the same results."""

from __future__ import annotations

import json
from dataclasses import replace

import jax
import numpy as np
import pytest
import tnshare_jax as tnj
import tnshare_torch as tnt
import torch
from test_paper_images import digits_in
from tolerances import close

from benchmarks.paper.__main__ import main
from benchmarks.paper.experiments import mnist
from benchmarks.paper.training import jax_digits
from benchmarks.paper.training.experiment import Protocol
from benchmarks.paper.training.networks import LeNet, alike_networks
from benchmarks.paper.training.recipe import Recipe, fit


@pytest.fixture(scope="module")
def tasks():
    rng = np.random.default_rng(0)
    made = mnist.one_against_rest(rng.integers(0, 256, (24, 28, 28), dtype=np.uint8), np.arange(24) % 3)
    return replace(made, classes=3)


@pytest.fixture(scope="module")
def nets():
    return alike_networks([lambda: LeNet(0.125)] * 3, LeNet.layers[:3], 0)  # narrow: XLA is done soon


WAYS = {
    "hard and single": ({"layers": {"conv1": "hard", "conv2": "hard", "*": "single"}}, 2),
    "soft": ({"method": "tt", "eps": 0.3}, 0),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_step_of_training_is_the_same_in_both(way, tasks, nets):
    share, hard = WAYS[way]
    here, there = tnt.share(nets, **share), tnj.share([jax_digits.tree_of(net) for net in nets], **share)
    images, signs = jax_digits.arrays(tasks)
    expected = tasks.scores(here, hard, tasks.images).detach().numpy()
    close(jax_digits.scores(there, images), expected, 25 + 500 + 800 + 512)  # its four layers
    loss = tasks.loss(here, hard, torch.arange(24))
    assert float(jax_digits.loss(there, images, signs)) == pytest.approx(float(loss.detach()), rel=1e-5)
    recipe = Recipe(epochs=2, batch=12, rate=1e-3)
    assert fit(here, hard, tasks, recipe, 5) == 4
    trained, steps = jax_digits.fit(there, tasks, recipe, 5)
    assert steps == 4
    after = tasks.scores(here, hard, tasks.images).detach().numpy()
    assert np.abs(after - expected).max() > 0.01  # it has moved
    np.testing.assert_allclose(jax_digits.scores(trained, images), after, atol=5e-3)
    counted = sum(leaf.size for leaf in jax.tree.leaves(there))
    assert counted == sum(p.numel() for p in here.parameters())


def test_errors_are_counted_alike(tasks, nets):
    here = tnt.share(nets, layers={"*": "single"})
    there = tnj.share([jax_digits.tree_of(net) for net in nets], layers={"*": "single"})
    ours, theirs = jax_digits.errors(there, tasks, at_once=10), tasks.errors(here, 0)
    assert ours["multiclass_error"] == pytest.approx(theirs["multiclass_error"])
    assert ours["task_errors"] == pytest.approx(theirs["task_errors"])


def test_the_command_goes_on_where_it_stopped(tmp_path, monkeypatch):
    digits_in(tmp_path / "data" / "mnist", count=40)
    monkeypatch.setattr(mnist, "PROTOCOL", Protocol(Recipe(1, 20, 1e-3), Recipe(1, 20, 1e-3)))
    monkeypatch.setattr(mnist, "LeNet", lambda width: LeNet(0.125 * width))
    monkeypatch.setattr(mnist.LeNet, "layers", LeNet.layers, raising=False)
    places = {"--data": "data", "--work": "w", "--results": "r"}
    words = [word for option, name in places.items() for word in (option, str(tmp_path / name))]
    arguments = ["mnist-jax", "--fractions", "1", "--methods", "DMTRL-LAF", *words]
    main(arguments)
    rows = json.loads((tmp_path / "r" / "mnist-jax.json").read_text())["runs"]
    assert [(r["method"], r["steps"]) for r in rows] == [("DMTRL-LAF", 4)]
    monkeypatch.setattr(jax_digits, "tested", None)
    main(arguments)
