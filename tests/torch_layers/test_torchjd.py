"""TorchJD: Jacobians of the tasks' losses on what they share, gradients on what each has of its own."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")
autojac = pytest.importorskip("torchjd.autojac")
aggregation = pytest.importorskip("torchjd.aggregation")

import living  # noqa: E402
from living import SUMMED, T  # noqa: E402
from tolerances import close  # noqa: E402
from torch import nn  # noqa: E402


def losses(shared):
    return [shared(living.x(5, seed=t), t).square().mean() for t in range(T)]


def jacobians(shared, parameters):
    """One row for each task's loss, by torch itself; zeros where a task does not use a parameter."""
    rows = [
        torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
        for loss in losses(shared)
    ]
    return [torch.stack(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("chunk", [None, 1])
@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_backward_on_the_factors(method, chunk):
    shared = living.shared(method)
    common = list(shared.shared_parameters())
    expected = jacobians(shared, common)
    autojac.backward(losses(shared), inputs=common, parallel_chunk_size=chunk)
    for parameter, rows in zip(common, expected, strict=True):
        close(parameter.jac, rows, SUMMED)
    weights = autojac.jac_to_grad(common, aggregation.MGDA())
    assert weights.shape == (T,)
    assert all(parameter.grad.shape == parameter.shape for parameter in common)


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_mtl_backward_on_shared_and_task_parameters(method):
    """Tasks meet in the factors themselves, at every layer: these are the shared features."""
    shared = living.shared(method)
    common = list(shared.shared_parameters())
    own = [list(shared.task_parameters(t)) for t in range(T)]
    expected = jacobians(shared, common)
    single = [torch.autograd.grad(loss, own[t]) for t, loss in enumerate(losses(shared))]
    autojac.mtl_backward(losses(shared), features=common, tasks_params=own, shared_params=common)
    for parameter, rows in zip(common, expected, strict=True):
        close(parameter.jac, rows, SUMMED)
    for parameters, grads in zip(own, single, strict=True):
        for parameter, grad in zip(parameters, grads, strict=True):
            close(parameter.grad, grad, SUMMED)
    optimiser = torch.optim.SGD(shared.parameters(), 0.1)
    autojac.jac_to_grad(common, aggregation.MGDA())
    before = sum(losses(shared)).item()
    optimiser.step()
    assert sum(losses(shared)).item() < before


def test_mtl_backward_through_a_layer_with_heads():
    body, heads = nn.Linear(6, 6), living.linear()
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    features = torch.tanh(body(x))
    found = [heads(features, t).square().mean() for t in range(T)]
    rows = [torch.autograd.grad(loss, body.weight, retain_graph=True)[0] for loss in found]
    total = torch.autograd.grad(sum(found), list(heads.parameters()), retain_graph=True)
    autojac.mtl_backward(
        found,
        features=features,
        tasks_params=[list(heads.parameters())] * T,
        shared_params=list(body.parameters()),
    )
    close(body.weight.jac, torch.stack(rows), SUMMED)
    for parameter, grad in zip(heads.parameters(), total, strict=True):
        close(parameter.grad, grad, SUMMED)
