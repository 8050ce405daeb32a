"""Layers without a framework: what they are made of, how they start, what they refuse."""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import tnshare as tn
from tnshare.ops import numpy_ops

LAF = tn.LAF(2)
LAYERS = {
    "linear": tn.Linear(6, 4, tasks=5, spec=tn.Tucker((3, 3, 2))),
    "conv1d": tn.Conv(4, 6, kernel=3, tasks=5, spec=tn.TT((2, 4, 2)), groups=2),
    "conv2d": tn.Conv(3, 4, kernel=(3, 2), tasks=5, spec=LAF),
    "conv3d": tn.Conv(2, 3, kernel=(2, 3, 2), tasks=5, spec=tn.Tucker((2, 2, 1, 2, 2, 2))),
    "embedding": tn.Embedding(7, 3, tasks=5, spec=LAF),
    "two axes": tn.Linear(6, 4, tasks={"site": 4, "user": 5}, spec=tn.Tucker((3, 2, 2, 2))),
    "frozen": tn.Linear(6, 4, tasks=5, spec=tn.LAF.evgeniou_pontil(5)),
}
every_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)


def composed(layer, params):
    """The weights by plain einsum, apart from the planner."""
    network = layer.network
    factors = {**layer.frozen, **params}
    return np.einsum(network.equation, *(factors[node.name] for node in network.nodes))


def test_a_linear_layer_has_the_network_of_its_specification():
    layer = tn.Linear(64, 32, tasks=20, spec=tn.Tucker((16, 16, 5)))
    assert layer.network == tn.Tucker((16, 16, 5)).network(i=64, o=32, task=20)
    assert layer.shapes == {**layer.network.shapes, "bias": (20, 32)}


@pytest.mark.parametrize(
    ("kernel", "axes"), [(5, "wcm"), ((5,), "wcm"), ([5, 2], "hwcm"), ((4, 5, 2), "dhwcm")], ids=str
)
def test_a_convolution_names_its_axes_in_the_order_of_the_paper(kernel, axes):
    layer = tn.Conv(3, 8, kernel=kernel, tasks=6, spec=LAF)
    sizes = (*(kernel if not isinstance(kernel, int) else (kernel,)), 3, 8)
    assert layer.network.output == (*axes, "task")
    assert layer.network.shape == (*sizes, 6)
    assert layer.shapes["bias"] == (6, 8)


def test_ranks_of_a_convolution_are_in_the_order_height_width_in_out_task():
    layer = tn.Conv(5, 7, kernel=(3, 4), tasks=9, spec=tn.Tucker((1, 2, 3, 4, 5)))
    ranks = {axis: layer.network.sizes[f"k_{axis}"] for axis in ("h", "w", "c", "m", "task")}
    assert list(ranks.values()) == [1, 2, 3, 4, 5]


def test_groups_divide_the_input_channels_of_the_kernel_alone():
    layer = tn.Conv(6, 8, kernel=3, tasks=4, spec=LAF, groups=2)
    assert layer.weight_sizes == {"w": 3, "c": 3, "m": 8}
    assert layer.variance == pytest.approx(1 / (3 * 3 * 3))


def test_an_embedding_is_a_table_without_bias():
    layer = tn.Embedding(10, 4, tasks=3, spec=LAF)
    assert layer.network == LAF.network(n=10, e=4, task=3)
    assert list(layer.shapes) == ["L", "S"]
    assert list(layer.init()) == ["L", "S"]


def test_two_task_axes_have_their_names_and_sizes():
    layer = LAYERS["two axes"]
    assert layer.network.tasks == ("site", "user")
    assert layer.task_sizes == {"site": 4, "user": 5}
    assert layer.task_shape == (4, 5)
    assert layer.shapes["bias"] == (4, 5, 4)


@every_layer
def test_a_layer_is_a_value(layer):
    again = dataclasses.replace(layer)
    assert again == layer
    assert hash(again) == hash(layer)
    assert again is not layer
    assert (
        dataclasses.replace(layer, tasks=layer.tasks, spec=LAF if layer.spec != LAF else tn.LAF(1)) != layer
    )
    with pytest.raises(dataclasses.FrozenInstanceError):
        layer.spec = LAF


def test_lists_dicts_and_numbers_of_numpy_make_the_same_layer_as_plain_ones():
    a = tn.Conv(np.int64(3), 4, kernel=[3, np.int8(3)], tasks={"task": np.uint8(5)}, spec=LAF)
    b = tn.Conv(3, 4, kernel=(3, 3), tasks=5, spec=LAF)
    assert a == b
    assert hash(a) == hash(b)


@every_layer
def test_initial_values_have_the_shapes_that_were_told(layer):
    values = layer.init()
    assert {name: value.shape for name, value in values.items()} == layer.shapes
    assert list(values) == list(layer.shapes)
    assert {value.dtype for value in values.values()} == {np.dtype(np.float32)}


@every_layer
def test_initial_values_depend_on_the_seed_alone(layer):
    a, b, other = layer.init(7), layer.init(7), layer.init(8)
    assert all((a[name] == b[name]).all() for name in a)
    assert not any((a[name] == other[name]).all() for name in a)


@every_layer
def test_initial_weights_have_the_stated_variance(layer):
    for scheme in ("direct",) if layer.frozen else ("direct", "decomposed"):
        weights = composed(layer, layer.init(1, np.float64, scheme))
        assert (weights**2).mean() == pytest.approx(layer.variance)


def test_initial_values_are_rounded_once_from_the_same_draw():
    layer = LAYERS["linear"]
    wide = layer.init(3, np.float64)
    for dtype in (np.float32, np.float16, ml_dtypes.bfloat16):
        narrow = layer.init(3, dtype)
        assert all((narrow[name] == wide[name].astype(dtype)).all() for name in wide)


def test_factors_are_the_same_with_and_without_bias():
    layer = LAYERS["linear"]
    with_bias, without = layer.init(2), dataclasses.replace(layer, bias=False).init(2)
    assert set(with_bias) - set(without) == {"bias"}
    assert all((with_bias[name] == without[name]).all() for name in without)


def test_biases_start_within_the_bounds_of_torch():
    bias = tn.Linear(9, 400, tasks=5, spec=LAF).init()["bias"]
    assert np.abs(bias).max() == pytest.approx(1 / 3, rel=0.01)
    assert bias.mean() == pytest.approx(0, abs=0.02)


def test_initial_values_may_be_complex():
    values = LAYERS["linear"].init(0, np.complex64)
    assert {value.dtype for value in values.values()} == {np.dtype(np.complex64)}
    assert np.abs(values["U_i"].imag).min() > 0


def test_frozen_codes_are_no_parameters():
    layer = LAYERS["frozen"]
    assert list(layer.init()) == list(layer.shapes) == ["L", "bias"]
    assert (layer.frozen["S"] == np.hstack([np.ones((5, 1)), np.eye(5)])).all()


@pytest.mark.parametrize("way", ["one", "mixed", "each", "fan_out"])
def test_a_plan_serves_all_batches_up_to_a_power_of_two(way):
    layer = LAYERS["linear"]
    assert layer.plan(way, 5) is layer.plan(way, 8)
    assert layer.plan(way, 8) != layer.plan(way, 9)
    assert layer.plan(way, 0) is layer.plan(way, 1)


REFUSED = [
    (lambda: tn.Linear(0, 3, 5, LAF), "in_features must be a whole number of at least 1: found 0"),
    (lambda: tn.Linear(4, 3.0, 5, LAF), "out_features must be a whole number of at least 1: found 3.0"),
    (lambda: tn.Linear(True, 3, 5, LAF), "in_features must be a whole number of at least 1: found True"),
    (lambda: tn.Linear(4, 3, 0, LAF), "tasks must be a whole number of at least 1: found 0"),
    (lambda: tn.Linear(4, 3, {}, LAF), "tasks must be a whole number, or names .*'site': 4.*: found {}"),
    (lambda: tn.Linear(4, 3, (2, 3), LAF), r"tasks must be a whole number, or names .*: found \(2, 3\)"),
    (lambda: tn.Linear(4, 3, {1: 5}, LAF), "tasks must be a whole number, or names .*: found {1: 5}"),
    (lambda: tn.Linear(4, 3, {"site": 0}, LAF), r"tasks\['site'\] must be a whole number .*: found 0"),
    (lambda: tn.Linear(4, 3, {"i": 5}, LAF), "a task axis cannot be called 'i': the layer itself uses"),
    (lambda: tn.Linear(4, 3, (("a", 2), ("a", 3)), LAF), "'a'"),
    (lambda: tn.Linear(4, 3, {"tasks": 5}, LAF), "a task axis cannot be called 'tasks'"),
    (lambda: tn.Linear(4, 3, 5, tn.LAF(40)), "LAF rank k=40 is out of range: expected 1 <= k <= 5"),
    (lambda: tn.Linear(4, 3, 5, tn.TT(2)), r"TT over the axes \(i, o, task\) takes 2 ranks .*: found 1"),
    (lambda: tn.Linear(4, 3, 5, tn.LAF.single_task(4)), "of 4 tasks cannot serve 5 tasks"),
    (lambda: tn.Linear(4, 3, 5, "laf"), "spec must be .*: found 'laf'"),
    (lambda: tn.Linear(4, 3, 5, tn.LAF), "spec must be"),
    (lambda: tn.Linear(np.array([4, 4]), 3, 5, LAF), "in_features must be a whole number"),
    (lambda: tn.Linear(4, 3, 5, LAF, bias="no"), "bias must be True or False: found 'no'"),
    (lambda: tn.Conv(3, 8, (), 5, LAF), r"a kernel has 1, 2 or 3 dimensions: found kernel=\(\)"),
    (lambda: tn.Conv(3, 8, (1, 1, 1, 1), 5, LAF), "a kernel has 1, 2 or 3 dimensions"),
    (lambda: tn.Conv(3, 8, (3, 0), 5, LAF), "kernel must be a whole number of at least 1: found 0"),
    (lambda: tn.Conv(3, 8, "33", 5, LAF), "kernel must be a whole number of at least 1: found '3'"),
    (lambda: tn.Conv(3, 8, 3, 5, LAF, groups=2), "groups=2 must divide in_channels=3 and out_channels=8"),
    (lambda: tn.Conv(2, 5, 3, 5, LAF, groups=2), "groups=2 must divide in_channels=2 and out_channels=5"),
    (lambda: tn.Conv(3, 8, 3, 5, LAF, groups=0), "groups must be a whole number of at least 1: found 0"),
    (lambda: tn.Conv(3, 8, 3, {"c": 5}, LAF), "a task axis cannot be called 'c'"),
    (lambda: tn.Embedding(9, -1, 5, LAF), "embedding_dim must be a whole number of at least 1: found -1"),
    (lambda: tn.Embedding(9, 4, {"e": 5}, LAF), "a task axis cannot be called 'e'"),
    (lambda: LAYERS["linear"].init(-1), "seed must be a whole number of at least 0: found -1"),
    (lambda: LAYERS["linear"].init(1.5), "seed must be a whole number of at least 0: found 1.5"),
    (lambda: LAYERS["linear"].init(scheme="he"), "scheme must be 'direct' or 'decomposed': found 'he'"),
    (lambda: LAYERS["linear"].init(dtype=np.int32), "dtype"),
    (lambda: LAYERS["frozen"].init(scheme="decomposed"), "frozen codes leave nothing to decompose"),
    (lambda: LAYERS["linear"].plan("all", 3), "way must be one of .*'fan_out'.*: found 'all'"),
    (lambda: LAYERS["linear"].plan("one", 2.5), "batch must be a whole number"),
]


@pytest.mark.parametrize(("make", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_a_mistake_is_told(make, text):
    with pytest.raises(tn.TnshareError, match=text):
        make()


def test_a_kernel_may_be_an_array():
    assert tn.Conv(3, 8, kernel=np.array([3, 2]), tasks=5, spec=LAF).kernel == (3, 2)


class NoConvolutions:
    """A backend that has only what every backend must have."""

    def __getattr__(self, name):
        if name == "convolve":
            raise AttributeError(name)
        return getattr(numpy_ops, name)


def test_a_backend_without_convolutions_says_so():
    layer = LAYERS["conv1d"]
    with pytest.raises(tn.TnshareError, match="NoConvolutions has no `convolve`, which convolutions need"):
        tn.apply(layer, layer.init(), np.ones((2, 4, 5)), 0, ops=NoConvolutions())


@pytest.mark.parametrize("name", ["linear", "two axes", "frozen"])
@pytest.mark.parametrize("middle", [(), (3,), (2, 0)], ids=str)
def test_the_reference_in_numpy_is_a_loop_over_dense_weights(name, middle):
    layer = LAYERS[name]
    params = layer.init(1, np.float64)
    weights, rng = composed(layer, params), np.random.default_rng(0)
    pairs = rng.integers(0, layer.task_shape, (9, len(layer.task_shape)))
    ids = pairs if len(layer.task_shape) > 1 else pairs[:, 0]

    def dense(x, pair):
        return x @ weights[(..., *pair)] + params["bias"][tuple(pair)]

    x = rng.standard_normal((9, *middle, 6))
    mixed = np.stack([dense(row, pair) for row, pair in zip(x, pairs, strict=True)])
    np.testing.assert_allclose(tn.apply(layer, params, x, ids), mixed)
    np.testing.assert_allclose(tn.apply(layer, params, x, ids[0]), dense(x, pairs[0]))
    fanned = np.stack([dense(x, pair) for pair in np.ndindex(*layer.task_shape)])
    fanned = fanned.reshape(*layer.task_shape, *mixed.shape)
    np.testing.assert_allclose(tn.fan_out(layer, params, x), fanned)
    repeated = np.broadcast_to(x, (*layer.task_shape, *x.shape))
    np.testing.assert_allclose(tn.apply(layer, params, repeated), fanned)


def test_an_empty_list_of_ids_is_as_good_as_an_empty_array():
    layer = LAYERS["linear"]
    for ids in ([], np.array([], int)):
        assert tn.apply(layer, layer.init(), np.ones((0, 6)), ids).shape == (0, 4)


PARAMS = LAYERS["linear"].init()
X = np.ones((5, 6))
MISUSED = [
    (X[:, :5], 0, PARAMS, r"expected x of shape \(..., 6\), in_features last: found \(5, 5\)"),
    (
        X[:4],
        None,
        PARAMS,
        r"expected x of shape \(5, ..., 6\), found \(4, 6\); give a task, or ids, or use fan_o",
    ),
    (X, [0, 1], PARAMS, r"expected x of shape \(2, ..., 6\) with 2 ids, found \(5, 6\)"),
    (X, [[0, 1]], PARAMS, r"a task must be a whole number, task ids an array of shape \(rows,\)"),
    (X, [[0], [1, 2]], PARAMS, "a task must be a whole number"),
    (X, "0", PARAMS, "task ids must be whole numbers: found dtype <U1"),
    (X, 0, {}, r"expected params\['bias'\] of shape \(5, 4\): see layer.shapes"),
    (X, 0, {"bias": PARAMS["bias"]}, "the factor 'core' is missing: expected"),
    (X, 0, {**PARAMS, "U_i": X}, r"the factor U_i\(i=6, k_i=3\) must have shape \(6, 3\): found \(5, 6\)"),
    (X.tolist(), 0, PARAMS, "x must be an array: found list"),
]


@pytest.mark.parametrize(("x", "task", "params", "text"), MISUSED, ids=[text for *_, text in MISUSED])
def test_a_mistake_in_applying_is_told(x, task, params, text):
    with pytest.raises(tn.TnshareError, match=text):
        tn.apply(LAYERS["linear"], params, x, task)


def test_no_parameters_at_all_are_told():
    layer = tn.Linear(6, 4, tasks=5, spec=tn.LAF.hard_sharing(), bias=False)
    with pytest.raises(tn.TnshareError, match="the factor 'L' is missing"):
        tn.apply(layer, {}, X, 0)
