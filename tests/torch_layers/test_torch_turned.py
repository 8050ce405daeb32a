"""A right operand that lies transposed: torch forms its gradient as it lies, with the same numbers."""

from __future__ import annotations

import numpy as np
import pytest
import tnshare_torch as tnt
import torch

import tnshare as tn
from tnshare.execution import fixed_axes
from tnshare.ops import numpy_ops
from tnshare.planning import Step

SPECS = {"laf": tn.LAF(3), "tucker": tn.Tucker((8, 16, 3)), "tt": tn.TT((8, 3))}
PASTED = {name: getattr(numpy_ops, name) for name in ("matmul", "multiply", "reshape", "take", "transpose")}


def turned(plan):
    return any(isinstance(step, Step) and step.variant == "turned" for step in plan.steps)


def turned_candidate(layer, way):
    """A plan for very many rows, which holds for few as well."""
    found = layer.candidates(way, 2**17 if way != "each" else 2**15)
    return next(c for c in found if turned(c.plan) and not c.grouped)


def test_torch_forms_a_gradient_as_its_operand_lies():
    """What the price of a product in training relies on."""
    x = torch.randn(50, 6)
    for factor, strides in ((torch.randn(6, 3), (3, 1)), (torch.randn(3, 6).t(), (1, 6))):
        factor.requires_grad_()
        (gradient,) = torch.autograd.grad(torch.mm(x, factor).sum(), [factor])
        assert gradient.stride() == strides


@pytest.mark.parametrize("way", ["one", "mixed", "each", "fan_out"])
@pytest.mark.parametrize("method", ["tucker", "tt"])
def test_values_and_gradients_are_those_of_dense_weights(method, way):
    layer = tn.Linear(64, 48, tasks=4, spec=SPECS[method])
    made = tnt.Linear(
        64, 48, 4, SPECS[method], strategy=turned_candidate(layer, way), dtype=torch.float64, seed=3
    )
    x = torch.randn(*((4, 5) if way == "each" else (5,)), 64, dtype=torch.float64, requires_grad=True)
    ids = torch.tensor([3, 0, 3, 1, 1])
    weights, bias = made.weight().mT, made.bias[:, None]  # (task, in, out)
    dense = {
        "one": lambda: x @ weights[2] + bias[2],
        "mixed": lambda: (x[:, None] @ weights[ids] + bias[ids])[:, 0],
        "each": lambda: x @ weights + bias,
        "fan_out": lambda: x @ weights + bias,
    }[way]()
    task = {"one": 2, "mixed": ids}.get(way)
    found = made.fan_out(x) if way == "fan_out" else made(x, task)
    torch.testing.assert_close(found, dense)
    above = torch.randn_like(found)
    leaves = [x, *made.parameters()]
    for one, other in zip(
        torch.autograd.grad(found, leaves, above), torch.autograd.grad(dense, leaves, above), strict=True
    ):
        torch.testing.assert_close(one, other)


def test_what_is_read_can_be_pasted():
    layer = tn.Linear(64, 48, tasks=4, spec=SPECS["tt"])
    plan = turned_candidate(layer, "each").plan
    text = plan.source(fixed_axes(plan))
    assert "transpose(reshape(reshape(transpose(f1, (1, 0)), (-1,)), (8, 64)), (1, 0))" in text
    scope = dict(PASTED)
    exec(compile(text, "pasted", "exec"), scope)
    rng = np.random.default_rng(0)
    arrays = {
        node.name: rng.normal(
            size=[7 if axis == "b" else size for axis, size in zip(node.axes, node.shape, strict=True)]
        )
        for node in plan.network.nodes
    }
    expected = np.einsum("ir,sro,ts,tbi->tbo", *arrays.values())
    np.testing.assert_allclose(scope["contract"](*arrays.values()), expected, atol=1e-9)
