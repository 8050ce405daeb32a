"""What a demanding user of JAX does to layers and shared trees, and what used to break."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pytest
from tolerances import close

import tnshare as tn

jax = pytest.importorskip("jax")
tnj = pytest.importorskip("tnshare_jax")
jnp = jax.numpy

T = 4
TERMS = 2 * 9 + 10 + 6  # the largest kernel, bonds, factors
LINEAR = tn.Linear(6, 3, tasks=T, spec=tn.Tucker((3, 2, 2)))
CONV = tn.Conv(2, 3, (3, 3), tasks=T, spec=tn.Tucker((2, 2, 2, 2, 2)))
TABLE = tn.Embedding(9, 5, tasks=T, spec=tn.Tucker((4, 3, 2)))
LAYERS = pytest.mark.parametrize(
    ("layer", "rest", "dtype"),
    [(LINEAR, (6,), np.float32), (CONV, (2, 4, 4), np.float32), (TABLE, (), np.int32)],
    ids=["linear", "conv", "embedding"],
)
X = np.random.default_rng(0).standard_normal((7, 6)).astype(np.float32)
IDS = np.array([3, 0, 1, 1, 2, 0, 3])


def draw(shape, dtype):
    random = np.random.default_rng(1)
    return (
        random.integers(0, 9, shape, dtype) if dtype is np.int32 else random.normal(size=shape).astype(dtype)
    )


@LAYERS
def test_layers_are_exported_for_any_number_of_rows(layer, rest, dtype):
    params = tnj.init(layer)
    (rows,) = jax.export.symbolic_shape("rows")

    def all_ways(params, x, ids, xs):
        return (
            tnj.apply(layer, params, x, 1),
            tnj.apply(layer, params, x, ids),
            tnj.apply(layer, params, xs),
            tnj.fan_out(layer, params, x),
        )

    shapes = [
        jax.ShapeDtypeStruct(shape, kind)
        for shape, kind in (((rows, *rest), dtype), ((rows,), np.int32), ((T, rows, *rest), dtype))
    ]
    exported = jax.export.export(jax.jit(all_ways))(params, *shapes)
    run = jax.export.deserialize(exported.serialize()).call
    for count in (1, 5):
        x, xs = draw((count, *rest), dtype), draw((T, count, *rest), dtype)
        given = params, x, IDS[:count].astype(np.int32), xs
        for found, expected in zip(run(*given), jax.jit(all_ways)(*given), strict=True):
            close(found, expected, TERMS)


@LAYERS
def test_empty_batches_have_outputs_and_gradients(layer, rest, dtype):
    params, x = tnj.init(layer), jnp.zeros((0, *rest), dtype)
    for task in (1, jnp.zeros(0, jnp.int32)):
        assert tnj.apply(layer, params, x, task).shape[0] == 0
        gradient = jax.grad(lambda p, task=task: tnj.apply(layer, p, x, task).sum())(params)
        assert not any(map(np.any, gradient.values()))


@LAYERS
def test_traced_ids_out_of_range_are_nan_and_no_others(layer, rest, dtype):
    ids = jnp.array([0, 3, T, 200, 1], jnp.uint8)
    y = jax.jit(lambda ids: tnj.apply(layer, tnj.init(layer), draw((5, *rest), dtype), ids))(ids)
    assert np.array_equal(np.isnan(y).reshape(5, -1).all(1), [False, False, True, True, False])
    assert not np.isnan(y[np.array([0, 1, 4])]).any()


def test_parameters_that_are_no_dict_are_refused():
    for params in (None, list(tnj.init(LINEAR).values())):
        with pytest.raises(tn.TnshareError, match=r"^expected params by name, a dict with \('core', 'U_i', "):
            tnj.apply(LINEAR, params, X, 1)


def test_a_stack_of_products_stays_one_where_the_stack_is_the_longer():
    """One product without batch axes would turn the whole stack first."""

    def batches(rows, items, columns):
        shapes = (
            jax.ShapeDtypeStruct((rows, 8), np.float32),
            jax.ShapeDtypeStruct((items, 8, columns), np.float32),
        )
        (product,) = (
            e for e in jax.make_jaxpr(tnj.ops.matmul)(*shapes).eqns if e.primitive.name == "dot_general"
        )
        return product.params["dimension_numbers"][1][0]

    assert batches(4, 3, 5) == (0,)
    assert batches(5, 3, 4) == ()
    a, b = draw((4, 8), np.float32), draw((3, 8, 5), np.float32)
    close(tnj.ops.matmul(a, b), a @ b, TERMS)
    close(tnj.ops.matmul(jnp.asarray(b), jnp.ones((5, 2))), b @ np.ones((5, 2)), TERMS)


def test_layers_are_scanned_over_with_parameters_of_mapped_seeds():
    square = tn.Linear(6, 6, tasks=T, spec=tn.LAF(2))
    stack = jax.vmap(lambda seed: tnj.init(square, seed))(jnp.arange(3))

    def through(stack):
        return jax.lax.scan(lambda h, p: (jnp.tanh(tnj.apply(square, p, h, IDS)), None), X, stack)[0]

    expected = X
    for seed in range(3):
        expected = np.tanh(tn.apply(square, square.init(seed), expected, IDS))
    close(jax.jit(through)(stack), expected, TERMS)
    gradients = jax.jit(jax.grad(lambda stack: through(stack).sum()))(stack)
    assert all(np.abs(g).max() > 0 for g in gradients.values())


def test_rows_are_sharded_and_parameters_donated():
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(jax.sharding.AxisType.Auto,))
    spec = jax.sharding.PartitionSpec
    run = jax.shard_map(
        lambda params, x, ids: tnj.apply(LINEAR, params, x, ids),
        mesh=mesh,
        in_specs=(spec(), spec("rows"), spec("rows")),
        out_specs=spec("rows"),
    )
    params = tnj.init(LINEAR)
    expected = tnj.apply(LINEAR, params, X, IDS)
    close(jax.jit(run)(params, X, IDS), expected, TERMS)

    @jax.jit
    def gradient(params):
        return jax.grad(lambda p: jnp.square(run(p, X, IDS)).sum())(params)

    step = jax.jit(lambda p: jax.tree.map(lambda a, g: a - 0.1 * g, p, gradient(p)), donate_argnums=0)
    moved = step(step(params))
    assert not np.array_equal(tnj.apply(LINEAR, moved, X, IDS), expected)


class Pair(NamedTuple):
    weight: Any
    bias: Any
    nothing: Any = None


@jax.tree_util.register_dataclass
@dataclass
class Block:
    kernel: Any
    scale: Any
    width: int = field(default=3, metadata={"static": True})


def test_trees_of_named_tuples_dataclasses_and_none():
    def tree(n):
        pair = Pair(jnp.full((3, 2), n), jnp.full(2, n))
        return {
            "pair": pair,
            "blocks": [Block(n * jnp.eye(4)[:, :3], jnp.ones(3)), None],
            "none": None,
            "e": (),
        }

    trees = [tree(1.0 + n) for n in range(T)]
    shared = tnj.share(trees, eps=0)
    assert set(shared.codes) == {"pair.weight", "blocks.0.kernel"}
    restored = tnj.restore(tree(7.0), shared.state())
    for one in (shared, restored):
        found = one.compose(2)
        assert jax.tree.structure(found) == jax.tree.structure(trees[2])
        jax.tree.map(lambda a, b: close(a, b, TERMS), found, trees[2])
    several = jax.jit(lambda shared: shared.compose())(shared)
    assert several["blocks"][0].kernel.shape == (T, 4, 3)


def test_arrays_of_another_byte_order_are_shared():
    trees = [
        {"w": np.full((3, 2), 1.0 + n, ">f4"), "b": np.full(2, n, ">f8"), "n": np.array([n], ">i4")}
        for n in (0, 1)
    ]
    shared = tnj.share(trees, eps=0)
    found = shared.compose(1)
    close(found["w"], trees[1]["w"], TERMS)
    np.testing.assert_array_equal(found["n"], [1])
    assert found["b"][0] == 1
