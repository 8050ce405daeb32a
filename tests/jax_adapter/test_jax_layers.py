"""Softly shared layers of nnx and equinox: thin shells over the same functions, whose codes train alone."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from tolerances import close

import tnshare as tn

jax = pytest.importorskip("jax")
tnj = pytest.importorskip("tnshare_jax")
optax = pytest.importorskip("optax")
jnp = jax.numpy

T = 4
TERMS = 6 + 3 + 2 + 2 + 4  # x, bonds, factors
SPEC = tn.Tucker((3, 2, 2))
LAYER = tn.Linear(6, 3, tasks=T, spec=SPEC)
PARAMS = tnj.init(LAYER, seed=5)
X = np.random.default_rng(0).standard_normal((7, 6)).astype(np.float32)
Y = np.random.default_rng(1).standard_normal((7, 3)).astype(np.float32)
IDS = jnp.array([3, 0, 1, 1, 2, 0, 3])


def same(a, b):
    close(a, b, TERMS)


def check_ways(layer):
    same(layer(X, 2), tnj.apply(LAYER, PARAMS, X, 2))
    same(layer(X, IDS), tnj.apply(LAYER, PARAMS, X, IDS))
    same(layer(np.stack([X] * T)), tnj.fan_out(LAYER, PARAMS, X))
    same(layer(X, IDS, training=False), tnj.apply(LAYER, PARAMS, X, IDS))
    same(layer.fan_out(X, training=False), tnj.fan_out(LAYER, PARAMS, X))
    same(layer.fan_out(X), tnj.fan_out(LAYER, PARAMS, X))
    same(layer.weight(1), tnj.weight(LAYER, PARAMS, 1))
    assert {name: value.shape for name, value in layer.params().items()} == LAYER.shapes


def test_nnx():
    nnx = pytest.importorskip("flax.nnx")
    from tnshare_jax.nnx import Linear, SharedFactor, TaskBias, TaskCode

    layer = Linear(6, 3, T, SPEC, seed=5)
    check_ways(layer)
    kinds = {SharedFactor: {"core", "U_i", "U_o"}, TaskCode: {"U_task"}, TaskBias: {"bias"}}
    for kind, names in kinds.items():
        assert issubclass(kind, nnx.Param)
        assert set(nnx.state(layer, kind)) == names
    optimiser = nnx.Optimizer(layer, optax.adam(0.05), wrt=TaskCode)

    @nnx.jit
    def step(layer, optimiser):
        def loss(layer):
            return jnp.square(layer(X, IDS) - Y).mean()

        value, gradient = nnx.value_and_grad(loss, argnums=nnx.DiffState(0, TaskCode))(layer)
        optimiser.update(layer, gradient)
        return value

    losses = [float(step(layer, optimiser)) for _ in range(20)]
    assert losses[-1] < 0.95 * losses[0]
    after = layer.params()
    assert [name for name in PARAMS if not np.array_equal(after[name], PARAMS[name])] == ["U_task"]


def test_equinox():
    eqx = pytest.importorskip("equinox")
    from tnshare_jax.equinox import Linear, labels

    layer = Linear(6, 3, T, SPEC, seed=5)
    check_ways(layer)
    same(jax.jit(jax.vmap(layer))(X, IDS), tnj.apply(LAYER, PARAMS, X, IDS))
    model = {"shared": layer, "plain": eqx.nn.Linear(3, 2, key=jax.random.key(0)), "n": None}
    words = labels(model)
    assert words["shared"].codes == {"U_task": "codes"}
    assert set(words["shared"].factors.values()) == {"shared"}
    assert words["shared"].bias == "own"
    assert words["plain"].weight == "other"
    assert labels(Linear(6, 3, T, SPEC, bias=False)).bias is None
    still = dict.fromkeys(("shared", "own", "other"), optax.set_to_zero())
    optimiser = optax.multi_transform({"codes": optax.sgd(0.5), **still}, words)

    @eqx.filter_jit
    def step(model, state):
        def loss(model):
            return jnp.square(jax.vmap(model["plain"])(model["shared"](X, IDS))).mean()

        value, gradient = eqx.filter_value_and_grad(loss)(model)
        updates, state = optimiser.update(gradient, state, model)
        return eqx.apply_updates(model, updates), state, value

    trained, state, first = step(model, optimiser.init(model))
    trained, state, last = step(trained, state)
    assert last < first
    after = trained["shared"].params()
    assert [name for name in PARAMS if not np.array_equal(after[name], PARAMS[name])] == ["U_task"]
    assert np.array_equal(trained["plain"].weight, model["plain"].weight)


@pytest.mark.parametrize("module", ["nnx", "equinox"])
def test_layers_keep_precision_dtype_and_frozen_codes(module):
    pytest.importorskip({"nnx": "flax.nnx"}.get(module, module))
    shell = __import__(f"tnshare_jax.{module}", fromlist=["Layer"])
    frozen = tn.Linear(6, 3, tasks=T, spec=tn.LAF.evgeniou_pontil(T), bias=False)
    layer = shell.Layer(frozen, dtype=jnp.bfloat16, precision="highest", preferred_element_type=jnp.float32)
    assert list(layer.params()) == ["L"]
    x = jnp.asarray(X, jnp.bfloat16)
    assert layer(x, 1).dtype == layer.fan_out(x).dtype == layer.weight().dtype == jnp.float32
    text = str(jax.make_jaxpr(lambda x: layer(x, 1))(x))
    assert text.count("HIGHEST") == 2 * text.count("dot_general") > 0


@pytest.mark.parametrize(("module", "layout"), [("nnx", "NWC"), ("equinox", "NCW")])
def test_convolutions_and_embeddings(module, layout):
    pytest.importorskip({"nnx": "flax.nnx"}.get(module, module))
    shell = __import__(f"tnshare_jax.{module}", fromlist=["Layer"])
    description = tn.Conv(2, 4, 3, T, tn.LAF(2), stride=2, padding=1)
    conv = shell.Conv(2, 4, 3, T, tn.LAF(2), stride=2, padding=1, seed=3)
    assert conv.description == description
    x = np.random.default_rng(0).standard_normal((7, 2, 6)).astype(np.float32)
    expected = tn.apply(description, description.init(3), x, np.asarray(IDS))
    if layout == "NWC":
        x, expected = np.moveaxis(x, 1, -1), np.moveaxis(expected, 1, -1)
    run = jax.jit(lambda x, task: conv(x, task))
    same(run(x, IDS), expected)
    same(run(x[2], 1), expected[2])
    described = tn.Embedding(9, 4, T, tn.TT((3, 2)), padding_idx=2)
    table = shell.Embedding(9, 4, T, tn.TT((3, 2)), padding_idx=2)
    assert table.description == described
    tokens = np.array([[1, 2], [8, 0]])
    same(jax.jit(lambda tokens: table(tokens, 3))(tokens), tn.apply(described, described.init(), tokens, 3))
    assert list(table.params()) == list(described.shapes)


HIDDEN = """
import sys
sys.modules[{package!r}] = None
try:
    import tnshare_jax.{module}
except ImportError as error:
    print(error)
"""


def test_the_package_imports_neither_and_says_what_is_missing():
    code = "import sys, tnshare_jax; print([n for n in ('flax', 'equinox', 'optax') if n in sys.modules])"
    codes = [
        code,
        *(HIDDEN.format(package=p, module=m) for p, m in [("flax", "nnx"), ("equinox", "equinox")]),
    ]
    runs = [subprocess.run([sys.executable, "-c", c], capture_output=True, text=True) for c in codes]
    assert [run.stdout.strip() for run in runs] == [
        "[]",
        "tnshare_jax.nnx needs flax: pip install flax",
        "tnshare_jax.equinox needs equinox: pip install equinox",
    ]


def equal(found, expected):
    assert set(found) == set(expected)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def drawn(key):
    return int(jax.random.bits(key, dtype=jnp.uint32))


def test_seeds_may_be_keys_and_traced_and_give_the_numbers_that_they_give_everywhere():
    expected = LAYER.init(7)
    for seed in (np.int64(7), jnp.array(7), jnp.uint8(7)):
        equal(tnj.init(LAYER, seed), expected)
    equal(jax.jit(lambda seed: tnj.init(LAYER, seed))(7), expected)
    for key in (jax.random.key(3), jax.random.PRNGKey(3)):
        equal(tnj.init(LAYER, key), LAYER.init(drawn(key)))
        equal(jax.jit(lambda key: tnj.init(LAYER, key))(key), LAYER.init(drawn(key)))
    keys = jax.random.split(jax.random.key(0), 3)
    several = jax.vmap(lambda key: tnj.init(LAYER, key, jnp.bfloat16))(keys)
    assert {name: value.shape[1:] for name, value in several.items()} == LAYER.shapes
    assert {value.dtype for value in several.values()} == {jnp.dtype(jnp.bfloat16)}
    for n in range(3):
        of_one = {name: value[n] for name, value in several.items()}
        equal(of_one, LAYER.init(drawn(keys[n]), jnp.bfloat16))
    shapes = jax.eval_shape(lambda key: tnj.init(LAYER, key), keys[0])
    assert {name: value.shape for name, value in shapes.items()} == LAYER.shapes


@pytest.mark.parametrize(
    ("seed", "text"),
    [
        (jnp.arange(3), r"^a seed must be a whole number or a key: found int32 of shape \(3,\)$"),
        (jnp.array(1.5), r"^a seed must be a whole number or a key: found float32 of shape \(\)$"),
        (
            jax.random.split(jax.random.key(0)),
            r"^a seed is one key: found keys of shape \(2,\); use jax.vmap$",
        ),
        (-1, "a seed must be a whole number of at least 0: found -1"),
    ],
    ids=["several", "a fraction", "several keys", "negative"],
)
def test_seeds_that_are_none_are_refused(seed, text):
    with pytest.raises(tn.TnshareError, match=text):
        tnj.init(LAYER, seed)


def test_layers_of_nnx_draw_their_seed_from_rngs():
    nnx, shell = pytest.importorskip("flax.nnx"), pytest.importorskip("tnshare_jax.nnx")
    rngs, twin = nnx.Rngs(params=4), nnx.Rngs(params=4)
    for _ in range(2):  # one after the other
        layer = shell.Linear(6, 3, T, SPEC, rngs=rngs)
        equal(layer.params(), layer.description.init(drawn(twin.params())))
    equal(shell.Linear(6, 3, T, SPEC).params(), layer.description.init(0))

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.one, self.two = nnx.Linear(5, 6, rngs=rngs), shell.Linear(6, 3, T, SPEC, rngs=rngs)

        def __call__(self, x, task):
            return self.two(self.one(x), task)

    plain, jitted = Net(nnx.Rngs(1)), nnx.jit(Net)(nnx.Rngs(1))
    equal(jitted.two.params(), plain.two.params())
    ensemble = nnx.split_rngs(splits=3)(nnx.vmap(Net, in_axes=0, out_axes=0))(nnx.Rngs(1))
    assert {name: value.shape[1:] for name, value in ensemble.two.params().items()} == LAYER.shapes
    shapes = nnx.eval_shape(lambda: Net(nnx.Rngs(0)))
    assert shapes.two.params
    with pytest.raises(tn.TnshareError, match=r"^give a layer a seed or rngs, not both$"):
        shell.Linear(6, 3, T, SPEC, seed=0, rngs=rngs)


def test_layers_of_equinox_take_keys_and_their_methods_are_trees():
    eqx, shell = pytest.importorskip("equinox"), pytest.importorskip("tnshare_jax.equinox")
    key = jax.random.key(8)
    layer = shell.Linear(6, 3, T, SPEC, key=key)
    equal(layer.params(), layer.description.init(drawn(key)))
    with pytest.raises(tn.TnshareError, match=r"^give a layer a seed or a key, not both$"):
        shell.Linear(6, 3, T, SPEC, seed=0, key=key)
    keys = jax.random.split(key, 2)
    ensemble = eqx.filter_vmap(lambda key: shell.Linear(6, 3, T, SPEC, key=key))(keys)
    assert {name: value.shape[1:] for name, value in ensemble.params().items()} == LAYER.shapes
    x = jnp.ones((2, 6))
    run = eqx.filter_jit(lambda method, x: method(x))
    other = eqx.tree_at(lambda layer: layer.bias, layer, layer.bias + 1)
    found = [run(one.fan_out, x) for one in (layer, other)]  # arrays of a method are arguments, not constants
    close(found[1], found[0] + 1, TERMS)
