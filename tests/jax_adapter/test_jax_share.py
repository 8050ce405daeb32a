"""tnshare_jax.share: any pytree in, one tree of factors out, and back; under jit, grad, vmap, and trained."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import tnshare_jax as tnj
from tolerances import close

import tnshare as tn

jnp = jax.numpy

T = 4
TERMS, SUMMED = 6 + 5 + 16, 6 + 5 + 16 + 4 * 7  # two layers and their bonds; rows of all tasks
METHODS = pytest.mark.parametrize("method", ["laf", "tucker", "tt"])


def plain(seed=0, head=3):
    random = np.random.default_rng(seed)
    return {
        "dense": {"kernel": random.normal(size=(6, 5)), "bias": random.normal(size=5)},
        "head": [random.normal(size=(5, head)), {"scale": random.normal(size=(1, head))}],
    }


def forward(tree, x):
    weight, rest = tree["head"]
    return jnp.tanh(x @ tree["dense"]["kernel"] + tree["dense"]["bias"]) @ weight * rest["scale"]


def varied(tree, count=T, spread=0.2, dtype=np.float32):
    """Copies of a tree whose floating leaves differ a little."""
    random = np.random.default_rng(1)

    def changed(leaf):
        if not hasattr(leaf, "dtype") or not jnp.issubdtype(leaf.dtype, jnp.inexact):
            return leaf
        return jnp.asarray(np.asarray(leaf) + spread * random.normal(size=leaf.shape), dtype)

    return [jax.tree.map(changed, tree) for _ in range(count)]


def draw(*shape):
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


def same_trees(one, other, terms=TERMS):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if hasattr(a, "dtype") and jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = map(jax.random.key_data, (a, b))
        if hasattr(a, "dtype"):
            assert (a.shape, a.dtype) == (b.shape, jnp.asarray(b).dtype)
            close(a, b, terms)
        else:
            assert a is b or a == b


X = draw(7, 6)
TREES = varied(plain())
SHARED = tnj.share(TREES, "tt", eps=0)


@METHODS
def test_without_loss_every_task_is_as_it_was_however_it_is_chosen(method):
    shared = tnj.share(TREES, method, eps=0)
    assert set(shared.codes) == {"dense.kernel", "head.0"}
    assert set(shared.own) == {"dense.bias", "head.1.scale"}
    for one, tree in zip(shared.unshare(), TREES, strict=True):
        same_trees(one, tree)
    same_trees(jax.jit(lambda s, t: s.compose(t))(shared, 2), TREES[2])
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *TREES)
    same_trees(jax.jit(lambda s: s.compose())(shared), stacked)
    ids = jnp.array([3, 0, 3])
    same_trees(jax.jit(lambda s, i: s.compose(i))(shared, ids), jax.tree.map(lambda a: a[ids], stacked))
    assert all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(shared))


@METHODS
def test_factors_errors_and_report_are_those_of_a_decomposition(method):
    shared = tnj.share(TREES, method, eps=0.25, layers={"head": {"method": method, "eps": 0}})
    for name, pick in {
        "dense.kernel": lambda t: t["dense"]["kernel"],
        "head.0": lambda t: t["head"][0],
    }.items():
        eps = 0 if name == "head.0" else 0.25
        d = tn.decompose(np.stack([pick(tree) for tree in TREES], axis=-1), method, eps=eps)
        factors = {**shared.common[name], **shared.codes[name]}
        assert set(factors) == set(d.factors)
        assert all(np.array_equal(factors[key], value) for key, value in d.factors.items())
        (row,) = (line for line in shared.report().splitlines() if line.startswith(f"{name} "))
        assert repr(d.spec) in row
        assert f"{d.error:.3g}" in row
        layer = name.removesuffix(".kernel")
        assert shared.sharing()[layer] == pytest.approx(tn.sharing_strength(tn.codes(d.network, d.factors)))
        np.testing.assert_allclose(
            shared.similarity()[layer], tn.task_similarity(d.network, d.factors), atol=1e-5
        )


def loss_of_all(shared, xs):
    return jnp.square(jax.vmap(forward)(shared.compose(), xs)).sum()


def test_gradients_are_those_of_a_loop_over_tasks_and_of_traced_numbers():
    xs = draw(T, 7, 6)

    def one_by_one(shared, xs):
        return sum(jnp.square(forward(shared.compose(t), xs[t])).sum() for t in range(T))

    def by_number(shared, xs):
        return jnp.square(jax.vmap(lambda t, x: forward(shared.compose(t), x))(jnp.arange(T), xs)).sum()

    expected = jax.jit(jax.grad(one_by_one))(SHARED, xs)
    assert isinstance(expected, tnj.Shared)
    assert min(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(expected)) > 0
    same_trees(jax.jit(jax.grad(loss_of_all))(SHARED, xs), expected, SUMMED)
    same_trees(jax.jit(jax.grad(by_number))(SHARED, xs), expected, SUMMED)


def test_optax_trains_codes_alone_decays_factors_alone_and_traces_once():
    optax = pytest.importorskip("optax")
    xs, ys, traces = draw(T, 7, 6), draw(T, 7, 3), []
    transforms = {"shared": optax.set_to_zero(), "codes": optax.adam(0.05), "own": optax.set_to_zero()}
    optimiser = optax.multi_transform(transforms, SHARED.labels())

    def loss(shared):
        return jnp.square(jax.vmap(forward)(shared.compose(), xs) - ys).mean()

    @jax.jit
    def step(shared, state):
        traces.append(1)
        value, gradient = jax.value_and_grad(loss)(shared)
        updates, state = optimiser.update(gradient, state, shared)
        return optax.apply_updates(shared, updates), state, value

    shared, state, losses = SHARED, optimiser.init(SHARED), []
    for _ in range(40):
        shared, state, value = step(shared, state)
        losses.append(float(value))
    assert losses[-1] < 0.9 * losses[0]
    assert len(traces) == 1
    same_trees(shared.common, SHARED.common, 0)
    same_trees(shared.own, SHARED.own, 0)
    assert all(
        float(jnp.abs(a - b).min()) > 0
        for a, b in zip(jax.tree.leaves(shared.codes), jax.tree.leaves(SHARED.codes), strict=True)
    )
    decay = optax.add_decayed_weights(0.5, mask=jax.tree.map(lambda word: word == "shared", SHARED.labels()))
    zero = jax.tree.map(jnp.zeros_like, SHARED)
    decayed, _ = decay.update(zero, decay.init(SHARED), SHARED)
    assert float(jnp.abs(jnp.concatenate([a.ravel() for a in jax.tree.leaves(decayed.common)])).min()) > 0
    assert not any(leaf.any() for leaf in jax.tree.leaves((decayed.codes, decayed.own)))


def test_a_traced_number_out_of_range_gives_nan_and_a_known_one_is_refused():
    composed = jax.jit(lambda t: SHARED.compose(t))(T)
    assert all(np.isnan(leaf).all() for leaf in jax.tree.leaves(composed))
    for task, text in [
        (T, "task 4 is out of range: expected 0 <= task <= 3"),
        (-1, "task -1 is out of range"),
        ([0, 9], "task 9 in row 1 is out of range"),
        (1.0, "task ids must be whole numbers: found dtype float64"),
        (True, "task ids must be whole numbers: found dtype bool"),
        ("red", r"no task is called 'red': expected one of \(\)"),
        ([[0]], r"found shape \(1, 1\)"),
    ]:
        with pytest.raises(tn.TnshareError, match=text):
            SHARED.compose(task)


def test_settings_of_layers():
    shared = tnj.share(
        TREES, layers={"head": "single", "*.bias": "hard", "dense": {"method": "laf", "ranks": 2}}
    )
    assert set(shared.codes) == {"dense.kernel"}
    assert set(shared.own) == {"head.0", "head.1.scale"}
    mean = np.mean([tree["dense"]["bias"] for tree in TREES], axis=0)
    close(shared.common["dense.bias"]["weight"], mean, TERMS)
    for task in (1, jnp.array(1)):
        close(shared.compose(task)["dense"]["bias"], mean, TERMS)
    assert shared.compose()["dense"]["bias"].shape == (T, 5)
    assert shared.compose([1, 2, 1])["dense"]["bias"].shape == (3, 5)
    assert shared.labels().common["dense.bias"] == {"weight": "shared"}
    assert set(tnj.share(TREES, only=["dense"], eps=0).codes) == {"dense.kernel"}
    assert set(tnj.share(TREES, except_=["dense"], eps=0).codes) == {"head.0"}
    within = tnj.share(TREES, "tucker", max_parameters=100)
    assert sum(leaf.size for leaf in jax.tree.leaves((within.common, within.codes))) <= 100
    deviation = tnj.share(TREES, "laf", eps=0.5, relative_to="deviation")
    assert deviation.codes["head.0"]["S"].shape[1] > 1
    assert tnj.share(TREES, "single").sharing() == {}


def test_axes_say_how_a_weight_is_stacked_and_that_it_is_one():
    turned = tnj.share(TREES, "tt", eps=0, axes={"dense": (1, 0), "*.scale": (0, 1)})
    d = tn.decompose(np.stack([tree["dense"]["kernel"].T for tree in TREES], axis=-1), "tt", eps=0)
    np.testing.assert_array_equal(turned.codes["dense.kernel"]["U_task"], d.factors["U_task"])
    composed = tn.compose(d.network, d.factors, 1).T
    close(turned.compose(1)["dense"]["kernel"], composed, TERMS)
    close(turned.compose()["dense"]["kernel"][1], composed, TERMS)
    assert "head.1.scale" in turned.codes
    for axes, text in [
        (
            {"dense": (0, 0)},
            r"axes\['dense'\] must be an order of a leaf's axes, as \(1, 0\): found \(0, 0\)",
        ),
        ({"dense": None}, r"axes\['dense'\] must be an order of a leaf's axes, as \(1, 0\): found None"),
        ({"dense": (2, 1, 0)}, r"no weight of 3 dimensions matches 'dense': expected one of \(\)"),
        ({"tail": (1, 0)}, r"no weight of 2 dimensions matches 'tail': expected one of \('dense.kernel'"),
    ]:
        with pytest.raises(tn.TnshareError, match=text):
            tnj.share(TREES, axes=axes)


def test_heads_of_different_sizes_stay_with_their_tasks():
    trees = [varied(plain(head=size), 1)[0] for size in (3, 2, 3, 6)]
    shared = tnj.share(trees, "laf", eps=0)
    assert "differs" in shared.report()
    assert [head.shape for head in shared.own["head.0"]] == [(5, 3), (5, 2), (5, 3), (5, 6)]
    for one, tree in zip(shared.unshare(), trees, strict=True):
        same_trees(one, tree)
    gradient = jax.grad(lambda s: jnp.square(forward(s.compose(3), X)).sum())(shared)
    assert [bool(head.any()) for head in gradient.own["head.0"]] == [False, False, False, True]
    for choose in (
        lambda: shared.compose(),
        lambda: jax.jit(shared.compose)(1),
        lambda: shared.compose([1, 2]),
    ):
        with pytest.raises(tn.TnshareError, match=r"head\.0 differs in shape between tasks"):
            choose()
    with pytest.raises(tn.TnshareError, match="no mean: give add_task a tree"):
        shared.add_task()
    same_trees(shared.add_task(trees[1]).compose(4)["head"], trees[1]["head"])
    assert [head.shape[1] for head in shared.remove_task(1).own["head.0"]] == [3, 3, 6]


def test_tasks_come_and_go_and_the_others_stay_bit_by_bit():
    full = tnj.share(TREES, "laf", eps=0)
    grown = full.add_task(TREES[1])
    assert (full.tasks, grown.tasks) == (T, T + 1)
    same_trees(grown.compose(T), TREES[1])
    for t in range(T):
        same_trees(grown.compose(t), full.compose(t), 0)
    same_trees(grown.remove_task(1).compose(0), full.compose(0), 0)
    same_trees(grown.remove_task(1).compose(1), full.compose(2), 0)
    assert grown.similarity()["dense"].shape == (T + 1, T + 1)
    assert grown.remove_task(1).remove_task(0).similarity()["dense"].shape == (T - 1, T - 1)
    assert grown.remove_task(1).decompositions()["head.0"][0].task_shape == (T,)
    assert full.add_task().compose(T)["dense"]["bias"] == pytest.approx(
        np.mean([tree["dense"]["bias"] for tree in TREES], axis=0), abs=1e-6
    )
    kernel = np.mean([tree["dense"]["kernel"] for tree in TREES], axis=0)
    close(full.add_task().compose(T)["dense"]["kernel"], kernel, TERMS)
    wide = TREES[0] | {"head": [TREES[0]["head"][0], {"scale": jnp.ones((4, 3))}]}
    assert full.add_task(wide).compose(T)["head"][1]["scale"].shape == (4, 3)  # no head of its size so far


def test_trees_of_numpy_in_double_precision_become_what_jax_has():
    trees = [jax.tree.map(np.float64, tree) for tree in TREES]
    for method in ("laf", "hard", "single"):
        shared = tnj.share(trees, method, eps=0)
        assert {leaf.dtype for leaf in jax.tree.leaves(shared)} == {np.dtype(np.float32)}
        assert shared.add_task(trees[0]).tasks == T + 1


def test_names():
    shared = tnj.share(dict(zip("abcd", TREES, strict=True)), "laf", eps=0)
    same_trees(shared.compose("c"), TREES[2])
    assert shared.remove_task("b").names == ("a", "c", "d")
    assert shared.add_task(name="e").names == ("a", "b", "c", "d", "e")
    for change, text in [
        (lambda: shared.add_task(), "tasks have names: give the new one a name"),
        (lambda: shared.add_task(name="a"), "a task is called 'a' already"),
        (lambda: SHARED.add_task(name="a"), "tasks have no names"),
        (lambda: shared.remove_task("z"), "no task is called 'z'"),
        (lambda: shared.remove_task([0]), r"one task is expected, by its number or its name: found \[0\]"),
        (lambda: tnj.share(TREES[:1]).remove_task(0), "the last task cannot be removed"),
        (lambda: tnj.share({1: TREES[0]}), r"the names of tasks must be strings: found \(1,\)"),
    ]:
        with pytest.raises(tn.TnshareError, match=text):
            change()


@pytest.mark.parametrize(
    ("trees", "text"),
    [
        ([], "no trees were given: expected a list of them, one for each task"),
        (iter(TREES), "trees must be a list of pytrees, one for each task, or a dict: found list_iterator"),
        (
            [TREES[0], TREES[1]["dense"]],
            r"tree 1 differs from the first in its leaves \(dense.bias, dense.kernel",
        ),
        (
            [TREES[0], jax.tree.map(np.float64, TREES[1])],
            "dense.bias is float32 in the first and float64 in tree 1",
        ),
        (
            [TREES[0], TREES[1] | {"head": tuple(TREES[1]["head"])}],
            "tree 1 differs from the first in what is static",
        ),
        ([{"w": jax.ShapeDtypeStruct((2, 2), np.float32)}], "found ShapeDtypeStruct as w of tree 0"),
        ([{"n": 1, "m": jnp.arange(3)}], "no floating leaf to share: found 2 leaves"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_trees_that_cannot_be_shared_are_refused(trees, text):
    with pytest.raises(tn.TnshareError, match=text):
        tnj.share(trees)


def test_other_mistakes_are_told():
    with pytest.raises(
        tn.TnshareError, match=r"dense.bias of tree 0 has no numbers to look at while it is traced"
    ):
        jax.jit(lambda trees: tnj.share(trees))(TREES)
    with pytest.raises(tn.TnshareError, match="no weight matches 'tail'"):
        tnj.share(TREES, only=["tail"])
    with pytest.raises(tn.TnshareError, match=r"exclude each other: found eps=0.1 and ranks=2"):
        tnj.share(TREES, eps=0.1, ranks=2)
    wrong = {"dense": TREES[0]["dense"], "head": [TREES[0]["head"][0][:, :2], TREES[0]["head"][1]]}
    with pytest.raises(tn.TnshareError, match=r"head.0 must have shape \(5, 3\): found \(5, 2\)"):
        SHARED.add_task(wrong)
    with pytest.raises(
        tn.TnshareError, match=r"dense.bias must be a floating array: found int in the new one"
    ):
        SHARED.add_task(jax.tree.map(lambda _: 1, TREES[0]))
    with pytest.raises(tn.TnshareError, match="the new one differs from the first in its leaves"):
        SHARED.add_task({"dense": TREES[0]["dense"]})


def test_numbers_and_keys_and_functions_are_static():
    def tree(step, seed, act=jnp.tanh):
        return {
            "w": jnp.ones((2, 3)) * seed,
            "step": jnp.asarray(step),
            "key": jax.random.key(seed),
            "act": act,
            "p": 0.5,
        }

    shared = tnj.share([tree(1, 1), tree(2, 2), tree(3, 3)], "laf", eps=0)
    assert all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves(shared))
    assert len(jax.tree.leaves(shared)) == 2
    one = shared.compose(1)
    assert one["act"] is jnp.tanh
    assert one["p"] == 0.5
    assert isinstance(one["p"], float)
    assert int(one["step"]) == 2
    traced = jax.jit(lambda s, t: [s.compose(t)[name] for name in ("step", "key")])(shared, 2)
    assert int(traced[0]) == 3
    same_trees(traced[1], jax.random.key(3))
    every = shared.compose()
    assert every["step"].tolist() == [1, 2, 3]
    assert every["key"].shape == (3,)
    assert every["act"] is jnp.tanh
    assert hash(shared.structure) == hash(jax.tree.map(lambda a: a + 1, shared).structure)
    assert tnj.share([tree(1, 1), tree(2, 2), tree(3, 3)], "laf", eps=0).structure == shared.structure
    assert tnj.share([tree(1, 1), tree(2, 2), tree(4, 3)], "laf", eps=0).structure != shared.structure
    mixed = tnj.share([tree(1, 1), tree(2, 2, jnp.sin)], "laf", eps=0)
    assert mixed.compose(1)["act"] is jnp.sin
    with pytest.raises(tn.TnshareError, match="act is static and differs between tasks"):
        mixed.compose()
    grown = shared.add_task(tree(9, 4))
    assert int(grown.compose(3)["step"]) == 9
    assert int(grown.remove_task(0).compose(0)["step"]) == 2
    assert int(shared.add_task().compose(3)["step"]) == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "complex64", "float64"])
def test_dtypes_are_kept(dtype):
    with jax.enable_x64(dtype == "float64"):
        trees = [
            {"w": jnp.asarray(draw(6, 5) + 0.1 * t, dtype), "bias": jnp.ones(3, dtype)} for t in range(3)
        ]
        shared = tnj.share(trees, "tucker", eps=0)
        assert {str(leaf.dtype) for leaf in jax.tree.leaves(shared)} == {dtype}
        close(shared.compose(2)["w"], trees[2]["w"], 6 if dtype == "bfloat16" else 6 + 5 + 3 + 3)
        assert shared.add_task(trees[1]).codes["w"]["U_task"].dtype == dtype
