"""One file for torch and JAX: layers and shared networks saved in one, loaded in the other, and back."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import close

import tnshare as tn
from tnshare.files import layer_params, layer_state, translated
from tnshare.files._exchange import common_name

jax = pytest.importorskip("jax")
tnj = pytest.importorskip("tnshare_jax")
jnp = jax.numpy

T = 3
TERMS = 64  # two layers, a convolution, and their bonds
X = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
SPECS = {
    "laf": tn.LAF(2),
    "tucker": tn.Tucker((3, 2, 2)),
    "tt": tn.TT((3, 2)),
    "frozen": tn.LAF.evgeniou_pontil(T),
}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_layers_go_from_torch_to_jax_and_back(spec, bias, tmp_path):
    torch, tnt = pytest.importorskip("torch"), pytest.importorskip("tnshare_torch")
    module = tnt.Linear(6, 4, T, spec, bias, seed=7)
    layer = tn.Linear(6, 4, tasks=T, spec=spec, bias=bias)
    tensors = {name: tensor.detach().clone().numpy() for name, tensor in module.state_dict().items()}
    tn.save(tmp_path / "of torch", layer_state(layer, tensors))
    params = tnj.params(layer, tn.load(tmp_path / "of torch"))
    assert list(params) == list(layer.shapes)
    assert all(isinstance(value, jax.Array) for value in params.values())
    expected = module.fan_out(torch.from_numpy(X)).detach().numpy()
    close(tnj.fan_out(layer, params, X), expected, TERMS)
    tn.save(tmp_path / "of jax", tnj.state(layer, {name: 2 * value for name, value in params.items()}))
    with torch.no_grad():
        for name, value in layer_params(layer, tn.load(tmp_path / "of jax")).items():
            module.get_parameter(name).copy_(torch.from_numpy(value))
            assert np.array_equal(value, 2 * tensors[name])


def test_states_of_other_layers_are_refused():
    layer = tn.Linear(6, 4, tasks=T, spec=tn.LAF(2))
    state = tnj.state(layer, tnj.init(layer))
    weight, bias = state.entries["weight"], state.entries["bias"]
    for other, found, text in [
        (tn.Linear(6, 4, tasks=T, spec=tn.LAF(3)), state, r"a decomposition by LAF\(3\) .* was expected"),
        (
            tn.Linear(6, 4, tasks=T, spec=tn.LAF(2), bias=False),
            state,
            r"with \('weight',\): found \('weight', 'bias'\)",
        ),
        (layer, tn.State({"weight": weight}), r"with \('weight', 'bias'\): found \('weight',\)"),
        (layer, tn.State({"weight": bias, "bias": bias}), "expected the state of a layer"),
        (layer, tn.State(state.entries, ({},)), "expected the state of a layer"),
        (layer, weight, r"with \('weight', 'bias'\): found Decomposition"),
        (
            layer,
            tn.State({"weight": weight, "bias": np.ones(4)}),
            r"the bias must have shape \(3, 4\): found \(4,\)",
        ),
    ]:
        with pytest.raises(tn.TnshareError, match=text):
            tnj.params(other, found)


SHAPES, SQUARE = [(6, 5), (5,), (5, 2), (2,)], [(6, 6), (6,), (6, 6), (6,)]


def trees(count=T, seed=0, names=("kernel", "bias"), shapes=SHAPES):
    random = np.random.default_rng(seed)
    base = [random.normal(size=shape) for shape in shapes]

    def tree():
        leaves = [(a + 0.1 * random.normal(size=a.shape)).astype(np.float32) for a in base]
        layers = {"one": leaves[:2], "two": leaves[2:]}
        return {layer: dict(zip(names, values, strict=True)) for layer, values in layers.items()} | {"n": 3}

    return [tree() for _ in range(count)]


def run(tree, x, names=("kernel", "bias")):
    one, two = ([tree[layer][name] for name in names] for layer in ("one", "two"))
    return jnp.tanh(x @ one[0] + one[1]) @ two[0] + two[1]


def outputs(shared, **options):
    return np.stack([run(shared.compose(t), X, **options) for t in range(shared.tasks)])


OPTIONS = [{"method": "tt"}, {"method": "hard"}, {"layers": {"two": "single"}}, {"method": "single"}]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=str)


@every_option
def test_shared_trees_are_saved_and_restored_from_one_tree(options, tmp_path):
    saved = tnj.share(dict(zip("abc", trees(), strict=True)), **options)
    tn.save(tmp_path / "file", saved)
    loaded = tnj.restore(trees(1, seed=1)[0], tn.load(tmp_path / "file"))
    assert loaded.names == ("a", "b", "c")
    np.testing.assert_array_equal(outputs(loaded), outputs(saved))
    assert jax.tree.structure(loaded.codes) == jax.tree.structure(saved.codes)
    assert loaded.add_task(name="d").remove_task("d").structure == loaded.structure
    shapes = jax.eval_shape(lambda: {name: value for name, value in trees(1)[0].items() if name != "n"}) | {
        "n": 3
    }
    np.testing.assert_array_equal(outputs(tnj.restore(shapes, saved.state())), outputs(saved))
    haiku = tnj.restore(trees(1, names=("w", "b"))[0], tn.load(tmp_path / "file"))
    np.testing.assert_array_equal(outputs(haiku, names=("w", "b")), outputs(saved))


@every_option
def test_shared_networks_go_from_torch_to_jax_and_back(options, tmp_path):
    """All matrices are square, so that a wrong order of axes would not show in shapes."""
    torch, tnt = pytest.importorskip("torch"), pytest.importorskip("tnshare_torch")

    class Net(torch.nn.Module):
        def __init__(self, tree=None):
            super().__init__()
            self.one, self.two = torch.nn.Linear(6, 6), torch.nn.Linear(6, 6)
            for layer, leaves in (tree or {}).items():
                self.get_submodule(layer).weight.data = torch.from_numpy(leaves["kernel"].T.copy())
                self.get_submodule(layer).bias.data = torch.from_numpy(leaves["bias"])

        def forward(self, x):
            return self.two(torch.tanh(self.one(x)))

    square = [{layer: tree[layer] for layer in ("one", "two")} for tree in trees(shapes=SQUARE)]
    theirs = tnt.share([Net(tree) for tree in square], **options)
    tn.save(tmp_path / "of torch", theirs)
    ours = tnj.restore(trees(1, seed=1, shapes=SQUARE)[0], tn.load(tmp_path / "of torch"))
    expected = theirs.fan_out(torch.from_numpy(X)).detach().numpy()
    close(outputs(ours), expected, TERMS)
    assert abs(expected).max() > 0.5
    moved = jax.tree.map(lambda leaf: 1.1 * leaf, ours)
    tn.save(tmp_path / "of jax", moved)
    back = tnt.restore(Net(), tn.load(tmp_path / "of jax"))
    found = back.fan_out(torch.from_numpy(X)).detach().numpy()
    close(found, outputs(moved), TERMS)


def test_convolutions_of_torch_go_to_equinox_and_back(tmp_path):
    """Of two dimensions: there the order of axes is not its own inverse."""
    torch, tnt = pytest.importorskip("torch"), pytest.importorskip("tnshare_torch")
    eqx = pytest.importorskip("equinox")
    torch.manual_seed(0)
    net = eqx.nn.Sequential([eqx.nn.Conv2d(2, 3, (3, 2), key=jax.random.key(0))])
    for options in ({"method": "laf"}, {"method": "single"}):
        nets = [
            torch.nn.ModuleDict({"layers": torch.nn.ModuleList([torch.nn.Conv2d(2, 3, (3, 2))])})
            for _ in range(T)
        ]
        tn.save(tmp_path / "file", tnt.share(nets, eps=0, **options))
        ours = tnj.restore(net, tn.load(tmp_path / "file"))
        x = np.random.default_rng(0).standard_normal((2, 5, 4)).astype(np.float32)
        run = jax.jit(lambda shared, task, x=x: shared.compose(task)(x))
        for task, theirs in enumerate(nets):
            expected = theirs["layers"][0](torch.from_numpy(x)).detach()
            close(run(ours, task), expected, TERMS)
        tn.save(tmp_path / "back", ours)
        back = dict(tnt.restore(nets[0], tn.load(tmp_path / "back")).task_model(1).named_parameters())
        for name, parameter in nets[1].named_parameters():
            close(back[name], parameter, TERMS)


def test_states_of_other_models_are_refused():
    shared = tnj.share(trees(), "laf", eps=0)
    state, few = shared.state(), tnj.share(trees(2), "laf", eps=0).state()
    soft, own = dict(state.entries), [dict(task) for task in state.tasks]
    one, two = soft["one.kernel"], soft["two.kernel"]
    wide = tuple({**task, "two.bias": np.ones(9)} for task in own)
    for changed, text in [
        ({}, "the state of a shared model was expected, as tnshare.load gives it: found dict"),
        (tn.State({"weight": one}), "was expected, as tnshare.load gives it: found that of a layer"),
        (
            tn.State({"one.kernel": one}, tuple(own)),
            r"found \[\] only in it, \['two.kernel'\] only in the tree",
        ),
        (
            tn.State({**soft, "three": np.ones(1)}, tuple(own)),
            r"found \['three'\] only in it, \[\] only in the",
        ),
        (tn.State(soft, few.tasks), r"one number of tasks: found \[2, 3\], and 0 names"),
        (tn.State(soft, tuple(own), ("a",)), r"one number of tasks: found \[3\], and 1 names"),
        (tn.State(soft, (*own[:2], {})), "all tasks of a state must have the same names of their own"),
        (tn.State(soft, wide), r"two.bias has shape \(9,\) in the state, but \(2,\) in the tree"),
        (
            tn.State({"one.kernel": two, "two.kernel": two}, tuple(own)),
            r"one.kernel has shape \(5, 2\) in the state, but \(6, 5\) in the tree",
        ),
    ]:
        with pytest.raises(tn.TnshareError, match=text):
            tnj.restore(trees(1)[0], changed)
    heads = tuple({**task, "two.bias": np.ones(2 + n)} for n, task in enumerate(own))
    assert tnj.restore(trees(1)[0], tn.State(soft, heads)).compose(2)["two"]["bias"].shape == (4,)


def static(number=0, head=2):
    """A tree with all kinds of leaves that are static."""
    return {
        "w": np.full((3, head), 1.0 + number, np.float32),
        "count": jnp.array([1, 2 + number]),
        "flags": np.array([True, False]),
        "tiny": jnp.array([3, -2], jnp.int4),
        "key": jax.random.key(number),
        "keys": jax.random.split(jax.random.key(5, impl="rbg"), 2),
        "depth": 4,
        "kept": True,
        "rate": 0.5,
        "word": "relu" if number else "gelu",
        "function": abs,
    }


@pytest.mark.parametrize("shapes", [False, True], ids=["a tree", "shapes"])
def test_what_is_static_is_saved_and_restored(shapes, tmp_path):
    saved = tnj.share([static(n) for n in range(T)], eps=0)
    tn.save(tmp_path / "file", saved)
    tree = static(9) | {"depth": 5, "kept": False, "rate": 2.0}
    if shapes:
        arrays = {name: value for name, value in tree.items() if hasattr(value, "shape")}
        tree |= jax.eval_shape(lambda: arrays)
    loaded = tnj.restore(tree, tn.load(tmp_path / "file"))
    for task in range(T):
        found, expected = loaded.compose(task), static(task)
        assert set(found) == set(expected)
        for name in ("count", "flags", "tiny", "key", "keys"):
            assert found[name].dtype == expected[name].dtype
        for name in ("key", "keys"):
            found[name], expected[name] = (jax.random.key_data(t[name]) for t in (found, expected))
        for name in ("w", "count", "flags", "tiny", "key", "keys"):
            np.testing.assert_array_equal(found[name], expected[name])
        for name in ("depth", "kept", "rate", "word", "function"):
            assert found[name] == expected[name]
            assert type(found[name]) is type(expected[name])
    assert loaded.structure.entries == saved.structure.entries
    bits = jax.jit(lambda s: jax.random.bits(s.compose(1)["key"]))(loaded)
    assert bits == jax.random.bits(jax.random.key(1))


def test_static_leaves_that_are_not_in_a_file_are_those_of_the_tree():
    state = tnj.share([static(n) for n in range(T)], eps=0).state()
    assert {name: len(values) for name, values in state.constants.items()} == {
        "count": T, "flags": 1, "tiny": 1, "key": T, "keys": 1, "depth": 1, "kept": 1, "rate": 1, "word": T,
    }  # fmt: skip
    bare = tn.State(state.entries, state.tasks)
    tree = tnj.restore(static(9), bare).compose(1)
    np.testing.assert_array_equal(tree["count"], [1, 11])
    shapes = static(9) | jax.eval_shape(lambda: {"count": static(9)["count"]})
    with pytest.raises(tn.TnshareError, match="count is static, and its numbers are not in the state"):
        tnj.restore(shapes, bare)
    fewer = {name: value for name, value in static().items() if name != "count"}
    assert "count" not in tnj.restore(fewer, state).compose(1)  # another framework's
    for name, value, text in [
        ("depth", "deep", "depth is str in the tree, but int in the state"),
        ("key", 3, "key is int in the tree, but Keys in the state"),
        ("count", "two", "count is str in the tree, but ndarray in the state"),
        ("word", jax.random.key(0), r"word is key<fry> in the tree, but str in the state"),
    ]:
        with pytest.raises(tn.TnshareError, match=text):
            tnj.restore(static() | {name: value}, state)
    short = tn.State(state.entries, state.tasks, (), {"count": state.constants["count"][:2]})
    with pytest.raises(tn.TnshareError, match=r"one number of tasks: found \[2, 3\], and 0 names"):
        tnj.restore(static(), short)


def test_counts_go_from_jax_to_torch_and_back(tmp_path):
    torch, tnt = pytest.importorskip("torch"), pytest.importorskip("tnshare_torch")

    class Net(torch.nn.Module):
        def __init__(self, number):
            super().__init__()
            self.w = torch.nn.Parameter(torch.full((3, 3), 1.0 + number))
            self.register_buffer("seen", torch.tensor(7 * number))

    trees = [{"w": np.full((3, 3), 1.0 + n, np.float32), "seen": 7 * n, "word": "a"} for n in range(T)]
    trees = [tree | {"seen": np.array(tree["seen"])} for tree in trees]
    tn.save(tmp_path / "of jax", tnj.share(trees, "single"))
    back = tnt.restore(Net(0), tn.load(tmp_path / "of jax"))
    assert [int(back.task_model(t).seen) for t in range(T)] == [0, 7, 14]
    tn.save(tmp_path / "of torch", tnt.share([Net(n) for n in range(T)], "single"))
    ours = tnj.restore({"w": trees[0]["w"], "seen": 1, "word": "b"}, tn.load(tmp_path / "of torch"))
    assert [ours.compose(t)["seen"] for t in range(T)] == [0, 7, 14]
    assert ours.compose(2)["word"] == "b"


@pytest.mark.parametrize("named", [False, True], ids=["list", "dict"])
def test_heads_of_different_sizes_are_restored_into_modules_of_their_sizes(named, tmp_path):
    eqx = pytest.importorskip("equinox")

    def net(head, seed):
        one, two = jax.random.split(jax.random.key(seed))
        return [eqx.nn.Linear(6, 4, key=one), eqx.nn.Linear(4, head, key=two)]

    sizes = {"b": 2, "a": 3, "c": 5}
    nets = {name: net(size, n) for n, (name, size) in enumerate(sizes.items())}
    saved = tnj.share(nets if named else list(nets.values()), eps=0)
    tn.save(tmp_path / "file", saved)
    state = tn.load(tmp_path / "file")
    others = {name: net(size, 9) for name, size in sorted(sizes.items())}
    given = others if named else [others[name] for name in sizes]
    loaded = tnj.restore(given, state)
    x = X[0]
    for task, (own, expected) in enumerate(zip(loaded.unshare(), saved.unshare(), strict=True)):
        assert own[1].out_features == expected[1].out_features == (2, 3, 5)[task]
        np.testing.assert_array_equal(own[1](own[0](x)), expected[1](expected[0](x)))
    assert loaded.structure.treedefs == saved.structure.treedefs
    with pytest.raises(
        tn.TnshareError, match=r"1.weight differs in shape between tasks, and the tree has mod"
    ):
        tnj.restore(net(2, 0), state)
    with pytest.raises(tn.TnshareError, match=r"1.weight has shape \(2, 4\) in the state, but \(3, 4\)"):
        tnj.restore([net(size, 0) for size in (3, 3, 5)], tnj.share(list(nets.values()), eps=0).state())


def test_one_tree_that_is_a_list_is_one_tree():
    trees = [[np.full((2, 2), n + 1.0), np.ones(2)] for n in range(2)]
    shared = tnj.share(trees, eps=0)
    assert tnj.restore(trees[0], shared.state()).tasks == 2
    same = tnj.restore(trees, shared.state())
    close(same.compose(1)[0], trees[1][0], TERMS)
    with pytest.raises(tn.TnshareError, match="the state is of trees of another structure"):
        tnj.restore([*trees, trees[0]], shared.state())


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.kernel", "a.weight"),
        ("a/~/b.w", "a/~/b.weight"),
        ("w", "weight"),
        ("a.w.x", "a.w.x"),
        ("n.b", "n.bias"),
    ],
)
def test_names_that_frameworks_have_for_the_same_thing(name, expected):
    assert common_name(name) == expected


def test_names_are_translated_where_one_can_be_meant():
    assert translated(["a.weight", "a.bias"], ["a.kernel", "a.bias"]) == {
        "a.weight": "a.kernel",
        "a.bias": "a.bias",
    }
    assert translated(["a.weight"], ["a.w", "a.scale"]) == {"a.weight": "a.weight"}
    assert translated(["a.w", "a.weight"], ["a.w", "a.scale"]) == {"a.w": "a.w", "a.weight": "a.scale"}
