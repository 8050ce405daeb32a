"""share: taken apart again, saved and copied, tasks that come and go; and networks that are refused."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
import tnshare_torch as tnt
import tolerances
import torch
from torch import nn

import tnshare as tn

T = 4
METHODS = pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
SINGLE = 7 * 3 * 8 + 64  # of a GRU's steps, gates and matrices, and of the bonds


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm, self.rnn = (
            nn.Embedding(8, 4),
            nn.BatchNorm1d(4),
            nn.GRU(4, 4, batch_first=True),
        )
        self.out = nn.Linear(4, 8)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(self.rnn(self.norm(self.embed(x).mT).mT)[0])


def varied(first, count=T):
    made = tnt.replicate(first.double(), count)
    with torch.no_grad():
        for parameter in (p for model in made for p in model.parameters()):
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made


def nets(count=T):
    torch.manual_seed(3)
    return varied(Net(), count)


def draw(rows=3):
    return torch.randint(0, 8, (rows, 5), generator=torch.Generator().manual_seed(rows))


def outputs(shared):
    shared.eval()
    return [shared(draw(), t).detach() for t in range(len(shared.tasks))]


def assert_equal(ours, theirs):
    assert len(ours) == len(theirs)
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def stepped(shared, parameters, rate=0.1):
    optimiser = torch.optim.SGD(list(parameters), rate)
    shared.fan_out(draw()).square().mean().backward()
    optimiser.step()
    shared.zero_grad()


@METHODS
def test_unshared_networks_compute_the_same(method):
    shared = tnt.share(nets(), method, eps=0)
    shared.train()(draw(), 1)  # so that the running statistics of one task differ
    plain = shared.eval().unshare()
    for model, expected in zip(plain, outputs(shared), strict=True):
        assert type(model) is Net
        assert not model.training
        assert model.out.weight is model.embed.weight
        assert all(p.is_leaf and p.requires_grad and p.is_contiguous() for p in model.parameters())
        torch.testing.assert_close(model(draw()), expected, rtol=1e-10, atol=1e-10)
    assert int(plain[1].norm.num_batches_tracked) == 1
    assert int(plain[0].norm.num_batches_tracked) == 0
    with torch.no_grad():
        plain[0].embed.weight.zero_()
    assert float(shared.weights(0)["embed.weight"].detach().abs().max()) > 0.1
    again = tnt.share(shared.unshare(), method, eps=0)
    for a, b in zip(outputs(again), outputs(shared), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def test_copies():
    shared = tnt.share(nets(), eps=0)
    expected = outputs(shared)
    file = io.BytesIO()
    torch.save(shared, file)
    file.seek(0)
    copies = [
        copy.deepcopy(shared),
        pickle.loads(pickle.dumps(shared)),
        torch.load(file, weights_only=False),
        copy.deepcopy(copy.deepcopy(shared)),
    ]
    for other in copies:
        assert_equal(outputs(other), expected)
        stepped(other, other.parameters())
        assert not torch.equal(outputs(other)[0], expected[0])
        assert other.unshare()[0].out.weight.shape == (8, 4)
    assert_equal(outputs(shared), expected)


def test_state():
    shared, fresh = (tnt.share(nets(), ranks=2, method="laf") for _ in range(2))
    stepped(shared, shared.parameters())
    assert not torch.equal(outputs(fresh)[1], outputs(shared)[1])
    file = io.BytesIO()
    torch.save(shared.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file))
    assert_equal(outputs(fresh), outputs(shared))
    assert not any(tensor.is_meta for tensor in shared.state_dict().values())
    with pytest.raises(RuntimeError, match="size mismatch"):
        tnt.share(nets(), "laf", ranks=3).load_state_dict(shared.state_dict())


def test_precision_and_device():
    models = nets()
    shared = tnt.share([model.float() for model in models], eps=0)
    singles = outputs(shared)
    shared.double()
    assert {p.dtype for p in shared.parameters()} == {torch.float64}
    for a, b in zip(outputs(shared), singles, strict=True):
        tolerances.close(a, b.double(), SINGLE, dtype=torch.float32)
    number = shared.add_task(models[0])  # still of single precision
    tolerances.close(outputs(shared)[number], outputs(shared)[0], SINGLE, dtype=torch.float32)
    assert {p.dtype for p in shared.task_model(number).parameters()} == {torch.float64}
    assert shared.to("meta")(draw().to("meta"), 1).shape == (3, 5, 8)


@METHODS
def test_a_new_task_is_the_best_fit_and_others_stay(method):
    given = nets(T + 1)
    shared, new = tnt.share(given[:T], method, eps=0).eval(), given[T]
    expected, before = outputs(shared), {n: v.clone() for n, v in shared.state_dict().items()}
    stacks = {n: [shared.weights(t)[n].detach().numpy().ravel() for t in range(T)] for n in shared.networks}
    assert shared.add_task(new) == T
    assert not shared.tasks[T].training
    assert_equal(outputs(shared)[:T], expected)
    after = shared.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert all(name.startswith(f"tasks.{T}.") for name in set(after) - set(before))
    for name, weight in shared.weights(T).items():
        target = dict((*new.named_parameters(), *new.named_buffers()))[name].detach()
        if name not in stacks:
            assert torch.equal(weight, target)
            continue
        span = np.stack(stacks[name], 1)  # the other tasks' weights span what the factors can make
        best = span @ np.linalg.lstsq(span, target.numpy().ravel(), rcond=1e-8)[0]
        np.testing.assert_allclose(weight.detach().numpy().ravel(), best, atol=1e-8)
    known = shared.add_task(shared.task_model(2))
    torch.testing.assert_close(outputs(shared)[known], expected[2], rtol=1e-8, atol=1e-8)
    stepped(shared, shared.parameters())
    assert not torch.equal(outputs(shared)[known], outputs(shared)[T])


def test_a_task_from_nothing_is_the_mean():
    shared = tnt.share(nets(), eps=0)
    shared.train()(draw(), 1)
    every = [shared.weights(t) for t in range(T)]
    number = shared.add_task()
    for name, weight in shared.weights(number).items():
        if weight.is_floating_point():
            mean = torch.stack([weights[name] for weights in every]).mean(0)
            torch.testing.assert_close(weight, mean, rtol=1e-9, atol=1e-9)
    assert shared.tasks[number].training
    assert shared.sharing()["embed"] <= 1


def test_a_task_is_removed_and_others_stay():
    shared = tnt.share(nets(), eps=0)
    expected, factors = outputs(shared), [p.clone() for p in shared.shared_parameters()]
    refused = [(4, "out of range"), (-1, "out of range"), (True, "whole"), ("a", "no task is called")]
    for wrong, text in refused:
        for method in (shared.remove_task, shared.task_model, shared.task_parameters):
            with pytest.raises(tn.TnshareError, match=text):
                method(wrong)
    shared.remove_task(1)
    assert_equal(outputs(shared), [expected[0], *expected[2:]])
    assert_equal(list(shared.shared_parameters()), factors)
    with pytest.raises(tn.TnshareError, match="expected 0 <= task <= 2"):
        shared(draw(), 3)


def test_training_one_task_leaves_the_others():
    shared = tnt.share(nets(), eps=0)
    before = outputs(shared)
    stepped(shared, shared.task_parameters(2))
    after = outputs(shared)
    assert [torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [True, True, False, True]
    stepped(shared, shared.shared_parameters())
    assert not any(torch.equal(a, b) for a, b in zip(after, outputs(shared), strict=True))


def test_frozen_parts_stay_frozen():
    models = nets()
    for model in models:
        model.embed.weight.requires_grad_(False)
        model.norm.requires_grad_(False).eval()
    shared = tnt.share(models, eps=0)
    keys = [n for n, p in shared.named_parameters() if not p.requires_grad]
    assert keys
    assert all("embed" in key or "norm" in key for key in keys)
    assert shared.training
    shared(draw(), 1).sum().backward()
    assert int(shared.weights(1)["norm.num_batches_tracked"]) == 0  # the norm was in eval, and still is
    with torch.no_grad():
        plain = shared.task_model(1)
    frozen = {n for n, p in plain.named_parameters() if not p.requires_grad}
    assert frozen == {"embed.weight", "norm.weight", "norm.bias"}
    assert plain.training
    assert not plain.norm.training
    shared.train()
    shared(draw(), 1)
    assert int(shared.weights(1)["norm.num_batches_tracked"]) == 1
    assert not any(part.training for part in (*shared.eval().modules(), *shared.task_model(0).modules()))


def test_stacks_are_kernel_in_out_and_norms_are_not_shared():
    def made():
        layers = nn.Conv2d(2, 3, (4, 5)), nn.ConvTranspose1d(6, 7, 2), nn.Linear(8, 9), nn.Embedding(10, 11)
        return nn.Sequential(*layers, nn.LayerNorm((12, 13)), nn.PReLU())

    shared = tnt.share([made() for _ in range(2)], eps=0)
    assert {name: network.shape for name, network in shared.networks.items()} == {
        "0.weight": (4, 5, 2, 3, 2),
        "1.weight": (2, 6, 7, 2),
        "2.weight": (8, 9, 2),
        "3.weight": (10, 11, 2),
    }
