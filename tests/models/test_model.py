"""Which weights of T models are shared, and how: patterns, settings, budgets, the report and new codes."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import close

import tnshare as tn
from tnshare.decomposition import code_of
from tnshare.models import layer_name, matches, share_arrays

T = 4
SHAPES = {"conv1.weight": (3, 2, 2, 2), "conv1.bias": (3,), "fc1.weight": (5, 6), "fc2.weight": (4, 5)}
ORDERS = {"conv1.weight": (2, 3, 1, 0), "fc1.weight": (1, 0), "fc2.weight": (1, 0)}


def models(count=T, seed=0, spread=0.2, dtype=np.float64):
    random = np.random.default_rng(seed)
    base = {name: random.normal(size=shape) for name, shape in SHAPES.items()}
    drawn = ({n: v + spread * random.normal(size=v.shape) for n, v in base.items()} for _ in range(count))
    return [{name: value.astype(dtype) for name, value in model.items()} for model in drawn]


def shared(given=None, method="tucker", **options):
    return share_arrays(given or models(), ORDERS, method, **options)


def row(model, name):
    (found,) = (row for row in model.rows if row[0] == name)
    return found


@pytest.mark.parametrize(
    ("name", "pattern", "expected"),
    [
        ("conv1.weight", "conv1", True),
        ("conv1.weight", "conv*", True),
        ("conv1.weight", "conv1.weight", True),
        ("conv1.weight", "conv?", True),
        ("conv1.weight", "*.weight", True),
        ("body.conv1.weight", "body", True),
        ("body.conv1.weight", "conv1", False),
        ("conv10.weight", "conv1", False),
        ("conv1.weight", "Conv1", False),
        ("weight", "", False),
    ],
)
def test_patterns(name, pattern, expected):
    assert matches(name, pattern) is expected


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_soft_weights_are_decompositions_of_stacks(method):
    given = models()
    found = shared(given, method, eps=0.25)
    assert set(found.soft) == set(ORDERS)
    assert found.single == ("conv1.bias",)
    assert not found.hard
    for name, order in ORDERS.items():
        stack = np.stack([m[name].transpose(order) for m in given], axis=-1)
        direct = tn.decompose(stack, method, eps=0.25)
        for factor, value in direct.factors.items():
            np.testing.assert_array_equal(found.soft[name].factors[factor], value)


def test_only_and_except():
    assert set(shared(only=["fc*"], eps=0).soft) == {"fc1.weight", "fc2.weight"}
    assert set(shared(except_=["fc1", "conv1.bias"], eps=0).soft) == {"conv1.weight", "fc2.weight"}
    assert set(shared(only=["fc*"], except_=["fc2"], eps=0).soft) == {"fc1.weight"}
    found = shared(only=["fc1"], layers={"fc2": "laf", "*.bias": "hard"}, eps=0)  # layers go first
    assert set(found.soft) == {"fc1.weight", "fc2.weight"}
    assert set(found.hard) == {"conv1.bias"}
    assert found.single == ("conv1.weight",)


def test_the_first_pattern_of_layers_decides():
    found = shared(layers={"fc1": "single", "fc*": {"method": "tt", "eps": 0.3}, "*": "hard"})
    assert found.single == ("fc1.weight",)
    assert set(found.hard) == {"conv1.weight", "conv1.bias"}
    assert isinstance(found.soft["fc2.weight"].spec, tn.TT)


def test_hard_is_the_mean():
    given = models(dtype=np.float32)
    found = shared(given, "hard")
    assert set(found.hard) == set(SHAPES)
    for name, value in found.hard.items():
        assert value.dtype == np.float32
        close(value, np.mean([m[name] for m in given], 0), len(given))
    stack = np.stack([m["fc1.weight"] for m in given]).astype(np.float64)
    lost = np.linalg.norm(stack - stack.mean(0)) / np.linalg.norm(stack)
    assert float(row(found, "fc1.weight")[6]) == pytest.approx(lost, rel=0.01)


@pytest.mark.parametrize("own", [{"ranks": 2}, {"max_parameters": 60}, {"eps": 0.6}], ids=str)
@pytest.mark.parametrize(
    "whole", [{"eps": 0.1}, {"max_parameters": 120}, {"eps": 0.5, "relative_to": "deviation"}], ids=str
)
def test_a_bound_of_its_own_takes_the_place_of_the_whole(own, whole):
    """Found: eps for all and ranks for one layer were taken to be given together, and refused."""
    given = models()
    found = shared(given, "laf", layers={"fc1": {"method": "laf", **own}}, **whole)
    stack = np.stack([m["fc1.weight"].T for m in given], axis=-1)
    kept = {k: v for k, v in whole.items() if k == "relative_to" and "eps" in own}  # it goes with eps alone
    assert found.soft["fc1.weight"].spec == tn.decompose(stack, "laf", **own, **kept).spec
    others = shared([{n: v for n, v in m.items() if n != "fc1.weight"} for m in given], "laf", **whole)
    assert others.soft["fc2.weight"].spec == found.soft["fc2.weight"].spec


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
@pytest.mark.parametrize("budget", [150, 217, 300])
def test_max_parameters_is_for_the_whole(method, budget):
    found = shared(method=method, max_parameters=budget)
    total = sum(d.network.parameters for d in found.soft.values())
    assert total <= budget
    assert total > budget / 3  # and is used


def test_different_shapes_stay_single():
    given = models()
    given[2]["fc2.weight"] = np.ones((9, 5))
    found = shared(given, eps=0)
    assert found.single == ("conv1.bias", "fc2.weight")
    assert row(found, "fc2.weight")[1:5] == ("differs", "single", "105", "105")
    with pytest.raises(tn.TnshareError, match=r"fc2\.weight cannot be shared .* found 4 x 5, 9 x 5"):
        shared(given, layers={"fc2": "hard"})


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"only": ["fc3"]}, r"no weight matches 'fc3': expected names such as \('conv1.weight'"),
        ({"except_": ["conv"]}, "no weight matches 'conv'"),
        ({"layers": {"fc*": "tt", "head": "hard"}}, "no weight matches 'head'"),
        ({"layers": {"fc1": "cp"}}, "fc1.weight: a method must be one of .*found 'cp'"),
        ({"layers": {"fc1": {"eps": 0.1}}}, "fc1.weight: a method must be one of .*found None"),
        ({"method": "Tucker"}, "a method must be one of .*'hard', 'single'.*found 'Tucker'"),
        ({"eps": 0.1, "ranks": 2}, "exclude each other: found eps=0.1 and ranks=2"),
        ({"eps": 0.1, "max_parameters": 100}, "exclude each other: found eps=0.1 and max_parameters"),
        ({"eps": -1}, "eps must be a number"),
        ({"layers": {"fc1": {"method": "laf", "rank": 3}}}, "'fc1'. has the keyword 'rank'"),
    ],
    ids=str,
)
def test_mistakes_are_named(options, text):
    with pytest.raises(tn.TnshareError, match=text):
        shared(**options)


def test_the_report_has_a_row_for_every_weight_and_the_warnings():
    random = np.random.default_rng(3)
    given = models()
    for model in given:
        model["fc1.weight"] = random.normal(size=(5, 6))  # not aligned
    found = shared(given, eps=0.1, layers={"conv1": {"method": "laf", "ranks": 2}, "fc2": "hard"})
    lines = found.report().splitlines()
    assert lines[0].split()[:3] == ["weight", "shape", "sharing"]
    assert [line.split()[0] for line in lines[1:5]] == list(SHAPES)
    assert "3 x 2 x 2 x 2" in lines[1]
    assert " single " in lines[2]
    assert "100.0 %" in lines[2]
    assert " hard " in lines[4]
    assert "25.0 %" in lines[4]
    assert any(line.startswith("warning: fc1.weight: unaligned") for line in lines[5:])
    d = found.soft["conv1.weight"]
    assert row(found, "conv1.weight")[3:5] == (f"{d.network.parameters:,}", "96")
    assert row(found, "conv1.weight")[6] == f"{d.error:.3g}"


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
@pytest.mark.parametrize("dtype", [np.float64, np.complex128])
def test_a_new_code_is_the_least_squares_optimum(method, dtype):
    random = np.random.default_rng(5)
    stack = random.normal(size=(4, 5, T)).astype(dtype)
    weight = random.normal(size=(4, 5)).astype(dtype)
    if dtype == np.complex128:
        stack, weight = stack + 1j * random.normal(size=(4, 5, T)), weight + 1j * random.normal(size=(4, 5))
    ranks = {"laf": 2, "tucker": (3, 3, 2), "tt": (3, 2)}[method]
    d = tn.decompose(stack, method, ranks=ranks)
    code, error = code_of(d.network, d.factors, weight)
    ((name, value),) = code.items()
    codes = np.concatenate([d.factors[name][1:], value[None]])  # in the place of the last task's
    found = tn.compose(d.network, {**d.factors, name: codes})[..., -1]
    span = tn.compose(d.network, d.factors).reshape(-1, T)  # all weights that the factors can make
    best = span @ np.linalg.lstsq(span, weight.ravel(), rcond=1e-9)[0]
    np.testing.assert_allclose(found.ravel(), best, atol=1e-9)
    assert error == pytest.approx(np.linalg.norm(best - weight.ravel()) / np.linalg.norm(weight))
    assert 0.1 < error < 1
    known, none = code_of(d.network, d.factors, tn.compose(d.network, d.factors, task=1))
    assert none < 1e-9
    np.testing.assert_allclose(known[name], d.factors[name][1], atol=1e-9)


def test_one_model_and_the_given_arrays_stay():
    given = models(1)
    before = [{name: value.copy() for name, value in model.items()} for model in given]
    found = shared(given, eps=0)
    for name, order in ORDERS.items():
        d = found.soft[name]
        back = tn.compose(d.network, d.factors)[..., 0]
        np.testing.assert_allclose(back, given[0][name].transpose(order), atol=1e-12)
    for name, value in given[0].items():
        np.testing.assert_array_equal(value, before[0][name])


@pytest.mark.parametrize(
    ("name", "others", "expected"),
    [
        ("fc.weight", ["conv.weight"], "fc"),
        ("dense.kernel", ["dense.bias"], "dense.kernel"),
        ("mlp/~/linear.w", [], "mlp/~/linear"),
        ("rnn.weight_ih", ["rnn.weight_hh"], "rnn.weight_ih"),
        ("weight", [], "weight"),
        ("a.kernel", ["a.w"], "a.kernel"),
    ],
)
def test_layers_of_weights(name, others, expected):
    assert layer_name(name, [name, *others]) == expected


def test_networks_for_other_numbers_of_tasks():
    for spec in (tn.LAF(2), tn.Tucker((2, 2, 2)), tn.TT((2, 2))):
        network = spec.network(i=3, o=4, task=5)
        assert network.for_tasks(9) == spec.network(i=3, o=4, task=9)
