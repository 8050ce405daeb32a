"""What networks of one architecture differ in besides their tensors."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tnshare_torch")

from networks import NETWORKS  # noqa: E402
from tnshare_torch.shared.template._differences import differences  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn.utils import parametrizations  # noqa: E402
from torch.nn.utils.parametrize import register_parametrization  # noqa: E402


@dataclass
class Config:
    heads: int = 2
    rate: float = 0.5


class Block(nn.Module):
    def __init__(self, scale=1.0, act=torch.relu, heads=2):
        super().__init__()
        self.fc, self.scale, self.act = nn.Linear(3, 3), scale, act
        self.config = {"block": Config(heads)}

    def forward(self, x):
        return self.scale * self.act(self.fc(x)) / self.config["block"].heads


class Net(nn.Module):
    def __init__(self, head=2, **options):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block(**options)])
        self.head = nn.Linear(3, head)
        self.order = [self.blocks[1], self.blocks[0]]

    def forward(self, x):
        for block in self.order:
            x = block(x)
        return self.head(x)


class Half(nn.Module):
    def __init__(self, rate=0.5):
        super().__init__()
        self.rate = rate

    def forward(self, w):
        return self.rate * w


def paths(one, other, **options):
    return [d.path for d in differences(one, other, **options)]


def changed(change):
    model = Net()
    change(model)
    return model


def hooked(by):
    return changed(lambda m: m.head.register_forward_hook(lambda module, args, y: y * by))


def reordered(model):
    model.order.reverse()


def frozen_mode(model):
    model.blocks[0].eval()


def tied(model):
    model.blocks[1].fc.weight = model.blocks[0].fc.weight


def late(model):
    model.extra = None


def redirected(model):
    model.blocks[1].forward = lambda x: x


def class_of_same_name():
    class Block(nn.Module):
        __qualname__ = "Block"

        def __init__(self):
            super().__init__()
            self.fc, self.scale, self.act = nn.Linear(3, 3), 1.0, torch.relu
            self.config = {"block": Config(2)}

        def forward(self, x):
            return 2 * self.scale * self.act(self.fc(x)) / self.config["block"].heads

    return Block()


def another_class(model):
    model.blocks[1] = class_of_same_name()
    model.order[0] = model.blocks[1]


DIFFERENT = {
    "float": (Net(scale=2.0), "blocks.1.scale", "1.0", "2.0"),
    "activation": (Net(act=torch.tanh), "blocks.1.act", None, None),
    "heads in a configuration": (Net(heads=3), "blocks.1.config.block.heads", "2", "3"),
    "hook": (hooked(1), "head._forward_hooks", "missing", None),
    "order of parts": (changed(reordered), "order[0]", None, None),
    "mode": (changed(frozen_mode), "blocks.0.training", "True", "False"),
    "tied": (
        changed(tied),
        "blocks.1.fc.weight",
        "float32 parameter 'blocks.1.fc.weight'",
        "float32 parameter 'blocks.0.fc.weight'",
    ),
    "attribute": (changed(late), "extra", "missing", "None"),
    "forward of its own": (changed(redirected), "blocks.1.forward", "missing", None),
    "class of the same name": (changed(another_class), "blocks.1.forward", None, None),
    "part": (changed(lambda m: m.add_module("more", nn.ReLU())), "more", "missing", None),
    "bias": (
        changed(lambda m: setattr(m, "head", nn.Linear(3, 2, bias=False))),
        "head.bias",
        "float32 parameter 'head.bias'",
        "None",
    ),
    "dtype": (changed(lambda m: m.head.double()), "head.weight", None, None),
    "kind": (changed(lambda m: setattr(m, "head", nn.Conv1d(3, 2, 1))), "head", "Linear", "Conv1d"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_a_difference_is_told_by_path_and_values(name):
    other, path, first, second = DIFFERENT[name]
    found = next(differences(Net(), other))
    assert found.path == path
    if first:
        assert found.values()[0] == first
    if second:
        assert found.values()[1] == second


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_that_differ_in_numbers_alone_are_alike(name):
    torch.manual_seed(0)
    one, other = NETWORKS[name][0](), NETWORKS[name][0]()
    assert paths(one, other) == []
    assert paths(one, copy.deepcopy(one)) == []


def test_hooks_are_compared_by_code_and_by_what_they_close_over():
    assert paths(hooked(1), hooked(1)) == []
    assert paths(hooked(1), hooked(2)) == ["head._forward_hooks[0][0].by"]


def test_parametrizations_are_compared():
    def made(rate=0.5, power=1):
        layer = nn.Linear(3, 3)
        register_parametrization(layer, "weight", Half(rate))
        return nn.Sequential(layer, parametrizations.spectral_norm(nn.Linear(3, 3), n_power_iterations=power))

    assert paths(made(), made()) == []
    assert paths(made(), made(0.25)) == ["0.parametrizations.weight.0.rate"]
    assert paths(made(), made(power=2)) == ["1.parametrizations.weight.0.n_power_iterations"]


def test_sizes_of_heads_are_no_difference():
    assert paths(Net(2), Net(5)) == []
    assert paths(nn.LayerNorm((2, 3)), nn.LayerNorm((2, 4))) == []
    assert paths(nn.Embedding(3, 2, padding_idx=1), nn.Embedding(4, 2, padding_idx=2)) == ["padding_idx"]


class Sized(nn.Module):
    def __init__(self, size, reads=False):
        super().__init__()
        self.w, self.size, self.reads = nn.Parameter(torch.ones(2, size)), size, reads


class Reading(Sized):
    def forward(self, x):
        return x @ self.w / self.size


class Silent(Sized):
    def forward(self, x):
        return x @ self.w


def test_a_size_that_a_forward_reads_is_a_difference():
    assert paths(Silent(2), Silent(3)) == []
    assert paths(Reading(2), Reading(3)) == ["size"]
    assert paths(Silent(2), Silent(2)) == []


class Parent(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.head = nn.Linear(2, size)

    def forward(self, x):
        return self.head(x) / self.head.out_features


def test_a_size_that_another_module_reads_is_a_difference():
    assert paths(Parent(2), Parent(3)) == ["head.out_features"]
    assert paths(nn.Sequential(nn.Linear(2, 2)), nn.Sequential(nn.Linear(2, 3))) == []


class Holder(nn.Module):
    def __init__(self, **values):
        super().__init__()
        self.fc = nn.Linear(2, 2)
        for name, value in values.items():
            setattr(self, name, value)


@pytest.mark.parametrize(
    ("one", "other", "path"),
    [
        (torch.ones(2), torch.zeros(2), "a"),
        ({"b": [torch.ones(2)]}, {"b": [torch.ones(3)]}, "a.b[0]"),
        (torch.float32, torch.float64, "a"),
        (torch.Generator().manual_seed(1), torch.Generator().manual_seed(2), "a"),
        (torch.nn.functional.gelu, torch.nn.functional.relu, "a"),
        (torch.ones(2), None, "a"),
        (torch.ones(2), torch.ones(2).double(), "a"),
    ],
)
def test_what_attributes_hold_is_compared(one, other, path):
    assert paths(Holder(a=one), Holder(a=copy.deepcopy(one))) == []
    assert paths(Holder(a=one), Holder(a=other)) == [path]


def test_a_tensor_with_nan_is_like_itself():
    assert paths(Holder(a=torch.tensor([torch.nan])), Holder(a=torch.tensor([torch.nan]))) == []


def test_what_is_ignored():
    one, other = Net(), Net(scale=2.0, heads=3)
    assert paths(one, other) == ["blocks.1.scale", "blocks.1.config.block.heads"]
    assert paths(one, other, ignore=("scale", "blocks.*.config.block.heads")) == []
    assert paths(one, other, ignore=("scale",)) == ["blocks.1.config.block.heads"]


def test_dtypes_may_be_left_out():
    assert paths(Net(), Net().double(), dtypes=False) == []


def test_it_is_linear_in_modules():
    def deep(layers):
        return nn.Sequential(*(Block() for _ in range(layers)))

    import time

    taken = []
    for layers in (50, 200):
        one, other = deep(layers), deep(layers)
        start = time.perf_counter()
        assert paths(one, other) == []
        taken.append(time.perf_counter() - start)
    assert taken[1] < 40 * taken[0] + 1
