"""share: what would be silently wrong is refused, with a text that says why; what is in place is allowed."""

from __future__ import annotations

import pytest
import tnshare_torch as tnt
import torch
from tolerances import close
from torch import nn
from torch.utils.checkpoint import checkpoint

import tnshare as tn

T = 4


def varied(first):
    made = tnt.replicate(first.double(), T)
    with torch.no_grad():
        for parameter in (p for model in made for p in model.parameters()):
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made


class Counter(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.fc = how, nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(()))
        self.register_buffer("last", None)

    def forward(self, x):
        if self.how == "in place":
            self.count += 1
        elif self.how == "late":
            self.last = self.count + 1
        else:
            self.count = self.count + 1
        if self.how == "fails":
            raise ValueError("on purpose")
        return self.fc(x) + self.count


def test_what_is_counted_in_place_is_the_tasks():
    shared = tnt.share(varied(Counter("in place")))
    x = torch.ones(3, 2, dtype=torch.float64)
    shared(x, 1)
    shared(x, [1, 3, 1])
    assert [float(shared.weights(t)["count"]) for t in range(T)] == [0, 2, 0, 1]
    assert shared._template.count.is_meta


@pytest.mark.parametrize(("how", "name"), [("new", "count"), ("late", "last"), ("fails", "")])
def test_an_assigned_buffer_is_refused_and_put_back(how, name):
    shared = tnt.share(varied(Counter(how)))
    template, before = shared._template, shared._template.count
    for _ in range(2):
        error, text = (
            (ValueError, "on purpose") if how == "fails" else (tn.TnshareError, f"assigns to '{name}'")
        )
        with pytest.raises(error, match=text):
            shared(torch.ones(3, 2, dtype=torch.float64), 1)
        assert template.count is before
        assert template.last is None
    assert float(shared.weights(1)["count"]) == 0


def loose(value, attribute="extra"):
    model = nn.Linear(2, 2)
    setattr(model, attribute, value)
    return model


@pytest.mark.parametrize(
    ("models", "text"),
    [
        ([], "no models were given"),
        ([nn.Linear(2, 2), "net"], "must be torch modules: found str as model 1"),
        ([nn.Linear(2, 2), nn.Linear(2, 2, bias=False)], "one architecture: model 1 differs .*bias"),
        (
            [nn.Sequential(nn.ReLU()), nn.Sequential(nn.Tanh())],
            "in 0, which is ReLU in the first, Tanh in model 1",
        ),
        ([nn.Linear(2, 2), nn.Linear(2, 2).double()], "in weight, which is float32 .*, float64 "),
        (
            [nn.Conv1d(2, 2, 3), nn.Conv1d(2, 2, 3, stride=2)],
            "model 1 differs from the first in stride.0., which is 1 in the first, 2",
        ),
        (
            [nn.Dropout(0.1), nn.Dropout(0.2)],
            r"in p, which is 0.1 in the first, 0.2 in model 1; .* share\(..., ignore=\['p'\]\)",
        ),
        (
            [nn.MultiheadAttention(4, 2), nn.MultiheadAttention(4, 1)],
            "differs .*num_heads, which is 2 in the first, 1",
        ),
        ([loose(torch.ones(2)), loose(torch.zeros(2))], "model 1 has a tensor 'extra' that is neither"),
        ([loose([1, torch.ones(2)]), loose([1, torch.zeros(2)])], r"a tensor 'extra\[1\]' that is neither"),
        ([loose(torch.ones(2)), loose(torch.ones(3))], "a tensor 'extra'"),
    ],
    ids=str,
)
def test_networks_that_are_not_alike_are_refused(models, text):
    with pytest.raises(tn.TnshareError, match=text):
        tnt.share(models)


def test_a_new_network_of_another_kind_is_refused():
    shared = tnt.share([nn.Linear(2, 3) for _ in range(2)], eps=0)
    for model, text in [
        (nn.Linear(2, 3, bias=False), "one architecture: the new one differs .*bias"),
        (nn.LazyLinear(3), "the new one has parameters that have no shape yet"),
        ("net", "found str as the new one"),
        (nn.Linear(4, 3), r"weight must have shape \(3, 2\): found \(3, 4\)"),
    ]:
        with pytest.raises(tn.TnshareError, match=text):
            shared.add_task(model)
    assert len(shared.tasks) == 2
    with pytest.raises(tn.TnshareError, match="tasks must be a whole number of at least 1: found 0"):
        tnt.replicate(nn.Linear(2, 2), 0)


class Add(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, bias):
        return x + bias

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient.sum(0)


class Past(nn.Module):
    """Parameters that the mode never sees: in a Function of the user's, and in what is run again later."""

    def __init__(self, how):
        super().__init__()
        self.how, self.bias = how, nn.Parameter(torch.ones(2))
        self.fc = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 2))

    def forward(self, x):
        return Add.apply(self.fc(x), self.bias) if self.how == "function" else again(self.fc, x) + self.bias


def again(function, x):
    return checkpoint(function, x, use_reentrant=False)


def test_a_gradient_that_would_be_lost_is_an_error():
    """Found: the gradient of a parameter given to an autograd.Function was dropped without a word."""
    models = varied(Past("function"))
    shared, x = tnt.share(models, eps=0), torch.ones(3, 2, dtype=torch.float64)
    torch.testing.assert_close(shared(x, 1), models[1](x))
    with pytest.raises(tn.TnshareError, match=r"gradient of 'bias' would be lost: .* an autograd\.Function"):
        shared(x, 1).sum().backward()
    frozen = [model.requires_grad_(False) for model in models]  # nothing is lost where nothing is trained
    torch.testing.assert_close(tnt.share(frozen, eps=0)(x, 1), models[1](x))


class Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(weight)
        return x @ weight

    @staticmethod
    def backward(ctx, gradient):
        return gradient @ ctx.saved_tensors[0].T, None


def times(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x @ weight


class Unseen(nn.Module):
    scripted = None

    def __init__(self, how):
        super().__init__()
        self.fc, self.how = nn.Linear(2, 2), how

    def forward(self, x):
        function = Times.apply if self.how == "function" else Unseen.scripted
        return function(x, self.fc.weight)


@pytest.mark.parametrize("kind", ["tucker", "single", "hard"])
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
def test_products_with_what_has_no_numbers_are_errors(kind, monkeypatch):
    """Found: torch multiplies a matrix by one on the meta device, into memory as it lies."""
    x = torch.ones(3, 2, dtype=torch.float64, requires_grad=True)
    text = "'fc.weight' is used where the tensor of a task cannot be put in, by aten.*: in TorchScript"
    monkeypatch.setattr(Unseen, "scripted", torch.jit.script(times))
    shared = tnt.share(varied(Unseen("script")), layers={"fc.weight": kind})
    for call in (lambda: shared(x, 1), lambda: shared.fan_out(x), lambda: shared(x, [0, 1, 1])):
        with pytest.raises(RuntimeError, match="failed in the TorchScript interpreter"):  # which drops ours
            call()
    models = [model.requires_grad_(False) for model in varied(Unseen("function"))]
    shared = tnt.share(models, layers={"fc.weight": kind})
    y = shared(x, 1)
    torch.testing.assert_close(y, x @ shared.weights(1)["fc.weight"])
    with pytest.raises(tn.TnshareError, match=text):
        y.sum().backward()


class Graph(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        self.register_buffer("edges", torch.eye(3, dtype=torch.float64).to_sparse())

    def forward(self, x):
        return torch.sparse.mm(self.edges, self.fc(x))


def test_a_sparse_buffer_stays_one():
    models, x = varied(Graph()), torch.ones(3, 2, dtype=torch.float64)
    shared = tnt.share(models, eps=0)
    torch.testing.assert_close(shared(x, 1), models[1](x))
    assert shared.unshare()[1].edges.is_sparse


def hooked(model):
    model.register_forward_hook(lambda module, args, y: 2 * y)
    return model


@pytest.mark.parametrize("make", [hooked, torch.jit.script], ids=["hook", "script"])
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*")
def test_hooks_of_one_and_scripts_are_refused(make):
    with pytest.raises(tn.TnshareError, match=r"hook|scripted"):
        tnt.share([nn.Sequential(nn.Linear(2, 2)), nn.Sequential(make(nn.Linear(2, 2)))])
    plain = tnt.share([hooked(nn.Linear(2, 2).requires_grad_(False)) for _ in range(2)], "single")
    bias = plain.weights(1)["bias"]
    torch.testing.assert_close(plain(torch.zeros(1, 2), 1)[0], 2 * bias)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_told_with_the_weight(value):
    models = varied(nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2)))
    shared = tnt.share(models, eps=0)
    with torch.no_grad():
        models[2][1].weight[1, 0] = value
    with pytest.raises(
        tn.TnshareError, match=rf"1\.weight: a stack must be finite: found {value} at \(0, 1, 2\)"
    ):
        tnt.share(models)
    with pytest.raises(
        tn.TnshareError, match="the weights of a network must be finite: found NaN or infinity"
    ):
        shared.add_task(models[2])
    assert len(shared.tasks) == T


class Asking(nn.Module):
    """Branches on what it is told of its weight."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        known = self.fc.weight.requires_grad and self.fc.weight.is_leaf
        return self.fc(x) * (2 if known else 3)


@pytest.mark.parametrize("grad", [True, False])
def test_a_weight_says_of_itself_what_that_of_a_plain_network_says(grad):
    nets, x = [Asking() for _ in range(3)], torch.randn(5, 4)
    shared = tnt.share(nets, method="laf", eps=0)
    with torch.set_grad_enabled(grad):
        for task, net in enumerate(nets):
            close(shared(x, task), net(x), 4 + 4 + 3)
