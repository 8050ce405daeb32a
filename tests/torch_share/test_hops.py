"""How many of our files a later call passes through: few, so that it can be followed."""

from __future__ import annotations

from functools import partial

import pytest
import tnshare_torch as tnt
import torch
from hops import files_of, later
from torch import nn

import tnshare as tn
from tnshare.checks import whole
from tnshare.models import Roster

T, ROWS = 5, 10
IDS = torch.arange(ROWS) % T
SHARED, LAYER = 14, 4  # the most files, of a shared network and of a layer; one more where it keeps


def mlp():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))


def convolutions():
    return nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 4))


NETWORKS = {"mlp": (mlp, (8,)), "convolutions": (convolutions, (2, 6, 6))}
WAYS = {
    "one": lambda module, x: lambda: module(x, 3),
    "mixed": lambda module, x: lambda: module(x, IDS),
    "each": lambda module, x: lambda: module(torch.stack([x] * T)),
    "fan_out": lambda module, x: lambda: module.fan_out(x),
    "list": lambda module, x: lambda: module([x] * T),
    "code": lambda module, x: partial(module, x, code=module.code(1).detach()),
    "codes": lambda module, x: partial(module, x, IDS, code=torch.stack([module.code(1)] * T).detach()),
}


@pytest.mark.parametrize("graded", [True, False], ids=["graded", "no_grad"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("strategy", ["auto", "loop", "vmap"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("network", NETWORKS)
def test_a_later_call_of_a_shared_network(network, way, strategy, training, graded):
    make, shape = NETWORKS[network]
    shared = tnt.share(tnt.replicate(make(), T), eps=0, strategy=strategy).train(training)
    x = torch.randn(ROWS, *shape)
    if training and strategy == "vmap" and network == "convolutions" and way in ("mixed", "codes"):
        pytest.skip("batch norm: rows of mixed tasks are not independent")
    with torch.set_grad_enabled(graded):
        files = later(WAYS[way](shared, x))
    assert 0 < len(files) <= SHARED, sorted(files)


@pytest.mark.parametrize("graded", [True, False], ids=["graded", "no_grad"])
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("way", ["one", "mixed", "each", "fan_out"])
def test_a_later_call_of_a_layer(way, training, graded):
    layer, x = tnt.Linear(8, 4, tasks=T, spec=tn.Tucker((4, 3, 2))).train(training), torch.randn(ROWS, 8)
    with torch.set_grad_enabled(graded):
        files = later(WAYS[way](layer, x))
    keeps = {file for file in files if file.endswith("/_kept_tensors.py")}
    assert 0 < len(files - keeps) <= LAYER, sorted(files)
    assert not keeps or not (training or graded)


def test_files_are_counted():
    assert files_of(lambda: None) == set()
    assert files_of(lambda: whole("tasks", 3)) == {"tnshare/checks.py"}
    both = files_of(lambda: (Roster(2).grown(None), [whole("tasks", 3) for _ in range(9)]))
    assert both == {"tnshare/checks.py", "tnshare/models/_roster.py"}
    layer, x = tnt.Linear(8, 4, tasks=T, spec=tn.Tucker((4, 3, 2))), torch.randn(ROWS, 8)
    assert len(files_of(lambda: layer(x, 3))) > len(later(lambda: layer(x, 3)))  # the first one plans
