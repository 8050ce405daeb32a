"""One file for torch and JAX: layers and shared networks saved in one, loaded in the other, and back."""

from __future__ import annotations

import numpy as np
import pytest

import tnshare as tn
from tnshare.exchange import common_name, layer_params, layer_state

jax = pytest.importorskip("jax")
tnj = pytest.importorskip("tnshare_jax")
jnp = jax.numpy

T = 3
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
    np.testing.assert_allclose(tnj.fan_out(layer, params, X), expected, rtol=1e-5, atol=1e-5)
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


def trees(count=T, seed=0, names=("kernel", "bias")):
    random = np.random.default_rng(seed)
    base = [random.normal(size=shape) for shape in [(6, 5), (5,), (5, 2), (2,)]]

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


@pytest.mark.parametrize(
    "options", [{"method": "tt"}, {"method": "hard"}, {"layers": {"two": "single"}}], ids=str
)
def test_shared_trees_are_saved_and_loaded_into_others(options, tmp_path):
    saved = tnj.share(dict(zip("abc", trees(), strict=True)), **options)
    tn.save(tmp_path / "file", saved)
    into = tnj.share(trees(4, seed=1), "laf")
    loaded = into.with_state(tn.load(tmp_path / "file"))
    assert loaded.names == ("a", "b", "c")
    np.testing.assert_array_equal(outputs(loaded), outputs(saved))
    assert jax.tree.structure(loaded.add_task(name="d").remove_task("d")) == jax.tree.structure(loaded)
    haiku = tnj.share(trees(2, names=("w", "b")), "single").with_state(tn.load(tmp_path / "file"))
    np.testing.assert_array_equal(outputs(haiku, names=("w", "b")), outputs(saved))


def test_a_shared_network_of_torch_goes_on_in_jax_and_back(tmp_path):
    torch, tnt = pytest.importorskip("torch"), pytest.importorskip("tnshare_torch")

    def net(tree):
        made = torch.nn.Sequential()
        for name, size in (("one", (6, 5)), ("two", (5, 2))):
            made.add_module(name, torch.nn.Linear(*size))
            made.get_submodule(name).weight.data = torch.from_numpy(tree[name]["kernel"].T.copy())
            made.get_submodule(name).bias.data = torch.from_numpy(tree[name]["bias"])
        return made

    theirs = tnt.share([net(tree) for tree in trees()], "tucker", eps=0.2)
    tn.save(tmp_path / "of torch", theirs)
    other = tnj.share(trees(2, seed=3), "laf").with_state(tn.load(tmp_path / "of torch"))
    x = torch.from_numpy(X)
    for task in range(T):
        weights = theirs.weights(task)
        kernel = weights["one.weight"].detach().numpy().T
        np.testing.assert_allclose(other.compose(task)["one"]["kernel"], kernel, rtol=1e-5, atol=1e-6)
        hidden = x @ weights["one.weight"].T + weights["one.bias"]
        expected = torch.tanh(hidden) @ weights["two.weight"].T + weights["two.bias"]
        np.testing.assert_allclose(run(other.compose(task), X), expected.detach(), rtol=1e-5, atol=1e-5)


def test_states_of_other_models_are_refused():
    shared = tnj.share(trees(), "laf", eps=0)
    state = shared.state()
    soft, own = dict(state.entries), [dict(task) for task in state.tasks]
    one, two = soft["one.kernel"], soft["two.kernel"]
    few = tnj.share(trees(2), "laf", eps=0).state()
    for changed, text in [
        ({}, "the state of a shared model was expected, as tnshare.load gives it: found dict"),
        (tn.State({"weight": one}), "was expected, as tnshare.load gives it: found of a layer"),
        (tn.State({"one.kernel": one}, tuple(own)), r"it lacks \('two.kernel',\), and has \(\) besides"),
        (tn.State({**soft, "three": np.ones(1)}, tuple(own)), r"it lacks \(\), and has \('three',\) besides"),
        (tn.State(soft, few.tasks), r"one number of tasks: found \[2, 3\], and 0 names"),
        (tn.State(soft, tuple(own), ("a",)), r"one number of tasks: found \[3\], and 1 names"),
        (tn.State(soft, (*own[:2], {})), "all tasks of a state must have the same names of their own"),
        (
            tn.State(soft, tuple({**task, "two.bias": np.ones(9)} for task in own)),
            r"two.bias must have shape \(2,\): the state has \(9,\)",
        ),
        (
            tn.State({"one.kernel": two, "two.kernel": two}, tuple(own)),
            r"one.kernel must have shape \(6, 5\): the state has \(5, 2\)",
        ),
    ]:
        with pytest.raises(tn.TnshareError, match=text):
            shared.with_state(changed)


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
