"""Containers of tensors, at any depth: taken apart, and put together again."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict, UserDict, namedtuple
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tnshare_torch")

from tnshare_torch.shared.template._containers import (  # noqa: E402
    flatten,
    hidden_tensors,
    mapped,
    tensors_in,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: Any
    b: int = 3


@dataclasses.dataclass
class Open:
    a: Any
    b: Any = None


class Entries(dict):
    pass


class Row(list):
    pass


class Batch(UserDict):
    pass


class Opaque:
    def __init__(self, held):
        self.held = held


Pair = namedtuple("Pair", "x y")
ONE = torch.ones(2)
TREES = {
    "tensor": (ONE, 1),
    "nothing": (None, 0),
    "list": ([ONE, (ONE, {"a": ONE})], 3),
    "dataclass": (Frozen(ONE), 1),
    "dataclasses": (Open([Frozen(ONE)], {"a": Open(ONE, ONE)}), 3),
    "pair": (Pair(ONE, [Frozen(ONE)]), 2),
    "dict of its own class": (Entries(a=ONE, b=[ONE]), 2),
    "list of its own class": (Row([ONE, Frozen(ONE)]), 2),
    "user dict": (Batch(a=ONE, b=Frozen(ONE)), 2),
    "ordered": (OrderedDict(z=ONE, a=Frozen(ONE)), 2),
    "empty": ({}, 0),
    "objects are none": (Opaque(ONE), 0),
}


@pytest.mark.parametrize("name", TREES)
def test_containers_are_taken_apart_and_put_together(name):
    tree, count = TREES[name]
    assert len(tensors_in(tree)) == count
    leaves, structure = flatten(tree)
    assert structure.count == len(leaves)
    made = structure.filled(leaves)
    assert type(made) is type(tree)
    assert flatten(made)[1] == structure
    doubled = mapped(lambda x: 2 * x if isinstance(x, torch.Tensor) else x, tree)
    assert all(torch.equal(x, 2 * ONE) for x in tensors_in(doubled))
    assert all(torch.equal(x, ONE) for x in tensors_in(tree)), "the one given is as it was"


def test_structures_that_look_alike_are_equal():
    assert flatten(Open(ONE))[1] == flatten(Open(torch.zeros(3)))[1]
    assert flatten([ONE])[1] != flatten((ONE,))[1]
    assert flatten(Open(ONE))[1] != flatten(Frozen(ONE))[1]
    assert flatten([Open(ONE)])[1] != flatten([Open([ONE])])[1]


def test_what_an_object_hides():
    assert len(list(hidden_tensors(Opaque({"a": [ONE]})))) == 1
    assert list(hidden_tensors(Opaque(1))) == []
    assert list(hidden_tensors("a")) == []
