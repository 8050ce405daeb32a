"""Shared networks and layers compiled: one graph for all batches, the numbers of an eager call."""

from __future__ import annotations

import living
import pytest
import tnshare_torch as tnt
import torch
from living import SUMMED, T
from tolerances import close
from torch import nn
from torch._dynamo import testing

SIZES = (3, 5, 17, 64, 300)  # none that another axis has: torch takes equal sizes for one


@pytest.fixture(autouse=True)
def _forget_what_was_compiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def ids_of(rows):
    return torch.arange(rows) % T


def graphs(module, way, draw, sizes=SIZES):
    """How many graphs serve these batches, each compared with an eager call, values and gradients."""
    counter = testing.CompileCounter()
    call = {
        "one": lambda x: module(x, 1),
        "mixed": lambda x: module(x, ids_of(len(x))),
        "each": lambda x: module(torch.stack([x] * T)),
        "fan_out": lambda x: module.fan_out(x),
        "plain": lambda x: module(x),
    }[way]
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend=counter)
    for rows in sizes:
        x = draw(rows)
        found = []
        for function in (compiled, call):
            module.zero_grad()
            y = function(x)
            y.square().sum().backward()
            # What an eager call does not touch has no gradient, what a compiled one selects from has zeros.
            grads = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in module.parameters()]
            found.append([y.detach(), *grads])
        for a, b in zip(*found, strict=True):
            close(a, b, SUMMED)
    return counter.frame_count


def matrices(rows):
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize("way", ["one", "each", "fan_out", "mixed"])
def test_one_graph_of_a_shared_network_serves_all_batches(way):
    models = living.nets(living.Matrices)
    shared = tnt.share(models, "tucker", eps=0, example=matrices(4))
    assert graphs(shared, way, matrices) == 1


class Several(nn.Module):
    """Layers whose batching rules in torch make a constant of the number of rows."""

    def __init__(self, dtype=None):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.group, self.batch, self.layer = nn.GroupNorm(2, 4), nn.BatchNorm2d(4), nn.LayerNorm(16)
        self.head = nn.Linear(16, 3)

    def forward(self, x):
        x = self.batch(torch.relu(self.group(self.conv(x))))
        x = torch.cat([nn.functional.max_pool2d(x, 2), nn.functional.avg_pool2d(x, 2)], 1).flatten(1)
        return self.head(self.layer(x))


def test_one_graph_serves_rows_of_mixed_tasks_through_convolutions_and_norms():
    def draw(rows):
        return torch.randn(rows, 2, 2, 4, generator=torch.Generator().manual_seed(rows))

    shared = tnt.share(living.nets(Several), "tucker", eps=0, example=draw(5)).eval()
    assert graphs(shared, "mixed", draw, (5, 9, 33)) == 1


def test_convolutions_are_compiled_no_more_often_than_torch_s_own():
    """torch itself compiles them again, where it convolves differently: for batches of 16 and more, say."""

    def draw(rows):
        return torch.randn(rows, 2, 4, 5, generator=torch.Generator().manual_seed(rows))

    layer, shared = living.conv(), living.shared()
    assert graphs(layer, "mixed", draw) <= graphs(living.twin(layer, 1), "plain", draw)
    assert graphs(shared, "one", living.x) <= graphs(shared.task_model(1), "plain", living.x)
