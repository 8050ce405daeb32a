"""share: every kind of network that a user may have, against the plain networks, values and gradients."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402, N812
from torch.utils._pytree import tree_leaves  # noqa: E402

T = 3


class LeNet(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 4, 3)
        self.fc1, self.fc2 = nn.Linear(16, 6), nn.Linear(6, classes)

    def forward(self, x):
        y = F.relu(self.conv2(F.max_pool2d(torch.tanh(self.conv1(x)), 2)))
        return self.fc2(torch.tanh(self.fc1(y.view(y.shape[0], -1))))


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.k = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(2, 1, 1, 3))
        self.keys, self.scale = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.tensor(1.5))
        self.weights = [self.w, {"keys": self.keys}]  # the same parameters, by another way

    def forward(self, x):
        if (self.w.device, self.w.dtype, tuple(self.w.shape)) != (x.device, x.dtype, (4, 5)):
            raise ValueError("a weight must look like one")
        y = F.linear(F.linear(x, self.weights[0]), self.weights[1]["keys"])
        return {"y": self.scale * F.conv2d(y[:, None, None], self.k), "w": self.keys, "nothing": None}


class Residual(nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.conv, self.norm, self.skip = nn.Conv2d(2, 4, 3, padding=1), norm, nn.Conv2d(2, 4, 1)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)) + self.skip(x)), x.mean()


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.mix, self.out = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7)
        self.out.weight = self.embed.weight

    def forward(self, x):
        return self.out(torch.tanh(self.mix(torch.tanh(self.mix(self.embed(x))))))  # mix is used twice


class Recurrent(nn.Module):
    def __init__(self, kind, **options):
        super().__init__()
        self.rnn = kind(4, 3, **options)

    def forward(self, x):
        return self.rnn(x)


class Attention(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=first)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)


def encoder(first):
    return nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=first)


def tokens(rows):
    return torch.randint(0, 7, (rows, 2))


def normal(*shape):
    return lambda rows: torch.randn(rows, *shape)


def second(*shape):
    return lambda rows: torch.randn(5, rows, *shape)  # five steps, rows along axis 1


def nested():
    inner = nn.Sequential(nn.Linear(4, 3), nn.LeakyReLU(0.2), nn.LayerNorm(3))
    return nn.Sequential(inner, nn.Sequential(nn.PReLU(3), nn.Linear(3, 2, bias=False)))


NETWORKS = {
    "nested": (nested, normal(4)),
    "lenet": (LeNet, normal(1, 10, 10)),
    "functional": (Functional, normal(5)),
    "residual": (lambda: Residual(nn.BatchNorm2d(4)), normal(2, 4, 4)),
    "group norm": (lambda: Residual(nn.GroupNorm(2, 4)), normal(2, 4, 4)),
    "matrix norm": (lambda: nn.Sequential(nn.LayerNorm((2, 3)), nn.Flatten(), nn.Linear(6, 2)), normal(2, 3)),
    "dropout": (lambda: nn.Sequential(nn.Linear(4, 9), nn.Dropout(), nn.Linear(9, 2)), normal(4)),
    "tied": (Tied, tokens),
    "gru": (lambda: Recurrent(nn.GRU), second(4)),
    "lstm": (lambda: Recurrent(nn.LSTM, num_layers=2, bidirectional=True), second(4)),
    "attention": (lambda: Attention(True), normal(5, 4)),
    "attention second": (lambda: Attention(False), second(4)),
    "encoder": (lambda: encoder(True), normal(5, 4)),
    "encoder second": (lambda: encoder(False), second(4)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2, stride=2), normal(4, 3, 3)),
    "grouped": (lambda: nn.Conv2d(4, 6, 2, groups=2), normal(4, 3, 3)),
    "depthwise": (lambda: nn.Conv2d(4, 8, 2, groups=4), normal(4, 3, 3)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 2), normal(2, 4)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), normal(2, 3, 3, 3)),
    "weight norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)), normal(4)),
    "spectral norm": (lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)), normal(4)),
    "bilinear": (lambda: nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, momentum=None)), normal(4)),
}
SECOND = ("gru", "lstm", "attention second", "encoder second")
ALONE = ("functional", "residual", "group norm")  # of their outputs, some have no rows
every_network = pytest.mark.parametrize("name", NETWORKS)


def variants(make, count=T):
    """Networks of one architecture that differ a little, as after training from the same initial values."""
    torch.manual_seed(1)
    first, made = make().double(), []
    for _ in range(count):
        model = copy.deepcopy(first)
        with torch.no_grad():
            for tensor in model.parameters():
                tensor.add_(0.3 * torch.randn_like(tensor))
        made.append(model)
    return made


def drawn(name, rows):
    x = NETWORKS[name][1](rows)
    return x.double() if x.is_floating_point() else x


def close(found, expected, tolerance=1e-9):
    ours, theirs = tree_leaves(found), tree_leaves(expected)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def loss(tree):
    leaves = [leaf for leaf in tree_leaves(tree) if leaf is not None and leaf.requires_grad]
    return sum((leaf * torch.linspace(0.5, 2, leaf.numel()).double().view_as(leaf)).sum() for leaf in leaves)


def shared_and_plain(name, mode, method="tucker"):
    models = [model.train(mode) for model in variants(NETWORKS[name][0])]
    shared = tnt.share(models, method, eps=0, batch_dim=int(name in SECOND))
    return shared, models


def seeded(function, *args):
    torch.manual_seed(7)
    return function(*args)


@every_network
@pytest.mark.parametrize("mode", [False, True], ids=["eval", "train"])
def test_one_task_is_its_network(name, mode):
    shared, models = shared_and_plain(name, mode)
    for t in (1, 0, 2, 1):
        x = drawn(name, 4)
        close(seeded(shared, x, t), seeded(models[t], x))
    for t, model in enumerate(models):  # what they count, they count alone
        buffers = {n: b for n, b in shared.weights(t).items() if n in dict(model.named_buffers())}
        close(buffers, dict(model.named_buffers()))


@every_network
def test_every_task_at_once_is_a_loop(name):
    shared, models = shared_and_plain(name, False, "laf")
    xs = [drawn(name, rows) for rows in (2, 1, 4)]
    close(shared(xs), [model(x) for model, x in zip(models, xs, strict=True)])
    plain = [model(xs[0]) for model in models]
    found = shared.fan_out(xs[0])
    for t, expected in enumerate(plain):
        close([None if leaf is None else leaf[t] for leaf in tree_leaves(found)], tree_leaves(expected))
    stack = torch.stack([drawn(name, 2) for _ in range(T)])
    for t, expected in enumerate([model(x) for model, x in zip(models, stack, strict=True)]):
        close(
            [leaf if leaf is None else leaf[t] for leaf in tree_leaves(shared(stack))], tree_leaves(expected)
        )


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in ALONE])
def test_rows_of_mixed_tasks_are_groups(name):
    shared, models = shared_and_plain(name, False)
    dim, ids = shared.batch_dim, torch.tensor([2, 0, 2, 2, 0])
    x = drawn(name, 5)
    found = shared(x, ids)
    for t in (0, 2):
        rows = torch.nonzero(ids == t)[:, 0]
        expected = tree_leaves(models[t](x.index_select(dim, rows)))
        close([y if y is None else y.index_select(dim, rows) for y in tree_leaves(found)], expected)


@every_network
@pytest.mark.parametrize("mode", [False, True], ids=["eval", "train"])
def test_gradients_of_single_weights_are_the_networks(name, mode):
    shared, models = shared_and_plain(name, mode, "single")
    x = drawn(name, 4)
    for t in (2, 1):
        seeded(lambda: loss(shared(x, t)).backward())  # noqa: B023
        seeded(lambda: loss(models[t](x)).backward())  # noqa: B023
        for key, parameter in models[t].named_parameters():
            own = shared.weights(t)[key]
            assert parameter.grad is not None
            close(own.grad, parameter.grad)
    assert all(p.grad is None for p in shared.task_parameters(0))


@every_network
@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_gradients_of_factors_follow_the_chain_rule(name, method):
    """Along any direction of factors, codes and own weights, the loss moves as the plain networks' does."""
    shared, models = shared_and_plain(name, False, method)
    x, t, h = drawn(name, 3), 1, 1e-6
    loss(shared(x, t)).backward()
    loss(models[t](x)).backward()
    parameters = [p for p in shared.parameters() if p.grad is not None]
    directions = [torch.randn_like(p) for p in parameters]
    slope = sum((p.grad * d).sum() for p, d in zip(parameters, directions, strict=True))
    ends = []
    with torch.no_grad():  # a finite difference of the weights, not of the network
        for sign in (1, -2):
            for p, d in zip(parameters, directions, strict=True):
                p.add_(sign * h * d)
            ends.append({n: w.clone() for n, w in shared.weights(t).items()})
    chain = sum((p.grad * (ends[0][n] - ends[1][n])).sum() / (2 * h) for n, p in models[t].named_parameters())
    torch.testing.assert_close(slope, chain, rtol=1e-5, atol=1e-6)
    assert abs(float(slope)) > 1e-3


@pytest.mark.parametrize("name", ["residual", "bilinear", "lenet", "tied", "spectral norm", "lstm"])
def test_training_is_that_of_plain_networks(name):
    """Weights of their own, four steps: networks, running statistics and all, are the same."""
    shared, models = shared_and_plain(name, True, "single")
    ours = torch.optim.Adam(shared.parameters(), 0.01)
    theirs = torch.optim.Adam([p for model in models for p in model.parameters()], 0.01)
    for step in range(4):
        xs = [drawn(name, 3 + step) for _ in range(T)]
        ours.zero_grad()
        theirs.zero_grad()
        loss(shared(xs)).backward()
        loss([model(x) for model, x in zip(models, xs, strict=True)]).backward()
        ours.step()
        theirs.step()
    for t, model in enumerate(models):
        close({n: w.detach() for n, w in shared.weights(t).items()}, tensors(model), 1e-7)
    x = drawn(name, 3)
    close(shared.eval()(x, 1), models[1].eval()(x), 1e-7)


def tensors(model):
    return {n: w.detach() for n, w in (*model.named_parameters(), *model.named_buffers())}


@pytest.mark.parametrize("dtype", ["complex64", "complex128", "float16", "bfloat16", "float32"])
def test_dtypes(dtype):
    kind = getattr(torch, dtype)
    if kind.is_complex:
        models = variants(lambda: nn.Linear(5, 4, dtype=kind))
    else:
        models = [model.to(kind) for model in variants(lambda: nn.Linear(5, 4))]
    shared = tnt.share(models, eps=0)
    x = torch.randn(3, 5).to(kind)
    tolerance = 0.1 if kind.itemsize == 2 else 1e-5
    for t, model in enumerate(models):
        close(shared(x, t), model(x), tolerance)
    number = shared.add_task(models[2])
    close(shared(x, number), models[2](x), tolerance)
    assert {p.dtype for p in shared.parameters()} == {kind}
    assert np.isfinite(list(shared.sharing().values())).all()
