"""What inference keeps: where it is not used, that it is bounded, and that nothing else holds it."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
import threading

import pytest

import tnshare as tn

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")

from inferring import (  # noqa: E402
    IN,
    SHORT,
    SPECS,
    TERMS,
    T,
    add,
    calls,
    data_replaced,
    expected,
    fresh,
    infer,
    make,
)
from tolerances import is_close  # noqa: E402


@pytest.mark.parametrize("twin", ["deepcopy", "pickle", "torch.save"])
def test_copies_go_their_own_ways(twin):
    layer = make()
    before = infer(layer)
    if twin == "deepcopy":
        other = copy.deepcopy(layer)
    elif twin == "pickle":
        other = pickle.loads(pickle.dumps(layer))
    else:
        file = io.BytesIO()
        torch.save(layer, file)
        other = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
    assert len(other._kept) == 0
    assert all(torch.equal(a, b) for a, b in zip(infer(other), before, strict=True))
    add(other)
    assert fresh(other)
    assert all(torch.equal(a, b) for a, b in zip(infer(layer), before, strict=True))


def test_neither_a_state_nor_a_pickle_holds_what_is_kept():
    layer = tnt.Linear(200, 200, T, tn.LAF(1)).eval()
    with torch.no_grad():
        layer(torch.ones(3, 200), 1)
    assert held(layer) >= 4 * 200 * 200
    factors = sum(parameter.nbytes for parameter in layer.parameters())
    assert len(pickle.dumps(layer)) < factors + 4 * 200 * 100
    assert list(layer.state_dict()) == [name for name, _ in layer.named_parameters()]


@pytest.mark.parametrize("method", SPECS)
def test_other_tensors_for_one_call_do_not_stay(method):
    layer = make(method)
    infer(layer)
    others = {name: value.detach() * 2 + 1 for name, value in layer.named_parameters()}
    twin = make(method)
    twin.load_state_dict({**twin.state_dict(), **others})
    x = torch.ones(3, IN)
    with torch.no_grad():
        for _ in range(2):
            assert is_close(torch.func.functional_call(layer, others, (x, 1)), twin(x, 1), TERMS)
            assert fresh(layer)


@pytest.mark.parametrize("method", SPECS)
def test_transforms_neither_see_nor_leave_anything(method):
    layer, x = make(method), torch.linspace(-1, 1, 6 * IN).reshape(6, IN)
    stacked = {name: torch.stack([p.detach(), 2 * p.detach()]) for name, p in layer.named_parameters()}
    with torch.no_grad():
        for _ in range(2):
            infer(layer)
            rows = torch.func.vmap(lambda row: layer(row, 1))(x)
            assert is_close(rows, layer(x, 1), TERMS)
            both = torch.func.vmap(lambda p: torch.func.functional_call(layer, p, (x, 1)))(stacked)
            assert is_close(both[0], layer(x, 1), TERMS)
            jacobian = torch.func.jacrev(lambda row: layer(row, 1))(x[0])
            assert is_close(jacobian, layer.weight(1), TERMS)
            gradient = torch.func.grad(lambda row: layer(row, 1).sum())(x[0])
            assert is_close(gradient, layer.weight(1).sum(0), TERMS)
            assert fresh(layer)


@pytest.mark.parametrize("start", [True, False])
def test_autocast_on_and_off(start):
    layer, exact = make(), expected(make())
    for on in itertools.islice(itertools.cycle([start, not start]), 4):
        with torch.autocast("cpu", torch.bfloat16, enabled=on):
            found = infer(layer)
        assert {y.dtype for y in found} == {torch.bfloat16 if on else torch.float32}
        rounded = {"terms": SHORT, "dtype": torch.bfloat16} if on else {"terms": TERMS}
        assert all(is_close(a.float(), b, **rounded) for a, b in zip(found, exact, strict=True))


def test_nothing_is_kept_in_training_or_with_gradients():
    layer = make().requires_grad_(False)
    calls(layer)
    assert len(layer._kept) == 0, "gradients are enabled, whatever the factors say"
    infer(layer.train())
    assert len(layer._kept) == 0
    infer(layer.eval())
    assert len(layer._kept) > 0
    found = calls(layer.requires_grad_())
    assert all(y.requires_grad for y in found)


@pytest.mark.parametrize("drop", ["drop_cache", "train", "eval", "double", "cpu"])
def test_what_is_kept_is_let_go(drop):
    layer = make()
    infer(layer)
    getattr(layer, drop)()
    assert len(layer._kept) == 0


def held(layer):
    """The bytes of all memory that what is kept keeps alive, but for that of the layer itself."""
    own = {tensor.untyped_storage().data_ptr() for tensor in layer.state_dict().values()}
    storages = {}
    todo = [(entry.value, entry.aliases) for entry in layer._kept._entries.values()]
    while todo:
        value = todo.pop()
        if isinstance(value, torch.Tensor):
            storages[value.untyped_storage().data_ptr()] = value.untyped_storage().nbytes()
        elif value is not None:
            todo += value
    return sum(size for address, size in storages.items() if address not in own)


def test_what_is_kept_is_bounded():
    layer = tnt.Linear(30, 20, 40, tn.LAF(3), seed=1).eval()
    layer._kept.most = 5000  # eight tasks, or the codes of all
    with torch.no_grad():
        for batch, task in itertools.product((1, 7, 100, 2000), range(40)):
            layer(torch.ones(batch, 30), task)
            assert held(layer) <= 4 * layer._kept.most
    assert len(layer._kept) == 5000 // (30 * 20 + 20)


def test_factors_that_were_replaced_are_let_go():
    layer = tnt.Linear(30, 20, 40, tn.LAF(3), seed=1).eval()
    for task in range(40):
        layer.L.data = layer.L.data + 1
        with torch.no_grad():
            layer(torch.ones(2, 30), task)
    assert held(layer) <= 4 * (30 * 20 + 20)


def test_threads_may_call_while_another_writes():
    layer, errors, done = make(), [], threading.Event()

    def call():
        try:
            while not done.is_set():
                infer(layer)
        except Exception as error:  # whatever it is
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for n in range(150):
        add(layer) if n % 3 else data_replaced(layer) if n % 2 else layer.reset_parameters()
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []
    assert fresh(layer)
