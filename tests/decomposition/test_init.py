"""Initial values: mean 0, the stated variance in every task, one random stream for each tensor."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest

import tnshare as tn
from tnshare.decomposition import random_stream

ONE = {"i": 7, "o": 6, "task": 5}
TWO = {"i": 7, "o": 6, "site": 3, "user": 4}
FROZEN = [tn.LAF.single_task(5), tn.LAF.hard_sharing(), tn.LAF.evgeniou_pontil(5)]
SPECS = [
    (tn.LAF(3), ONE),
    (tn.LAF(5), ONE),
    (tn.Tucker((4, 3, 2)), ONE),
    (tn.Tucker((1, 1, 1)), ONE),
    (tn.Tucker((7, 6, 5)), ONE),
    (tn.TT((4, 3)), ONE),
    (tn.TT((7, 5)), ONE),
    (tn.LAF(8), TWO),
    (tn.Tucker((4, 3, 2, 3)), TWO),
    (tn.TT((4, 5, 3)), TWO),
    (tn.TT((7, 12, 4)), TWO),
    (tn.TT((2, 3, 2, 4)), {"h": 3, "w": 3, "c": 2, "m": 8, "task": 6}),
    (tn.Tucker((2,) * 5), {"h": 3, "w": 3, "c": 2, "m": 8, "task": 6}),
]
every_spec = pytest.mark.parametrize(("spec", "sizes"), SPECS, ids=repr)
LAYER = tn.Linear(7, 6, tasks=5, spec=tn.Tucker((4, 3, 2)))


def network(spec, sizes):
    return spec.network(tasks=tuple(a for a in sizes if a in ("task", "site", "user")), **sizes)


def mean_squares(net, factors):
    """The mean square of the weights of each task."""
    W = tn.compose(net, factors)
    return (np.abs(W) ** 2).mean(axis=tuple(range(len(net.weight_axes))))


@every_spec
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_every_task_of_one_draw_has_exactly_the_stated_variance(spec, sizes, dtype):
    net = network(spec, sizes)
    factors = tn.random_factors(net, variance=0.37, seed=3, dtype=dtype)
    np.testing.assert_allclose(mean_squares(net, factors), 0.37, rtol=1e-12)


@pytest.mark.parametrize(("spec", "sizes"), [*SPECS, (FROZEN[0], ONE)], ids=repr)
def test_weights_have_mean_zero_and_one_variance_everywhere_over_many_draws(spec, sizes):
    net = network(spec, sizes)
    frozen = spec.frozen(net)
    factors = (tn.random_factors(net, variance=2.0, seed=n, frozen=frozen) for n in range(300))
    draws = [tn.compose(net, each) for each in factors]
    means, squares = np.mean(draws, axis=0), np.mean(np.square(draws), axis=0)
    assert np.abs(means).max() < 5 * math.sqrt(2 / 300)
    assert np.square(means).mean() < 1.5 * 2 / 300
    # Products of a few random factors have heavy tails: one position alone is known to some 30 %.
    assert squares.min() > 0.8
    assert squares.max() < 4
    for axis in range(squares.ndim):
        others = tuple(n for n in range(squares.ndim) if n != axis)
        np.testing.assert_allclose(squares.mean(axis=others), 2, rtol=0.3)


@every_spec
def test_all_factors_have_the_same_norm_and_none_a_zero_gradient(spec, sizes):
    factors = tn.random_factors(network(spec, sizes), variance=0.5, dtype=np.float64)
    norms = [np.linalg.norm(factor) for factor in factors.values()]
    np.testing.assert_allclose(norms, norms[0], rtol=1e-12)
    assert norms[0] > 0


@every_spec
def test_the_same_seed_gives_the_same_values_in_every_dtype(spec, sizes):
    net = network(spec, sizes)
    exact = tn.random_factors(net, variance=0.5, seed=5, dtype=np.float64)
    again = tn.random_factors(net, variance=0.5, seed=np.int64(5), dtype=np.float64)
    other = tn.random_factors(net, variance=0.5, seed=6, dtype=np.float64)
    for dtype in (np.float16, np.float32):
        rounded = tn.random_factors(net, variance=0.5, seed=5, dtype=dtype)
        assert all(np.array_equal(rounded[name], exact[name].astype(dtype)) for name in net.shapes)
        assert all(rounded[name].dtype == dtype for name in net.shapes)
    assert all(np.array_equal(again[name], exact[name]) for name in net.shapes)
    assert any(not np.array_equal(other[name], exact[name]) for name in net.shapes)
    assert {name: factor.shape for name, factor in exact.items()} == net.shapes
    assert tn.random_factors(net, variance=0.5)[net.nodes[0].name].dtype == np.float32


@pytest.mark.parametrize("spec", FROZEN, ids=repr)
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_frozen_codes_stay_and_every_task_has_the_stated_variance(spec, scale):
    codes = scale * np.asarray(spec.codes.array(5))
    net = tn.LAF.with_codes(codes).network(**ONE)
    factors = tn.random_factors(net, variance=0.37, dtype=np.float64, frozen={"S": codes.T})
    assert np.array_equal(factors["S"], codes.T)
    np.testing.assert_allclose(mean_squares(net, factors), 0.37, rtol=1e-12)


@pytest.mark.parametrize("spec", FROZEN, ids=repr)
def test_a_layer_with_frozen_codes_learns_the_rest(spec):
    layer = tn.Linear(7, 6, tasks=5, spec=spec)
    values = layer.init(dtype=np.float64)
    assert list(values) == ["L", "bias"]
    squares = mean_squares(layer.network, {"L": values["L"], **layer.frozen})
    np.testing.assert_allclose(squares, 1 / 21, rtol=1e-12)


@pytest.mark.parametrize(
    ("spec", "sizes"),
    [(tn.Tucker((2, 2, 3, 4)), TWO), (tn.LAF.evgeniou_pontil(5), {"i": 1, "o": 2, "task": 5})],
    ids=repr,
)
def test_where_no_isometry_fits_the_mean_over_the_tasks_is_exact(spec, sizes):
    net = network(spec, sizes)
    means = []
    for seed in range(50):
        factors = tn.random_factors(net, variance=0.37, seed=seed, dtype=np.float64, frozen=spec.frozen(net))
        means.append(mean_squares(net, factors))
    np.testing.assert_allclose(np.mean(means, axis=tuple(range(1, np.ndim(means)))), 0.37, rtol=1e-12)
    assert np.abs(np.mean(means, axis=0) - 0.37).max() < 0.15


@every_spec
def test_decomposed_dense_weights_have_the_stated_mean_square(spec, sizes):
    net = network(spec, sizes)
    factors = tn.decomposed_factors(spec, net, variance=0.37, seed=1, dtype=np.float64)
    assert {name: factor.shape for name, factor in factors.items()} == net.shapes
    assert abs(mean_squares(net, factors).mean() - 0.37) < 1e-12
    again = tn.decomposed_factors(spec, net, variance=0.37, seed=1)
    assert all(np.array_equal(again[name], factors[name].astype(np.float32)) for name in factors)
    norms = [np.linalg.norm(factor) for factor in factors.values()]
    np.testing.assert_allclose(norms, norms[0], rtol=1e-12)


def test_decomposed_weights_of_full_rank_are_the_dense_draw():
    net = network(tn.LAF(5), ONE)
    factors = tn.decomposed_factors(tn.LAF(5), net, variance=1.0, seed=9, dtype=np.float64)
    draw = random_stream(9, "dense").standard_normal((7, 6, 5))
    expected = draw / np.sqrt(np.mean(draw**2))
    np.testing.assert_allclose(tn.compose(net, factors), expected, atol=1e-12)


@pytest.mark.parametrize("scheme", ["direct", "decomposed"])
def test_a_bias_changes_no_factor_and_is_uniform(scheme):
    values = LAYER.init(seed=4, scheme=scheme, dtype=np.float64)
    bare = tn.Linear(7, 6, tasks=5, spec=LAYER.spec, bias=False).init(seed=4, scheme=scheme, dtype=np.float64)
    assert list(values) == [*bare, "bias"]
    assert all(np.array_equal(values[name], bare[name]) for name in bare)
    biases = np.array([LAYER.init(seed=n, scheme=scheme)["bias"] for n in range(50)])
    assert biases.shape == (50, 5, 6)
    assert np.abs(biases).max() <= math.sqrt(1 / 7)
    assert abs(biases.mean()) < 0.03
    assert abs(biases.var() * 21 - 1) < 0.1


def test_streams_of_different_names_are_independent():
    names = ("bias", "L", "S", "core", "U_i", "U_task", "dense")
    draws = np.array([random_stream(0, name).standard_normal(2000) for name in names])
    assert np.abs(np.corrcoef(draws) - np.eye(len(names))).max() < 0.1
    assert np.array_equal(random_stream(3, "L").random(4), random_stream(3, "L").random(4))


def test_a_factor_draws_the_same_whatever_the_others_are():
    """Of the same name, shape and place, that is: its stream knows nothing else."""
    few, many = (
        tn.random_factors(tn.LAF(3).network(i=7, task=n), variance=1.0, dtype=np.float64)["L"] for n in (4, 9)
    )
    np.testing.assert_allclose(few / np.linalg.norm(few), many / np.linalg.norm(many), atol=1e-12)


NET = network(tn.LAF(3), ONE)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"variance": 0.0}, "variance must be a positive number: found 0.0"),
        ({"variance": -1}, "variance must be a positive number: found -1"),
        ({"variance": math.nan}, "variance must be a positive number: found nan"),
        ({"variance": math.inf}, "variance must be a positive number: found inf"),
        ({"variance": "1"}, "variance must be a positive number: found '1'"),
        ({"seed": -1}, "a seed must be a whole number of at least 0: found -1"),
        ({"seed": 1.0}, "a seed must be a whole number of at least 0: found 1.0"),
        ({"seed": True}, "a seed must be a whole number of at least 0: found True"),
        ({"seed": None}, "a seed must be a whole number of at least 0: found None"),
    ],
)
def test_a_wrong_variance_or_seed_is_refused(options, text):
    for draw in (tn.random_factors, lambda *a, **o: tn.decomposed_factors(tn.LAF(3), *a, **o)):
        with pytest.raises(tn.TnshareError, match=f"^{re.escape(text)}$"):
            draw(NET, **{"variance": 1.0, **options})


def test_a_dtype_that_cannot_hold_the_values_is_refused():
    for dtype in (int, bool):
        with pytest.raises(tn.TnshareError, match="dtype"):
            tn.random_factors(NET, variance=1.0, dtype=dtype)


def test_frozen_codes_that_are_all_zero_are_refused():
    with pytest.raises(tn.TnshareError, match="zero"):
        tn.Linear(7, 6, tasks=5, spec=tn.LAF.with_codes(np.zeros((2, 5)))).init()


def test_frozen_factors_that_do_not_fit_are_refused():
    for frozen in ({"S": np.ones(3)}, {"Q": np.ones((5, 3))}):
        with pytest.raises(tn.TnshareError, match="factor"):
            tn.random_factors(NET, variance=1.0, frozen=frozen)


def test_frozen_codes_are_not_decomposed_and_a_scheme_has_a_name():
    text = "frozen codes leave nothing to decompose: draw the factors directly instead"
    with pytest.raises(tn.TnshareError, match=f"^{text}$"):
        tn.Linear(7, 6, tasks=5, spec=tn.LAF.hard_sharing()).init(scheme="decomposed")
    with pytest.raises(tn.TnshareError, match=r"^scheme must be 'direct' or 'decomposed': found 'paper'$"):
        LAYER.init(scheme="paper")
