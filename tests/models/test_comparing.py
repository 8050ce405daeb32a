"""What two objects differ in: told by path, whatever holds it."""

from __future__ import annotations

import enum
import functools
import random
import re
import threading
import weakref
from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from tnshare.models import Difference, differences_of, is_ignored


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclass
class Config:
    width: int = 4
    rates: dict[str, float] = field(default_factory=lambda: {"low": 0.1})


@dataclass(frozen=True, slots=True)
class Slotted:
    width: int
    inner: tuple[int, ...] = (1, 2)


class Words(str):
    pass


class Entries(dict):
    pass


def scaled(by):
    return lambda x: x * by


def with_default(by):
    def function(x, by=by, *, also=by):
        return x * by * also

    return function


def made_class(by):
    class Made:
        rate = by

        def run(self, x):
            return x * by

    return Made


def other_code():
    class Made:
        rate = 1

        def run(self, x):
            return x + 1

    return Made


def tree(leaf):
    return {"a": [1, (2, {"b": leaf})]}


def looped(value):
    made = [value]
    made.append(made)
    return made


def found(one, other, **options):
    return list(differences_of([("x", one, other)], **options))


ALIKE = {
    "numbers": lambda: (1, 1.5, 2j, True, None, ..., "a", b"a", range(3), float("nan"), slice(1, 2)),
    "arrays": lambda: [np.arange(3.0), np.array([np.nan]), np.float32(1), np.array(["a"])],
    "containers": lambda: tree({1, 2}),
    "more containers": lambda: (OrderedDict(a=1), deque([1], 3), frozenset({(1, "b")}), Entries(a=1)),
    "default": lambda: defaultdict(list, a=[1]),
    "enum": lambda: Colour.RED,
    "dataclass": Config,
    "slots": lambda: Slotted(3),
    "function": lambda: scaled(2),
    "defaults": lambda: with_default(2),
    "partial": lambda: functools.partial(scaled, by=3),
    "builtin": lambda: [len, max, np.tanh, "a".join],
    "method": lambda: Config(3).__eq__,
    "class": lambda: made_class(2),
    "object of a class made anew": lambda: made_class(2)(),
    "sentinel": object,
    "lock": threading.Lock,
    "pattern": lambda: re.compile("a"),
    "random": lambda: random.Random(3),
    "loop": lambda: looped(1),
    "words": lambda: Words("a"),
    "objects in a set": lambda: {Colour.RED, Slotted(1)},
}


@pytest.mark.parametrize("name", ALIKE)
def test_things_made_alike_are_the_same(name):
    assert found(ALIKE[name](), ALIKE[name]()) == []


DIFFERENT = {
    "number": (1, 2, "x", "1", "2"),
    "kind of number": (1, 1.0, "x", "1", "1.0"),
    "flag": (True, 1, "x", "True", "1"),
    "sign of zero": (0.0, -0.0, "x", "0.0", "-0.0"),
    "none": (None, 0, "x", "None", "0"),
    "word": (Words("a"), Words("b"), "x", "'a'", "'b'"),
    "nested": (tree(1), tree(2), "x.a[1][1].b", "1", "2"),
    "key": ({"a": 1}, {"b": 1}, "x.keys", "'a'", "'b'"),
    "order of keys": ({"a": 1, "b": 1}, {"b": 1, "a": 1}, "x.keys", "'a'", "'b'"),
    "length": ([1], [1, 2], "x", "[1]", "[1, 2]"),
    "list or tuple": ([1], (1,), "x", "[1]", "(1,)"),
    "set": ({1}, {2}, "x", "{1}", "{2}"),
    "objects in a set": ({Slotted(1)}, {Slotted(2)}, "x[Slotted(width=1, inner=(1, 2))].width", "1", "2"),
    "longest": (deque([1], 2), deque([1], 3), "x.made_of[1]", "2", "3"),
    "default": (defaultdict(int), defaultdict(list), "x.made_of[0]", "int", "list"),
    "enum": (Colour.RED, Colour.BLUE, "x", "<Colour.RED: 1>", "<Colour.BLUE: 2>"),
    "dataclass": (Config(), Config(rates={"low": 0.2}), "x.rates.low", "0.1", "0.2"),
    "slots": (Slotted(1), Slotted(1, (1, 3)), "x.inner[1]", "2", "3"),
    "closure": (scaled(1), scaled(2), "x.by", "1", "2"),
    "default of a function": (with_default(1), with_default(2), "x.defaults[0]", "1", "2"),
    "partial": (functools.partial(max, 1), functools.partial(max, 2), "x.args[0]", "1", "2"),
    "function": (max, min, "x", "max", "min"),
    "method": (Config(3).__eq__, Config(4).__eq__, "x.__self__.width", "3", "4"),
    "array": (np.zeros(1), np.ones(1), "x", "array([0.])", "array([1.])"),
    "dtype": (np.float32(0), np.float64(0), "x", None, None),
    "class that closes over a number": (made_class(1)(), made_class(2)(), "x.rate", "1", "2"),
    "pattern": (re.compile("a"), re.compile("b"), "x.made_of[0]", "'a'", "'b'"),
    "random": (random.Random(3), random.Random(4), "x.state[1][1]", None, None),
    "loop": (looped(1), looped(2), "x[0]", "1", "2"),
    "iterator": (iter([1]), iter([2]), "x.made_of[0][0]", "1", "2"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_the_first_difference_is_told_by_path_and_both_values(name):
    one, other, path, first, second = DIFFERENT[name]
    difference = found(one, other)[0]
    assert difference.path == path
    if first is not None:
        assert difference.values() == (first, second)


def test_code_of_one_name_is_told_by_where_it_is():
    one, other = made_class(1)(), other_code()()
    difference = next(d for d in found(one, other) if d.path == "x.run")
    ours, theirs = difference.values()
    assert ours != theirs
    one, other = (lambda x: x + 1), (lambda x: x + 2)
    assert re.fullmatch(r".*<lambda> \(line \d+ of test_comparing.py\)", found(one, other)[0].values()[0])


def test_code_of_other_modules_is_compared_with_what_it_looks_up_there():
    def module(rate):
        names: dict[str, Any] = {"rate": rate}
        exec("def run(x):\n    return x * rate", names)
        return names["run"]

    assert found(module(1), module(1)) == []
    assert found(module(1), module(2)) == [Difference("x.rate", 1, 2)]


def test_weak_references_are_followed():
    one, other = Config(1), Config(2)
    assert found(weakref.ref(one), weakref.ref(other)) == [Difference("x.width", 1, 2)]


def test_deep_nesting_is_no_recursion():
    def deep(leaf):
        for _ in range(100_000):
            leaf = [leaf]
        return leaf

    one, other = deep(1), deep(1)
    assert found(one, other) == []
    while one:  # taken apart here, or Python would do it recursively
        one, other = one[0] if isinstance(one, list) else None, other[0] if isinstance(other, list) else None


def test_all_differences_are_reported():
    assert [d.path for d in found({"a": 1, "b": 2, "c": 3}, {"a": 2, "b": 2, "c": 4})] == ["x.a", "x.c"]


@pytest.mark.parametrize(
    ("pattern", "path", "ignored"),
    [
        ("scale", "scale", True),
        ("scale", "blocks.0.scale", True),
        ("scale", "blocks.0.scale[2].a", True),
        ("scale", "blocks.0.scales", False),
        ("blocks.*.scale", "blocks.0.scale", True),
        ("blocks.*.scale", "scale", False),
        ("blocks", "blocks.0.scale", True),
        ("blocks.1", "blocks.0.scale", False),
        ("*rate", "cfg.low_rate", True),
        ("config.rates", "config.rates.low", True),
        ("config.rates", "config.other", False),
    ],
)
def test_what_is_ignored(pattern, path, ignored):
    assert is_ignored(path, (pattern,)) is ignored
    assert is_ignored(path, ()) is False


def test_what_is_ignored_is_not_looked_at():
    class Explosive:
        def __reduce__(self):
            raise AssertionError("it was looked at")

    one, other = ({"a": Explosive(), "b": n} for n in range(2))
    assert found(one, other, ignore=("a",)) == [Difference("x.b", 0, 1)]


def test_a_rule_comes_first():
    assert found([1], [2], rule=lambda path, a, b: True if isinstance(a, int) else None) == []


def test_values_that_cannot_be_shown():
    class Silent:
        def __repr__(self):
            raise ValueError("no")

    assert Difference("x", Silent(), 1).values()[0].endswith("Silent")
    assert len(Difference("x", "a" * 1000, 1).values()[0]) < 80
