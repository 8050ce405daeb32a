"""share: the four ways and what may go wrong in them, settings, and networks that cannot be shared."""

from __future__ import annotations

import copy
import threading

import numpy as np
import pytest
import tnshare_torch as tnt
import tolerances
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import tnshare as tn

T = 4


class Net(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.conv = nn.Conv1d(1, 4, 3)
        self.norm = nn.BatchNorm1d(4)
        self.fc = nn.Linear(16, 5)
        self.head = nn.Linear(5, classes)

    def forward(self, x, scale=1.0):
        return scale * self.head(torch.tanh(self.fc(self.norm(self.conv(x[:, None])).flatten(1))))


def nets(count=T, classes=(3,) * T, seed=2):
    torch.manual_seed(seed)
    made = [Net().double() for _ in range(count)]
    for model, size in zip(made, classes, strict=False):
        model.load_state_dict(made[0].state_dict())
        model.head = nn.Linear(5, size).double()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
    return [model.eval() for model in made]


def draw(*rows):
    return torch.randn(*rows, 6, dtype=torch.float64)


def same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


def test_ids_of_every_kind():
    models = nets()
    shared, x = tnt.share(models, eps=0), draw(5)
    ids = [3, 0, 3, 1, 0]
    expected = torch.stack([models[t](row[None])[0] for t, row in zip(ids, x, strict=True)])
    for kind in (list, tuple, np.array, lambda i: np.array(i, np.uint8), torch.tensor):
        same(shared(x, kind(ids)), expected)
    for kind in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        same(shared(x, torch.tensor(ids, dtype=kind)), expected)
    for one in (2, np.int32(2), torch.tensor(2), torch.tensor(2, dtype=torch.uint8)):
        same(shared(x, one), models[2](x))
    same(shared(x[:1], [2]), models[2](x[:1]))
    same(shared(x[:0], 2), models[2](x[:0]))
    same(shared(x, 2, scale=3.0), models[2](x, 3.0))
    same(shared(x, [1] * 5, scale=3.0), models[1](x, 3.0))


@pytest.mark.parametrize(
    ("task", "text"),
    [
        (4, "task 4 is out of range: expected 0 <= task <= 3"),
        (-1, "task -1 is out of range"),
        ([0, 1, 9, 0, 0], "task 9 in row 2 is out of range"),
        ([0, 1, -2, 0, 0], "task -2 in row 2 is out of range"),
        (True, "whole numbers: found dtype bool"),
        ([True, False, True, True, True], "whole numbers: found dtype bool"),
        (torch.ones(5, dtype=torch.bool), "whole numbers: found dtype bool"),
        (1.0, "whole numbers: found dtype float64"),
        (torch.zeros(5), "whole numbers: found dtype float32"),
        (torch.zeros(5, dtype=torch.bfloat16), "whole numbers: found dtype bfloat16"),
        ([[0], [1, 2]], "ids in rows alike"),
        ([], "a batch of no rows has no tasks to run"),
        ([[0, 1, 2, 3, 0]], r"found shape \(1, 5\)"),
        ([0, 1], r"expected x with 2 rows along axis 0, found \(5, 6\)"),
        ([0] * 6, r"expected x with 6 rows"),
        ("red", "no task is called 'red'"),
    ],
    ids=str,
)
def test_bad_tasks_are_named(task, text):
    with pytest.raises(tn.TnshareError, match=text):
        tnt.share(nets())(draw(5), task)


def test_entries():
    models = nets()
    shared, xs = tnt.share(models, eps=0), draw(T, 2)
    found = shared(xs)
    assert isinstance(found, torch.Tensor)
    same(found, torch.stack([model(x) for model, x in zip(models, xs, strict=True)]))
    several = [draw(n) for n in (3, 1, 0, 2)]
    for y, model, x in zip(shared(several), models, several, strict=True):
        same(y, model(x))
    same(shared.fan_out(xs[0]), torch.stack([model(xs[0]) for model in models]))
    for wrong, text in [
        (xs[:3], "expected 4 entries, found 3"),
        ([xs[0]] * 5, "expected 4 entries, found 5"),
        (torch.tensor(1.0), "must be a tensor"),
        ({"x": 1, "y": 2, "z": 3, "u": 4}, "must be a tensor .* found dict"),
        (4, "found int"),
    ]:
        with pytest.raises(tn.TnshareError, match=text):
            shared(wrong)
    with pytest.raises(tn.TnshareError, match="no rows"):
        shared(draw(0), torch.zeros(0, dtype=torch.int64))
    with pytest.raises(tn.TnshareError, match=r"one task id for each row: .* found .1, 6"):
        shared([draw(1), draw(1)], [0, 1])


def test_heads_of_different_sizes():
    models = nets(classes=(3, 2, 3, 6))
    shared, x = tnt.share(models, eps=0), draw(4)
    assert "differs" in shared.report()
    for t, model in enumerate(models):
        same(shared(x, t), model(x))
        same(shared.task_model(t)(x), model(x))
    found = shared.fan_out(x)
    assert isinstance(found, list)
    assert [y.shape[1] for y in found] == [3, 2, 3, 6]
    assert [y.shape[1] for y in shared([x] * 4)] == [3, 2, 3, 6]
    same(shared(x, [2, 0, 0, 2])[1:3], models[0](x)[1:3])
    with pytest.raises(tn.TnshareError, match="heads of different sizes"):
        shared(x, [0, 1, 0, 1])
    with pytest.raises(tn.TnshareError, match="differ in shape"):
        shared(draw(T, 2))
    with pytest.raises(tn.TnshareError, match="no mean: give add_task a network"):
        shared.add_task()


def test_names():
    models = dict(zip("abcd", nets(), strict=True))
    shared, x = tnt.share(models, eps=0), draw(2)
    same(shared(x, "c"), models["c"](x))
    same(shared.task_model("b")(x), models["b"](x))
    assert len(list(shared.task_parameters("d"))) == len(list(shared.task_parameters(3)))
    shared.remove_task("b")
    same(shared(x, "c"), models["c"](x))
    same(shared(x, 1), models["c"](x))
    for name, text in [(None, "give the new one a name"), ("a", "a task is called 'a' already")]:
        with pytest.raises(tn.TnshareError, match=text):
            shared.add_task(models["b"], name)
    assert shared.add_task(models["b"], "e") == 3
    same(shared(x, "e"), shared(x, 3))
    with pytest.raises(tn.TnshareError, match="tasks have no names"):
        tnt.share(nets()).add_task(None, "a")
    with pytest.raises(tn.TnshareError, match=r"must be strings: found \(1, 2\)"):
        tnt.share({1: nets()[0], 2: nets()[1]})


def test_one_task():
    (model,) = nets(1)
    shared, x = tnt.share([model], eps=0), draw(3)
    for found in (shared(x, 0), shared(x, [0, 0, 0]), shared([x])[0], shared.fan_out(x)[0]):
        same(found, model(x))
    with pytest.raises(tn.TnshareError, match="the last task cannot be removed"):
        shared.remove_task(0)


def test_the_given_networks_stay_and_nothing_is_theirs():
    models = nets()
    before = [copy.deepcopy(model.state_dict()) for model in models]
    for method in ("tucker", "single", "hard"):
        shared = tnt.share(models, method).train()
        optimiser = torch.optim.SGD(shared.parameters(), 1.0)
        (shared(draw(T, 5)) ** 2).sum().backward()
        optimiser.step()
        theirs = {t.data_ptr() for m in (*models, *shared.unshare()) for t in m.state_dict().values()}
        assert not theirs & {t.data_ptr() for t in shared.state_dict().values()}
    for model, state in zip(models, before, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
        assert all(parameter.grad is None for parameter in model.parameters())
        assert not model.training


def test_user_defined_sharing():
    """The classical multi-task network: a common body, a head for each."""
    models = nets()
    shared = tnt.share(models, layers={"head": "single", "*": "hard"})
    body = sum(p.numel() for n, p in models[0].named_parameters() if not n.startswith("head"))
    head = sum(p.numel() for p in models[0].head.parameters())
    assert sum(p.numel() for p in shared.shared_parameters()) == body
    assert sum(p.numel() for p in shared.parameters()) == body + T * head
    mean, x = copy.deepcopy(models[1]), draw(3)
    with torch.no_grad():
        for name, parameter in mean.named_parameters():
            if not name.startswith("head"):
                parameter.copy_(sum(dict(m.named_parameters())[name] for m in models) / T)
    same(shared(x, 1), mean(x))
    shared.fan_out(x).sum().backward()
    assert all(p.grad is not None for p in shared.parameters())
    assert shared.sharing() == {}
    single = tnt.share(models, "single")
    assert not list(single.shared_parameters())
    assert torch.equal(single(x, 2), models[2](x))


def test_parameters_are_factors_and_leaves():
    models = nets()
    shared = tnt.share(models, "tucker", max_parameters=150)
    soft = sum(n.parameters for n, _ in shared.decompositions().values())
    assert soft <= 150
    single = sum(p.numel() for m in models for p in m.parameters() if p.ndim == 1)
    assert sum(p.numel() for p in shared.parameters()) == soft + single
    assert all(p.is_leaf and not p.is_meta and p.requires_grad for p in shared.parameters())
    parts = [set(shared.shared_parameters()), *(set(shared.task_parameters(t)) for t in range(T))]
    assert sum(map(len, parts)) == len(set().union(*parts)) == len(list(shared.parameters()))
    for row in ("conv.weight", "conv.bias", "norm.weight", "fc.weight", "head.bias"):
        assert sum(line.startswith(row + " ") for line in shared.report().splitlines()) == 1


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_sharing_is_that_of_a_direct_decomposition(method):
    models = nets()
    shared = tnt.share(models, method, eps=0)
    orders = {"conv": (2, 1, 0), "fc": (1, 0), "head": (1, 0)}
    assert set(shared.sharing()) == set(shared.similarity()) == set(orders)
    for normalise in (True, False):
        for name, value in shared.sharing(normalise).items():
            weights = [m.get_submodule(name).weight.detach().numpy() for m in models]
            d = tn.decompose(np.stack([w.transpose(orders[name]) for w in weights], -1), method, eps=0)
            expected = tn.sharing_strength(tn.codes(d.network, d.factors), normalise=normalise)
            assert value == pytest.approx(expected, abs=1e-9)
            assert not normalise or 0 <= value <= 1
            similar = tn.task_similarity(d.network, d.factors)
            np.testing.assert_allclose(shared.similarity()[name], similar, atol=1e-9)


def test_threads():
    models = nets()
    shared, x, wrong = tnt.share(models, eps=0), draw(8), []
    expected = [model(x).detach() for model in models]
    start = threading.Barrier(T)

    def work(t):
        start.wait()
        wrong.extend(t for _ in range(40) if not torch.allclose(shared(x, t), expected[t]))

    threads = [threading.Thread(target=work, args=(t,)) for t in range(T)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_contexts():
    models = nets()
    shared, x = tnt.share(models, eps=0), draw(3)
    with torch.no_grad():
        assert not shared(x, 1).requires_grad
    with torch.inference_mode():
        same(shared(x, 1), models[1](x))
    floats = tnt.share([model.float() for model in nets()], eps=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = floats(x.float(), 1)
        composed = floats.weights(1)["fc.weight"]
    assert found.dtype == torch.bfloat16
    assert composed.dtype == torch.float32  # composed as precisely as unshare does, and shortened afterwards
    assert torch.equal(composed, floats.weights(1)["fc.weight"])
    tolerances.close(found.double(), models[1](x), 8, dtype=torch.bfloat16)
    gradients = []
    for run in (shared, lambda *args: checkpoint(shared, *args, use_reentrant=False)):
        shared.zero_grad()
        run(x, [0, 2, 0]).square().sum().backward()
        gradients.append([p.grad.clone() for p in shared.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) > 0
    for one, other in zip(*gradients, strict=True):
        same(one, other)


@pytest.mark.parametrize("room", [0, 70, 10**9])
def test_without_gradients_large_weights_are_composed_for_some_tasks_at_a_time(monkeypatch, room):
    from tnshare_torch.shared.running import _soft_weight as soft

    monkeypatch.setattr(soft, "MOST_KEPT_NUMBERS", room)
    alive, original = [], soft.SoftWeight._compose

    def counted(self, task):
        original(self, task)
        alive.append(len(self._composed))

    monkeypatch.setattr(soft.SoftWeight, "_compose", counted)
    models = nets()
    shared, x = tnt.share(models, eps=0, strategy="loop"), draw(3)
    expected = torch.stack([model(x) for model in models])
    with torch.no_grad():
        same(shared.fan_out(x), expected)
    assert max(alive) == {0: 1, 70: T, 10**9: T}[room]  # the convolution has 12 numbers
    alive.clear()
    same(shared.fan_out(x), expected)  # the backward pass needs all of them
    assert set(alive) == {T}
