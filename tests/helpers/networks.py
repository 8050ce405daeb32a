"""Every kind of network that a user may have, for the tests of share."""

from __future__ import annotations

import copy

import pytest
import tnshare_torch as tnt
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.utils._pytree import tree_leaves

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


def shared_and_plain(name, mode, method="tucker", **options):
    models = [model.train(mode) for model in variants(NETWORKS[name][0])]
    shared = tnt.share(models, method, eps=0, batch_dim=int(name in SECOND), **options)
    return shared, models


def seeded(function, *args):
    torch.manual_seed(7)
    return function(*args)


def tensors(model):
    return {n: w.detach() for n, w in (*model.named_parameters(), *model.named_buffers())}
