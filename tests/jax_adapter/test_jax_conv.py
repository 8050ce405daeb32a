"""Convolutions and embeddings in JAX: four ways against NumPy, layouts, gradients, traced numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tolerances import close

import tnshare as tn
from tnshare.ops import Geometry, numpy_ops

jax = pytest.importorskip("jax")
tnj = pytest.importorskip("tnshare_jax")
jnp = jax.numpy

TERMS = 3 * 9 + 11 + 6  # the largest kernel, bonds, factors
SUMMED = TERMS + 4 * 36  # behind a gradient: rows and places

T = 3
RANDOM = np.random.default_rng(0)
IDS = np.array([2, 0, 2, 1])
CONVS = {
    "laf": tn.Conv(2, 4, (3, 2), T, tn.LAF(2), groups=2, stride=(2, 1), padding=1, padding_mode="reflect"),
    "tucker": tn.Conv(3, 4, (3, 3), T, tn.Tucker((2, 2, 2, 3, 2)), padding="same"),
    "tt": tn.Conv(2, 3, 3, T, tn.TT((2, 2, 2)), dilation=2, bias=False),
}
EMBEDDINGS = {
    "laf": tn.Embedding(7, 4, T, tn.LAF(2)),
    "tucker": tn.Embedding(7, 4, T, tn.Tucker((3, 2, 2)), padding_idx=1),
    "tt": tn.Embedding(7, 4, T, tn.TT((3, 2))),
}


def near(a, b, terms=TERMS):
    close(a, b, terms)


def draw(layer, *lead):
    if isinstance(layer, tn.Embedding):
        return np.random.default_rng(1).integers(0, 7, (*lead, 5))
    return (
        np.random.default_rng(1)
        .standard_normal((*lead, layer.in_channels, *(6,) * len(layer.kernel)))
        .astype("f")
    )


def check_ways(layer):
    """Under jit, in all four ways, with numbers that are known and traced, against NumPy."""
    params, values = tnj.init(layer, 3), layer.init(3)
    apply = jax.jit(lambda p, x, task: tnj.apply(layer, p, x, task))
    x = draw(layer, 4)
    near(apply(params, x, IDS), tn.apply(layer, values, x, IDS))
    near(apply(params, x, 1), tn.apply(layer, values, x, 1))
    xs = draw(layer, T, 2)
    near(jax.jit(lambda p, x: tnj.apply(layer, p, x))(params, xs), tn.apply(layer, values, xs))
    fanned = jax.jit(lambda p, x: tnj.fan_out(layer, p, x))(params, x)
    near(fanned, np.stack([tn.apply(layer, values, x, t) for t in range(T)]))
    wrong = apply(params, x, np.array([0, T, 1, -1]))
    assert np.isnan(wrong).reshape(4, -1).any(axis=1).tolist() == [False, True, False, True]


@pytest.mark.parametrize("layer", CONVS.values(), ids=CONVS)
def test_convolutions(layer):
    check_ways(layer)


@pytest.mark.parametrize("layer", EMBEDDINGS.values(), ids=EMBEDDINGS)
def test_embeddings(layer):
    check_ways(layer)


@pytest.mark.parametrize("name", ["laf", "tt"])
def test_channels_may_be_last(name):
    layer = CONVS[name]
    params, x = tnj.init(layer), draw(layer, 4)
    space = "".join(layer.space).upper()
    turned = np.moveaxis(x, 1, -1)
    last = jax.jit(lambda x: tnj.apply(layer, params, x, 1, dimension_numbers=f"N{space}C"))
    near(last(turned), np.moveaxis(tn.apply(layer, layer.init(), x, 1), 1, -1))
    fanned = jax.jit(lambda x: tnj.fan_out(layer, params, x, dimension_numbers=f"N{space}C"))(turned)
    near(fanned, np.moveaxis(tn.fan_out(layer, layer.init(), x), 2, -1))
    first = jax.jit(lambda x: tnj.apply(layer, params, x, 1, dimension_numbers=f"NC{space}"))(x)
    near(first, tn.apply(layer, layer.init(), x, 1))


def test_layouts_that_are_none_are_refused():
    conv, linear = CONVS["tucker"], tn.Linear(4, 3, tasks=T, spec=tn.LAF(1))
    with pytest.raises(tn.TnshareError, match=r"must be one of \('NCHW', 'NHWC'\): found 'NWC'"):
        tnj.apply(conv, tnj.init(conv), draw(conv, 2), 0, dimension_numbers="NWC")
    with pytest.raises(
        tn.TnshareError, match="dimension_numbers are for convolutions: found 'NHWC' for a Linear"
    ):
        tnj.apply(linear, tnj.init(linear), np.ones((2, 4)), 0, dimension_numbers="NHWC")
    with pytest.raises(tn.TnshareError, match=r"expected x of shape \(..., 3, h, w\)"):
        tnj.apply(conv, tnj.init(conv), draw(conv, 2), 0, dimension_numbers="NHWC")
    with pytest.raises(tn.TnshareError, match=r"expected x of shape \(..., 3, h, w\)"):
        tnj.apply(conv, tnj.init(conv), np.ones(3), 0, dimension_numbers="NHWC")


def test_gradients_of_a_convolution_are_those_of_dense_kernels():
    layer = CONVS["tucker"]
    params, x = tnj.init(layer), draw(layer, 4)

    def dense(params, x):
        weights = jnp.einsum(layer.network.equation, *(params[name] for name in layer.network.shapes))
        kernels = jnp.moveaxis(weights, -1, 0)
        rows = [
            jax.lax.conv_general_dilated(
                x[n : n + 1], kernels[t], (1, 1), "SAME", dimension_numbers=("NCHW", "HWIO", "NCHW")
            )
            + params["bias"][t, :, None, None]
            for n, t in enumerate(IDS)
        ]
        return jnp.concatenate(rows)

    def gradient(function):
        return jax.jit(jax.grad(lambda p, x: jnp.sin(function(p, x)).sum(), (0, 1)))(params, x)

    found, expected = gradient(lambda p, x: tnj.apply(layer, p, x, jnp.asarray(IDS))), gradient(dense)
    near(found[1], expected[1], SUMMED)
    assert all(near(found[0][name], expected[0][name], SUMMED) is None for name in params)


def test_an_embedding_never_has_its_table():
    layer = tn.Embedding(50_000, 300, tasks=1000, spec=tn.Tucker((32, 32, 8)))
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in layer.shapes.items()}
    tokens, ids = jax.ShapeDtypeStruct((64, 20), jnp.int32), jax.ShapeDtypeStruct((64,), jnp.int32)

    def loss(params, tokens, ids):
        return jnp.square(tnj.apply(layer, params, tokens, ids)).sum()

    compiled = jax.jit(jax.grad(loss)).lower(params, tokens, ids).compile()
    one_table = 4 * 50_000 * 300
    assert compiled.memory_analysis().temp_size_in_bytes < 0.5 * one_table  # of a thousand
    small = EMBEDDINGS["tucker"]
    gradient = jax.jit(jax.grad(lambda p: tnj.apply(small, p, jnp.array([1, 1]), 0).sum()))(tnj.init(small))
    assert not any(leaf.any() for leaf in gradient.values())  # of the padding
    outside = jax.jit(lambda x: tnj.apply(small, tnj.init(small), x, 0))(jnp.array([0, 7, -1]))
    assert np.isnan(outside).all(axis=-1).tolist() == [False, True, True]
    with pytest.raises(tn.TnshareError, match="x has 7, which is out of range: expected 0 <= x <= 6"):
        tnj.apply(small, tnj.init(small), jnp.array([0, 7]), 0)


@st.composite
def stacks(draw):
    dims, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2))

    def each(*sizes):
        return tuple(draw(st.sampled_from(sizes)) for _ in range(dims))

    padding = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 1))) for _ in range(dims))
    mode = draw(st.sampled_from(["zeros", "reflect", "replicate", "circular"]))
    geometry = Geometry(each(1, 3), each(1, 2), padding, each(1, 2), groups, mode)
    many = draw(st.integers(1, 3))
    counts = draw(st.one_of(st.none(), st.tuples(*[st.integers(1, 6)] * many)))
    rows = sum(counts) if counts else many * draw(st.sampled_from([1, 5]))
    return geometry, many, counts, rows, draw(st.booleans())


@settings(max_examples=12)
@given(stacks())
def test_stacks_of_kernels_are_convolved_as_numpy_does(case):
    geometry, many, counts, rows, biased = case
    shape = (many, 3 * geometry.groups, 2, *geometry.kernel)
    x = RANDOM.standard_normal((rows, 2 * geometry.groups, *(6,) * len(geometry.kernel))).astype("f")
    kernels, bias = RANDOM.standard_normal(shape).astype("f"), RANDOM.standard_normal(shape[:2]).astype("f")
    given_bias = bias if biased else None
    found = jax.jit(lambda x, k: tnj.ops.convolve(x, k, counts, given_bias, geometry))(x, kernels)
    expected = numpy_ops.convolve(x, kernels, counts, given_bias, geometry)
    sizes = numpy_ops.convolve(np.abs(x), np.abs(kernels), counts, np.abs(bias) if biased else None, geometry)
    close(found, expected, 2 * 9 + 1, scale=sizes)
