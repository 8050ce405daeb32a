"""Files that earlier versions wrote are read, with the numbers that were saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import written_before as before

import tnshare as tn

FOLDER = Path(__file__).with_name("written_by_0_1_0")


def close(found, expected):
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-5, atol=1e-5)


def expected_leaves(task, head=2):
    """What a task has in a shared network: its own numbers, and of ``tied`` the mean of all."""
    every = [before.leaves(t) for t in range(before.T)]
    tied = [("tied", "kernel"), ("tied", "bias")]
    return before.leaves(task, head) | {key: np.mean([one[key] for one in every], axis=0) for key in tied}


def same_plain(found, expected):
    if not isinstance(expected, tn.Decomposition):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)
        return
    assert (found.spec, found.network) == (expected.spec, expected.network)
    assert list(found.factors) == list(expected.factors)
    # Another library of linear algebra may choose other signs; the stack is the same.
    close(tn.compose(found.network, found.factors), tn.compose(expected.network, expected.factors))
    close((found.error, found.deviation_error), (expected.error, expected.deviation_error))


def test_decompositions_and_arrays():
    expected = before.plain()
    same_plain(tn.load(FOLDER / "decomposition.safetensors"), expected["tucker of a stack"])
    found = tn.load(FOLDER / "dict.safetensors")
    assert list(found) == list(expected)
    for name, value in expected.items():
        same_plain(found[name], value)


@pytest.mark.parametrize("of", ["torch", "jax"])
@pytest.mark.parametrize("spec", before.SPECS)
def test_layers(spec, of):
    tnt, tnj = pytest.importorskip("tnshare_torch"), pytest.importorskip("tnshare_jax")
    state = tn.load(FOLDER / f"{of}_layer_{spec}.safetensors")
    description, expected = before.jax_layer(spec)
    found = tnj.params(description, state)
    assert list(found) == list(expected)
    module = tnt.Linear(5, 4, before.T, before.SPECS[spec])
    module.load_state(state)
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)
        np.testing.assert_array_equal(module.get_parameter(name).detach(), value)


@pytest.mark.parametrize("of", ["torch", "jax"])
def test_shared_networks_in_torch(of):
    tnt = pytest.importorskip("tnshare_torch")
    net = before.torch_network(9)
    if of == "jax":
        del net.norm  # that tree has none
    shared = tnt.restore(net, tn.load(FOLDER / f"{of}_shared.safetensors"))
    assert tuple(shared.names) == before.NAMES
    check_torch(shared, norm=of == "torch")


def test_state_dicts_of_torch():
    torch, tnt = pytest.importorskip("torch"), pytest.importorskip("tnshare_torch")
    module, own = tnt.Linear(5, 4, before.T, before.SPECS["tucker"]), before.torch_layer("tucker")
    module.load_state_dict(torch.load(FOLDER / "torch_layer_tucker.pt"))
    for name, value in own.state_dict().items():
        assert torch.equal(module.state_dict()[name], value)
    other = [before.torch_network(0) for _ in range(before.T)]
    ranks = {
        "conv*": {"method": "tucker", "ranks": (3, 2, 4, 3)},
        "fc*": {"method": "tt", "ranks": (12, 3)},
    }
    shared = tnt.share(dict(zip(before.NAMES, other, strict=True)), layers=before.OPTIONS["layers"] | ranks)
    shared.load_state_dict(torch.load(FOLDER / "torch_shared.pt"))
    check_torch(shared)
    with pytest.raises(RuntimeError, match=r"saved with fc.weight TT\(\(12, 3\)\), here TT"):
        tnt.share(other, **before.OPTIONS | {"eps": 0.5}).load_state_dict(
            torch.load(FOLDER / "torch_shared.pt")
        )


def check_torch(shared, norm=True):
    for task in range(before.T):
        plain = shared.task_model(task)
        for (layer, kind), value in expected_leaves(task).items():
            own = getattr(plain.get_submodule(layer), kind.replace("kernel", "weight"))
            close(own.detach(), value.T)
        assert not norm or int(plain.norm.num_batches_tracked) == 7 + task


@pytest.mark.parametrize("of", ["torch", "jax"])
def test_shared_trees_in_jax(of):
    jax, tnj = pytest.importorskip("jax"), pytest.importorskip("tnshare_jax")
    tree = before.jax_tree(9)
    if of == "torch":
        norm = before.torch_network(9).norm
        tree["norm"] = {name: value.detach().numpy() for name, value in norm.state_dict().items()}
    shared = tnj.restore(tree, tn.load(FOLDER / f"{of}_shared.safetensors"))
    assert shared.names == before.NAMES
    for task in range(before.T):
        found = shared.compose(task)
        for (layer, kind), value in expected_leaves(task).items():
            close(found[layer][kind], value)
        if of == "jax":
            own = before.jax_tree(task)
            assert [found[name] for name in ("steps", "word")] == [own[name] for name in ("steps", "word")]
            np.testing.assert_array_equal(found["table"], own["table"])
            assert (jax.random.key_data(found["key"]) == jax.random.key_data(own["key"])).all()
        else:
            assert int(found["norm"]["num_batches_tracked"]) == 7 + task


@pytest.mark.parametrize("of", ["torch", "jax"])
def test_heads_of_different_sizes(of):
    tnt, tnj = pytest.importorskip("tnshare_torch"), pytest.importorskip("tnshare_jax")
    state = tn.load(FOLDER / f"{of}_heads.safetensors")
    if of == "torch":
        shared = tnt.restore(before.torch_network(9), state)
        found = [shared.task_model(task).head.weight.detach().T for task in range(before.T)]
    else:
        ours = tnj.restore(before.jax_tree(9), state)
        found = [ours.compose(task)["head"]["kernel"] for task in range(before.T)]
    for task, weight in enumerate(found):
        close(weight, before.leaves(task, 2 + task)["head", "kernel"])
