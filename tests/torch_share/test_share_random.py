"""share: random networks in every way and by both paths, against plain networks: values and gradients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")

from networks import close, loss  # noqa: E402
from torch import nn  # noqa: E402

WIDTHS = st.integers(1, 4)
BODY = st.lists(
    st.sampled_from(
        ["linear", "conv", "relu", "tanh", "layer norm", "batch norm", "residual", "no bias", "twice"]
    ),
    min_size=1,
    max_size=4,
)


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x):
        return x + torch.tanh(self.inner(x))


class Conv(nn.Module):
    """A convolution along the features."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 2, 3, padding=1)

    def forward(self, x):
        return self.conv(x[:, None]).sum(1)


class Twice(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.w = nn.Parameter(torch.randn(width, width) / width)

    def forward(self, x):
        return torch.tanh(x @ self.w) @ self.w.T


def network(body, width, out):
    layers = {
        "linear": lambda: nn.Linear(width, width),
        "no bias": lambda: nn.Linear(width, width, bias=False),
        "conv": Conv,
        "relu": lambda: nn.LeakyReLU(0.3),
        "tanh": nn.Tanh,
        "layer norm": lambda: nn.LayerNorm(width),
        "batch norm": lambda: nn.BatchNorm1d(width),
        "residual": lambda: Residual(width),
        "twice": lambda: Twice(width),
    }
    return nn.Sequential(*(layers[kind]() for kind in body), nn.Linear(width, out))


def varied(make, count):
    torch.manual_seed(0)
    models = tnt.replicate(make().double(), count)
    with torch.no_grad():
        for parameter in (p for model in models for p in model.parameters()):
            parameter.add_(0.3 * torch.randn_like(parameter))
    return models


def one(shared, xs):
    return shared(xs[-1], len(xs) - 1)


def mixed(shared, xs):
    tasks, rows, width = xs.shape
    together = xs.transpose(0, 1).reshape(rows * tasks, width)  # row r of task t is row r * tasks + t
    return shared(together, torch.arange(rows * tasks) % tasks).unflatten(0, (rows, tasks)).transpose(0, 1)


# Ours, and the same by plain networks.
WAYS = {
    "one": (one, lambda models, xs: models[-1](xs[-1])),
    "each": (
        lambda shared, xs: shared(xs),
        lambda models, xs: torch.stack([model(x) for model, x in zip(models, xs, strict=True)]),
    ),
    "fan_out": (
        lambda shared, xs: shared.fan_out(xs[0]),
        lambda models, xs: torch.stack([model(xs[0]) for model in models]),
    ),
}
WAYS["mixed"] = mixed, WAYS["each"][1]


@given(
    BODY,
    st.tuples(WIDTHS, WIDTHS),
    st.tuples(st.integers(1, 5), st.integers(2, 4)),
    st.sampled_from(["laf", "tucker", "tt"]),
    st.sampled_from(list(WAYS)),
    st.sampled_from(["loop", "auto"]),
    st.booleans(),
)
def test_random_networks(body, widths, shape, method, way, strategy, training):
    models = [model.train(training) for model in varied(lambda: network(body, *widths), shape[0])]
    shared = tnt.share(models, method, eps=0, strategy=strategy)
    ours, plain = WAYS[way]
    for _ in range(3):  # the first call, the one that probes, and one that follows
        xs = torch.randn(*shape, widths[0], dtype=torch.float64, requires_grad=True)
        theirs = xs.detach().clone().requires_grad_()
        found, expected = ours(shared, xs), plain(models, theirs)
        close(found, expected, 1e-7)
        for module in (shared, *models):
            module.zero_grad()
        loss(found).backward()
        loss(expected).backward()
        close(xs.grad, theirs.grad, 1e-7)
    for t, model in enumerate(models):
        own = shared.weights(t)
        same = {name for name in own.keys() - shared.networks.keys() if way != "one" or t == len(models) - 1}
        close(
            {n: own[n].grad for n, _ in model.named_parameters() if n in same},
            {n: p.grad for n, p in model.named_parameters() if n in same},
            1e-7,
        )
        close({n: own[n] for n, _ in model.named_buffers()}, dict(model.named_buffers()), 1e-7)
