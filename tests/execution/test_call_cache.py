"""Calls of a kind that ran before: found at once, and no less careful than the first."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import tnshare_torch as tnt
import torch
from tolerances import is_close

import tnshare as tn
from tnshare.execution import EVERY, Calls
from tnshare.execution import _call_cache as cache_module
from tnshare.execution._call_cache import CallCache

X = np.ones((3, 4), np.float32)
IDS = np.array([0, 1, 1])


def nothing(*inputs):
    raise AssertionError


def kinds():
    """Calls that no other of them is like: x, task, training, without a keeper."""
    yield X, None, True, True
    yield X, EVERY, True, True
    yield X, 1, True, True
    yield X, IDS, True, True
    yield X, IDS[:2], True, True
    yield X, IDS.astype(np.int32), True, True
    yield X, 1, False, True
    yield X, 1, False, False
    yield X[:2], 1, True, True
    yield X.astype(float), 1, True, True


def test_each_kind_finds_its_own_program():
    known = CallCache(("shape", "dtype"), 2)
    programs = [lambda n=n: n for n, _ in enumerate(kinds())]
    for kind, program in zip(kinds(), programs, strict=True):
        assert known.find(*kind) is None
        known.keep(*kind, program)
    for (x, task, *rest), program in zip(kinds(), programs, strict=True):
        run, ids = known.find(x.copy(), task, *rest)
        assert run is program
        assert ids is None if task is None or task is EVERY else ids[0] is task
    known.forget()
    assert all(known.find(*kind) is None for kind in kinds())


def test_what_has_to_be_looked_at_is_not_found():
    known = CallCache(("shape", "dtype"), 2)
    for kind in kinds():
        known.keep(*kind, nothing)
    assert known.find(X, 0, True, True) == (nothing, (0,))
    for x, task in ((X, 2), (X, -1), (X, True), (X, [0, 1, 1]), (X, (0,)), (X.tolist(), 1), (None, None)):
        assert known.find(x, task, True, True) is None


def test_kinds_that_are_remembered_are_limited(monkeypatch):
    monkeypatch.setattr(cache_module, "_MOST", 3)
    known = CallCache(("shape",), 2)
    for rows in range(5):
        known.keep(np.ones((rows, 4)), 0, True, True, nothing)
        assert known.find(np.ones((rows, 4)), 0, True, True) is not None
    assert [known.find(np.ones((n, 4)), 0, True, True) is None for n in range(5)] == [True] * 3 + [False] * 2


@pytest.fixture
def layer():
    return tnt.Linear(4, 3, tasks=5, spec=tn.Tucker((2, 2, 2)))


def calls_of(layer, x, xs, ids):
    return [layer(x, 3), layer(x, ids), layer(xs), layer.fan_out(x)]


@pytest.mark.parametrize("training", [True, False])
def test_the_second_call_of_a_kind_gives_the_same_and_is_not_looked_at(layer, training, monkeypatch):
    x, xs, ids = torch.randn(6, 4), torch.randn(5, 6, 4), torch.tensor([0, 4, 4, 1, 2, 2])
    with torch.set_grad_enabled(training):
        first = calls_of(layer.train(training), x, xs, ids)
        monkeypatch.setattr(Calls, "apply", nothing)
        monkeypatch.setattr(Calls, "fan_out", nothing)
        second = calls_of(layer, x, xs, ids)
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
        assert is_close(layer(x, 2), layer(x, torch.full((6,), 2)), 16)  # other tasks
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            with pytest.raises(AssertionError):  # a copy knows nothing yet
                twin(x, 3)


def test_the_second_call_of_a_kind_is_refused_like_the_first(layer):
    x, ids = torch.randn(6, 4), torch.tensor([0, 4, 4, 1, 2, 2])
    for _ in range(2):
        layer(x, ids), layer(x, 3), layer.fan_out(x)
        for wrong in (5, -1):
            with pytest.raises(tn.TnshareError, match=f"task {wrong} in row 5 is out of range"):
                layer(x, torch.tensor([0, 4, 4, 1, 2, wrong]))
            with pytest.raises(tn.TnshareError, match=f"task {wrong} is out of range"):
                layer(x, wrong)
        with pytest.raises(tn.TnshareError, match="one task id for each row"):
            layer(x, ids[:5])
        with pytest.raises(tn.TnshareError, match="task ids must be whole numbers"):
            layer(x, ids.float())
        for call in (lambda x: layer(x, ids), lambda x: layer(x, 3), layer.fan_out):
            with pytest.raises(tn.TnshareError, match="x must have the dtype of the layer"):
                call(x.double())
            with pytest.raises(tn.TnshareError, match="on the device of the layer, cpu: found meta"):
                call(x.to("meta"))
            with pytest.raises(tn.TnshareError, match=r"x must be a torch\.Tensor: found ndarray"):
                call(x.numpy())
        with pytest.raises(tn.TnshareError, match="task ids must be on the device of the layer"):
            layer(x, ids.to("meta"))


@pytest.fixture
def outer():
    """A layer that multiplies entries first, of whatever dtypes: torch itself would refuse nothing."""
    layer = tnt.Linear(4, 3, tasks=5, spec=tn.LAF(2))
    (chosen,) = [c for c in layer.description.candidates("mixed", 6) if c.name == "(S[ids] x) L"][:1]
    return tnt.Linear(4, 3, tasks=5, spec=tn.LAF(2), strategy=chosen)


def test_what_autocast_allowed_is_refused_without_it(outer):
    x, ids = torch.randn(6, 4, dtype=torch.bfloat16), torch.tensor([0, 4, 4, 1, 2, 2])
    with torch.autocast("cpu", torch.bfloat16):
        outer(x, ids)
    with pytest.raises(tn.TnshareError, match="x must have the dtype of the layer"):
        outer(x, ids)


def test_another_dtype_is_another_layer(outer):
    x, ids = torch.randn(6, 4), torch.tensor([0, 4, 4, 1, 2, 2])
    before = outer(x, ids)
    outer.double()
    with pytest.raises(tn.TnshareError, match=r"x must have the dtype of the layer, torch.float64"):
        outer(x, ids)
    assert is_close(outer(x.double(), ids).float(), before, 16)


def test_within_a_memory_limit_how_x_lies_is_part_of_the_kind(monkeypatch):
    layer = tnt.Linear(4, 3, tasks=5, spec=tn.LAF(2), memory_limit=10_000)
    x, turned = torch.randn(6, 4), torch.randn(4, 6).t()
    first = layer(x, 3)
    monkeypatch.setattr(Calls, "apply", nothing)
    assert torch.equal(layer(x, 3), first)
    with pytest.raises(AssertionError):  # it is copied, and that counts
        layer(turned, 3)
    monkeypatch.undo()
    assert torch.allclose(layer(turned, 3), layer(turned.contiguous(), 3), atol=1e-6)
    tight = tnt.Linear(4, 3, tasks=5, spec=tn.LAF(2), memory_limit=_smallest(layer.description, x))
    for _ in range(2):
        tight(x, 3)
        with pytest.raises(tn.TnshareError, match="is too little"):
            tight(turned, 3)


def _smallest(description, x):
    """The smallest limit that a call with x keeps."""
    with pytest.raises(tn.TnshareError) as error:
        tnt.Linear(4, 3, tasks=5, spec=description.spec, memory_limit=0)(x, 3)
    return int(str(error.value).split()[-2])
