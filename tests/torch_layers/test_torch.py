"""tnshare_torch.Linear: the four ways against a loop over dense weights, and its manners as a module."""

from __future__ import annotations

import copy
import io
import itertools

import numpy as np
import pytest
import tnshare_torch as tnt
import torch

import tnshare as tn

T = 5
TWO = {"site": 2, "user": 3}
LAYOUTS = {
    "laf": (T, tn.LAF(2)),
    "tucker": (T, tn.Tucker((2, 3, 2))),
    "tt": (T, tn.TT((2, 3))),
    "hard": (T, tn.LAF.hard_sharing()),
    "evgeniou": (T, tn.LAF.evgeniou_pontil(T)),
    "one task": (1, tn.LAF(1)),
    "two laf": (TWO, tn.LAF(2)),
    "two tucker": (TWO, tn.Tucker((2, 2, 2, 2))),
    "two tt": (TWO, tn.TT((2, 3, 2))),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS)
every_middle = pytest.mark.parametrize("middle", [(), (3,), (2, 3), (0,), (2, 0)], ids=str)
INTEGERS = ["uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64"]


def make(layout="laf", **options):
    tasks, spec = LAYOUTS[layout]
    return tnt.Linear(4, 3, tasks, spec, **{"seed": 1, "dtype": torch.float64, **options})


def draw(*shape):
    return torch.from_numpy(np.random.default_rng(0).standard_normal(shape))


def all_tasks(layer):
    return list(itertools.product(*map(range, layer.description.task_shape)))


def dense(layer, x, task):
    """One task by plain einsum in NumPy, apart from the planner."""
    network = layer.description.network
    tensors = {name: value.numpy() for name, value in layer.state_dict().items()}
    weights = np.einsum(network.equation, *(tensors[node.name] for node in network.nodes))[(..., *task)]
    y = x.numpy() @ weights
    return torch.from_numpy(y + tensors["bias"][task] if "bias" in tensors else y)


def as_task(task):
    return task[0] if len(task) == 1 else task


def near(a, b):
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, atol=1e-12)


@every_layout
@every_middle
@pytest.mark.parametrize("bias", [True, False])
def test_one_task_is_that_task(layout, middle, bias):
    layer, x = make(layout, bias=bias), draw(*middle, 4)
    for task in all_tasks(layer):
        assert near(layer(x, as_task(task)), dense(layer, x, task))


@every_layout
@every_middle
@pytest.mark.parametrize("rows", [0, 1, 7])
def test_mixed_rows_have_a_task_each(layout, middle, rows):
    layer, x = make(layout), draw(rows, *middle, 4)
    tasks = all_tasks(layer)
    chosen = [tasks[n * n % len(tasks)] for n in range(rows)]
    ids = torch.tensor(chosen, dtype=torch.int64).reshape(rows, 2 if "two" in layout else 1)
    y = layer(x, ids if "two" in layout else ids[:, 0])
    assert y.shape == (rows, *middle, 3)
    assert all(near(y[n], dense(layer, x[n], chosen[n])) for n in range(rows))


@every_layout
@every_middle
def test_each_task_has_its_own_row(layout, middle):
    layer = make(layout)
    shape = layer.description.task_shape
    x = draw(*shape, *middle, 4)
    expected = torch.stack([dense(layer, x[task], task) for task in all_tasks(layer)])
    assert near(layer(x), expected.reshape(*shape, *middle, 3))


@every_layout
@every_middle
def test_fan_out_sends_the_same_rows_through_every_task(layout, middle):
    layer, x = make(layout), draw(*middle, 4)
    expected = torch.stack([dense(layer, x, task) for task in all_tasks(layer)])
    assert near(layer.fan_out(x), expected.reshape(*layer.description.task_shape, *middle, 3))


WAYS = {
    "one": lambda layer, x: layer(x, 1),
    "mixed": lambda layer, x: layer(x, torch.tensor([4, 0, 4, 2, 1])),
    "each": lambda layer, x: layer(x),
    "fan_out": lambda layer, x: layer.fan_out(x),
    "weight": lambda layer, x: layer.weight() + 0 * x.sum(),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("layout", ["laf", "tucker", "tt", "hard"])
def test_gradients_are_those_of_finite_differences(layout, way):
    layer, x = make(layout), draw(T, 2, 4).requires_grad_()
    assert torch.autograd.gradcheck(lambda x, *_: WAYS[way](layer, x), (x, *layer.parameters()))


@pytest.mark.parametrize("library", [torch, np], ids=["torch", "numpy"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_ids_may_be_of_every_integer_dtype(dtype, library):
    def ids(values):
        return library.asarray(values, dtype=getattr(library, dtype))

    layer, x = make(), draw(T, 4)
    assert near(layer(x, ids([1] * T)), layer(x, 1)), "as a mask these would choose all tasks"
    assert near(layer(x, ids(3)), layer(x, 3))
    assert near(layer.weight(ids(3)), layer.weight(3))
    pairs = [[1, 2], [0, 0], [1, 0], [0, 2], [1, 1]]
    assert near(make("two laf")(x, ids(pairs)), make("two laf")(x, pairs))


def test_ids_may_be_lists_tuples_and_ranges():
    layer, x = make(), draw(3, 4)
    for ids in ([0, 1, 2], (0, 1, 2), range(3), [np.int8(0), torch.tensor(1), 2]):
        assert near(layer(x, ids), layer(x, torch.tensor([0, 1, 2])))
    assert layer(x[:0], []).shape == (0, 3)
    assert near(make("two tt")(x, torch.tensor([1, 2])), make("two tt")(x, (1, 2)))


REFUSED = [
    (7, "task 7 is out of range: expected 0 <= task <= 4"),
    (-1, "task -1 is out of range: expected 0 <= task <= 4"),
    (torch.tensor(5), "task 5 is out of range: expected 0 <= task <= 4"),
    (torch.tensor([0, 9, 0]), "task 9 in row 1 is out of range: expected 0 <= task <= 4"),
    ([0, 0, -3], "task -3 in row 2 is out of range: expected 0 <= task <= 4"),
    (True, "task ids must be whole numbers: found dtype bool"),
    (torch.tensor([True, False, True]), "task ids must be whole numbers: found dtype bool"),
    (torch.tensor([0.0, 1.0, 2.0]), "task ids must be whole numbers: found dtype float32"),
    (torch.tensor([0, 1, 2], dtype=torch.bfloat16), "task ids must be whole numbers"),
    (1.0, "task ids must be whole numbers: found dtype float64"),
    ([0, 1], r"one task id for each row: expected x of shape \(2, ..., 4\) with 2 ids, found \(3, 4\)"),
    ([[0, 1]], r"task ids an array of shape \(rows,\): found shape \(1, 2\)"),
    (None, r"expected x of shape \(5, ..., 4\), found \(3, 4\); give a task, or ids, or use fan_out"),
    (torch.zeros(3, dtype=torch.int64, device="meta"), "device"),
]
PAIRS = [((0, 3), "user 3 is out of range"), ([(0, 0), (2, 0), (0, 0)], "site 2 in row 1 is out of range")]
TOLD = [("laf", *refused) for refused in REFUSED] + [("two tt", *refused) for refused in PAIRS]


@pytest.mark.parametrize(("layout", "task", "text"), TOLD, ids=[text for *_, text in TOLD])
def test_wrong_tasks_are_told(layout, task, text):
    with pytest.raises(tn.TnshareError, match=text):
        make(layout)(draw(3, 4), task)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (draw(3, 5), r"expected x of shape \(..., 4\), in_features last: found \(3, 5\)"),
        (torch.tensor(1.0, dtype=torch.float64), r"expected x of shape \(..., 4\)"),
        (draw(3, 4).float(), "x must have the dtype of the layer, torch.float64: found torch.float32"),
        (draw(3, 4).to("meta"), "x must be on the device of the layer, cpu: found meta; move it with x.to"),
        (draw(3, 4).numpy(), "x must be a torch.Tensor: found ndarray"),
        (draw(3, 4).tolist(), "x must be a torch.Tensor: found list"),
    ],
    ids=range(6),
)
def test_a_wrong_input_is_told_in_every_way(x, text):
    layer = make()
    for way in (lambda: layer(x, 1), lambda: layer(x, [0, 1, 2]), lambda: layer(x), lambda: layer.fan_out(x)):
        with pytest.raises(tn.TnshareError, match=text):
            way()


@every_layout
def test_weights_have_the_layout_of_torch(layout):
    layer = make(layout, bias=False)
    one, everything = all_tasks(layer)[-1], layer.weight()
    assert everything.shape == (*layer.description.task_shape, 3, 4)
    assert near(layer.weight(as_task(one)), everything[one])
    assert near(layer.weight([as_task(one)] * 2), torch.stack([everything[one]] * 2))
    x = draw(2, 4)
    assert near(torch.nn.functional.linear(x, everything[one]), dense(layer, x, one))


def test_a_state_comes_back():
    a, b, file = make("evgeniou"), make("evgeniou", seed=2), io.BytesIO()
    assert not torch.equal(a.L, b.L)
    torch.save(a.state_dict(), file)
    b.load_state_dict(torch.load(io.BytesIO(file.getvalue())))
    assert torch.equal(a.fan_out(draw(2, 4)), b.fan_out(draw(2, 4)))


@every_layout
def test_a_deep_copy_is_equal_and_apart(layout):
    layer, x = make(layout), draw(2, 4)
    twin, before = copy.deepcopy(layer), layer.fan_out(x)
    assert torch.equal(twin.fan_out(x), before)
    with torch.no_grad():
        next(twin.parameters()).add_(1)
    assert torch.equal(layer.fan_out(x), before)
    assert not torch.equal(twin.fan_out(x), before)


def test_double_converts_factors_biases_and_frozen_codes():
    layer = make("evgeniou", dtype=torch.float32)
    assert layer.double()(draw(2, 4), 1).dtype == torch.float64
    assert {value.dtype for value in layer.state_dict().values()} == {torch.float64}


def test_frozen_codes_are_buffers_without_gradient():
    layer = make("evgeniou")
    assert [name for name, _ in layer.named_parameters()] == ["L", "bias"]
    assert torch.equal(layer.S, torch.hstack([torch.ones(T, 1), torch.eye(T)]).double())
    layer.fan_out(draw(2, 4)).sum().backward()
    assert layer.S.grad is None
    assert layer.L.grad.abs().sum() > 0


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_the_same_seed_gives_the_numbers_of_numpy(dtype):
    layer = tnt.Linear(300, 200, 50, tn.Tucker((60, 50, 10)), seed=3, dtype=getattr(torch, dtype))
    values = layer.description.init(3, dtype)
    assert list(values) == [name for name, _ in layer.named_parameters()]
    given = {name: parameter.detach().numpy() for name, parameter in layer.named_parameters()}
    assert [name for name in values if (given[name] != values[name]).any()] == []


def test_reset_parameters_starts_again():
    layer = make("tt")
    before = copy.deepcopy(layer.state_dict())
    for parameter in layer.parameters():
        parameter.data.zero_()
    layer.reset_parameters()
    assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())


def test_the_default_dtype_is_that_of_torch():
    assert tnt.Linear(4, 3, T, tn.LAF(2)).L.dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert tnt.Linear(4, 3, T, tn.LAF(2)).L.dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_layer_on_the_meta_device_knows_its_shapes():
    layer, x = make(device="meta"), draw(3, 4).to("meta")
    assert layer(x, 1).shape == (3, 3)
    assert layer.fan_out(x).shape == (T, 3, 3)
    assert layer(x, torch.zeros(3, dtype=torch.int64, device="meta")).shape == (3, 3)


@pytest.mark.parametrize("bias", [True, False])
def test_autocast_gives_the_dtype_that_a_plain_layer_gives(bias):
    layer, plain = make(dtype=torch.float32, bias=bias), torch.nn.Linear(4, 3, bias=bias)
    x = draw(T, 2, 4).float()
    with torch.autocast("cpu", torch.bfloat16):
        assert {way(layer, x).dtype for name, way in WAYS.items() if name != "weight"} == {plain(x).dtype}


def test_parametrised_factors_are_used():
    layer, x = make(), draw(2, 4)
    torch.nn.utils.parametrizations.weight_norm(layer, "L")
    assert near(layer(x, 1), make()(x, 1))


@pytest.mark.parametrize(
    ("options", "text"),
    [({"dtype": torch.int32}, "dtype"), ({"tasks": {"a.b": T}}, "a.b"), ({"seed": -1}, "seed")],
)
def test_a_layer_that_cannot_be_made_says_why(options, text):
    options = {"tasks": T, "spec": tn.TT((2, 2)), **options}
    with pytest.raises(tn.TnshareError, match=text):
        tnt.Linear(4, 3, **options)


def test_printing_shows_what_was_given():
    assert repr(make()) == "Linear(in_features=4, out_features=3, tasks=5, spec=LAF(2), bias=True)"
    assert "tasks={'site': 2, 'user': 3}, spec=TT((2, 3, 2)), bias=False" in repr(make("two tt", bias=False))
    assert "flops" in make().explain(batch=32)


def test_without_bias_there_is_none():
    assert make(bias=False).bias is None
    assert list(make(bias=False).state_dict()) == ["L", "S"]
