"""share: what a network's forward may do, and what would be lost or mixed up between tasks and is refused."""

from __future__ import annotations

import functools

import pytest
import tnshare_torch as tnt
import torch
from networks import close, loss, variants
from torch import nn
from torch.utils.checkpoint import checkpoint

import tnshare as tn

T = 4


def draw(*rows):
    return torch.randn(*rows, 4, dtype=torch.float64)


class Leaving(nn.Module):
    """A forward that leaves something behind."""

    def __init__(self, what):
        super().__init__()
        self.what, self.fc, self.seen, self.by_name = what, nn.Linear(4, 2), [], {}
        self.inner = nn.Module()

    def forward(self, x):
        y = self.fc(x)
        if self.what == "last":
            self.last = y
        elif self.what == "inner.last":
            self.inner.last = y
        elif self.what == "seen":
            self.seen.append(y)
        elif self.what == "by_name.y":
            self.by_name["y"] = y
        elif self.what == "count":
            self.count = getattr(self, "count", 0) + 1
        return y


LEFT = ["last", "inner.last", "seen", "by_name.y", "count"]


@pytest.mark.parametrize("what", LEFT)
def test_what_is_left_in_attributes_is_refused_unless_named(what):
    models = variants(lambda: Leaving(what), T)
    shared, x = tnt.share(models, eps=0), draw(3)
    for call in (lambda: shared(x, 1), lambda: shared.fan_out(x), lambda: shared(x, [0, 1, 1])):
        with pytest.raises(tn.TnshareError, match=rf"assigns to '{what}' .* scratch=\['{what}'\]"):
            call()
    template = shared._template
    assert not template.seen
    assert not template.by_name
    assert not hasattr(template, "last")
    assert not hasattr(template, "count")
    assert not hasattr(template.inner, "last")
    with pytest.raises(tn.TnshareError, match="assigns to"):
        tnt.share(models, eps=0, scratch=["other"])(x, 1)
    allowed = tnt.share(models, eps=0, scratch=[what])
    close(allowed(x, 1), models[1](x))


class Writing(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.fc, self.bias = how, nn.Linear(4, 2), nn.Parameter(torch.ones(2))

    def forward(self, x):
        with torch.no_grad():
            weight = self.fc.weight
            if self.how == "clamp":
                weight.clamp_(-0.1, 0.1)
            elif self.how == "item":
                weight[0] = 0.0
            elif self.how == "data":
                weight.data.mul_(0.5)
            elif self.how == "view":
                weight.view(-1).zero_()
            elif self.how == "reads":
                weight.data.norm()
            elif self.how == "own":
                self.bias.mul_(0.5)
        return self.fc(x) + self.bias


@pytest.mark.parametrize("how", ["clamp", "item", "data", "view"])
def test_writing_to_a_softly_shared_weight_is_refused(how):
    models = variants(lambda: Writing(how), T)
    x = draw(3)
    with pytest.raises(tn.TnshareError, match=r"writes to 'fc.weight' .* layers=\{'fc.weight': 'single'\}"):
        tnt.share(models, eps=0)(x, 1)
    for setting in ("single", "hard"):
        shared = tnt.share(models, layers={"fc.weight": setting})
        before = shared.weights(1)["fc.weight"].detach().clone()
        shared(x, 1)
        assert not torch.equal(shared.weights(1)["fc.weight"], before)


@pytest.mark.parametrize("how", ["reads", "own"])
def test_reading_and_writing_what_is_a_tasks_own_is_fine(how):
    models = variants(lambda: Writing(how), T)
    shared, x = tnt.share(models, eps=0), draw(3)
    close(shared(x, 1), models[1](x))
    close(shared(x, 1), models[1](x))
    close(shared.weights(0)["bias"], models[0].bias)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x, mask=None, scale=None):
        y = self.fc(x)
        y = y if mask is None else y * mask[:, None]
        return y if scale is None else y * scale


@pytest.mark.parametrize("strategy", ["loop", "vmap"])
def test_keyword_arguments_with_rows(strategy):
    models = variants(Masked, T)
    dims = {"mask": 0, "scale": None}
    shared = tnt.share(models, eps=0, batch_dims=dims, strategy=strategy)
    ids = [3, 0, 3, 1, 0]
    for _ in range(3):
        x, mask, scale = draw(5), torch.randn(5, dtype=torch.float64), torch.randn(2, dtype=torch.float64)
        found = shared(x, ids, mask=mask, scale=scale)
        rows = [models[t](x[n : n + 1], mask[n : n + 1], scale)[0] for n, t in enumerate(ids)]
        close(found, torch.stack(rows))
    close(shared(x[:2], [1, 3], scale=scale), torch.stack([models[1](x[0]) * scale, models[3](x[1]) * scale]))
    close(shared(x, 2, mask=mask), models[2](x, mask))


def test_keyword_arguments_that_may_have_rows_are_asked_about():
    models = variants(Masked, T)
    shared = tnt.share(models, eps=0)
    x, mask = draw(5), torch.randn(5, dtype=torch.float64)
    with pytest.raises(
        tn.TnshareError, match=r"does 'mask', of shape \(5,\), have a row .* batch_dims=\{'mask': 0\}"
    ):
        shared(x, [0, 1, 2, 3, 0], mask=mask)
    close(shared(x, [0, 0, 1, 1, 1], scale=torch.ones(2, dtype=torch.float64))[0], models[0](x[:1])[0])


class Again(nn.Module):
    """Parts of the forward are run again in the backward pass."""

    def __init__(self, on=True, reentrant=False):
        super().__init__()
        self.on, self.reentrant = on, reentrant
        self.first, self.norm, self.key = nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Parameter(torch.randn(6, 6))
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(6, 2)

    def part(self, x):
        return torch.tanh(self.drop(self.norm(self.first(x)) @ self.key))

    def forward(self, x):
        y = checkpoint(self.part, x, use_reentrant=self.reentrant) if self.on else self.part(x)
        return self.last(y)


WAYS = {
    "one": lambda shared, x: shared(x, 1),
    "each": lambda shared, x: shared(torch.stack([x] * T)),
    "fan_out": lambda shared, x: shared.fan_out(x),
    "mixed": lambda shared, x: shared(x, [1, 2, 1, 2, 0, 0]),
}


@pytest.mark.parametrize("way", WAYS)
def test_checkpoints_in_a_forward(way):
    found, x = [], draw(6)
    for on in (True, False):
        shared = tnt.share(variants(lambda: Again(on), T), eps=0, strategy="loop")  # noqa: B023
        for _ in range(2):
            torch.manual_seed(3)
            loss(WAYS[way](shared, x)).backward()
        found.append([p.grad for p in shared.parameters()])
        assert sum(gradient is not None for gradient in found[-1]) > 5
    close(*found)
    shared = tnt.share(variants(Again, T), eps=0)  # vmap has no checkpoints: the loop is found
    for _ in range(3):
        WAYS[way](shared, x).sum().backward()


def scaled(factor):
    def hook(module, args, y):
        return factor * y

    return hook


def hooked(hook):
    model = nn.Sequential(nn.Linear(4, 2))
    model[0].register_forward_hook(hook)
    return model


def doubled(module, args, y, factor=2.0):
    return factor * y


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (scaled(2.0), scaled(3.0)),
        (scaled(torch.ones(2)), scaled(torch.zeros(2))),
        (functools.partial(doubled, factor=2.0), functools.partial(doubled, factor=3.0)),
        (scaled(2.0), doubled),
    ],
    ids=["closures", "tensors", "partials", "functions"],
)
def test_hooks_that_hold_different_things_are_told_apart(one, other):
    with pytest.raises(tn.TnshareError, match=r"model 1 .*0._forward_hooks"):
        tnt.share([hooked(one), hooked(other)])
    shared = tnt.share([hooked(one), hooked(one)], "single")
    assert shared(torch.ones(1, 4), 1).shape == (1, 2)


def holding(how):
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    if how == "hook":
        model[0].register_forward_hook(lambda module, args, y: y + model[1].weight.sum())
    elif how == "partial":
        model.register_forward_pre_hook(functools.partial(lambda m, args, k: args, k=model[1] and 1))
    else:
        weight = model[1].weight
        model[0].f = lambda x: x @ weight
    return model


@pytest.mark.parametrize(("how", "text"), [("hook", "a hook of '0'"), ("attribute", "f of '0'")])
def test_functions_that_close_over_the_network_are_refused(how, text):
    with pytest.raises(tn.TnshareError, match=f"model 0: {text} is a function that closes over a part"):
        tnt.share([holding(how) for _ in range(2)])
    tnt.share([holding("partial") for _ in range(2)])


def test_partial_labels_train_what_they_touch():
    """A batch without some tasks: their codes stay, and the shared factors learn from the others."""
    shared = tnt.share(variants(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), 5), eps=0)
    for strategy in ("loop", "vmap"):
        shared.paths.strategy = strategy
        for _ in range(3):
            shared.zero_grad()
            shared(draw(6), [4, 1, 1, 4, 4, 1]).square().sum().backward()
            touched = [
                all(p.grad is not None and bool(p.grad.any()) for p in own.parameters())
                for own in shared.tasks
            ]
            assert touched == [False, True, False, False, True]
            untouched = [p.grad for t in (0, 2, 3) for p in shared.task_parameters(t)]
            assert all(gradient is None or not gradient.any() for gradient in untouched)
            assert all(p.grad is not None for p in shared.shared_parameters())
    before = [p.detach().clone() for t in (0, 2, 3) for p in shared.task_parameters(t)]
    torch.optim.Adam(shared.parameters(), 0.1).step()
    close([p.detach() for t in (0, 2, 3) for p in shared.task_parameters(t)], before, 0)


@pytest.mark.parametrize("strategy", ["loop", "vmap"])
def test_tasks_that_come_and_go_leave_the_others(strategy):
    """One task bit by bit, the other ways to 1e-6, by either path."""
    shared = tnt.share(variants(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2)), 5), eps=0)
    shared.paths.strategy = strategy
    x, ids = draw(6), [4, 1, 1, 4, 0, 1]

    def outputs():
        for _ in range(2):
            found = [shared(x, t) for t in range(5)], shared.fan_out(x)[:5], shared(x, ids)
        return found

    ones, every, mixed = outputs()
    new = shared.add_task()
    after, *others = outputs()
    assert all(torch.equal(a, b) for a, b in zip(after, ones, strict=True))
    close(others, [every, mixed], 1e-6)
    shared.remove_task(new)
    after, *others = outputs()
    assert all(torch.equal(a, b) for a, b in zip(after, ones, strict=True))
    close(others, [every, mixed], 1e-6)
