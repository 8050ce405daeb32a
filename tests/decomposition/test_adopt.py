"""From a decomposition into a layer; what a decomposition says about a stack; factorisations of one's own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import tnshare_torch as tnt
import torch
from tolerances import close

import tnshare as tn
from tnshare.decomposition import _stack as measure
from tnshare.network import Node
from tnshare.testing.oracles import gauge_moved

RNG = np.random.default_rng(0)
METHODS = ("laf", "tucker", "tt")


def aligned(shape, deviation=0.3):
    return RNG.standard_normal((*shape[:-1], 1)) + deviation * RNG.standard_normal(shape)


@pytest.mark.parametrize("method", METHODS)
def test_a_layer_goes_on_from_a_decomposition(method):
    stack = aligned((6, 5, 4)).astype(np.float32)
    d = tn.decompose(stack, method, eps=0.2)
    layer = tnt.Linear(6, 5, tasks=4, spec=d.spec)
    bias = layer.bias.detach().clone()
    layer.load_decomposition(d)
    composed = tn.compose(d.network, d.factors)
    close(layer.weight().detach().numpy(), composed.transpose(2, 1, 0), 6 + 5 + 4)
    assert torch.equal(layer.bias, bias)
    with pytest.raises(tn.TnshareError, match=r"of weights \(7, 5, 4\) was expected"):
        tn.Linear(7, 5, tasks=4, spec=d.spec).adopt(d)
    with pytest.raises(tn.TnshareError, match=r"a decomposition by LAF\(1\) of weights"):
        tn.Linear(6, 5, tasks=4, spec=tn.LAF(1)).adopt(tn.decompose(stack, "laf", ranks=2))


@pytest.mark.parametrize("method", METHODS)
def test_a_nan_is_found_wherever_it_is(method, monkeypatch):
    monkeypatch.setattr(measure, "_BLOCK", 7)
    stack = np.ones((6, 5, 4))
    for where in ((0, 0, 0), (3, 2, 1), (5, 4, 3)):
        damaged = stack.copy()
        damaged[where] = np.nan
        with pytest.raises(tn.TnshareError, match=rf"found nan at \({where[0]}, {where[1]}, {where[2]}\)"):
            tn.decompose(damaged, method)


@pytest.mark.parametrize("method", METHODS)
def test_unaligned_and_collapsed_stacks_are_told_apart_from_good_ones(method):
    unaligned, larger = tn.decompose(RNG.standard_normal((40, 30, 6)), method, eps=0.1).warnings
    assert unaligned.startswith("unaligned: at eps=0.1 nothing is shared along 'task', rank 6 of 6")
    assert larger.startswith("larger than what came in: ")
    (collapsed,) = tn.decompose(aligned((40, 30, 6), 0.05), method, eps=0.1).warnings
    assert collapsed.startswith("collapsed: at eps=0.1 all that differs along 'task' is lost, rank 1")
    base, more = RNG.standard_normal((2, 40, 30, 1))
    good = base + 0.3 * more * RNG.standard_normal(6)
    assert tn.decompose(good, method, eps=0.1).warnings == ()
    copies = tn.decompose(np.repeat(base, 6, axis=-1), method)
    assert [text.partition(":")[0] for text in copies.warnings] == ["larger than what came in"]


def test_the_rule_of_the_paper_finds_an_exact_rank_in_a_large_stack():
    factors = [RNG.standard_normal(shape) for shape in ((4, 3, 2), (80, 4), (60, 3), (8, 2))]
    stack = np.einsum("abc,ia,ob,tc->iot", *factors)
    for eps in (0.0, 1e-9):
        assert tn.decompose(stack, "tucker", eps=eps, eps_rule="per_svd").spec == tn.Tucker((4, 3, 2))


def test_codes_of_directions_that_no_task_uses_are_zero():
    stack = np.repeat(RNG.standard_normal((10, 10, 1)), 6, axis=-1)
    d = tn.decompose(stack, "tucker", ranks=(10, 10, 4))
    for factors in (d.factors, gauge_moved(d.network, d.factors, 0)):
        codes = tn.codes(d.network, factors)
        assert not codes[1:].any()
        assert math.isclose(tn.sharing_strength(codes), 1.0)


def test_codes_survive_a_bond_that_is_scaled_very_unevenly():
    d = tn.decompose(RNG.standard_normal((6, 5, 4)), "laf", eps=0)
    uneven = np.logspace(-5, 5, 4)
    factors = {"L": d.factors["L"] * uneven[:, None, None], "S": d.factors["S"] / uneven}
    np.testing.assert_allclose(tn.codes(d.network, factors), tn.codes(d.network, d.factors), atol=1e-8)


@dataclass(frozen=True)
class Sandwich(tn.Spec):
    """W[i, ..., t] = A[i, r] B[r, ..., t]: a factorisation that tnshare does not know."""

    ranks: tuple[int, ...]
    method: ClassVar[str] = "sandwich"

    @classmethod
    def bonds(cls, axes):
        return ("r",)

    def maxima(self, weights, tasks):
        first, *others = (*weights.values(), *tasks.values())
        return (min(first, math.prod(others)),)

    def nodes(self, weights, tasks):
        first, *others = weights
        sizes = {**weights, **tasks}
        rest = (*tasks, "r", *others)
        return (
            Node("A", (first, "r"), (sizes[first], self.ranks[0])),
            Node("B", rest, tuple(self.ranks[0] if a == "r" else sizes[a] for a in rest)),
        )


def test_a_factorisation_of_ones_own_is_one_class():
    stack = aligned((6, 5, 4))
    d = tn.decompose(stack, Sandwich, eps=0.2)
    assert d.error <= 0.2
    np.testing.assert_allclose(
        np.linalg.norm(tn.compose(d.network, d.factors) - stack), d.error * np.linalg.norm(stack)
    )
    layer = tn.Linear(6, 5, tasks=4, spec=d.spec)
    x = RNG.standard_normal((3, 6))
    y = tn.apply(layer, {**layer.init(dtype=np.float64), **layer.adopt(d), "bias": np.zeros((4, 5))}, x, 2)
    np.testing.assert_allclose(y, x @ tn.compose(d.network, d.factors, task=2))


def test_values_that_are_shared_cannot_be_changed_by_accident():
    network = tn.LAF(2).network(i=3, task=4)
    network.sizes["i"] = 99
    assert network.sizes == {"k": 2, "i": 3, "task": 4}
    frozen = tn.Linear(3, 2, tasks=4, spec=tn.LAF.hard_sharing()).frozen["S"]
    with pytest.raises(ValueError, match="read-only"):
        frozen[:] = 7
    assert Node("A", ["i"], [3]) == Node("A", ("i",), (3,))
    assert hash(Node("A", ["i"], [3])) == hash(Node("A", ("i",), (3,)))


@pytest.mark.parametrize(
    ("factors", "text"),
    [
        ({"L": np.ones((2, 4, 3))}, r"the factor 'S' is missing: expected \('L', 'S'\)"),
        ({"L": np.ones((1, 4, 3)), "S": np.ones((5, 2))}, r"must have shape \(2, 4, 3\): found \(1, 4, 3\)"),
        ({"L": np.ones((2, 4, 1)), "S": np.ones((5, 2))}, r"must have shape \(2, 4, 3\): found \(2, 4, 1\)"),
        ({"L": [[1.0]], "S": np.ones((5, 2))}, r"must have shape \(2, 4, 3\): found a list, not an array"),
        (
            {"L": np.ones((2, 4, 3), int), "S": np.ones((5, 2))},
            "must be floating arrays: found int64",
        ),
    ],
)
def test_factors_that_do_not_fit_are_refused_and_not_broadcast(factors, text):
    layer = tn.Linear(4, 3, tasks=5, spec=tn.LAF(2))
    d = tn.Decomposition(layer.spec, layer.network, factors, 0.0, 0.0)
    with pytest.raises(tn.TnshareError, match=text):
        layer.adopt(d)
