"""share gives what the networks given give, or an error that names the place: what once went wrong."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import pytest

import tnshare as tn

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")

from networks import close, variants  # noqa: E402
from torch import nn  # noqa: E402

T = 4


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64)


class Scaled(nn.Module):
    def __init__(self, scale=1.0):
        super().__init__()
        self.fc, self.scale = nn.Linear(4, 3), scale

    def forward(self, x):
        return self.scale * self.fc(x)


def scaled(different=2.0):
    models = variants(lambda: nn.Sequential(nn.Linear(4, 4), Scaled()), T)
    models[2][1].scale = different
    return models


def test_what_is_no_tensor_must_be_the_same():
    text = r"model 2 differs from the first in 1.scale, which is 1.0 in the first, 2.0 in model 2; .*ignore="
    with pytest.raises(tn.TnshareError, match=text):
        tnt.share(scaled())
    for ignore in ("scale", "1.scale", "*.scale"):
        assert len(tnt.share(scaled(), eps=0, ignore=(ignore,)).tasks) == T
    with pytest.raises(tn.TnshareError, match=r"in 1\.scale"):
        tnt.share(scaled(), ignore=("other",))


def test_what_is_trained_must_be_the_same_of_what_is_shared():
    models = variants(lambda: nn.Linear(4, 3), T)
    models[1].requires_grad_(False)
    with pytest.raises(
        tn.TnshareError, match=r"model 1 differs from the first in weight.requires_grad, which is T"
    ):
        tnt.share(models, eps=0)
    tnt.share(models, eps=0, layers={"weight": "single"})
    tnt.share(models, eps=0, ignore=("requires_grad",))


def test_an_example_is_compared_with_the_networks_given():
    x = draw(3, 4)
    with pytest.raises(
        tn.TnshareError, match=r"does not compute what the networks given do .* besides tensors"
    ):
        tnt.share(scaled(), eps=0.1, ignore=("scale",), example=x)
    tnt.share(scaled(1.0), eps=0.1, example=x)


def test_a_new_network_is_compared_too():
    shared = tnt.share(scaled(1.0), eps=0).eval()
    new = scaled()[2].train()
    with pytest.raises(tn.TnshareError, match=r"the new one differs from the first in 1\.scale"):
        shared.add_task(new)
    new[1].scale = 1.0
    assert shared.add_task(new) == T


class Capacity(nn.Module):
    """Half of the rows pass, as in a mixture of experts."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        y = self.fc(x)
        kept = torch.zeros(len(x), dtype=y.dtype)
        kept[y[:, 0].topk(max(len(x) // 2, 1)).indices] = 1
        return y * kept[:, None]


class Late(nn.Module):
    """Rows depend on one another from a number on."""

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return self.fc(x - x.mean(0) if len(x) >= 4 else x)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x, mask=None):
        y = self.fc(x)
        return y if mask is None else y * (mask / mask.sum())[:, None]


def groups(models, x, ids, **named):
    found = torch.empty(len(x), 3, dtype=x.dtype)
    for t in set(ids.tolist()):
        own = {n: v[ids == t] for n, v in named.items()}
        found[ids == t] = models[t](x[ids == t], **own)
    return found


@pytest.mark.parametrize("kind", [Capacity, Late])
def test_rows_that_depend_on_one_another_run_in_their_groups(kind):
    models = variants(kind, 5)
    shared = tnt.share(models, eps=0)
    for rows in (5, 5, 5, 30, 30, 30, 9):
        x, ids = draw(rows, 4), torch.arange(rows) % 5
        close(shared(x, ids), groups(models, x, ids))


def test_a_probe_says_nothing_of_arguments_that_it_has_not_tried():
    models = variants(Masked, 5)
    shared, x = tnt.share(models, eps=0, batch_dims={"mask": 0}), draw(20, 4)
    ids, mask = torch.arange(20) % 5, torch.rand(20, dtype=torch.float64)
    for _ in range(3):
        close(shared(x, ids), groups(models, x, ids))
        close(shared(x, ids, mask=mask), groups(models, x, ids, mask=mask))
    assert "depends on the other rows" in shared.explain()
    assert "at once" in shared.explain()


class Adding(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x, y=None):
        return self.fc(x) + y


def test_whose_an_argument_is_must_be_known():
    models, xs, x = variants(Adding, T), draw(T, 2, 4), draw(6, 4)
    asking = tnt.share(models, eps=0)
    ids, rows, tasks = [0, 1, 1, 3, 2, 0], draw(6, 3), draw(T, 3)
    for call, question in [
        (
            lambda: asking(xs, y=draw(T, 2, 3)),
            r"does 'y', of shape \(4, 2, 3\), have an entry for each task\?",
        ),
        (
            lambda: asking(x, ids, y=rows),
            r"does 'y', of shape \(6, 3\), have a row for each of the 6 rows of x\?",
        ),
        (
            lambda: asking(list(xs), y=list(draw(T, 2, 3))),
            "does 'y', a list of 4, have an entry for each task",
        ),
        (lambda: asking.fan_out(x, y=tasks), "an entry for each task"),
    ]:
        with pytest.raises(tn.TnshareError, match=question + ".* Say so: .*'tasks'.*None"):
            call()
    one = draw(3)
    close(asking(xs, y=one), torch.stack([m(v, one) for m, v in zip(models, xs, strict=True)]))
    known = tnt.share(models, eps=0, batch_dims={"y": 0})
    each = draw(T, 2, 3)
    close(known(xs, y=each), torch.stack([m(v, y) for m, v, y in zip(models, xs, each, strict=True)]))
    close(known(list(xs), y=list(each)), [m(v, y) for m, v, y in zip(models, xs, each, strict=True)])
    own = tnt.share(models, eps=0, batch_dims={"y": "tasks"})
    close(own.fan_out(x, y=tasks), torch.stack([m(x, y) for m, y in zip(models, tasks, strict=True)]))
    close(own(x, ids, y=tasks), torch.stack([models[t](x[n], tasks[t]) for n, t in enumerate(ids)]))
    close(own(x, 2, y=tasks), models[2](x, tasks[2]))
    with pytest.raises(
        tn.TnshareError, match=r"'y' must have an entry for each of 4 tasks: found shape \(6, 3\)"
    ):
        own(x, ids, y=rows)
    with pytest.raises(
        tn.TnshareError, match=r"batch_dims\['y'\] must be the axis of rows, 'tasks' .*found 'rows'"
    ):
        tnt.share(models, eps=0, batch_dims={"y": "rows"})


@dataclasses.dataclass
class Batch:
    y: Any
    name: str = "batch"


class Taking(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x, extra=None):
        y = self.fc(x["x"] if isinstance(x, dict) else x)
        more = extra.y["a"][0] if isinstance(extra, Batch) else 0 if extra is None else extra.held
        return Batch({"y": y + more, "rows": (y,)})


class Opaque:
    def __init__(self, held):
        self.held = held


def test_containers_are_split_like_their_tensors():
    models = variants(Taking, 5)
    shared, x = tnt.share(models, eps=0, batch_dims={"extra": 0}), draw(8, 4)
    ids, extra = torch.arange(8) % 5, draw(8, 3)
    for _ in range(3):
        found = shared({"x": x}, ids, extra=Batch({"a": [extra]}))
        assert isinstance(found, Batch)
        for n, t in enumerate(ids.tolist()):
            close(found.y["y"][n], models[t](x[n : n + 1]).y["y"][0] + extra[n])
        assert shared.fan_out(x).y["y"].shape == (5, 8, 3)
    with pytest.raises(
        tn.TnshareError, match="extra holds a Opaque with tensors in it, which cannot be split"
    ):
        shared(x, ids, extra=Opaque(extra))
    with pytest.raises(tn.TnshareError, match="extra has 8 entries that are no tensor"):
        shared(x, ids, extra=["a"] * 8)
    with pytest.raises(tn.TnshareError, match=r"expected extra with 8 rows along axis 0, found \(7, 3\)"):
        shared(x, ids, extra=Batch({"a": [extra[:7]]}))


@functools.lru_cache(maxsize=8)
def squashed(module):
    return torch.tanh(module.fc.weight)


class Memoised(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)

    def forward(self, x):
        return nn.functional.linear(x, squashed(self))


class Held:
    last = None


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.held, self.kept = nn.Linear(4, 3), Held(), torch.zeros(3, dtype=torch.float64)
        self.how = "object"

    def forward(self, x):
        y = self.fc(x)
        if self.how == "object":
            self.held.last = y.mean()
        else:
            self.kept.add_(1)
        return y


def test_what_one_task_leaves_no_other_finds():
    text = r"computed for another task is used in Memoised.forward \(line \d+ of test_share_laws.py\)"
    shared, x = tnt.share(variants(Memoised, T), eps=0), draw(3, 4)
    shared(x, 1)
    for call in (lambda: shared(x, 2), lambda: shared.fan_out(x), lambda: shared(x, [0, 1, 2])):
        with pytest.raises(tn.TnshareError, match=text):
            call()
    with pytest.raises(tn.TnshareError, match=text):
        tnt.share(variants(Memoised, T), eps=0, example=x)


@pytest.mark.parametrize(("how", "name"), [("object", "held.last"), ("in place", "kept")])
def test_state_is_refused_by_name_and_put_back(how, name):
    models = variants(Remembering, T)
    for model in models:
        model.how = how
    shared = tnt.share(models, eps=0)
    for _ in range(2):
        with pytest.raises(tn.TnshareError, match=f"assigns to '{name}'"):
            shared(draw(3, 4), 1)
        assert shared._template.held.last is None
        assert not shared._template.kept.any()


class Viewing(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.conv = nn.Linear(4, 6), nn.Conv2d(2, 4, 3)

    def forward(self, x):
        flat = self.conv.weight.view(-1)
        assert self.fc.weight.is_contiguous()
        return x @ self.fc.weight.view(4, 6) + flat.sum()


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_a_composed_weight_lies_in_memory_as_a_plain_one(method):
    models = variants(Viewing, T)
    shared, x = tnt.share(models, method, eps=0), draw(3, 4)
    for t, model in enumerate(models):
        close(shared(x, t), model(x))
        for name, weight in model.named_parameters():
            assert shared.weights(t)[name].stride() == weight.stride()
    last = [model.to(memory_format=torch.channels_last) for model in variants(lambda: nn.Conv2d(2, 4, 3), T)]
    assert tnt.share(last, method, eps=0).weights(1)["weight"].stride() == last[1].weight.stride()


def test_half_precision_is_summed_in_single():
    models = [nn.Linear(2, 2).half() for _ in range(4)]
    with torch.no_grad():
        for model in models:
            model.weight.fill_(40_000)
            model.bias.fill_(40_000)
    shared = tnt.share(models, layers={"weight": "hard"})
    assert torch.equal(shared.weights(0)["weight"], models[0].weight)
    shared.add_task()
    assert torch.equal(shared.weights(4)["bias"], models[0].bias)


def test_what_is_worth_knowing_is_a_warning():
    with pytest.warns(tn.TnshareWarning, match="unaligned: at eps=0.1 nothing is shared"):
        tnt.share([nn.Linear(9, 9) for _ in range(5)], "laf", eps=0.1)
    with pytest.warns(tn.TnshareWarning, match=r"larger than what came in: \d+ parameters for \d+"):
        shared = tnt.share(variants(lambda: nn.Linear(4, 3), T), "laf", eps=0)
    assert "larger than what came in" in shared.report()
    with pytest.warns(tn.TnshareWarning, match="nothing is shared: every weight stays with each task"):
        tnt.share(variants(lambda: nn.Linear(4, 3), T), layers={"*": "single"})
    assert issubclass(tn.TnshareWarning, UserWarning)


def test_factors_of_another_shape_or_kind_are_refused():
    layer = tnt.Linear(4, 3, T, tn.LAF(2))
    d = tn.decompose(torch.randn(4, 3, T).numpy(), "laf", ranks=2)
    name = next(iter(d.factors))
    bias = layer.bias.detach().numpy()
    for wrong, text in [
        (d.factors[name][:1], "must have shape"),
        (d.factors[name].astype(int), "floating arrays: found int64"),
    ]:
        bad = dataclasses.replace(d, factors={**d.factors, name: wrong})
        for load in (
            layer.load_decomposition,
            lambda bad: layer.load_state(tn.State({"weight": bad, "bias": bias})),
        ):
            before = [p.detach().clone() for p in layer.parameters()]
            with pytest.raises(tn.TnshareError, match=text):
                load(bad)
            assert all(torch.equal(p, q) for p, q in zip(layer.parameters(), before, strict=True))
    state = {name: tensor.to(torch.complex64) for name, tensor in layer.state_dict().items()}
    with pytest.raises(RuntimeError, match="must hold numbers such as float32: found complex64"):
        layer.load_state_dict(state)


def test_compiled_code_checks_ids_as_eager_code_does():
    shared, x = tnt.share(variants(lambda: nn.Linear(4, 3), T), eps=0, example=draw(6, 4)), draw(6, 4)
    compiled = torch.compile(shared, backend="eager", fullgraph=True)
    for ids, text in [
        (torch.zeros(6), "whole numbers: found dtype float32"),
        (torch.zeros(6, dtype=torch.bool), "whole numbers: found dtype bool"),
        (torch.zeros(6, 1, dtype=torch.int64), r"ids \(rows,\): found shape"),
        (torch.zeros(5, dtype=torch.int64), "expected x with 5 rows"),
        ([0, 1, 2, 3, 4, 0], "out of range: expected 0 <= task <= 3"),
    ]:
        torch._dynamo.reset()
        with pytest.raises(Exception, match=text):
            compiled(x, ids)
