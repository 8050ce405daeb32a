"""Weights of all tasks: large ones are computed in another order, and are the same."""

from __future__ import annotations

import numpy as np
import pytest
import tnshare_torch as tnt
import torch

import tnshare as tn
from tnshare.decomposition._compose import _tasks_first

SPECS = {
    "laf": tn.LAF(3),
    "tucker": tn.Tucker((6, 7, 3)),
    "tt": tn.TT((6, 3)),
}


@pytest.mark.parametrize("sizes", [{"i": 150, "o": 80, "task": 100}, {"i": 12, "o": 10, "task": 9}])
@pytest.mark.parametrize("method", SPECS)
def test_all_weights_are_what_einsum_gives(method, sizes):
    network = SPECS[method].network(**sizes)
    rng = np.random.default_rng(0)
    factors = {name: rng.standard_normal(shape) for name, shape in network.shapes.items()}
    expected = np.einsum(network.equation, *factors.values(), optimize=True)
    np.testing.assert_allclose(tn.compose(network, factors), expected, rtol=1e-9, atol=1e-9)
    tensors = {name: torch.from_numpy(value).requires_grad_() for name, value in factors.items()}
    composed = tn.compose(network, tensors, ops=tnt.ops)
    assert composed.shape == expected.shape
    above = torch.from_numpy(rng.standard_normal(expected.shape))
    found = torch.autograd.grad(composed, list(tensors.values()), above)
    plain = torch.einsum(network.equation, *tensors.values())
    for ours, theirs in zip(found, torch.autograd.grad(plain, list(tensors.values()), above), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_large_weights_are_written_in_small_pieces_without_a_copy():
    plan, orders = _tasks_first(tn.LAF(4).network(i=512, o=512, task=50))
    (step,) = plan.steps
    assert orders == ((1, 0, 2), None)
    assert step.batch == ("i",)
    assert step.copies == (False, False)
    kernels, _ = _tasks_first(tn.LAF(4).network(h=3, w=3, c=128, m=128, task=20))
    assert kernels.steps[0].batch == ("h",)


@pytest.mark.parametrize(
    "sizes",
    [
        {"i": 64, "o": 64, "task": 100},
        {"i": 100_000, "o": 10, "task": 20},
        {"i": 1024, "o": 1024, "task": 10},
        {"i": 4096, "o": 64, "task": 128, "rank": 100},
    ],
)
def test_small_weights_short_rows_and_few_tasks_are_one_product(sizes):
    sizes = dict(sizes)  # parameters are shared between runs
    rank = sizes.pop("rank", 4)
    plan, orders = _tasks_first(tn.LAF(rank).network(**sizes))
    assert orders == (None, None)
    assert plan.steps[0].batch == ()
    assert plan.steps[0].result[0] == "task"
