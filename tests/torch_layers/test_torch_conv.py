"""Convolution and embedding modules against torch.nn's, as a user of torch meets them."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import tnshare_torch as tnt
import torch
from tolerances import close
from torch import nn

import tnshare as tn

torch.manual_seed(0)
LAYERS = {
    1: (tnt.Conv1d, nn.Conv1d, tn.Tucker((3, 2, 3, 2)), (7,)),
    2: (tnt.Conv2d, nn.Conv2d, tn.TT((3, 4, 3, 2)), (7, 6)),
    3: (tnt.Conv3d, nn.Conv3d, tn.LAF(3), (5, 4, 4)),
}
TERMS = 4 * 3**3 + 16  # the longest kernel, and the bonds
CANDIDATE = tn.Linear(2, 3, 2, tn.LAF(2)).candidates("one", 4)[0]
GEOMETRIES = [
    {},
    {"stride": 2, "padding": 1},
    {"padding": "same", "dilation": 2},
    {"padding": "same", "padding_mode": "circular"},
    {"padding": 1, "padding_mode": "reflect", "bias": False},
    {"groups": 2, "padding": "valid"},
]


def plain(layer, kind, task):
    """torch's own layer with the weights of a task."""
    d = layer.description
    pad = d.geometry.padding
    made = kind(
        d.in_channels,
        d.out_channels,
        d.kernel,
        stride=d.stride,
        padding="same" if layer._padding == "same" else tuple(front for front, _ in pad),
        dilation=d.dilation,
        groups=d.groups,
        bias=d.bias,
        padding_mode=d.padding_mode,
    )
    with torch.no_grad():
        made.weight.copy_(layer.weight(task))
        if d.bias:
            made.bias.copy_(layer.bias[task])
    return made


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("geometry", GEOMETRIES, ids=str)
def test_a_convolution_is_torchs_with_the_weights_of_its_task(dims, geometry):
    ours, theirs, spec, sizes = LAYERS[dims]
    spec = tn.LAF(2) if "groups" in geometry else spec
    layer = ours(4, 6, 3, tasks=3, spec=spec, seed=dims, **geometry)
    nets = [plain(layer, theirs, t) for t in range(3)]
    x, ids = torch.randn(5, 4, *sizes), torch.tensor([2, 0, 0, 1, 2])
    xs = torch.randn(3, 2, 4, *sizes)
    close(layer(x, 1), nets[1](x), TERMS)
    close(layer(x[0], 1), nets[1](x[0]), TERMS)
    expected = torch.stack([nets[t](row) for t, row in zip(ids.tolist(), x, strict=True)])
    close(layer(x, ids), expected, TERMS)
    close(layer(xs), torch.stack([net(part) for net, part in zip(nets, xs, strict=True)]), TERMS)
    close(layer.fan_out(x), torch.stack([net(x) for net in nets]), TERMS)


@pytest.mark.parametrize("strategy", ["auto", "factored", "materialised", "autotune"])
@pytest.mark.parametrize("way", ["one", "mixed", "each", "fan_out"])
def test_gradients(strategy, way, tmp_path, monkeypatch):
    monkeypatch.setenv("TNSHARE_CACHE", str(tmp_path))
    layer = tnt.Conv1d(2, 3, 2, tasks=2, spec=tn.Tucker((2, 2, 2, 2)), dtype=torch.float64, strategy=strategy)
    table = tnt.Embedding(5, 3, tasks=2, spec=tn.TT((2, 2)), dtype=torch.float64, strategy=strategy)
    x = torch.randn(*((2, 3) if way == "each" else (3,)), 2, 4, dtype=torch.float64, requires_grad=True)
    tokens = torch.tensor([[0, 3, 4], [4, 4, 1]])
    task = {"one": 1, "mixed": torch.tensor([1, 0, 1])}.get(way)
    names = [name for name, _ in layer.named_parameters()]

    def run(x, *values):
        called = (lambda m, *a: m.fan_out(a[0])) if way == "fan_out" else (lambda m, *a: m(*a))
        module = copy.deepcopy(layer)
        for name, value in zip(names, values, strict=True):
            delattr(module, name)
            setattr(module, name, value)
        return called(module, x, task)

    assert torch.autograd.gradcheck(run, (x, *layer.parameters()), fast_mode=True)
    words = {"one": 1, "mixed": torch.tensor([1, 0])}.get(way)
    y = table.fan_out(tokens) if way == "fan_out" else table(tokens, words)
    weights = torch.randn_like(y)
    found = torch.autograd.grad((y * weights).sum(), list(table.parameters()))
    whole = table.weight()
    tasks = torch.tensor([1, 0])[:, None]
    looked = {"one": lambda: whole[1][tokens], "mixed": lambda: whole[tasks, tokens]}
    looked |= {"each": lambda: whole[torch.arange(2)[:, None], tokens], "fan_out": lambda: whole[:, tokens]}
    expected = torch.autograd.grad((looked[way]() * weights).sum(), list(table.parameters()))
    torch.testing.assert_close(found, expected)


def test_what_inference_keeps_follows_the_factors():
    layer = tnt.Conv2d(2, 3, 3, tasks=4, spec=tn.Tucker((2, 2, 2, 2, 2)), bias=False).eval()
    x, ids = torch.randn(3, 2, 6, 6), torch.tensor([3, 1, 3])
    with torch.no_grad():
        for call in (lambda: layer(x, 2), lambda: layer(x, ids), lambda: layer.fan_out(x)):
            before = call()
            torch.testing.assert_close(call(), before, rtol=0, atol=0)
            layer.U_m.mul_(2)
            close(call(), 2 * before, TERMS)
    assert len(layer._kept)
    layer.drop_cache()
    assert not len(layer._kept)


def test_padding_has_no_gradient_and_is_zero():
    table = tnt.Embedding(5, 3, tasks=2, spec=tn.LAF(2), padding_idx=-1)
    y = table(torch.tensor([4, 4]), 1)
    assert not y.any()
    y.sum().backward()
    assert not any(p.grad.any() for p in table.parameters())
    assert "padding_idx=4" in repr(table)


def test_layers_say_what_they_are():
    layer = tnt.Conv2d(4, 6, 3, tasks=3, spec=tn.LAF(2), padding="same", dilation=2, groups=2, bias=False)
    text = "Conv2d(4, 6, kernel_size=(3, 3), stride=(1, 1), tasks=3, spec=LAF(2), padding='same'"
    assert repr(layer) == text + ", dilation=(2, 2), groups=2, bias=False)"
    assert layer.weight().shape == (3, 6, 2, 3, 3)
    assert layer.weight(1).shape == nn.Conv2d(4, 6, 3, groups=2).weight.shape
    assert tnt.Embedding(5, 3, tasks=2, spec=tn.LAF(2)).weight(0).shape == (5, 3)
    assert "convolution by" in layer.explain(16)
    assert "def kernels" in layer.source(16)
    assert "looked up" in tnt.Embedding(5, 3, tasks=2, spec=tn.LAF(2)).explain(64, "one")


@pytest.mark.parametrize(
    ("kind", "args", "options"),
    [
        ("Linear", (4, 6), {}),
        ("Conv1d", (4, 6, 3), {}),
        ("Conv2d", (4, 6, (3, 1)), {"stride": 2, "padding": (1, 0), "dilation": 2, "groups": 2}),
        ("Conv3d", (4, 6, 3), {"padding": "same", "padding_mode": "circular"}),
        ("Embedding", (5, 3), {"padding_idx": -1}),
        ("Embedding", (5, 3), {"max_norm": None, "norm_type": 1.0, "sparse": False}),
    ],
)
def test_layers_are_asked_as_torch_s_are(kind, args, options):
    torch_s = getattr(nn, kind)(*args, **options)
    layer = getattr(tnt, kind)(*args, tasks=3, spec=tn.LAF(2), **options)
    names = ["in_features", "out_features", "in_channels", "out_channels", "kernel_size", "stride", "padding"]
    names += ["dilation", "groups", "padding_mode", "num_embeddings", "embedding_dim", "padding_idx"]
    asked = [name for name in names if hasattr(torch_s, name)]
    assert len(asked) >= 2
    assert [getattr(layer, name) for name in asked] == [getattr(torch_s, name) for name in asked]


@pytest.mark.parametrize("option", [{"max_norm": 1.0}, {"scale_grad_by_freq": True}, {"sparse": True}])
def test_what_only_a_table_has_is_refused(option):
    ((name, value),) = option.items()
    with pytest.raises(tn.TnshareError, match=f"{name}={value} is for a table, .*: leave {name} out"):
        tnt.Embedding(5, 3, tasks=2, spec=tn.LAF(2), **option)


def test_copies_and_pickles():
    for layer, x in (
        (tnt.Conv1d(2, 3, 2, tasks=2, spec=tn.LAF(2)), torch.randn(2, 2, 5)),
        (tnt.Embedding(5, 3, tasks=2, spec=tn.LAF(2)), torch.tensor([1, 2])),
    ):
        y = layer(x, 1)
        close(copy.deepcopy(layer)(x, 1), y, TERMS)
        close(pickle.loads(pickle.dumps(layer))(x, 1), y, TERMS)


def test_a_random_start_is_torchs():
    layer = tnt.Conv2d(8, 32, 5, tasks=6, spec=tn.Tucker((5, 5, 8, 32, 6)), seed=3)
    theirs = nn.Conv2d(8, 32, 5)
    torch.testing.assert_close(layer.weight().std(), theirs.weight.std(), rtol=0.1, atol=0)
    assert layer.bias.abs().max() <= theirs.weight.abs().max() * 1.1


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda c, e: c(torch.zeros(1, 2, 5, dtype=torch.float64), 0), "x must have the dtype of the layer"),
        (
            lambda c, e: e(torch.zeros(2), 0),
            r"x must be whole numbers, .* found torch.float32; convert it with x.long",
        ),
        (lambda c, e: e(torch.tensor([True]), 0), "x must be whole numbers"),
        (lambda c, e: c(torch.zeros(2, 2, 5), torch.tensor([0, 2])), "task 2 in row 1 is out of range"),
        (lambda c, e: e(torch.tensor([5]), 0), "x has 5, which is out of range: expected 0 <= x <= 4"),
        (lambda c, e: e(torch.tensor([1]), torch.tensor([7])), "task 7 in row 0 is out of range"),
        (
            lambda c, e: tnt.Conv2d(2, 3, (3,), tasks=2, spec=tn.LAF(2)),
            "kernel_size must be a number, or 2, one",
        ),
        (
            lambda c, e: tnt.Conv1d(2, 3, 3, tasks=2, spec=tn.LAF(2), memory_limit=9)._plan_ahead(),
            "memory_limit is a promise that only eager",
        ),
        (
            lambda c, e: tnt.Conv1d(2, 3, 3, 2, tn.LAF(2), strategy=CANDIDATE),
            "a candidate is a strategy for linear layers alone",
        ),
        (
            lambda c, e: tnt.Conv1d(2, 3, 3, tasks=2, spec=tn.LAF(2), strategy="fast"),
            "strategy must be one of",
        ),
    ],
)
def test_mistakes_are_told(call, text):
    layer = tnt.Conv1d(2, 3, 3, tasks=2, spec=tn.LAF(2))
    table = tnt.Embedding(5, 3, tasks=2, spec=tn.LAF(2))
    with pytest.raises(tn.TnshareError, match=text):
        call(layer, table)


def test_compiled_in_the_four_ways_with_batches_of_any_size():
    layer = tnt.Conv2d(2, 3, 3, tasks=4, spec=tn.Tucker((2, 2, 2, 2, 2)))
    table = tnt.Embedding(9, 3, tasks=4, spec=tn.TT((2, 2)))
    compilations = []

    def backend(graph, inputs):
        compilations.append(graph)
        return graph.forward

    def every(x, ids, xs, tokens):
        return layer(x, 3), layer(x, ids), layer(xs), layer.fan_out(x), table(tokens, ids), table(tokens, 1)

    compiled = torch.compile(every, fullgraph=True, dynamic=True, backend=backend)
    for rows in (9, 5, 14, 20, 33, 300):
        x, ids = torch.randn(rows, 2, 8, 7), torch.randint(4, (rows,))
        given = x, ids, torch.randn(4, rows, 2, 8, 7), torch.randint(9, (rows, 3))
        for a, b in zip(compiled(*given), every(*given), strict=True):
            close(a, b, TERMS)
    assert len(compilations) <= 2  # torch's own convolutions tell batches of fewer than 16 rows apart


SPECS = [tn.LAF(2), tn.Tucker((2, 2, 2, 3, 2)), tn.TT((2, 3, 3, 2))]


@pytest.mark.parametrize("spec", SPECS, ids=repr)
def test_transforms_and_types_of_torch(spec):
    layer = tnt.Conv2d(3, 4, 3, tasks=5, spec=spec, padding=1)
    x, ids = torch.randn(6, 3, 7, 5), torch.tensor([4, 0, 0, 2, 1, 4])
    y = layer(x, ids)
    by_row = torch.func.vmap(lambda row, i: layer(row[None], i[None])[0])(x, ids)
    close(by_row, y, TERMS)
    close(layer(x.contiguous(memory_format=torch.channels_last), ids), y, TERMS)
    close(torch.utils.checkpoint.checkpoint(layer, x, ids, use_reentrant=False), y, TERMS)
    close(torch.export.export(layer, (x, ids)).module()(x, ids), y, TERMS)
    for kind in (torch.uint8, torch.int16):
        close(layer(x, ids.to(kind)), y, TERMS)
    twice = copy.deepcopy(layer).double()
    close(twice(x.double(), ids).float(), y, TERMS)
    with torch.autocast("cpu", torch.bfloat16):
        expected = nn.Conv2d(3, 4, 3)(x).dtype
        calls = layer(x, ids), layer(x, 2), layer.fan_out(x), layer(torch.randn(5, 2, 3, 7, 5))
        assert {call.dtype for call in calls} == {expected} == {torch.bfloat16}
    z = torch.randn(2, 3, 4, 4, dtype=torch.complex64)
    complexes = tnt.Conv2d(3, 4, 3, tasks=5, spec=spec, dtype=torch.complex64)
    expected = nn.functional.conv2d(z, complexes.weight(1), complexes.bias[1])
    close(complexes(z, 1), expected, TERMS)
    with torch.device("meta"):
        assert tnt.Conv2d(3, 4, 3, tasks=5, spec=spec)(torch.empty(2, 3, 7, 7), 1).shape == (2, 4, 5, 5)


def test_autocast_leaves_embeddings_as_torch_does():
    table = tnt.Embedding(5, 3, tasks=2, spec=tn.Tucker((2, 2, 2)))
    tokens = torch.tensor([1, 2])
    with torch.autocast("cpu", torch.bfloat16):
        assert nn.Embedding(5, 3)(tokens).dtype == table(tokens, 1).dtype == torch.float32
        assert table.fan_out(tokens).dtype == torch.float32


def test_the_parts_of_a_convolution_run_when_pasted():
    layer = tnt.Conv2d(3, 4, 3, tasks=5, spec=tn.Tucker((2, 2, 2, 3, 2)), strategy="factored", bias=False)
    text = layer.source(8, "fan_out", training=True, sizes=(7, 7))
    scope, factors, parts = {}, {}, re.split(r"^def (\w+)", text, flags=re.MULTILINE)[1:]
    exec(text, scope)
    for part, body in zip(parts[::2], parts[1::2], strict=True):  # comments say which factor is which
        legend = re.findall(r"# (\w+) is (\w+)\(", body)
        factors[part] = {own: layer.get_parameter(name) for own, name in legend if own != "x"}
    x = torch.randn(8, 3, 7, 7)
    names = {
        name: scope[name].__code__.co_varnames[: scope[name].__code__.co_argcount]
        for name in ("before", "kernels", "after")
        if name in scope
    }
    own = {
        part: [factors[part][n] for n in argument_names if n != "x"] for part, argument_names in names.items()
    }
    z = x
    if "before" in names:
        z = scope["before"](*own["before"], x.flatten(2)).unflatten(2, (7, 7))
    kernels = scope["kernels"](*own["kernels"])
    kernels = kernels.flatten(0, kernels.ndim - 4)
    y = nn.functional.conv2d(z, kernels)
    assert "after" in names or "before" in names
    if any(
        f is layer.get_parameter("U_task") for f in own["kernels"]
    ):  # (b, task k_m, h, w) to rows of every task
        y = y.unflatten(1, (5, -1)).transpose(0, 1).flatten(0, 1)
    if "after" in names:
        y = scope["after"](*own["after"], y.flatten(2))
    close(y.reshape(5, 8, 4, 5, 5), layer.fan_out(x), TERMS)
