"""tnshare_jax under JAX's transformations: how often it compiles, what it exports, what memory it takes."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import close

import tnshare as tn

jax = pytest.importorskip("jax")
tnj = pytest.importorskip("tnshare_jax")
jnp = jax.numpy

T = 5
TERMS = 4 + 2 + 3 + 2 + 4  # x, bonds, factors
LAYER = tn.Linear(4, 3, tasks=T, spec=tn.Tucker((2, 3, 2)))
PARAMS = tnj.init(LAYER, seed=1)
X = np.random.default_rng(0).standard_normal((7, 4)).astype(np.float32)
IDS = jnp.array([4, 0, 4, 2, 1, 3, 0])


def near(a, b, dtype=None):
    close(a, b, TERMS, dtype=dtype)


def test_only_the_values_of_ids_change_and_nothing_is_compiled_again():
    traces = []

    @jax.jit
    def call(params, x, task):
        traces.append(task)
        return tnj.apply(LAYER, params, x, task)

    for shift in range(4):
        ids = (IDS + shift) % T
        near(call(PARAMS, X, ids), tn.apply(LAYER, PARAMS, X, np.asarray(ids)))
    assert (len(traces), call._cache_size()) == (1, 1)
    for task in range(T):
        near(call(PARAMS, X, task), tn.apply(LAYER, PARAMS, X, task))
    assert (len(traces), call._cache_size()) == (2, 2)  # one for ids, one for a number
    call(PARAMS, X[:5], IDS[:5])
    assert len(traces) == 3  # so the count can rise
    shared = tnj.share([{"w": jnp.asarray(X + t)} for t in range(T)], "laf", eps=0)
    composed = jax.jit(lambda shared, task: shared.compose(task))
    for task in range(T):
        near(composed(jax.tree.map(lambda a: a + 0, shared), task)["w"], X + task)
    assert composed._cache_size() == 1


def test_derivatives_of_higher_kind():
    def y(params):
        return tnj.apply(LAYER, params, X[:3], IDS[:3])

    def built(params):
        factors = [params[name] for name in LAYER.network.shapes]
        weights = jnp.einsum(LAYER.network.equation, *factors)[..., IDS[:3]]
        return jnp.einsum("bi,iob->bo", X[:3], weights) + params["bias"][IDS[:3]]

    expected = jax.jit(jax.jacrev(built))(PARAMS)
    for jacobian in (jax.jacrev(y), jax.jacfwd(y), jax.jacrev(jax.checkpoint(y))):
        found = jax.jit(jacobian)(PARAMS)
        assert all(near(found[name], expected[name]) is None for name in PARAMS)

    def loss(function):
        return lambda codes: jnp.sin(function({**PARAMS, "U_task": codes})).sum()

    curvature = [jax.jit(jax.hessian(loss(f)))(PARAMS["U_task"]) for f in (y, built)]
    near(*curvature)
    assert float(jnp.abs(curvature[0]).max()) > 0


def test_seeds_may_be_mapped_with_rows_inside():
    params = jax.tree.map(lambda *values: jnp.stack(values), *(tnj.init(LAYER, seed) for seed in range(3)))
    found = jax.jit(jax.vmap(lambda p: jax.vmap(lambda x, t: tnj.apply(LAYER, p, x, t))(X, IDS)))(params)
    expected = [tn.apply(LAYER, LAYER.init(seed), X, np.asarray(IDS)) for seed in range(3)]
    near(found, np.stack(expected))


def test_shapes_are_known_without_numbers():
    x = jax.ShapeDtypeStruct((2, 7, 4), jnp.bfloat16)
    params = {name: jax.ShapeDtypeStruct(shape, jnp.bfloat16) for name, shape in LAYER.shapes.items()}
    y = jax.eval_shape(lambda p, x: tnj.fan_out(LAYER, p, x), params, x)
    assert (y.shape, y.dtype) == ((T, 2, 7, 3), jnp.bfloat16)
    shared = jax.eval_shape(lambda: tnj.share([{"w": np.eye(3) + t} for t in range(2)], "laf", ranks=1))
    assert isinstance(shared, tnj.Shared)
    assert shared.codes["w"]["S"].shape == (2, 1)


def test_an_exported_function_needs_no_tnshare():
    export = pytest.importorskip("jax.export")
    task = jax.ShapeDtypeStruct((7,), jnp.int32)
    exported = export.export(jax.jit(lambda p, x, ids: tnj.apply(LAYER, p, x, ids)))(PARAMS, X, task)
    again = export.deserialize(exported.serialize())
    near(again.call(PARAMS, X, IDS), tn.apply(LAYER, PARAMS, X, np.asarray(IDS)))


def products(function, *arguments):
    """The matrix products in what is traced: their precision and the dtype of their results."""
    equations = jax.make_jaxpr(function)(*arguments).eqns
    found, queue = [], list(equations)
    while queue:
        equation = queue.pop()
        if equation.primitive.name == "dot_general":
            found.append((equation.params["precision"], equation.outvars[0].aval.dtype))
        queue += [e for p in equation.params.values() if hasattr(p, "eqns") for e in p.eqns]
    return found


@pytest.mark.parametrize("way", ["one", "mixed", "fan_out", "weight"])
def test_precision_and_element_type_reach_every_product(way):
    params, x = tnj.init(LAYER, dtype=jnp.bfloat16), jnp.asarray(X, jnp.bfloat16)

    def call(**options):
        if way == "weight":
            return lambda params, x: tnj.weight(LAYER, params, **options)
        if way == "fan_out":
            return lambda params, x: tnj.fan_out(LAYER, params, x, **options)
        return lambda params, x: tnj.apply(LAYER, params, x, 2 if way == "one" else IDS, **options)

    highest = jax.lax.Precision.HIGHEST
    found = products(call(precision="highest", preferred_element_type=jnp.float32), params, x)
    assert len(found) >= 2
    assert set(found) == {((highest, highest), np.dtype(np.float32))}
    assert set(products(call(), params, x)) == {(None, jnp.dtype(jnp.bfloat16))}
    wide = jax.jit(call(preferred_element_type=jnp.float32))(params, x)
    exact = jax.jit(call())(*jax.tree.map(lambda a: a.astype(jnp.float32), (params, x)))
    assert wide.dtype == jnp.float32
    near(wide, exact, "float32")  # the numbers of bfloat16, but no rounding on the way


def test_precision_and_element_type_reach_the_operations_of_plans_that_are_not_chosen_here():
    own, a = tnj.JaxOps("highest", jnp.dtype(jnp.float32)), jnp.ones((2, 3, 3), jnp.bfloat16)
    geometry = tn.Conv(3, 2, 1, T, tn.LAF(1)).geometry
    highest = jax.lax.Precision.HIGHEST
    for function in (
        lambda a: own.matmul(a, a),
        lambda a: own.einsum("bij,bjk->bik", a, a),
        lambda a: own.convolve(a, a[..., None], None, None, geometry),
    ):
        ((precision, dtype),) = products(function, a)
        assert (precision, dtype) == ((highest, highest), np.dtype(np.float32))
    assert own.multiply(a, a).dtype == jnp.float32
    one = jax.make_jaxpr(lambda a: own.convolve(a, a[:1, ..., None], None, None, geometry))(a)
    assert "HIGHEST" in str(one)
    assert one.out_avals[0].dtype == jnp.float32


def test_a_training_step_of_a_thousand_tasks_takes_little_memory():
    """2 % of what the dense weights of all tasks take."""
    layer = tn.Linear(1024, 1024, tasks=1000, spec=tn.Tucker((64, 64, 16)))
    array = jax.ShapeDtypeStruct((256, 1024), jnp.float32)
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in layer.shapes.items()}

    def step(params, x, y, ids):
        def loss(params):
            return jnp.square(tnj.apply(layer, params, x, ids) - y).mean()

        return jax.tree.map(lambda p, g: p - 0.1 * g, params, jax.grad(loss)(params))

    compiled = jax.jit(step).lower(params, array, array, jax.ShapeDtypeStruct((256,), jnp.int32)).compile()
    analysis = compiled.memory_analysis()
    dense = 4 * 1024 * 1024 * 1000
    assert 256 * 1024 * 4 < analysis.temp_size_in_bytes < 0.02 * dense
    assert analysis.argument_size_in_bytes + analysis.output_size_in_bytes < 0.02 * dense
