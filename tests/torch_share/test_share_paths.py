"""share: several tasks at once under vmap, where probes find what one task at a time gives."""

from __future__ import annotations

import copy
import sys

import numpy as np
import pytest
import tnshare_torch as tnt
import torch
from networks import (
    ALONE,
    T,
    close,
    drawn,
    every_network,
    loss,
    shared_and_plain,
    variants,
)
from torch import nn

import tnshare as tn

WAYS = {
    "each": lambda shared, xs: shared(xs),
    "fan_out": lambda shared, xs: shared.fan_out(xs[0]),
    "mixed": lambda shared, xs: shared(xs[0], [2, 0, 2, 0]),
}
NO_RULE = (
    "gru",
    "lstm",
    "attention",
    "encoder",
    "weight norm",
)  # torch maps some part of them slowly, or not
STATISTICS = ("bilinear", "spectral norm", "residual")  # rows meet in training


def gradients(shared):
    return [p.grad for p in shared.parameters()]


@every_network
@pytest.mark.parametrize("mode", [False, True], ids=["eval", "train"])
def test_at_once_is_one_by_one(name, mode):
    """Values, gradients and buffers, in the three ways; where that cannot be, the error says why."""
    loop, _ = shared_and_plain(name, mode, strategy="loop")
    fast = copy.deepcopy(loop)
    fast.paths.strategy = "vmap"
    xs = torch.stack([drawn(name, 4) for _ in range(T)])
    for way, call in WAYS.items():
        if way == "mixed" and name in ALONE:
            continue
        call(fast, xs)  # the first call goes one by one, and the next one probes
        call(loop, xs)
        if name.startswith(NO_RULE) or (
            mode and name in STATISTICS and (way == "mixed" or name != "residual")
        ):
            with pytest.raises(tn.TnshareError, match=f"{way}: tasks cannot run at once: "):
                call(fast, xs)
            continue
        found, expected = call(fast, xs), call(loop, xs)
        assert fast.paths.reasons(way, mode) == {""}
        if name == "dropout" and mode:
            continue  # no two runs are the same
        close(found, expected)
        close(list(fast.tasks.buffers()), list(loop.tasks.buffers()))
        loss(found).backward()
        loss(expected).backward()
        close(gradients(fast), gradients(loop))


def mlp(width=6):
    return nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 2))


def test_auto_goes_at_once_where_calls_are_short_and_tasks_many(monkeypatch):
    shared = tnt.share(variants(mlp, 5), eps=0)
    xs = torch.randn(5, 3, 4, dtype=torch.float64)
    exact = tnt.share(variants(mlp, 5), eps=0, strategy="loop")
    ran = []
    from tnshare_torch.shared.paths import _task_calls as calls

    original = calls.at_once
    monkeypatch.setattr(calls, "at_once", lambda *args: ran.append(args) or original(*args))
    first = shared(xs)
    assert not ran
    close(shared(xs), first)
    assert len(ran) == 2  # a probe, and the call
    close(shared(xs), exact(xs))
    assert len(ran) == 3
    assert shared.explain() == "each (training): at once where calls are short"
    wide = torch.randn(5, 50_000, 4, dtype=torch.float64)
    close(shared(wide), exact(wide))
    assert len(ran) == 3  # long calls go one by one
    few = tnt.share(variants(mlp, 2), eps=0)
    for _ in range(3):
        few(xs[:2])
    assert len(ran) == 3
    for _ in range(3):
        exact(xs)
    assert len(ran) == 3
    with pytest.raises(
        tn.TnshareError, match=r"strategy must be one of \('auto', 'loop', 'vmap'\): found 'fast'"
    ):
        tnt.share(variants(mlp, 2), strategy="fast")


class Centred(nn.Module):
    """A row's output depends on the other rows."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        return self.fc(x - x.mean(0))


def test_rows_that_depend_on_each_other_stay_in_their_groups():
    models = variants(Centred, 5)
    shared = tnt.share(models, eps=0)
    x, ids = torch.randn(12, 4, dtype=torch.float64), torch.arange(12) % 5
    for _ in range(3):
        found = shared(x, ids)
        for t, model in enumerate(models):
            close(found[ids == t], model(x[ids == t]))
    assert "depends on the other rows" in shared.explain()
    assert all(shared.paths.reasons("mixed", True))


class Odd(nn.Module):
    """Under vmap it computes something else, without an error."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 2)

    def forward(self, x):
        mapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
        return self.fc(x) + (1.0 if mapped else 0.0)


def test_numbers_that_differ_are_noticed():
    models = variants(Odd, 5)
    xs = torch.randn(5, 3, 4, dtype=torch.float64)
    shared = tnt.share(models, eps=0)
    for _ in range(3):
        close(shared(xs), torch.stack([model(x) for model, x in zip(models, xs, strict=True)]))
    assert "the numbers differ" in shared.explain()
    shared = tnt.share(models, eps=0, strategy="vmap")
    shared(xs)
    with pytest.raises(tn.TnshareError, match="each: tasks cannot run at once: the numbers differ"):
        shared(xs)


class Noise(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.norm = nn.Linear(4, 2), nn.BatchNorm1d(2)

    def forward(self, x):
        return self.norm(self.fc(x + 0.1 * torch.randn_like(x)))


def test_a_probe_leaves_no_trace():
    shared = tnt.share(variants(Noise, 5), eps=0)
    xs = torch.randn(5, 3, 4, dtype=torch.float64)
    shared(xs)
    buffers, state = [b.clone() for b in shared.buffers()], torch.get_rng_state()
    from tnshare_torch.shared.paths._rows import Arguments
    from tnshare_torch.shared.paths._task_calls import Each

    shared.paths.probe(Each(shared.own_tasks(), Arguments.of(xs, {}, 0, {})))
    close(list(shared.buffers()), buffers)
    assert torch.equal(torch.get_rng_state(), state)
    assert "draws random numbers" in shared.explain()
    assert all(p.grad is None for p in shared.parameters())


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.fc = nn.Conv1d(1, 3, 3), nn.BatchNorm1d(3), nn.Linear(12, 5)
        self.head = nn.Linear(5, 2)

    def forward(self, x):
        return self.head(torch.tanh(self.fc(self.norm(self.conv(x[:, None])).flatten(1))))


COMPILED = {
    "one": lambda shared, x: shared(x[0], 1),
    "each": lambda shared, x: shared(x),
    "fan_out": lambda shared, x: shared.fan_out(x[0]),
    "mixed": lambda shared, x: shared(x[0], torch.tensor([2, 0, 2, 1, 3])),
}


@pytest.mark.parametrize(
    ("way", "strategy"),
    [("one", "auto"), ("each", "loop"), ("each", "vmap"), ("fan_out", "vmap"), ("mixed", "vmap")],
)
def test_compiled_is_eager_without_a_break(way, strategy):
    x = torch.randn(4, 5, 6, dtype=torch.float64)
    shared = tnt.share(variants(Net, 4), eps=0, example=x[0]).eval()
    shared.paths.strategy = strategy
    call = COMPILED[way]
    torch._dynamo.reset()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager")
    expected, found = call(copy.deepcopy(shared), x), compiled(shared, x)
    close(found, expected)
    loss(found).backward()
    plain = copy.deepcopy(shared)
    plain.zero_grad()
    loss(call(plain, x)).backward()
    close(gradients(shared), gradients(plain))


def test_compiled_training_keeps_statistics():
    x = torch.randn(4, 5, 6, dtype=torch.float64)
    shared = tnt.share(variants(Net, 4), eps=0, example=x[0]).train()
    shared.paths.strategy = "vmap"
    eager = copy.deepcopy(shared)
    torch._dynamo.reset()
    torch.compile(shared, fullgraph=True, backend="aot_eager")(x)
    eager(x)
    close(dict(shared.tasks.named_buffers()), dict(eager.tasks.named_buffers()))
    assert int(shared.weights(0)["norm.num_batches_tracked"]) == 1


def test_a_task_given_by_a_tensor_is_compiled_once_for_all_tasks():
    x = torch.randn(5, 6, dtype=torch.float64)
    shared = tnt.share(variants(Net, 4), eps=0).train()
    eager = copy.deepcopy(shared)
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(shared, fullgraph=True, backend=counter)
    for t in (1, 3, 1, 0):
        close(compiled(x, torch.tensor(t)), eager(x, t))
    assert counter.frame_count == 1
    close(dict(shared.tasks.named_buffers()), dict(eager.tasks.named_buffers()))


def test_mixed_tasks_in_compiled_code_need_a_probe():
    shared = tnt.share(variants(Net, 4), eps=0).eval()
    x, ids = torch.randn(5, 6, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0])
    torch._dynamo.reset()
    with pytest.raises(Exception, match=r"share\(\.\.\., example=x\)"):
        torch.compile(shared, fullgraph=True, backend="aot_eager")(x, ids)


def test_an_example_tries_everything_out():
    x = torch.randn(5, 6, dtype=torch.float64)
    models = variants(Net, 4)
    models[0].norm.eval()
    for model in models:
        model.norm.eval()
    shared = tnt.share(models, eps=0, example=x)
    for way in ("each", "fan_out"):
        assert shared.paths.reasons(way, True) == shared.paths.reasons(way, False) == {""}
    assert all(shared.paths.reasons("mixed", True))  # batch norm
    assert shared.paths.reasons("mixed", False) == {""}
    assert shared.training
    assert not shared._template.norm.training  # as it was
    assert int(shared.weights(0)["norm.num_batches_tracked"]) == 0
    with pytest.raises(tn.TnshareError, match=r"an example must be an input of one task.* found list"):
        tnt.share(models, example=[x])
    with pytest.raises(tn.TnshareError, match=r"rows along axis 0.*: found \(\)"):
        tnt.share(models, example=torch.tensor(1.0))


class Counting(nn.Module):
    def __init__(self, start=0):
        super().__init__()
        self.fc, self.calls = nn.Linear(4, 2), {"n": start}

    def forward(self, x):
        return self.fc(x) * (1 + len(torch.overrides._get_current_function_mode_stack()))


def test_an_example_compares_with_plain_networks():
    with pytest.raises(
        tn.TnshareError, match="one: the shared network does not compute what the networks given do"
    ):
        tnt.share(variants(Counting, 4), eps=0, example=torch.randn(3, 4, dtype=torch.float64))


@pytest.mark.parametrize("strategy", ["loop", "vmap"])
def test_mixed_batches_of_any_composition(strategy):
    models = variants(mlp, 6)
    shared = tnt.share(models, eps=0, strategy=strategy)
    rng = np.random.default_rng(0)
    for rows in (1, 3, 17, 64, 5):
        ids = torch.from_numpy(rng.integers(0, 6, rows))
        x = torch.randn(rows, 4, dtype=torch.float64)
        found = shared(x, ids)
        expected = torch.stack([models[t](row) for t, row in zip(ids.tolist(), x, strict=True)])
        close(found, expected)
    skewed = torch.zeros(300, dtype=torch.int64)  # groups would be padding, mostly
    skewed[5:10] = torch.tensor([1, 2, 3, 4, 5])
    x = torch.randn(300, 4, dtype=torch.float64)
    close(shared(x, skewed)[7], models[3](x[7]))
    assert shared.paths.strategy == "loop" or shared.paths.reasons("mixed", True) == {""}


def test_every_task_drops_out_on_its_own():
    shared = tnt.share(
        tnt.replicate(nn.Sequential(nn.Linear(4, 50), nn.Dropout()), 3), eps=0, strategy="vmap"
    )
    x = torch.ones(2, 4)
    for _ in range(2):
        found = shared.fan_out(x) == 0
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[1], found[2])


def test_inference_mode_and_transforms():
    models = variants(mlp, 5)
    shared = tnt.share(models, eps=0)
    with torch.inference_mode():
        xs = torch.randn(5, 3, 4, dtype=torch.float64)
        expected = torch.stack([model(x) for model, x in zip(models, xs, strict=True)])
        for _ in range(3):
            close(shared(xs), expected)
    assert shared.paths.reasons("each", True) == {""}
    shared.paths.strategy = "vmap"
    x = torch.randn(3, 4, dtype=torch.float64)
    parameters = {name: p.detach() for name, p in shared.named_parameters()}

    def total(parameters, x):
        return torch.func.functional_call(shared, parameters, (x, [3, 0, 3])).square().sum()

    for _ in range(3):
        found = torch.func.grad(total)(parameters, x)
    assert not shared.paths.reasons("mixed", True)  # inside a transform nothing is tried out
    shared(x, [3, 0, 3]).square().sum().backward()
    for name, parameter in shared.named_parameters():
        close(found[name], torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    rows = torch.func.vmap(lambda row: shared(row[None], 2)[0])(x)
    close(rows, models[2](x))


def test_heads_of_different_sizes_go_one_by_one():
    models = variants(mlp, 5)
    for n, model in enumerate(models):
        model[2] = nn.Linear(6, 1 + n % 2).double()
    shared = tnt.share(models, eps=0)
    x = torch.randn(4, 4, dtype=torch.float64)
    for _ in range(3):
        close(shared.fan_out(x), [model(x) for model in models])
        close(shared(x, [0, 2, 4, 0])[1:2], models[2](x[1:2]))
    assert "one by one: " in shared.explain()


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_right_at_once(way):
    """By finite differences, in every direction."""
    shared = tnt.share(variants(mlp, 3), "tucker", eps=0, strategy="vmap")
    xs = torch.randn(3, 4, 4, dtype=torch.float64)
    for _ in range(2):
        WAYS[way](shared, xs)
    names = [name for name, _ in shared.named_parameters()]

    def run(x, *parameters):
        with torch.nn.utils.stateless._reparametrize_module(
            shared, dict(zip(names, parameters, strict=True))
        ):
            return WAYS[way](shared, x)

    assert torch.autograd.gradcheck(run, (xs.requires_grad_(), *shared.parameters()), fast_mode=True)


class OneOff(nn.Module):
    """Computes something else where several tasks run: a network that looks at who calls it."""

    def __init__(self, way):
        super().__init__()
        self.fc, self.way = nn.Linear(4, 2), way

    def forward(self, x):
        callers, frame = set(), sys._getframe()
        while frame is not None:
            callers.add(type(frame.f_locals.get("self")).__name__)
            frame = frame.f_back
        return self.fc(x) * (2 if self.way in callers else 1)


@pytest.mark.parametrize(("way", "caller"), [("each", "Each"), ("fan_out", "FanOut"), ("mixed", "Mixed")])
def test_an_example_compares_every_way_with_plain_networks(way, caller):
    x = torch.randn(5, 4, dtype=torch.float64)
    with pytest.raises(
        tn.TnshareError, match=f"^{way}: the shared network does not compute what the networks given"
    ):
        tnt.share(variants(lambda: OneOff(caller), 4), eps=0, example=x)
    assert tnt.share(variants(lambda: OneOff("Nobody"), 4), eps=0, example=x).training


def test_an_example_that_the_network_itself_refuses_is_told():
    with pytest.raises(tn.TnshareError, match=r"input that the networks take.*shapes cannot be multiplied"):
        tnt.share(variants(mlp, 4), eps=0, example=torch.randn(5, 3, dtype=torch.float64))
