"""Misuse of the functions for JAX, of shared trees, and of layers of flax and equinox."""

from __future__ import annotations

import math
from contextlib import suppress
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
from misused import catalogue, refused

import tnshare as tn

jax = pytest.importorskip("jax")
tnj = pytest.importorskip("tnshare_jax")
jnp = jax.numpy

NAN = math.nan


@pytest.fixture(scope="module")
def world() -> SimpleNamespace:
    for library in ("tnshare_jax.nnx", "tnshare_jax.equinox"):  # an import may draw random numbers
        with suppress(ImportError):
            import_module(library)
    rng = np.random.default_rng(0)
    layer = tn.Linear(5, 4, tasks=3, spec=tn.Tucker((3, 2, 2)))
    conv, table = tn.Conv(2, 4, (3, 3), 3, tn.LAF(2)), tn.Embedding(7, 4, 3, tn.LAF(2))
    trees = [tree(rng) for _ in range(3)]
    shared = tnj.share(trees, eps=0.0)
    params = tnj.init(layer)
    return SimpleNamespace(
        layer=layer, params=params, state=tnj.state(layer, params), x=rng.standard_normal((6, 5)).astype(np.float32),
        ids=np.array([0, 1, 2, 2, 1, 0]), conv=conv, conv_params=tnj.init(conv), image=np.ones((6, 2, 5, 5), np.float32),
        table=table, table_params=tnj.init(table), tokens=np.array([0, 6, 3]),
        trees=trees, tree=trees[0], shared=shared, shared_state=shared.state(), code=shared.code(0),
        named=tnj.share(dict(zip("abc", trees, strict=True)), eps=0.0), alone=tnj.share(trees[:1], eps=0.0),
        keys=jax.random.split(jax.random.key(0), 2),
    )  # fmt: skip


def tree(rng):
    def normal(*shape):
        return jnp.asarray(rng.standard_normal(shape).astype(np.float32))

    return {"dense": {"kernel": normal(5, 6), "bias": normal(6)}, "head": {"kernel": normal(6, 4)}}


def init(*args, **keywords):
    return lambda w: tnj.init(w.layer, *args, **keywords)


def apply(task=1, x=lambda w: w.x, params=lambda w: w.params, **keywords):
    return lambda w: tnj.apply(w.layer, params(w), x(w), task, **keywords)


def jitted(task=1, x=lambda w: w.x):
    """The same while it is traced."""
    return lambda w: jax.jit(lambda p, x, t: tnj.apply(w.layer, p, x, t))(w.params, x(w), task)


def without(name):
    return lambda w: {key: value for key, value in w.params.items() if key != name}


def share(change=lambda w: w.trees, *args, **keywords):
    return lambda w: tnj.share(change(w), *args, **keywords)


def with_kernel(w, kernel):
    return {**w.tree, "dense": {**w.tree["dense"], "kernel": kernel}}


def tune(*args, **keywords):
    return lambda w: tnj.tune(w.layer, w.params, *args, **keywords)


def nnx():
    return pytest.importorskip("tnshare_jax.nnx")


def eqx():
    return pytest.importorskip("tnshare_jax.equinox")


FUNCTIONS = catalogue(
    ("init of a class", r"expected a description such as tnshare\.Linear: found", lambda w: tnj.init(tn.Linear)),
    ("init of parameters", r"expected a description such as tnshare\.Linear: found builtins\.dict", lambda w: tnj.init(w.params)),
    ("init of None", r"expected a description such as tnshare\.Linear: found", lambda w: tnj.init(None)),
    ("init with a negative seed", r"a seed must be .*: found -1", init(-1)),
    ("init with a seed of 0.5", r"a seed must be .*: found 0\.5", init(0.5)),
    ("init with a seed of True", r"a seed must be .*: found True", init(True)),
    ("init with a seed in words", r"a seed must be .*: found '0'", init("0")),
    ("init with several keys", r"a seed is one key: found keys of shape \(2,\)", lambda w: tnj.init(w.layer, w.keys)),
    ("init with an array of floats for a seed", r"a seed must be a whole number or a key: found float32 of shape \(\)", lambda w: tnj.init(w.layer, jnp.float32(1))),
    ("init with several seeds", r"a seed must be a whole number or a key: found int32 of shape \(2,\)", lambda w: tnj.init(w.layer, jnp.arange(2))),
    ("init in whole numbers", r"dtype must be one of .*: found int32", init(0, "int32")),
    ("init in a dtype that is none", r"dtype must be one of .*: found 'float31'", init(0, "float31")),
    ("init by an unknown scheme", r"scheme must be 'direct' or 'decomposed': found 'glorot'", init(0, scheme="glorot")),
    ("apply to features too few", r"expected x of shape \(\.\.\., 5\).*: found \(6, 4\)", apply(x=lambda w: w.x[:, :4])),
    ("apply to None", r"x must be an array.*: found NoneType", apply(x=lambda w: None)),
    ("apply to words", r"x must be an array.*: found str", apply(x=lambda w: "x")),
    ("apply to objects", r"x must be an array of numbers: found dtype object", apply(x=lambda w: w.x.astype(object))),
    ("apply to a dict", r"x must be an array.*: found dict", apply(x=lambda w: {"x": w.x})),
    ("apply to a ragged list", r"x must be an array.*: found list", apply(x=lambda w: [[1.0], [1.0, 2.0]])),
    ("apply to too few tasks", r"row t of x belongs to task t", apply(None)),
    ("apply a task out of range", r"task 3 is out of range: expected 0 <= task <= 2", apply(3)),
    ("apply a negative task", r"task -1 is out of range", apply(-1)),
    ("apply task True", r"task ids must be whole numbers: found dtype bool", apply(True)),
    ("apply task 1.0", r"task ids must be whole numbers: found dtype float64", apply(1.0)),
    ("apply task NaN", r"task ids must be whole numbers", apply(NAN)),
    ("apply a task by name", r"task ids must be whole numbers: found dtype", apply("b")),
    ("apply ids that are floats", r"task ids must be whole numbers: found dtype float32", apply(np.ones(6, np.float32))),
    ("apply ids too few", r"one task id for each row", apply(np.zeros(5, int))),
    ("apply ids in columns", r"found shape \(6, 1\)", apply(np.zeros((6, 1), int))),
    ("apply ids out of range", r"task 9 in row 2 is out of range", apply(np.array([0, 1, 9, 0, 0, 0]))),
    ("apply ids that are keys", r"task ids must be whole numbers: found dtype key", lambda w: tnj.apply(w.layer, w.params, w.x[:2], w.keys)),
    ("apply ids in a ragged list", r"ids in rows alike", apply([[0], [0, 1]])),
    ("traced, to features too few", r"expected x of shape", jitted(1, lambda w: w.x[:, :4])),
    ("traced, ids that are floats", r"task ids must be whole numbers: found dtype float32", jitted(np.ones(6, np.float32))),
    ("traced, ids in columns", r"found shape \(6, 1\)", jitted(np.ones((6, 1), np.int32))),
    ("traced, ids too few", r"one task id for each row", jitted(np.ones(4, np.int32))),
    ("apply without parameters", r"expected params by name, a dict with .*: found NoneType", apply(params=lambda w: None)),
    ("apply with a list of parameters", r"expected params by name, .*: found list", apply(params=lambda w: list(w.params.values()))),
    ("apply without a factor", r"the factor 'core' is missing", apply(params=without("core"))),
    ("apply without a bias", r"expected params\['bias'\] of shape \(3, 4\)", apply(params=without("bias"))),
    ("apply with a factor of another shape", r"the factor core.* must have shape \(2, 3, 2\): found \(3, 2\)", apply(params=lambda w: {**w.params, "core": w.params["core"][0]})),
    ("apply with a factor in a list", r"must have shape \(2, 3, 2\): found a list", apply(params=lambda w: {**w.params, "core": [1.0]})),
    ("apply parameters of another layer", r"the factor 'core' is missing|bias", apply(params=lambda w: w.conv_params)),
    ("apply with channels for a linear layer", r"dimension_numbers are for convolutions: found 'NHWC'", apply(dimension_numbers="NHWC")),
    ("apply with an unknown layout", r"dimension_numbers must be one of \('NCHW', 'NHWC'\): found 'HWCN'", lambda w: tnj.apply(w.conv, w.conv_params, w.image, 1, dimension_numbers="HWCN")),
    ("apply with a layout that is None in words", r"dimension_numbers must be one of", lambda w: tnj.apply(w.conv, w.conv_params, w.image, 1, dimension_numbers=3)),
    ("apply with an unknown precision", r"precision must be .*: found 'exact'", apply(precision="exact")),
    ("apply with an unknown element type", r"preferred_element_type must be .*: found 'float31'", apply(preferred_element_type="float31")),
    ("apply with training in words", r"training must be True or False: found 'no'", apply(training="no")),
    ("apply a convolution to vectors", r"expected x of shape", lambda w: tnj.apply(w.conv, w.conv_params, w.x, 1)),
    ("apply an embedding to floats", r"x must be whole numbers, the rows of the table: found dtype float32", lambda w: tnj.apply(w.table, w.table_params, w.x, 1)),
    ("apply an embedding out of range", r"x has 7, which is out of range: expected 0 <= x <= 6", lambda w: tnj.apply(w.table, w.table_params, w.tokens + 1, 1)),
    ("fan out features too few", r"expected x of shape", lambda w: tnj.fan_out(w.layer, w.params, w.x[:, :2])),
    ("fan out without parameters", r"expected params by name", lambda w: tnj.fan_out(w.layer, None, w.x)),
    ("weight of a task out of range", r"task 3 is out of range", lambda w: tnj.weight(w.layer, w.params, 3)),
    ("weight of no parameters", r"expected params by name.*: found NoneType", lambda w: tnj.weight(w.layer, None)),
    ("weight of a network", r"expected a description such as", lambda w: tnj.weight(w.layer.network, w.params)),
    ("tune a negative batch", r"batch must be .*: found -1", tune(-1)),
    ("tune no batch", r"batch must be .*: found 0", tune(0)),
    ("tune half a batch", r"batch must be .*: found 2\.5", tune(2.5)),
    ("tune an unknown way", r"way must be one of .*: found 'mix'", tune(4, "mix")),
    ("tune sizes of 0", r"sizes must be .*: found 0", tune(4, sizes=(0,))),
    ("tune sizes in words", r"sizes must be .*: found '3'", tune(4, sizes="3")),
    ("tune one size", r"sizes must be .*: found 3", tune(4, sizes=3)),
    ("tune training in words", r"training must be True or False: found 'no'", tune(4, training="no")),
    ("tune without parameters", r"expected params .*: found NoneType", lambda w: tnj.tune(w.layer, None, 4)),
    ("tune with empty parameters", r"expected params with .*: found none", lambda w: tnj.tune(w.layer, {}, 4)),
    ("tune a class", r"expected a description such as", lambda w: tnj.tune(tn.Linear, w.params, 4)),
    ("source of a way in a list", r"way must be one of .*: found \['one'\]", lambda w: tnj.source(w.layer, 4, ["one"])),
    ("source of no batch", r"batch must be .*: found None", lambda w: tnj.source(w.layer, None)),
    ("source in a dtype that is none", r"dtype must be .*: found 'float31'", lambda w: tnj.source(w.layer, 4, dtype="float31")),
    ("state of parameters lacking one", r"expected params with .*: 'core' is missing", lambda w: tnj.state(w.layer, without("core")(w))),
    ("state of parameters lacking a bias", r"expected params with .*: 'bias' is missing", lambda w: tnj.state(w.layer, without("bias")(w))),
    ("params of a state that is a dict", r"expected the state of a layer, .*: found dict", lambda w: tnj.params(w.layer, {})),
    ("params of a state of shared trees", r"expected the state of a layer, .*: found", lambda w: tnj.params(w.layer, w.shared_state)),
    ("params of another layer's state", r"a decomposition by|expected the state", lambda w: tnj.params(w.table, w.state)),
    ("nnx, a description of a network", r"expected a description such as tnshare\.Linear: found", lambda w: nnx().Layer(w.layer.network)),
    ("nnx, a seed and rngs", r"give a layer a seed or rngs, not both", lambda w: nnx().Linear(5, 4, 3, tn.LAF(2), seed=1, rngs=pytest.importorskip("flax.nnx").Rngs(0))),
    ("nnx, rngs that are a number", r"rngs must be .*: found 0", lambda w: nnx().Linear(5, 4, 3, tn.LAF(2), rngs=0)),
    ("nnx, no tasks", r"tasks must be .*: found 0", lambda w: nnx().Linear(5, 4, 0, tn.LAF(2))),
    ("nnx, a call out of range", r"task 3 is out of range", lambda w: nnx().Linear(5, 4, 3, tn.LAF(2))(w.x, 3)),
    ("nnx, a convolution of channels first", r"expected x of shape", lambda w: nnx().Conv(2, 4, (3, 3), 3, tn.LAF(2))(w.image, 0)),
    ("nnx, a convolution's kernel of None", r"kernel must be .*: found None", lambda w: nnx().Conv(2, 4, None, 3, tn.LAF(2))),
    ("equinox, several keys", r"a seed is one key: found keys of shape \(2,\)", lambda w: eqx().Linear(5, 4, 3, tn.LAF(2), key=w.keys)),
    ("equinox, a seed and a key", r"give a layer a seed or a key, not both", lambda w: eqx().Linear(5, 4, 3, tn.LAF(2), seed=1, key=w.keys[0])),
    ("equinox, a specification's name", r"spec must be a factorisation .*: found 'laf'", lambda w: eqx().Linear(5, 4, 3, "laf")),
    ("equinox, a call of other features", r"expected x of shape", lambda w: eqx().Linear(5, 4, 3, tn.LAF(2))(w.x[:, :3], 1)),
    ("equinox, an unknown keyword", r"use_bias", lambda w: eqx().Linear(5, 4, 3, tn.LAF(2), use_bias=False), TypeError),
    ("equinox, floats for tokens", r"x must be whole numbers", lambda w: eqx().Embedding(7, 4, 3, tn.LAF(2))(w.x, 1)),
)  # fmt: skip

SHARED = catalogue(
    ("share nothing", r"no trees were given: expected a list of them", share(lambda w: [])),
    ("share an empty dict", r"no trees were given", share(lambda w: {})),
    ("share None", r"trees must be a list of pytrees, .*: found NoneType", share(lambda w: None)),
    ("share a generator", r"trees must be a list of pytrees, .*: found generator", share(lambda w: (t for t in w.trees))),
    ("share a set", r"trees must be a list of pytrees, .*: found set", share(lambda w: {1, 2})),
    ("share a stack", r"trees must be a list of pytrees, .*: found .*Array|ndarray", share(lambda w: jnp.ones((3, 5, 6)))),
    ("share trees without leaves", r"no floating leaf to share", share(lambda w: [{}, {}])),
    ("share trees of numbers", r"no floating leaf to share: found 1 leaves of other kinds", share(lambda w: [{"w": 1.0}, {"w": 2.0}])),
    ("share trees and None", r"one structure", share(lambda w: [*w.trees, None])),
    ("share trees of other leaves", r"tree 3 differs from the first in its leaves", share(lambda w: [*w.trees, {"dense": w.tree["dense"]}])),
    ("share trees of other dtypes", r"dense\.kernel is float32 in the first and float16 in tree 3", share(lambda w: [*w.trees, with_kernel(w, w.tree["dense"]["kernel"].astype(jnp.float16))])),
    ("share trees with NaN", r"dense\.kernel: a stack must be finite: found nan", share(lambda w: [*w.trees, with_kernel(w, w.tree["dense"]["kernel"] * NAN)])),
    ("share trees with objects", r"dense\.kernel of tree 0 must be an array of numbers: found dtype object", share(lambda w: [with_kernel(w, np.ones((5, 6), object))] * 2)),
    ("share trees of shapes alone", r"leaves must be arrays of JAX or NumPy: found ShapeDtypeStruct", share(lambda w: [jax.eval_shape(lambda t: t, w.tree)] * 2)),
    ("share while tracing", r"share outside of jit", lambda w: jax.jit(lambda t: tnj.share([t, t]).common)(w.tree)),
    ("share with numbers for names", r"names of tasks must be strings: found \(0, 1, 2\)", share(lambda w: dict(enumerate(w.trees)))),
    ("share by an unknown method", r"method must be one of .*found 'svd'", share(lambda w: w.trees, "svd")),
    ("share by no method", r"method must be one of .*found None", share(lambda w: w.trees, None)),
    ("share with eps=1", r"eps must be .*found 1", share(eps=1)),
    ("share with eps=True", r"eps must be .*found True", share(eps=True)),
    ("share with eps and ranks", r"exclude each other", share(eps=0.1, ranks=(2, 2, 2))),
    ("share with ranks too many", r"dense\.kernel: .*takes 3 ranks .*: found 4", share(ranks=(2, 2, 2, 2))),
    ("share with ranks of 0", r"ranks must be .*: found \(0, 1, 1\)", share(ranks=(0, 1, 1))),
    ("share with max_parameters=0", r"max_parameters.*found 0", share(max_parameters=0)),
    ("share with max_parameters of True", r"max_parameters.*found True", share(max_parameters=True)),
    ("share only what is not there", r"no weight matches 'conv': expected names such as", share(only=["conv"])),
    ("share only a string", r"only must be a list .*: found 'dense'", share(only="dense")),
    ("share all except a number", r"except_ must be a list .*: found 3", share(except_=3)),
    ("share layers in a list", r"layers must be a dict.*: found list", share(layers=["dense"])),
    ("share layers in an unknown way", r"a method must be one of .*found 'soft'", share(layers={"dense": "soft"})),
    ("share layers with a keyword misspelt", r"layers\['dense'\].*'rank'", share(layers={"dense": {"method": "tt", "rank": 2}})),
    ("share axes that are no order", r"axes\['dense\.kernel'\] must be an order .*: found \(0, 0\)", share(axes={"dense.kernel": (0, 0)})),
    ("share axes of another rank", r"no weight of 3 dimensions matches 'dense'", share(axes={"dense": (0, 1, 2)})),
    ("share axes in a list", r"axes must be a dict.*: found list", share(axes=[(1, 0)])),
    ("share axes in words", r"axes\['dense'\] must be an order .*: found 'oi'", share(axes={"dense": "oi"})),
    ("compose a task out of range", r"task 3 is out of range: expected 0 <= task <= 2", lambda w: w.shared.compose(3)),
    ("compose a negative task", r"task -1 is out of range", lambda w: w.shared.compose(-1)),
    ("compose a task without names", r"no task is called 'a'", lambda w: w.shared.compose("a")),
    ("compose an unknown name", r"no task is called 'z': expected one of \('a', 'b', 'c'\)", lambda w: w.named.compose("z")),
    ("compose task True", r"task ids must be whole numbers: found dtype bool", lambda w: w.shared.compose(True)),
    ("compose task 1.0", r"task ids must be whole numbers: found dtype float64", lambda w: w.shared.compose(1.0)),
    ("compose ids in columns", r"found shape \(2, 1\)", lambda w: w.shared.compose(jnp.ones((2, 1), int))),
    ("compose a code too short", r"code must be .*: found \(2,\)", lambda w: w.shared.compose(code=jnp.ones(2))),
    ("compose a code in a list", r"code must be .*: found list", lambda w: w.shared.compose(code=[1.0])),
    ("compose a code of words", r"code must be an array of numbers: found dtype <U1", lambda w: w.shared.compose(code=np.full(w.code.shape, "a"))),
    ("compose a code of objects", r"code must be an array of numbers: found dtype object", lambda w: w.shared.compose(code=np.asarray(w.code).astype(object))),
    ("compose a complex code", r"code must be .*: found .*complex", lambda w: w.shared.compose(code=w.code + 1j)),
    ("compose one code as task 1", r"task 1 is out of range", lambda w: w.shared.compose(1, code=w.code)),
    ("code of a task out of range", r"task 9 is out of range", lambda w: w.shared.code(9)),
    ("add a tree of another structure", r"the new one differs from the first in its leaves", lambda w: w.shared.add_task({"dense": w.tree["dense"]})),
    ("add a tree of other sizes", r"dense\.kernel must have shape \(5, 6\): found \(6, 5\)", lambda w: w.shared.add_task(with_kernel(w, w.tree["dense"]["kernel"].T))),
    ("add a tree of NaN", r"must be finite: found NaN", lambda w: w.shared.add_task(with_kernel(w, w.tree["dense"]["kernel"] * NAN))),
    ("add a tree of whole numbers", r"dense\.kernel must be a floating array: found int32", lambda w: w.shared.add_task(with_kernel(w, w.tree["dense"]["kernel"].astype(int)))),
    ("add a tree and a code", r"a tree or a code, not both", lambda w: w.shared.add_task(w.tree, code=w.code)),
    ("add two codes", r"the code of one task: found 2 codes", lambda w: w.shared.add_task(code=jnp.stack([w.code, w.code]))),
    ("add a code of NaN", r"code must be finite", lambda w: w.shared.add_task(code=w.code * NAN)),
    ("add without a name", r"tasks have names: give the new one a name", lambda w: w.named.add_task(w.tree)),
    ("add with a name that is taken", r"a task is called 'a' already", lambda w: w.named.add_task(w.tree, "a")),
    ("add with a number for a name", r"name.*string.*: found", lambda w: w.named.add_task(w.tree, 7)),
    ("add a name among numbers", r"tasks have no names", lambda w: w.shared.add_task(w.tree, "d")),
    ("remove a task out of range", r"task 3 is out of range", lambda w: w.shared.remove_task(3)),
    ("remove several tasks", r"one task is expected", lambda w: w.shared.remove_task([0, 1])),
    ("remove the only task", r"the last task cannot be removed", lambda w: w.alone.remove_task(0)),
    ("remove an unknown name", r"no task is called 'z'", lambda w: w.named.remove_task("z")),
    ("fit the code of another structure", r"the new one differs", lambda w: w.shared.fit_code({"dense": w.tree["dense"]})),
    ("fit the code of None", r"the new one differs", lambda w: w.shared.fit_code(None)),
    ("sharing, normalised in words", r"normalise must be True or False: found 'no'", lambda w: w.shared.sharing(normalise="no")),
    ("sharing of one task", r"at least 2, found 1", lambda w: w.alone.sharing()),
    ("restore from a path", r"the state of a shared model was expected, .*: found str", lambda w: tnj.restore(w.tree, "tree.tn")),
    ("restore from a layer's state", r"the state of a shared model was expected, .*: found that of a layer", lambda w: tnj.restore(w.tree, w.state)),
    ("restore into another structure", r"the state is of trees of another structure", lambda w: tnj.restore({"dense": w.tree["dense"]}, w.shared_state)),
    ("restore into other sizes", r"has shape|must have shape", lambda w: tnj.restore(with_kernel(w, jnp.ones((9, 6))), w.shared_state)),
    ("restore into None", r"the state is of trees of another structure", lambda w: tnj.restore(None, w.shared_state)),
    ("restore with axes in a list", r"axes must be a dict.*: found list", lambda w: tnj.restore(w.tree, w.shared_state, axes=[(0, 1)])),
)  # fmt: skip


@FUNCTIONS
def test_functions_and_layers(misuse, world):
    refused(misuse, world)


@SHARED
def test_shared_trees(misuse, world):
    refused(misuse, world)
