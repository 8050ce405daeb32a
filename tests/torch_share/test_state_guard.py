"""State outside of parameters and buffers: a change is found at any depth, named, and taken back."""

from __future__ import annotations

import functools
from collections import deque
from types import SimpleNamespace

import pytest

import tnshare as tn

torch = pytest.importorskip("torch")
pytest.importorskip("tnshare_torch")

from tnshare_torch.shared.template._state_guard import StateGuard  # noqa: E402
from torch import nn  # noqa: E402


class Cache:
    def __init__(self):
        self.held = {"a": []}


def counting():
    count = 0

    def step():
        nonlocal count
        count += 1
        return count

    return step


def remembering():
    held = []
    return held.append


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 2)
        self.rows, self.words, self.few, self.last = [1, [2]], {"a": {"b": 1}}, {1}, deque([1], 2)
        self.cache, self.space = Cache(), SimpleNamespace(a=1)
        self.step, self.kept = counting(), torch.zeros(2)
        self.partial = functools.partial(max, [1])
        self.nested = [torch.zeros(2)]


CHANGES = {
    "list": (lambda m: m.rows[1].append(3), r"rows\[1\]"),
    "dict": (lambda m: m.words["a"].update(b=2), "words.a.b"),
    "set": (lambda m: m.few.add(2), "few"),
    "deque": (lambda m: m.last.append(2), "last"),
    "object": (lambda m: m.cache.held["a"].append(1), "cache.held.a"),
    "attribute of an object": (lambda m: setattr(m.cache, "more", 1), "cache.more"),
    "namespace": (lambda m: setattr(m.space, "a", 2), "space.a"),
    "closure": (lambda m: m.step(), "step.count"),
    "tensor": (lambda m: m.kept.add_(1), "kept"),
    "tensor in a list": (lambda m: m.nested[0].mul_(2), r"nested\[0\]"),
    "tensor given other numbers": (lambda m: setattr(m.kept, "data", torch.ones(2)), "kept"),
    "partial": (lambda m: m.partial.args[0].append(1), "partial"),
}


def told(net):
    return repr((net.rows, net.words, net.few, net.last, net.cache.__dict__, net.space, net.kept, net.nested))


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_named_and_taken_back(name):
    change, path = CHANGES[name]
    net = Net()
    before = told(net)
    for _ in range(2):
        with pytest.raises(tn.TnshareError, match=f"assigns to '{path}"), StateGuard(net):
            change(net)
        assert told(net) == before
    assert net.step() == 1


def test_an_error_of_the_network_is_told_and_changes_taken_back():
    net = Net()
    before = told(net)
    with pytest.raises(ZeroDivisionError), StateGuard(net):
        net.rows.append(1 / len(net.rows[2:]))
    assert told(net) == before


def test_what_may_change():
    net = Net()
    with StateGuard(net, scratch=["cache", "kept"]):
        net.cache.held["a"].append(1)
        net.kept.add_(1)
    with StateGuard(net):
        assert net.rows[0] + len(net.words) == 2


def test_loops_and_loggers_are_no_matter():
    import logging

    net = Net()
    net.rows.append(net.rows)
    net.log = logging.getLogger("a")
    with StateGuard(net):
        logging.getLogger("another one, made meanwhile")
