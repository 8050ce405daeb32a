"""tnshare_jax: pure functions that may be traced, differentiated and mapped, with the numbers of NumPy."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from tolerances import close

import tnshare as tn

jax = pytest.importorskip("jax")
tnj = pytest.importorskip("tnshare_jax")
jnp = jax.numpy

T = 5
TWO = {"site": 2, "user": 3}
LAYERS = {
    "laf": tn.Linear(4, 3, tasks=T, spec=tn.LAF(2)),
    "tucker": tn.Linear(4, 3, tasks=T, spec=tn.Tucker((2, 3, 2))),
    "tt": tn.Linear(4, 3, tasks=T, spec=tn.TT((2, 3)), bias=False),
    "frozen": tn.Linear(4, 3, tasks=T, spec=tn.LAF.evgeniou_pontil(T)),
    "one task": tn.Linear(4, 3, tasks=1, spec=tn.LAF(1)),
    "two": tn.Linear(4, 3, tasks=TWO, spec=tn.TT((2, 3, 2))),
}
LAF = LAYERS["laf"]
TERMS = 4 + 4 + 3 + 2 + 4  # x, bonds, factors
PARAMS = tnj.init(LAF, seed=1)
IDS = [4, 0, 4, 2, 1, 3, 0]
every_layer = pytest.mark.parametrize("layer", LAYERS.values(), ids=LAYERS)
jit_apply, jit_fan_out = jax.jit(tnj.apply, static_argnums=0), jax.jit(tnj.fan_out, static_argnums=0)


def draw(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


X = draw(7, 4)


def all_tasks(layer):
    return list(itertools.product(*map(range, layer.task_shape)))


def as_task(task):
    return task[0] if len(task) == 1 else np.array(task)


def dense(layer, params, x, task):
    """One task by plain einsum in NumPy, apart from the planner."""
    factors = {**layer.frozen, **params}
    arrays = [np.asarray(factors[node.name]) for node in layer.network.nodes]
    y = np.asarray(x) @ np.einsum(layer.network.equation, *arrays)[(..., *task)]
    return y + np.asarray(params["bias"])[task] if layer.bias else y


def near(a, b):
    close(a, b, TERMS)
    return isinstance(a, jax.Array) and a.dtype == jnp.float32


def ways_are_right(layer, middle, apply, fan_out):
    params, x, tasks = tnj.init(layer, seed=1), draw(7, *middle, 4), all_tasks(layer)
    chosen = [tasks[n * n % len(tasks)] for n in range(7)]
    ids = np.array(chosen) if len(layer.task_shape) > 1 else np.array(chosen)[:, 0]
    expected = np.stack([dense(layer, params, row, task) for row, task in zip(x, chosen, strict=True)])
    assert near(apply(layer, params, x, ids), expected)
    assert near(apply(layer, params, x, as_task(tasks[-1])), dense(layer, params, x, tasks[-1]))
    fanned = np.stack([dense(layer, params, x, task) for task in tasks])
    fanned = fanned.reshape(*layer.task_shape, *expected.shape)
    assert near(fan_out(layer, params, x), fanned)
    assert near(apply(layer, params, np.broadcast_to(x, (*layer.task_shape, *x.shape))), fanned)


@every_layer
@pytest.mark.parametrize("middle", [(), (2, 3)], ids=str)
def test_the_four_ways_are_a_loop_over_dense_weights_under_jit(layer, middle):
    ways_are_right(layer, middle, jit_apply, jit_fan_out)


def test_the_four_ways_are_the_same_without_jit_and_for_nothing():
    ways_are_right(LAF, (), tnj.apply, tnj.fan_out)
    ways_are_right(LAF, (0,), jit_apply, jit_fan_out)
    assert tnj.apply(LAF, PARAMS, X[:0], []).shape == (0, 3)


@every_layer
def test_weights_have_the_axes_of_the_network(layer):
    params, task = tnj.init(layer), all_tasks(layer)[-1]
    weights = jax.jit(tnj.weight, static_argnums=0)(layer, params)
    assert weights.shape == layer.network.shape
    assert near(tnj.weight(layer, params, as_task(task)), weights[(..., *task)])


def plain(equation, params, x, tasks):
    """The same as a formula of JAX, whose derivative is JAX's."""
    weights = jnp.einsum("kio,tk->tio", params["L"], params["S"])[tasks]
    return jnp.einsum(equation, x, weights), params["bias"][tasks]


WAYS = {
    "one": (lambda p, x: tnj.apply(LAF, p, x, 2), "bi,tio->bo", jnp.array([2])),
    "mixed": (lambda p, x: tnj.apply(LAF, p, x, jnp.array(IDS)), "bi,bio->bo", jnp.array(IDS)),
    "each": (lambda p, x: tnj.apply(LAF, p, x[:T]), "bi,bio->bo", jnp.arange(T)),
    "fan_out": (lambda p, x: tnj.fan_out(LAF, p, x), "bi,tio->tbo", jnp.arange(T)),
}


@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_those_of_dense_weights(way):
    ours, equation, tasks = WAYS[way]

    def theirs(params, x):
        y, bias = plain(equation, params, x[: len(tasks)] if way == "each" else x, tasks)
        return y + (bias[:, None] if way == "fan_out" else bias)

    def gradient(function):
        return jax.jit(jax.grad(lambda p, x: jnp.sin(function(p, x)).sum(), argnums=(0, 1)))(PARAMS, X)

    found, expected = gradient(ours), gradient(theirs)
    assert list(found[0]) == list(PARAMS)
    assert all(near(found[0][name], expected[0][name]) for name in PARAMS)
    assert near(found[1], expected[1])
    assert jnp.abs(found[0]["S"]).sum() > 0


def test_tasks_rows_and_parameters_may_be_mapped():
    expected = tnj.apply(LAF, PARAMS, X, IDS)
    by_row = jax.vmap(lambda row, task: tnj.apply(LAF, PARAMS, row, task))
    assert near(by_row(X, jnp.array(IDS)), expected)
    by_task = jax.vmap(lambda task: tnj.apply(LAF, PARAMS, X, task))
    assert near(by_task(jnp.arange(T)), tnj.fan_out(LAF, PARAMS, X))
    stacked = jax.tree.map(lambda *values: jnp.stack(values), PARAMS, tnj.init(LAF, seed=2))
    both = jax.vmap(lambda params: tnj.apply(LAF, params, X, jnp.array(IDS)))(stacked)
    assert near(both[0], expected)
    assert near(both[1], tnj.apply(LAF, tnj.init(LAF, seed=2), X, IDS))


def traced(ids, layer=LAF, params=PARAMS, x=X):
    return jax.jit(lambda ids: tnj.apply(layer, params, x[: len(ids)], ids))(ids)


def test_traced_ids_out_of_range_give_nan_in_their_rows_alone():
    y = traced(jnp.array([0, T, 1, -1, 2, 1000, -T]))
    assert np.isnan(y).all(axis=1).tolist() == [False, True, False, True, False, True, True]
    assert np.isnan(y).any(axis=1).tolist() == [False, True, False, True, False, True, True]
    assert near(y[2], dense(LAF, PARAMS, X[2], (1,)))


@pytest.mark.parametrize("task", [T, -1])
def test_a_traced_task_out_of_range_gives_nan(task):
    assert np.isnan(jax.jit(lambda task: tnj.apply(LAF, PARAMS, X, task))(task)).all()


def test_traced_pairs_out_of_range_give_nan():
    layer = LAYERS["two"]
    y = traced(jnp.array([[1, 2], [2, 0], [0, 3], [0, -1]]), layer, tnj.init(layer))
    assert np.isnan(y).all(axis=1).tolist() == [False, True, True, True]


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.uint8, jnp.int16, jnp.uint16, jnp.int32, jnp.uint32])
def test_ids_of_every_integer_dtype_serve_two_hundred_tasks(dtype):
    layer = tn.Linear(4, 3, tasks=200, spec=tn.LAF(2))
    params = tnj.init(layer)
    ids = [127 if dtype == jnp.int8 else 199, 3]
    expected = np.stack([dense(layer, params, X[n], (task,)) for n, task in enumerate(ids)])
    assert near(tnj.apply(layer, params, X[:2], jnp.array(ids, dtype)), expected)
    assert near(traced(jnp.array(ids, dtype), layer, params), expected)
    assert near(tnj.apply(layer, params, X[:2], np.array(ids, dtype)), expected)


def test_a_traced_short_negative_id_is_not_a_task_counted_from_the_end():
    layer = tn.Linear(4, 3, tasks=200, spec=tn.LAF(2))
    assert np.isnan(traced(jnp.array([-56, -1], jnp.int8), layer, tnj.init(layer))).all()


def test_a_traced_long_id_does_not_wrap_around():
    with jax.enable_x64(True):
        assert np.isnan(traced(jnp.array([2**32, -(2**32) + 1], jnp.int64))).all()


@pytest.mark.parametrize("ids", [[0.5, 1.5], [True, False]], ids=str)
def test_traced_ids_that_are_no_whole_numbers_are_refused(ids):
    with pytest.raises(tn.TnshareError, match="task ids must be whole numbers: found dtype"):
        traced(jnp.array(ids))


def test_a_traced_pair_may_be_a_tuple():
    layer = LAYERS["two"]
    params = tnj.init(layer)
    y = jax.jit(lambda site, user: tnj.apply(layer, params, X, (site, user)))(1, 2)
    assert near(y, dense(layer, params, X, (1, 2)))


REFUSED = [
    (T, "task 5 is out of range: expected 0 <= task <= 4"),
    (jnp.array(-1), "task -1 is out of range: expected 0 <= task <= 4"),
    ([0] * 6 + [9], "task 9 in row 6 is out of range: expected 0 <= task <= 4"),
    (jnp.array([0, -1] + [0] * 5), "task -1 in row 1 is out of range: expected 0 <= task <= 4"),
    (jnp.zeros(7), "task ids must be whole numbers: found dtype float32"),
    (jnp.zeros(7, bool), "task ids must be whole numbers: found dtype bool"),
    (True, "task ids must be whole numbers: found dtype bool"),
    ([0, 1], r"one task id for each row: expected x of shape \(2, ..., 4\) with 2 ids, found \(7, 4\)"),
    (
        None,
        r"without a task, row t of x belongs to task t: expected x of shape \(5, ..., 4\), found \(7, 4\)",
    ),
]


@pytest.mark.parametrize(("task", "text"), REFUSED, ids=[text for _, text in REFUSED])
def test_concrete_mistakes_are_told(task, text):
    with pytest.raises(tn.TnshareError, match=text):
        tnj.apply(LAF, PARAMS, X, task)
    if not isinstance(task, jax.Array):  # while tracing, arrays of JAX made before are concrete as well
        with pytest.raises(tn.TnshareError, match=text):
            jax.jit(lambda x: tnj.apply(LAF, PARAMS, x, task))(X)


def test_other_mistakes_are_told():
    with pytest.raises(tn.TnshareError, match=r"expected x of shape \(..., 4\), in_features last"):
        tnj.fan_out(LAF, PARAMS, X[:, :3])
    with pytest.raises(tn.TnshareError, match="the factor 'L' is missing"):
        tnj.apply(LAF, {name: value for name, value in PARAMS.items() if name != "L"}, X, 0)


def test_parameters_of_whole_numbers_are_refused():
    with pytest.raises(tn.TnshareError, match="dtype"):
        tnj.init(LAF, dtype=jnp.int32)


@every_layer
def test_parameters_are_a_plain_dict_without_frozen_codes(layer):
    params = tnj.init(layer)
    assert type(params) is dict
    assert all(isinstance(value, jax.Array) for value in params.values())
    assert {name: value.shape for name, value in params.items()} == layer.shapes
    assert ("S" in params) == (layer.spec == tn.LAF(layer.spec.ranks[0]))


BIG = tn.Linear(300, 200, tasks=50, spec=tn.Tucker((60, 50, 10)))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
def test_the_same_seed_gives_the_numbers_of_numpy_and_torch(dtype):
    torch = pytest.importorskip("torch")
    tnt = pytest.importorskip("tnshare_torch")
    wide = np.complex64 if dtype == "complex64" else np.float32
    values = BIG.init(3, ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    of_jax = tnj.init(BIG, seed=3, dtype=getattr(jnp, dtype))
    module = tnt.Linear(300, 200, 50, BIG.spec, seed=3, dtype=getattr(torch, dtype))
    of_torch = {
        name: value.detach().to(getattr(torch, np.dtype(wide).name))
        for name, value in module.named_parameters()
    }
    assert list(values) == list(of_jax) == list(of_torch)
    assert {str(value.dtype) for value in of_jax.values()} == {dtype}
    assert [name for name in values if (np.asarray(of_jax[name]) != values[name]).any()] == []
    assert [name for name in values if (of_torch[name].numpy() != values[name].astype(wide)).any()] == []


def test_float64_is_kept_where_it_is_enabled():
    with jax.enable_x64(True):
        params = tnj.init(LAF, seed=3, dtype=jnp.float64)
        values = LAF.init(3, np.float64)
        assert all((np.asarray(params[name]) == values[name]).all() for name in values)
        x = np.random.default_rng(0).standard_normal((7, 4))
        y = jax.jit(lambda ids: tnj.apply(LAF, params, x, ids))(jnp.array(IDS))
        assert y.dtype == jnp.float64
        np.testing.assert_allclose(y, tn.apply(LAF, values, x, IDS), rtol=1e-13)


@pytest.mark.parametrize(
    ("dtype", "terms"), [(jnp.bfloat16, 4), (jnp.complex64, 12)], ids=["bfloat16", "complex64"]
)
def test_other_dtypes_are_kept_in_every_way(dtype, terms):
    params, x = tnj.init(LAF, dtype=dtype), jnp.asarray(X, dtype)
    wide = {name: np.asarray(value).astype(np.complex128) for name, value in params.items()}
    for task in (1, IDS, jnp.array(IDS)):
        y = tnj.apply(LAF, params, x, task)
        assert y.dtype == dtype
        close(y, tn.apply(LAF, wide, np.asarray(x).astype(complex), task), terms)
    assert tnj.fan_out(LAF, params, x).dtype == tnj.weight(LAF, params).dtype == dtype


@pytest.mark.parametrize("task", [1, IDS], ids=str)
def test_parameters_may_be_arrays_of_numpy_as_load_gives_them(task, tmp_path):
    tn.save(tmp_path / "file", {name: np.asarray(value) for name, value in PARAMS.items()})
    assert near(tnj.apply(LAF, tn.load(tmp_path / "file"), X, task), tnj.apply(LAF, PARAMS, X, task))
