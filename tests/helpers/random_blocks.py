"""Parts of random networks: rows of `WIDTH` numbers in, rows of as many out, each of a kind of its own."""

from __future__ import annotations

import contextlib
import functools
import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from torch.nn.utils import parametrizations
from torch.nn.utils.parametrize import register_parametrization
from torch.utils.checkpoint import checkpoint

WIDTH = 4


def linear():
    return nn.Linear(WIDTH, WIDTH)


class Affine(nn.Module):
    """A linear layer and an activation, which may be held as a function."""

    def __init__(self, rng):
        super().__init__()
        self.fc = nn.Linear(WIDTH, WIDTH, bias=rng.random() < 0.7)
        self.act = rng.choice(
            [torch.tanh, F.gelu, nn.Tanh(), functools.partial(F.leaky_relu, negative_slope=0.2)]
        )

    def forward(self, x):
        return self.act(self.fc(x))


class Product(nn.Module):
    """A weight used by functions, in the ways that people write."""

    HOW = (
        "matmul",
        "einsum",
        "addmm",
        "view",
        "reshape",
        "slice",
        "bmm",
        "baddbmm",
        "t",
        "index",
        "stack",
        "norm",
    )

    def __init__(self, rng):
        super().__init__()
        self.how, self.w = rng.choice(self.HOW), nn.Parameter(torch.randn(WIDTH, WIDTH) / 2)
        self.bias = nn.Parameter(torch.randn(WIDTH))

    def forward(self, x):  # noqa: C901
        w, rows = self.w, x.shape[0]
        match self.how:
            case "matmul":
                return x @ w.T + self.bias
            case "einsum":
                return torch.einsum("bi,oi->bo", x, w)
            case "addmm":
                return torch.addmm(self.bias, x, w)
            case "view":
                return (x.view(rows, 1, WIDTH) * w.view(1, WIDTH, WIDTH)).sum(-1)
            case "reshape":
                return x * w.reshape(-1)[:WIDTH] + w.view(2, -1).sum()
            case "slice":
                return torch.cat([F.linear(x, w[:2]), F.linear(x, w[2:])], -1)
            case "bmm":
                return torch.bmm(x[:, None], w.expand(rows, -1, -1))[:, 0]
            case "baddbmm":
                return torch.baddbmm(x[:, None], x[:, None], w[None].repeat(rows, 1, 1)).squeeze(1)
            case "t":
                return F.linear(F.linear(x, w), w.t())
            case "index":
                return x @ w[torch.tensor([1, 0, 3, 2])]
            case "stack":
                return x @ torch.stack([w, w.T]).mean(0)
            case _:
                return F.linear(x, F.normalize(w, dim=1))


class Convolved(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.channels = rng.choice([1, 2])
        self.conv = nn.Conv1d(
            self.channels, self.channels, 3, padding=1, groups=rng.choice([1, self.channels])
        )

    def forward(self, x):
        y = self.conv(x.view(x.shape[0], self.channels, -1))
        return torch.tanh(y).flatten(1)


class Recurrent(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.rnn = rng.choice([nn.GRU, nn.LSTM, nn.RNN])(2, 2, batch_first=True)

    def forward(self, x):
        return self.rnn(x.reshape(-1, 2, 2))[0].flatten(1)


class Attending(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.attention = nn.MultiheadAttention(2, rng.choice([1, 2]), batch_first=True)

    def forward(self, x):
        steps = x.reshape(-1, 2, 2)
        return self.attention(steps, steps, steps, need_weights=False)[0].flatten(1)


class Looked(nn.Module):
    """Embeddings of what the signs of the input spell."""

    def __init__(self, rng):
        super().__init__()
        self.table = nn.Embedding(2**WIDTH, WIDTH)

    def forward(self, x):
        ids = ((x.detach() > 0).long() * 2 ** torch.arange(WIDTH)).sum(-1)
        return x + self.table(ids)


class Normed(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.norm = rng.choice([nn.LayerNorm(WIDTH), nn.GroupNorm(2, WIDTH), nn.RMSNorm(WIDTH)])

    def forward(self, x):
        return self.norm(x)


class BatchNormed(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH, momentum=rng.choice([0.1, None]), affine=rng.random() < 0.7)

    def forward(self, x):
        return self.norm(x)


class Reused(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.fc, self.times = linear(), rng.choice([2, 3])
        self.again = [self.fc] * self.times  # by another way

    def forward(self, x):
        for layer in self.again:
            x = torch.tanh(layer(x))
        return x


class Tied(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.one, self.other = linear(), linear()
        self.other.weight = self.one.weight

    def forward(self, x):
        return F.linear(torch.tanh(self.one(x)), self.other.weight.T) + self.other.bias


class InPlace(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.fc = linear()

    def forward(self, x):
        y = self.fc(x)
        y.mul_(0.5)
        y += x
        y[:, 0].mul_(2)
        return y


class Counting(nn.Module):
    """Statistics in buffers, written in place, all in other ways."""

    HOW = ("add", "iadd", "copy", "lerp", "index")

    def __init__(self, rng):
        super().__init__()
        self.fc, self.how = linear(), rng.choice(self.HOW)
        self.register_buffer("mean", torch.zeros(WIDTH))
        self.register_buffer("count", torch.zeros((), dtype=torch.long), persistent=rng.random() < 0.5)

    def forward(self, x):
        now = x.detach().mean(0)
        if self.training:
            self.count += 1
            match self.how:
                case "add":
                    self.mean.mul_(0.9).add_(now, alpha=0.1)
                case "iadd":
                    self.mean += now
                case "copy":
                    self.mean.copy_(0.5 * self.mean + now)
                case "lerp":
                    self.mean.lerp_(now, 0.1)
                case _:
                    self.mean[1:] = now[1:]
        return self.fc(x - self.mean)


def doubled(module, args, output):
    return 2 * output


class Hooked(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.fc, by = linear(), rng.choice([0.5, 3.0])
        if rng.random() < 0.5:
            self.fc.register_forward_hook(doubled)
        else:
            self.fc.register_forward_pre_hook(lambda module, args: (args[0] * by,))

    def forward(self, x):
        return self.fc(x)


class Halved(nn.Module):
    def forward(self, w):
        return w.tanh() / 2


class Parametrized(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.fc = linear()
        match rng.choice(["weight", "spectral", "own", "orthogonal"]):
            case "weight":
                parametrizations.weight_norm(self.fc)
            case "spectral":
                parametrizations.spectral_norm(self.fc)
            case "orthogonal":
                parametrizations.orthogonal(self.fc, orthogonal_map="cayley")
            case _:
                register_parametrization(self.fc, "weight", Halved())

    def forward(self, x):
        return self.fc(x)


class Autocast(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.fc = linear().float()

    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            y = self.fc(x.float())
        return x + y.to(x.dtype)


class Checkpointed(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.inner, self.reentrant = nn.Sequential(linear(), nn.Tanh(), linear()), rng.random() < 0.5

    def forward(self, x):
        return x + checkpoint(self.inner, x, use_reentrant=self.reentrant)


class Mixing(nn.Module):
    """Rows that depend on one another, always or from a number of rows on."""

    HOW = ("centre", "mask", "capacity", "softmax", "norm", "cumsum", "largest", "attention", "flip", "first")

    def __init__(self, rng):
        super().__init__()
        self.fc, self.how, self.least = linear(), rng.choice(self.HOW), rng.choice([0, 2, 3, 4, 6])

    def forward(self, x):  # noqa: C901
        y = self.fc(x)
        if len(x) < self.least:
            return y
        match self.how:
            case "centre":
                return y - y.mean(0)
            case "mask":
                mask = torch.sigmoid(y[:, :1])
                return y * mask / mask.sum()
            case "capacity":
                room = max(len(x) // 2, 1)
                kept = torch.zeros(len(x), dtype=y.dtype).index_fill(0, y[:, 0].topk(room).indices, 1.0)
                return x + y * kept[:, None]
            case "softmax":
                return y.softmax(0)
            case "norm":
                return y / y.norm()
            case "cumsum":
                return y.cumsum(0)
            case "largest":
                return y / y.abs().max()
            case "attention":
                return x + (y @ y.T / 4).softmax(-1) @ y
            case "flip":
                return y + x.flip(0)
            case _:
                return y + x[:1] * (len(x) > 4)


class Padding(nn.Module):
    """Rows of zeros are not like others: they are left out of a mean, or of a count."""

    def __init__(self, rng):
        super().__init__()
        self.fc = linear()

    def forward(self, x):
        filled = (x.abs().sum(-1, keepdim=True) > 0).to(x.dtype)
        return self.fc(x) / filled.sum().clamp(min=1)


@functools.lru_cache(maxsize=64)
def positions(width, dtype):
    return torch.arange(width, dtype=dtype)


class Constants(nn.Module):
    """What depends on nothing but sizes may be kept by a helper, as tables of positions are."""

    def __init__(self, rng):
        super().__init__()
        self.fc = linear()

    def forward(self, x):
        return self.fc(x + positions(WIDTH, x.dtype))


class Branching(nn.Module):
    """Ways that depend on sizes, modes or values."""

    HOW = ("rows", "training", "grad", "value")

    def __init__(self, rng):
        super().__init__()
        self.one, self.other, self.how = linear(), linear(), rng.choice(self.HOW)

    def forward(self, x):
        first = {
            "rows": lambda: len(x) > 3,
            "training": lambda: self.training,
            "grad": torch.is_grad_enabled,
            "value": lambda: bool(self.one.weight.sum() > 0),
        }[self.how]()
        return self.one(x) if first else self.other(x)


class Frozen(nn.Module):
    def __init__(self, rng):
        super().__init__()
        self.fc, self.out = linear(), linear()
        self.fc.weight.requires_grad_(False)

    def forward(self, x):
        with torch.no_grad() if not self.training else contextlib.nullcontext():
            y = self.fc(x)
        return self.out(torch.tanh(y)) + math.pi


# Of the first, each may be called for one task: nothing in them is for a shared network to refuse.
REGULAR = (
    Affine,
    Product,
    Convolved,
    Recurrent,
    Attending,
    Looked,
    Normed,
    BatchNormed,
    Reused,
    Tied,
    InPlace,
    Counting,
    Hooked,
    Parametrized,
    Autocast,
    Checkpointed,
    Mixing,
    Padding,
    Constants,
    Branching,
    Frozen,
)
