"""Tasks and inputs that do not fit are told in every layer and way; none is silently something else."""

from __future__ import annotations

import numpy as np
import pytest

import tnshare as tn

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")

import living  # noqa: E402
from living import TERMS, T  # noqa: E402
from tolerances import close  # noqa: E402

IDS = torch.tensor([0, 1, 2, 1, 0])
MADE = {
    "linear": (living.linear, torch.randn(5, 6)),
    "conv": (living.conv, torch.randn(5, 2, 5, 4)),
    "embedding": (living.embedding, torch.randint(7, (5,))),
    "shared": (living.shared, living.x(5)),
}
every_kind = pytest.mark.parametrize("kind", MADE)


@pytest.fixture(params=["training", "inference"])
def mode(request):
    with torch.set_grad_enabled(request.param == "training"):
        yield request.param


def made(kind, mode="training"):
    make, x = MADE[kind]
    return make().train(mode == "training"), x


TASKS = [
    (IDS - 1, "-1 .*out of range|-1 in row 0 is out of range"),
    (IDS + 1, f"{T} in row 2 is out of range: expected 0 <= task <= {T - 1}"),
    (-1, "-1.* is out of range|at least 0"),
    (T, f"{T} is out of range"),
    (torch.tensor(T), f"{T} is out of range"),
    (torch.tensor(-1), "-1 is out of range"),
    (np.array([0, 0, 0, 0, T]), f"{T} in row 4 is out of range"),
    ([0, 0, 0, 0, -1], "-1 in row 4 is out of range"),
    (IDS.float(), "must be whole numbers"),
    (IDS.double().requires_grad_(), "must be whole numbers"),
    (IDS.bool(), "must be whole numbers"),
    (1.0, "must be whole numbers"),
    (IDS[:, None], "found shape"),
    (IDS[:3], "one task id for each row"),
    (torch.zeros(6, dtype=torch.int64), "one task id for each row"),
    (IDS.to("meta"), "meta"),
    (IDS.to_sparse(), "must be dense"),
]


@every_kind
@pytest.mark.parametrize(("task", "text"), TASKS, ids=range(len(TASKS)))
def test_tasks_that_are_none_are_told(kind, task, text, mode):
    module, x = made(kind, mode)
    for _ in range(2):  # the second time everything is planned
        with pytest.raises(tn.TnshareError, match=text):
            module(x, task)
        module(x, IDS)


@every_kind
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64", "numpy", "list", "narrow"])
def test_ids_may_be_any_whole_numbers(kind, dtype):
    module, x = made(kind)
    given = {
        "numpy": lambda: IDS.numpy(),
        "list": lambda: IDS.tolist(),
        "narrow": lambda: torch.stack([IDS, IDS], 1)[:, 0],
    }.get(dtype, lambda: IDS.to(getattr(torch, dtype)))()
    wanted = torch.stack([module(x, int(t))[n] for n, t in enumerate(IDS)])
    close(module(x, given), wanted, TERMS)
    for one in (torch.tensor(2, dtype=torch.int32), np.int64(2), np.array(2)):
        close(module(x, one), module(x, 2), TERMS)


@pytest.mark.parametrize("kind", ["linear", "conv", "embedding"])
def test_batches_of_no_rows_give_none_and_have_gradients(kind):
    module, x = made(kind)
    several = torch.stack([x[:0]] * T)
    for y in (module(x[:0], 1), module(x[:0], IDS[:0]), module(several), module.fan_out(x[:0])):
        assert y.numel() == 0
        assert y.shape[-1] == module(x, 1).shape[-1]
        module.zero_grad()
        y.sum().backward()
        assert all(p.grad is None or not p.grad.any() for p in module.parameters())


def test_a_shared_network_takes_no_rows_as_its_networks_do():
    shared, x = made("shared")
    assert shared(x[:0], 1).shape == (0, 3)
    assert shared.fan_out(x[:0]).shape == (T, 0, 3)
    with pytest.raises(tn.TnshareError, match="no rows"):
        shared(x[:0], IDS[:0])


@pytest.mark.parametrize("kind", ["linear", "conv", "embedding"])
def test_inputs_of_another_kind_are_told(kind):
    module, x = made(kind)
    other = x.double() if x.is_floating_point() else x.float()
    for wrong, text in [
        (other, "must have the dtype|must be whole numbers"),
        (x.to("meta"), "must be on the device of the layer, cpu: found meta"),
        (x.numpy(), "must be a torch.Tensor: found ndarray"),
        (None, "must be a torch.Tensor: found NoneType"),
    ]:
        for call in (lambda w: module(w, 1), lambda w: module(w, IDS), lambda w: module(w), module.fan_out):
            with pytest.raises(tn.TnshareError, match=text):
                call(wrong)
    with pytest.raises(tn.TnshareError, match="row t of x belongs to task t"):
        module(torch.stack([x] * 2))


@pytest.mark.parametrize(
    "spec", [tn.LAF(1), tn.Tucker((2, 2, 1)), tn.TT((2, 1)), tn.LAF.single_task(1)], ids=repr
)
def test_one_task_alone(spec):
    layer = tnt.Linear(6, 4, 1, spec, seed=2)
    x = torch.randn(5, 6)
    wanted = torch.nn.functional.linear(x, layer.weight(0), layer.bias[0])
    zeros = torch.zeros(5, dtype=torch.int64)
    for y in (layer(x, 0), layer(x, zeros), layer(x[None])[0], layer.fan_out(x)[0]):
        close(y, wanted, TERMS)
    with pytest.raises(tn.TnshareError, match="expected 0 <= task <= 0"):
        layer(x, 1)


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_one_network_shared_with_nobody(method):
    (net,) = living.nets(count=1)
    shared = tnt.share([net], method, eps=0)
    x = living.x(5)
    zeros = torch.zeros(5, dtype=torch.int64)
    for y in (
        shared(x, 0),
        shared(x, zeros),
        shared(x[None])[0],
        shared.fan_out(x)[0],
        shared.unshare()[0](x),
    ):
        close(y, net(x), TERMS)
    assert shared.add_task(net) == 1
    close(shared(x, 1), net(x), TERMS)
