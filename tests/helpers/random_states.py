"""Parts of random networks that keep something outside of parameters and buffers."""

from __future__ import annotations

import functools
import weakref

import torch
from random_blocks import WIDTH, linear
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Assigning(nn.Module):
    HOW = ("attribute", "list", "dict", "deep", "number", "in place", "object", "closure", "default", "set_")

    def __init__(self, rng):
        super().__init__()
        self.fc, self.how = linear(), rng.choice(self.HOW)
        self.last, self.held, self.deep, self.calls = None, [], {"a": {"b": []}}, 0
        self.kept = torch.zeros(WIDTH, dtype=torch.float64)
        self.object = Holder()
        self.remember = remembering()

    def forward(self, x):
        y = self.fc(x)
        match self.how:
            case "attribute":
                before, self.last = self.last, y.detach().mean(0)
            case "list":
                before = self.held[-1] if self.held else None
                self.held.append(y.detach().mean(0))
            case "dict":
                before = self.deep.get("last")
                self.deep["last"] = y.detach().mean(0)
            case "deep":
                inner = self.deep["a"]["b"]
                before = inner[-1] if inner else None
                inner.append(y.detach().mean(0))
            case "number":
                before = self.calls
                self.calls += 1
            case "in place":
                before = self.kept.clone()
                self.kept.mul_(0.5).add_(y.detach().mean(0))
            case "object":
                before, self.object.last = self.object.last, y.detach().mean(0)
            case "closure":
                before = self.remember(y.detach().mean(0))
            case "default":
                before = by_default(self, y.detach().mean(0))
            case _:
                before = self.kept.clone()
                self.kept.data = y.detach().mean(0)
        return y if before is None else y + before


class Holder:
    def __init__(self):
        self.last = None


def remembering():
    held = []

    def remember(value):
        held.append(value)
        return held[-2] if len(held) > 1 else None

    return remember


_LAST: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def by_default(module, value):
    before = _LAST.get(module)
    _LAST[module] = value
    return before


_WEIGHTS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


@functools.lru_cache(maxsize=64)
def prepared(module):
    return torch.tanh(module.fc.weight)


class Memoised(nn.Module):
    """A weight that is worked out once and then kept."""

    HOW = ("attribute", "helper", "lru_cache", "buffer", "detached")

    def __init__(self, rng):
        super().__init__()
        self.fc, self.how, self.kept = linear(), rng.choice(self.HOW), None
        self.register_buffer("ready", torch.zeros(()))
        self.register_buffer("table", torch.zeros(WIDTH, WIDTH))

    def forward(self, x):
        match self.how:
            case "attribute":
                if self.kept is None:
                    self.kept = torch.tanh(self.fc.weight)
                w = self.kept
            case "helper":
                if self not in _WEIGHTS:
                    _WEIGHTS[self] = torch.tanh(self.fc.weight)
                w = _WEIGHTS[self]
            case "lru_cache":
                w = prepared(self)
            case "detached":
                if self not in _WEIGHTS:
                    _WEIGHTS[self] = torch.tanh(self.fc.weight.detach())
                w = _WEIGHTS[self]
            case _:
                if not self.ready:
                    self.table.copy_(torch.tanh(self.fc.weight.detach()))
                    self.ready.fill_(1)
                w = self.table
        return F.linear(x, w)


STATEFUL = (Assigning, Memoised)
