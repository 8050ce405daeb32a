"""Parts of a network that run without gradients first: reentrant checkpoints, and torch.no_grad."""

from __future__ import annotations

import pytest
import tnshare_torch as tnt
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

T = 3


class Parts(nn.Module):
    """Two parts that are run again in the backward pass, one inside the other; a layer that is used twice."""

    def __init__(self, reentrant=True):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(2, 3, 3, padding=1), nn.BatchNorm1d(3)
        self.first, self.second, self.head = nn.Linear(12, 5), nn.Linear(5, 5), nn.Linear(5, 2)
        self.reentrant = reentrant

    def again(self, part, x):
        return checkpoint(part, x, use_reentrant=self.reentrant)

    def inner(self, x):
        return torch.tanh(nn.functional.linear(x, self.second.weight.clone(), self.second.bias))

    def outer(self, x):
        return self.again(self.inner, torch.tanh(self.first(x)))

    def forward(self, x):
        x = torch.tanh(self.norm(self.conv(x))).flatten(1)
        return self.head(self.second(self.again(self.outer, x)))


class Silent(nn.Module):
    """A layer that is used without gradients first."""

    def __init__(self, composed):
        super().__init__()
        self.layer, self.composed = nn.Linear(4, 4), composed

    def forward(self, x):
        with torch.no_grad():
            shift = nn.functional.linear(x, self.layer.weight.clone() if self.composed else self.layer.weight)
        weight = self.layer.weight.clone() if self.composed else self.layer.weight
        return nn.functional.linear(x, weight) + shift


def models(kind, *options):
    torch.manual_seed(0)
    made = tnt.replicate(kind(*options).double(), T)
    with torch.no_grad():
        for parameter in (p for model in made for p in model.parameters()):
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def gradients(shared, run):
    shared.zero_grad()
    y = run(shared)
    y.square().sum().backward()
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in shared.parameters()]
    return [y.detach(), *found, *(b.clone() for b in shared.buffers())]


WAYS = {
    "one": lambda shared, x: shared(x[0], 1),
    "mixed": lambda shared, x: shared(x[0], torch.tensor([0, 2, 0, 1, 1])),
    "each": lambda shared, x: shared(x),
    "fan_out": lambda shared, x: shared.fan_out(x[0]),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # torch's, of the inner one
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_reentrant_checkpoints_give_the_gradients_of_others(way, method):
    x = torch.randn(T, 5, 2, 4, dtype=torch.float64).requires_grad_()
    found = []
    for reentrant in (True, False):
        shared = tnt.share(models(Parts, reentrant), method, eps=0)
        for _ in range(2):  # the second time, a way may have been tried out
            x.grad = None
            found.append([*gradients(shared, lambda one: WAYS[way](one, x)), x.grad])
    for once, other in ((found[0], found[2]), (found[1], found[3])):
        for a, b in zip(once, other, strict=True):
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("composed", [False, True])
def test_what_ran_without_gradients_has_them_later(composed):
    shared, x = tnt.share(models(Silent, composed), "tucker", eps=0), torch.randn(5, 4, dtype=torch.float64)
    plain = shared.task_model(1)
    expected = torch.autograd.grad(plain(x).square().sum(), plain.layer.weight)[0]
    y = shared(x, 1)
    torch.testing.assert_close(y, plain(x))
    (code,) = (p for n, p in shared.named_parameters() if n.startswith("tasks.1.") and "U_" in n)
    composed_weight = shared.weights(1)["layer.weight"]
    wanted = torch.autograd.grad((composed_weight * expected).sum(), code)[0]
    torch.testing.assert_close(torch.autograd.grad(y.square().sum(), code)[0], wanted)
