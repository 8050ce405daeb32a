"""The demonstration in JAX: it runs, and its rows are those of torch's."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from tolerances import close

jax = pytest.importorskip("jax")
for package in ("optax", "sklearn", "tqdm", "matplotlib"):
    pytest.importorskip(package)

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    for name in ("demo_jax", "digits"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import demo_jax

    return demo_jax


def test_a_small_run_gives_a_row_for_every_method_and_a_picture(demo, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(demo.digits, "METHODS", ("tt",))  # the others differ in what is compiled alone
    results = demo.main(demo.Settings(seeds=1, steps=2, images=2, batch=5, folder=tmp_path))
    assert [r.method for r in results] == ["single-task, first stage", "single-task", "hard sharing", "TT"]
    plain = sum(leaf.size for leaf in jax.tree.leaves(demo.initial(0)))
    assert plain == 16 * 9 + 16 + 256 * 32 + 32 + 32 + 1
    assert [r.parameters for r in results[:3]] == [10 * plain, 10 * plain, plain + 9 * 33]
    assert results[2].cosine["hidden"] == pytest.approx(1)
    assert results[2].cosine["head"] < 1
    for result in results:
        assert 0 <= result.multiclass <= 1
        assert 0 < result.binary < 1
        assert result.milliseconds > 0
        assert list(result.cosine) == ["conv", "hidden", "head"]
    assert set(results[3].strength) == {"conv", "hidden", "head"}
    assert str(tmp_path / "digits_jax.png") in capsys.readouterr().out
    assert (tmp_path / "digits_jax.png").read_bytes().startswith(b"\x89PNG")


def test_the_network_is_that_of_torch(demo, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.delitem(sys.modules, "demo", raising=False)
    import demo as of_torch

    tree, net = demo.initial(1), of_torch.Net()
    for name, order in {"conv": (3, 2, 0, 1), "hidden": (1, 0), "head": (1, 0)}.items():
        layer = net.get_submodule(name)
        layer.weight.data = torch.tensor(np.transpose(tree[name]["kernel"], order))
        layer.bias.data = torch.tensor(np.asarray(tree[name]["bias"]))
    images = demo.digits.split(2, 0).images
    expected = net(torch.from_numpy(images)).detach().reshape(-1)
    close(jax.jit(demo.net)(tree, images), expected, 512)
