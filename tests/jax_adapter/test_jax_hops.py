"""A compiled call is XLA's: once it is traced, it passes through none of our files."""

from __future__ import annotations

import pytest

jax = pytest.importorskip("jax")
tnj = pytest.importorskip("tnshare_jax")

import jax.numpy as jnp  # noqa: E402
from hops import files_of, later  # noqa: E402

import tnshare as tn  # noqa: E402

T, ROWS = 5, 10
IDS = jnp.arange(ROWS) % T
LAYERS = {
    "linear": (tn.Linear(8, 4, tasks=T, spec=tn.Tucker((4, 3, 2))), (8,)),
    "convolution": (tn.Conv(2, 3, (3,), tasks=T, spec=tn.LAF(2)), (2, 6)),
}
WAYS = {
    "one": lambda layer, params, x: tnj.apply(layer, params, x, 3),
    "mixed": lambda layer, params, x: tnj.apply(layer, params, x, IDS),
    "each": lambda layer, params, x: tnj.apply(layer, params, jnp.stack([x] * T)),
    "fan_out": tnj.fan_out,
}


@pytest.mark.parametrize("graded", [True, False], ids=["graded", "no_grad"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", LAYERS)
def test_a_later_call_of_a_compiled_layer(name, way, graded):
    (layer, shape), call = LAYERS[name], WAYS[way]
    params, x = tnj.init(layer), jnp.ones((ROWS, *shape))

    def function(params, x):
        return call(layer, params, x).sum()

    compiled = jax.jit(jax.grad(function) if graded else function)
    assert files_of(lambda: compiled(params, x))  # the first call traces
    assert later(lambda: compiled(params, x)) == set()


@pytest.mark.parametrize("way", ["one", "mixed", "all"])
def test_a_later_call_of_a_compiled_shared_tree(way):
    trees = [{"w": jnp.full((4, 3), float(t)), "b": jnp.ones(3) * t} for t in range(T)]
    shared = tnj.share(trees, method="laf", ranks=1)
    task = {"one": 3, "mixed": IDS, "all": None}[way]
    compiled = jax.jit(lambda shared: shared.compose(task)["w"].sum())
    assert files_of(lambda: compiled(shared))
    # JAX itself takes the tree apart, once a call, and asks nothing else.
    assert later(lambda: compiled(shared)) <= {"backends/tnshare_jax/shared/_shared_tree.py"}
