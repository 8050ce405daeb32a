"""The demonstration: it runs, and what its table says is so."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("tqdm")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CODES = {"LAF", "Tucker", "TT"}


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(EXAMPLES)
    for name in ("demo", "digits"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import demo

    threads = torch.get_num_threads()
    yield demo
    torch.set_num_threads(threads)


def test_a_small_run_gives_a_row_for_every_method_and_a_picture(demo, tmp_path, capsys):
    s = demo.Settings(seeds=2, steps=2, images=2, batch=5, folder=tmp_path)
    results = demo.main(s)
    output = capsys.readouterr().out
    methods = ["single-task, first stage", "single-task", "hard sharing", "LAF", "Tucker", "TT"]
    assert [result.method for result in results] == 2 * methods
    lines = output.splitlines()
    for result in results[:6]:
        (line,) = (text for text in lines if text[:25].strip() == result.method)
        assert f"{sum(r.parameters for r in results if r.method == result.method) / 2:,.0f}" in line
        assert 0 <= result.multiclass <= 1
        assert 0 < result.binary < 1
        assert result.milliseconds > 0
        assert set(result.strength) == ({"conv", "hidden", "head"} if result.method in CODES else set())
        assert set(result.cosine) == {"conv", "hidden", "head"}
    plain = sum(parameter.numel() for parameter in demo.Net().parameters())
    assert [r.parameters for r in results[:2]] == [10 * plain] * 2
    assert results[2].parameters == plain + 9 * 33, "all but the head once"
    assert results[2].cosine["hidden"] == pytest.approx(1)
    assert results[2].cosine["head"] < 1
    assert str(tmp_path / "digits.png") in output
    assert (tmp_path / "digits.png").read_bytes().startswith(b"\x89PNG")


def test_networks_trained_with_one_optimiser_are_each_trained_alone(demo):
    s = demo.Settings(steps=3, images=2, batch=5)
    data = demo.digits.split(s.images, 0)
    bar = demo.tqdm(disable=True)
    torch.manual_seed(0)
    first = demo.Net()
    both = demo.Alone(demo.tnt.replicate(first, 10))
    demo.train(both, data, s, 7, bar)
    optimiser = torch.optim.Adam(first.parameters(), s.rate)
    for rows in demo.digits.batches(20, s.batch, s.steps, 7):
        optimiser.zero_grad()
        y = torch.from_numpy((data.digits[rows] == 4).astype(np.float32))
        z = first(torch.from_numpy(data.images[rows]))
        torch.nn.functional.binary_cross_entropy_with_logits(z, y).backward()
        optimiser.step()
    for ours, theirs in zip(both.nets[4].parameters(), first.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_the_split_holds_out_all_other_images(demo):
    data = demo.digits.split(3, 1)
    assert np.bincount(data.digits).tolist() == [3] * 10
    assert len(data.digits) + len(data.test_digits) == 1797
    seen = {image.tobytes() for image in data.images}
    assert not any(image.tobytes() in seen for image in data.test_images)
    assert not np.array_equal(demo.digits.split(3, 2).images, data.images)


def test_errors_by_hand(demo):
    outputs = np.full((10, 4), -1.0)
    outputs[1, 0] = outputs[2, 1] = outputs[5, 2] = 2.0  # right, right, wrong; and nobody for the last
    outputs[3, 3] = -0.5
    multiclass, binary = demo.digits.errors(outputs, np.array([1, 2, 4, 3]))
    assert multiclass == 1 / 4
    assert binary == 3 / 40
    a, b = np.array([[1.0, 0.0]]), np.array([[1.0, 1.0]])
    assert demo.digits.mean_cosine([a, b]) == pytest.approx(0.5**0.5)
