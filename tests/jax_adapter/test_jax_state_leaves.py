"""State is no weight; keys are not static; what is one stays one; one tree is not taken for T trees."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import tnshare_jax as tnj
from varied_trees import varied

import tnshare as tn

jnp = jax.numpy

T = 3
X = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def square(start):
    return jnp.asarray(np.sin(start + np.arange(16)), jnp.float32).reshape(4, 4)


def words(shared):
    """The words of own leaves, and the names of weights that are factors."""
    return dict(shared.labels().own), set(shared.codes)


def test_in_linen_every_collection_but_params_is_state():
    nn = pytest.importorskip("flax.linen")

    class Net(nn.Module):
        @nn.compact
        def __call__(self, x):
            self.variable("cache", "window", lambda: square(1))  # as large as a weight
            return nn.BatchNorm(use_running_average=True)(nn.Dense(4)(x))

    shared = tnj.share(varied(Net().init(jax.random.key(0), X)), eps=0)
    own, soft = words(shared)
    assert soft == {"params.Dense_0.kernel"}
    assert {name for name, word in own.items() if word == "state"} == {
        "cache.window", "batch_stats.BatchNorm_0.mean", "batch_stats.BatchNorm_0.var",
    }  # fmt: skip
    assert own["params.BatchNorm_0.scale"] == own["params.Dense_0.bias"] == "own"


def test_in_nnx_what_is_no_param_is_state():
    nnx = pytest.importorskip("flax.nnx")

    class Own(nnx.Variable):
        pass

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.layer, self.norm = nnx.Linear(3, 4, rngs=rngs), nnx.BatchNorm(4, rngs=rngs)
            self.memory, self.mean = Own(square(1)), nnx.Param(square(2))

    own, soft = words(tnj.share(varied(nnx.state(Net(nnx.Rngs(0)))), eps=0))
    assert soft == {"layer.kernel", "mean"}  # a Param, whatever it is called
    assert {n for n, w in own.items() if w == "state"} == {"memory", "norm.mean", "norm.var"}


def test_in_equinox_what_is_under_a_state_is_state():
    eqx = pytest.importorskip("equinox")

    class Net(eqx.Module):
        layer: eqx.nn.Linear
        norm: eqx.nn.BatchNorm

        def __init__(self):
            self.layer = eqx.nn.Linear(3, 4, key=jax.random.key(0))
            self.norm = eqx.nn.BatchNorm(4, axis_name="batch", mode="ema")

    whole, (model, state) = Net(), eqx.nn.make_with_state(Net)()
    own, soft = words(tnj.share(varied(whole), eps=0))
    assert soft == {"layer.weight"}
    found = {name for name, word in own.items() if word == "state"}
    assert len(found) == 2
    assert all(".init." in name for name in found)
    own, soft = words(tnj.share(varied((model, state)), eps=0))
    assert soft == {"0.layer.weight"}
    assert {name for name, word in own.items() if word == "state"} == {"1.1.0", "1.1.1"}


def test_in_haiku_averages_of_norms_are_state_though_they_have_the_shape_of_weights():
    hk = pytest.importorskip("haiku")

    def run(x):
        y = hk.BatchNorm(True, True, 0.9)(hk.Linear(4)(x), is_training=True)
        return hk.SpectralNorm()(y)

    both = hk.transform_with_state(run).init(jax.random.key(0), X)
    own, soft = words(tnj.share(varied(both), eps=0))
    assert soft == {"0.linear.w"}
    state = {name.rpartition("/")[2] for name, word in own.items() if word == "state"}
    assert state == {
        "mean_ema.average", "mean_ema.hidden", "var_ema.average", "var_ema.hidden",
        "1.spectral_norm.sigma", "1.spectral_norm.u0",
    }  # fmt: skip
    assert own["0.batch_norm.scale"] == "own"


def plain(**more):
    return {
        "norm": {"mean": square(1), "var": square(2)},
        "head": {"mean": square(3)},
        "w": square(4),
        **more,
    }


def test_where_nobody_says_a_rule_does_and_the_user_may_say_otherwise():
    own, soft = words(tnj.share(varied(plain(running_mean=square(5))), eps=0))
    assert soft == {"head.mean", "w"}  # a mean without a var is a weight
    assert own == dict.fromkeys(("norm.mean", "norm.var", "running_mean"), "state")
    own, soft = words(tnj.share(varied(plain()), eps=0, state={"norm.*": False, "w": True}))
    assert soft == {"head.mean", "norm.mean", "norm.var"}
    assert own == {"w": "state"}
    for wrong, text in [
        ({"other": True}, r"state: no leaf matches 'other': expected one of \('head.mean', 'norm.mean'"),
        ({"w": 1}, r"state must say True or False for patterns of names: found \{'w': 1\}"),
        (["w"], r"state must say True or False for patterns of names: found \['w'\]"),
    ]:
        with pytest.raises(tn.TnshareError, match=text):
            tnj.share(varied(plain()), eps=0, state=wrong)


@pytest.mark.parametrize("method", ["tucker", "hard", "single"])
def test_state_stays_with_each_task_and_is_saved_and_restored_as_such(method, tmp_path):
    trees = varied(plain())
    shared = tnj.share(trees, method)
    for task, tree in enumerate(trees):
        for name in ("mean", "var"):
            np.testing.assert_array_equal(shared.compose(task)["norm"][name], tree["norm"][name])
    tn.save(tmp_path / "file", shared)
    again = tnj.restore(trees[0], tn.load(tmp_path / "file"))
    assert again.labels().own == shared.labels().own
    assert again.structure.entries == shared.structure.entries
    grown = again.add_task(trees[1]).remove_task(0)
    assert grown.labels().own["norm.mean"] == "state"
    np.testing.assert_array_equal(grown.compose(2)["norm"]["var"], trees[1]["norm"]["var"])


def test_an_optimiser_that_decays_weights_leaves_state_alone():
    optax = pytest.importorskip("optax")
    shared = tnj.share(varied(plain()), eps=0)
    decay = optax.adamw(1e-2, weight_decay=0.5)
    rules = {"shared": decay, "codes": decay, "own": decay, "state": optax.set_to_zero()}
    optimiser = optax.multi_transform(rules, shared.labels())
    gradients = jax.tree.map(jnp.zeros_like, shared)
    updates, _ = optimiser.update(gradients, optimiser.init(shared), shared)
    moved = optax.apply_updates(shared, updates)
    np.testing.assert_array_equal(moved.own["norm.mean"], shared.own["norm.mean"])
    assert not np.array_equal(moved.common["w"]["core"], shared.common["w"]["core"])


@pytest.mark.parametrize("name", ["rng", "rngs", "dropout_rng", "dropout"])
@pytest.mark.parametrize(
    "key", [lambda: jax.random.key(0), lambda: jax.random.PRNGKey(0)], ids=["new", "old"]
)
def test_keys_that_a_network_draws_from_are_refused_and_may_be_allowed(name, key):
    trees = varied({"w": square(1), "layer": {name: key()}})
    with pytest.raises(tn.TnshareError, match=rf"layer.{name} is a key .* state=\{{'layer.{name}': False\}}"):
        tnj.share(trees, eps=0)
    shared = tnj.share(trees, eps=0, state={"layer.*": False})
    assert shared.add_task(trees[0]).tasks == T + 1


def tied(number):
    draw = np.random.default_rng(number)
    w = jnp.asarray(draw.standard_normal((4, 4)), jnp.float32)
    return {"embed": {"w": w}, "out": {"w": w, "b": jnp.zeros(4)}, "other": square(number)}


@pytest.mark.parametrize("method", ["laf", "hard", "single"])
def test_weights_that_two_layers_share_stay_one(method, tmp_path):
    trees = [tied(number) for number in range(T)]
    shared = tnj.share(trees, method, eps=0) if method == "laf" else tnj.share(trees, method)
    for task in (0, None):
        tree = shared.compose(task)
        assert tree["embed"]["w"] is tree["out"]["w"]
    assert "out.w" not in {**shared.common, **shared.codes, **shared.own}
    tn.save(tmp_path / "file", shared)
    assert "out.w" not in tn.load(tmp_path / "file").entries
    again = tnj.restore(tied(9), tn.load(tmp_path / "file"))
    assert again.structure.entries == shared.structure.entries
    moved = jax.tree.map(lambda leaf: 2 * leaf, again).compose(1)
    np.testing.assert_array_equal(moved["embed"]["w"], moved["out"]["w"])
    grown = again.add_task(tied(7)).remove_task(0)
    assert grown.compose(0)["embed"]["w"] is not None
    loose = tied(8) | {"embed": {"w": square(8)}}
    with pytest.raises(
        tn.TnshareError, match=r"out.w and embed.w are one weight here: found other numbers in"
    ):
        again.add_task(loose)
    with pytest.raises(tn.TnshareError, match=r"\['out.w'\] only in the tree"):
        tnj.restore(loose, tn.load(tmp_path / "file"))
    untied = tnj.share([trees[0], loose, trees[2]], "single")
    assert "out.w" in untied.own


LAYER = {"kernel": np.ones((3, 3)), "bias": np.ones(3)}


@pytest.mark.parametrize(
    ("trees", "text"),
    [
        (
            {"params": LAYER},
            r"the names \('params',\) are those of parts of one network: expected one tree for",
        ),
        (
            {"params": LAYER, "batch_stats": LAYER},
            r"the names \('params', 'batch_stats'\) are those of parts",
        ),
        (
            {"Dense_0": LAYER, "Dense_1": LAYER},
            r"the names \('Dense_0', 'Dense_1'\) are those of parts of one",
        ),
        ({"mlp/~/linear_0": LAYER, "mlp/~/linear_1": LAYER}, "are those of parts of one network"),
        (
            {"linear": LAYER, "linear_1": LAYER},
            r"of a stack, .* jax.tree.map\(lambda leaf: leaf\[t\], stack\)",
        ),
        (
            [np.ones((3, 3)), np.ones((3, 3))],
            r"tree 0 is an array \(3, 3\), not a tree: expected one tree for",
        ),
        (LAYER, r"tree 0 is an array \(3, 3\), not a tree"),
        (
            {"a": LAYER, "b": {"kernel": np.ones((3, 2)), "bias": np.ones(2)}},
            r"no weight has one shape in all trees.*: kernel has the shapes \(\(3, 3\), \(3, 2\)\); give T",
        ),
        (
            [LAYER, {"kernel": LAYER["kernel"]}],
            "trees must have one structure: tree 1 differs from the first",
        ),
    ],
)
def test_one_tree_is_not_taken_for_the_trees_of_tasks(trees, text):
    with pytest.raises(tn.TnshareError, match=text):
        tnj.share(trees, eps=0)


def test_functions_that_differ_between_tasks_are_refused_where_a_file_cannot_hold_them(tmp_path):
    trees = [{"w": square(n), "act": act} for n, act in enumerate((jnp.tanh, jnp.sin, jnp.tanh))]
    shared = tnj.share(trees, eps=0)
    assert [shared.compose(t)["act"] for t in range(T)] == [jnp.tanh, jnp.sin, jnp.tanh]
    with pytest.raises(
        tn.TnshareError, match="act is static and differs between tasks, and a file cannot hold"
    ):
        tn.save(tmp_path / "file", shared)
    assert not (tmp_path / "file").exists()
    same = tnj.share([tree | {"act": jnp.tanh} for tree in trees], eps=0)
    tn.save(tmp_path / "file", same)
    assert tnj.restore(trees[0], tn.load(tmp_path / "file")).compose(1)["act"] is jnp.tanh


def test_shared_trees_with_tasks_removed_and_added_are_saved_and_restored(tmp_path):
    trees = varied(plain())
    for method in ("laf", "tucker", "tt"):
        shared = tnj.share(trees, method, eps=0)
        for changed in (
            shared.remove_task(0),
            shared.remove_task(2).remove_task(0),
            shared.add_task(trees[0]),
        ):
            tn.save(tmp_path / "file", changed)
            again = tnj.restore(trees[0], tn.load(tmp_path / "file"))
            assert again.tasks == changed.tasks
            for task in range(changed.tasks):
                for one, other in zip(
                    jax.tree.leaves(again.compose(task)), jax.tree.leaves(changed.compose(task)), strict=True
                ):
                    np.testing.assert_array_equal(one, other)


def test_keys_that_jax_cannot_make_are_refused():
    from tnshare.files import Keys

    state = tnj.share([{"w": square(n), "key": jax.random.key(n)} for n in range(T)], eps=0).state()
    for wrong in (Keys("other", np.zeros(2, np.uint32)), Keys("threefry2x32", np.zeros(3, np.uint32))):
        changed = tn.State(state.entries, state.tasks, (), {"key": (wrong,)})
        with pytest.raises(tn.TnshareError, match="key has keys in the state that JAX cannot make"):
            tnj.restore({"w": square(0), "key": jax.random.key(0)}, changed)
