"""The search for the fastest plan, and the device profiles that it believes."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import tnshare as tn
from tnshare.cost import GRID, SIZES, Profile
from tnshare.ops import numpy_ops
from tnshare.plan import Plan, make_step
from tnshare.profiles import PROFILES
from tnshare.search import _pricer, fastest
from tnshare.testing import linear_cases, network_cases
from tnshare.testing.oracles import einsum
from tnshare.ways import WAYS

CPU = PROFILES["cpu"]
SPECS = {"laf": tn.LAF(4), "tucker": tn.Tucker((16, 16, 5)), "tt": tn.TT((16, 5))}


@st.composite
def profiles(draw):
    """Devices of all kinds: for some calls are free, for some bytes; every order is the best for one."""
    size = st.floats(1e-9, 1.0)
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    rates = [tuple(np.exp(rng.uniform(0, 20, 4 * len(GRID) ** 3)).tolist()) for _ in range(2)]
    passes = [(1 / draw(size),) * len(SIZES) for _ in range(2)]
    return Profile("any", "drawn", draw(size), draw(size), *passes, *rates)


def arrays_of(network, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(node.shape) for node in network.nodes]


@given(network_cases(), profiles(), st.booleans())
def test_every_device_gets_the_same_weights(case, device, training):
    arrays = arrays_of(case.network)
    named = dict(zip(case.network.shapes, arrays, strict=True))
    result = fastest(case.network, device, training).run(numpy_ops, arrays)
    np.testing.assert_allclose(result, einsum(case.network, named), atol=1e-10)


@given(linear_cases(), profiles(), st.booleans(), st.integers(1, 9))
def test_every_device_gets_the_same_outputs_in_every_way(case, device, training, batch):
    plan = case.layer.plan(case.way, batch, training=training, device=device)
    arrays = arrays_of(plan.network)
    named = dict(zip(plan.network.shapes, arrays, strict=True))
    np.testing.assert_allclose(plan.run(numpy_ops, arrays), einsum(plan.network, named), atol=1e-9)


@given(network_cases(), profiles(), st.booleans())
def test_no_plan_is_predicted_to_be_slower_than_the_one_with_the_fewest_flops(case, device, training):
    price = _pricer(case.network, device, training)
    turn = device.copy(math.prod(case.network.shape)) * (1 + training)

    def seconds(plan):
        straight = plan.order == tuple(range(len(plan.order)))
        return sum(map(price, plan.steps)) + (0 if straight else turn)

    best, fewest = fastest(case.network, device, training), Plan.flop_optimal(case.network)
    assume(len(case.network.nodes) <= 3)  # beyond, only a few memory orders are kept
    assert seconds(best) <= seconds(fewest) * (1 + 1e-9)


@given(linear_cases(), profiles())
def test_what_is_said_to_be_no_copy_is_none(case, device):
    plan = case.layer.plan(case.way, 4, device=device)
    network = plan.network
    values = dict(enumerate(arrays_of(network)))
    for n, step in enumerate(plan.steps, len(network.nodes)):
        b, r, k, c = (
            math.prod(network.sizes[a] for a in g) for g in (step.batch, step.rows, step.inner, step.columns)
        )
        sides = ((step.left, step.left_order, (b, r, k)), (step.right, step.right_order, (b, k, c)))
        matrices = []
        for (number, order, shape), copied in zip(sides, step.copies, strict=True):
            array = values[number]
            turned = array.transpose(range(array.ndim) if order is None else order)
            matrices.append(turned.reshape(shape))
            assert copied or np.shares_memory(array, matrices[-1])
        values[n] = np.matmul(*matrices).reshape([network.sizes[a] for a in step.result])


@pytest.mark.parametrize(
    ("left", "copied"),
    [
        (("b", "r", "k"), False),
        (("r", "b", "k"), False),
        (("k", "b", "r"), False),
        (("r", "k", "b"), True),  # no matrix axis is contiguous
        (("k", "r", "b"), True),
    ],
)
def test_an_operand_whose_batch_lies_innermost_is_copied(left, copied):
    step = make_step((0, left), (1, ("b", "k", "c")), frozenset("brc"))
    assert step.copies == (copied, False)


def test_groups_of_axes_must_be_contiguous_runs():
    step = make_step((0, ("k", "i", "o")), (1, ("i", "b")), frozenset("kob"))
    assert step.copies == (True, False)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", SPECS)
def test_copies_are_the_exception(method, way):
    layer = tn.Linear(64, 32, tasks=20, spec=SPECS[method])
    copies = [sum(map(sum, (step.copies for step in layer.plan(way, b).steps))) for b in (1, 16, 128, 1024)]
    # The input that meets the middle axis of a stored factor is the one case that cannot do without.
    assert max(copies) <= (2 if way == "fan_out" else 1)


@pytest.mark.parametrize(
    "names", [("i", "o", "task"), ("class", "k'", "n"), ("t1", "matmul", "_"), ("x", "L", "S")]
)
@pytest.mark.parametrize("method", SPECS)
def test_the_source_of_a_plan_runs_when_pasted(method, names):
    network = SPECS[method].network(**dict(zip(names, (64, 32, 20), strict=True)))
    plan = fastest(network, CPU, True)
    scope = {"matmul": np.matmul, "multiply": np.multiply, "reshape": np.reshape, "transpose": np.transpose}
    exec(plan.source(), scope)
    arrays = arrays_of(network)
    expected = einsum(network, dict(zip(network.shapes, arrays, strict=True)))
    np.testing.assert_allclose(scope["contract"](*arrays), expected, atol=1e-10)
    assert plan.source().count("matmul(") == len(plan.steps)


def test_training_and_inference_are_planned_apart():
    layer = tn.Linear(1024, 512, tasks=10, spec=tn.Tucker((128, 128, 5)))
    whys = [layer.plan("each", 16, training=training).why for training in (True, False)]
    assert "a training step" in whys[0]
    assert "inference" in whys[1]
    assert "by the profile 'cpu'" in whys[0]


def test_a_slow_link_to_memory_makes_plans_that_move_less():
    network = tn.Linear(256, 256, tasks=50, spec=tn.TT((32, 25))).plan("each", 128).network
    slow = tuple(speed / 1e4 for speed in CPU.bandwidth)
    starved = replace(CPU, name="starved", bandwidth=slow, turning=(1e5,) * len(SIZES))

    def moved(plan):
        return sum(math.prod(network.sizes[a] for a in step.result) for step in plan.steps)

    assert moved(fastest(network, starved, True)) <= moved(fastest(network, CPU, True))


def test_many_operands_fall_back_on_opt_einsum():
    network = tn.Tucker((2,) * 11).network(**{f"d{n}": 2 for n in range(10)}, task=3)
    assert "fewest flops" in fastest(network, CPU, True).why
