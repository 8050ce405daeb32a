"""A linear layer in halves: what depends on factors alone, for all tasks; then one task after the other."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tnshare_torch.shared.paths._path_choice import NUMBERS, TASKS, at_once_pays

import tnshare as tn
from tnshare.execution import composing_plan, two_stages
from tnshare.ops import numpy_ops
from tnshare.planning import PROFILES

RANKS = st.integers(1, 3)
SPECS = st.one_of(
    st.builds(tn.LAF, RANKS),
    st.builds(tn.Tucker, st.tuples(RANKS, RANKS, RANKS)),
    st.builds(tn.TT, st.tuples(RANKS, RANKS)),
)
SIZES = st.tuples(st.integers(3, 70), st.integers(3, 70))


def made(spec, sizes, tasks):
    try:
        network = spec.network(d1=sizes[0], d2=sizes[1], task=4)
    except tn.TnshareError:  # ranks that are larger than useful
        assume(False)
    rng = np.random.default_rng(0)
    every = network.for_tasks(tasks)
    return network, every, {node.name: rng.standard_normal(node.shape) for node in every.nodes}


@given(SPECS, SIZES, st.integers(1, 9), st.integers(1, 400), st.booleans())
def test_halves_are_the_layer(spec, sizes, tasks, rows, training):
    network, every, factors = made(spec, sizes, tasks)
    found = two_stages(network, tasks, rows, training, PROFILES["cpu"])
    weights = np.einsum(every.equation, *factors.values())
    pieces = [piece.of(numpy_ops, list(factors.values())) for piece in found.pieces]
    x = np.random.default_rng(1).standard_normal((3, sizes[0]))
    for t in range(tasks):
        own = [part[t] if piece.own else part for piece, part in zip(found.pieces, pieces, strict=True)]
        np.testing.assert_allclose(found.rest.run(numpy_ops, [*own, x]), x @ weights[..., t], atol=1e-9)


@given(SPECS, st.integers(1, 9), st.sampled_from([(0, 1), (1, 0)]))
def test_weights_are_composed_in_any_order_task_first(spec, tasks, order):
    network, every, factors = made(spec, (4, 5), tasks)
    found = composing_plan(network, tasks, order).run(numpy_ops, list(factors.values()))
    weights = np.einsum(every.equation, *factors.values())
    np.testing.assert_allclose(found, weights.transpose(2, *order), atol=1e-12)


def test_what_is_cheaper_is_chosen():
    """Few rows of a large matrix of low rank are applied from factors; many rows of a small one are not."""
    low = tn.Tucker((8, 8, 4)).network(d1=1024, d2=1024, task=16)
    (*_, last) = two_stages(low, 16, 8, True, PROFILES["cpu"]).rest.steps
    assert len(two_stages(low, 16, 8, True, PROFILES["cpu"]).pieces) > 1
    assert last.flops({**low.sizes, "b": 8, "i": 1024, "o": 1024}) < 2 * 8 * 1024 * 1024
    full = tn.LAF(16).network(d1=16, d2=16, task=16)
    (piece,) = two_stages(full, 16, 4096, True, PROFILES["cpu"]).pieces
    assert piece.own


def test_one_plan_for_numbers_of_tasks_and_rows_that_are_close():
    network = tn.LAF(2).network(d1=8, d2=8, task=4)
    profile = PROFILES["cpu"]
    assert two_stages(network, 9, 33, True, profile) is two_stages(network, 16, 64, True, profile)
    assert composing_plan(network, 9, (1, 0)) is composing_plan(network, 16, (1, 0))


@pytest.mark.parametrize(
    ("tasks", "numbers", "pays"),
    [(TASKS, NUMBERS, True), (TASKS - 1, 1, False), (TASKS, NUMBERS + 1, False), (1000, 1, True)],
)
def test_at_once_pays_for_many_short_calls(tasks, numbers, pays):
    assert at_once_pays(tasks, numbers) is pays
