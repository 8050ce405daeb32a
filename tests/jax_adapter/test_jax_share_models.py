"""tnshare_jax.share on the trees of flax, nnx, equinox and haiku, run by their own functions."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import tnshare_jax as tnj
from tolerances import close
from varied_trees import varied

import tnshare as tn

jnp = jax.numpy

T = 3
TERMS = 128  # of layers of up to eight, one after another, with norms, and of their bonds
X = np.random.default_rng(2).standard_normal((5, 6)).astype(np.float32)


def check(trees, run, soft, method="tucker", vmap=jax.vmap, jit=jax.jit, **options):
    """Shared without loss, tasks compute what they did: one by one, by traced number, all at once."""
    shared = tnj.share(trees, method, eps=0, **options)
    assert set(shared.codes) == set(soft)
    assert jax.tree.structure(shared.compose(1)) == jax.tree.structure(trees[1])
    run = jit(run)
    expected = np.stack([run(tree, X) for tree in trees])
    by_number = jax.jit(lambda shared, t: run(shared.compose(t), X))
    close(np.stack([by_number(shared, t) for t in range(T)]), expected, TERMS)
    every = jax.jit(lambda shared: vmap(lambda tree: run(tree, X))(shared.compose()))(shared)
    close(every, expected, TERMS)
    return shared


def test_flax_linen():
    nn = pytest.importorskip("flax.linen")
    net = nn.Sequential([nn.Dense(4), nn.LayerNorm(), nn.tanh, nn.Dense(2)])
    params = net.init(jax.random.key(0), X)
    shared = check(varied(params), net.apply, ["params.layers_0.kernel", "params.layers_3.kernel"], "laf")
    assert set(shared.sharing()) == {"params.layers_0", "params.layers_3"}
    assert set(tnj.share(varied(params), only=["params.layers_0"], eps=0).codes) == {"params.layers_0.kernel"}


def test_flax_nnx():
    nnx = pytest.importorskip("flax.nnx")

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.conv = nnx.Conv(1, 3, (3,), rngs=rngs)
            self.norm = nnx.BatchNorm(3, use_running_average=True, rngs=rngs)
            self.drop = nnx.Dropout(0.5, deterministic=True, rngs=rngs)
            self.out = nnx.Linear(18, 2, rngs=rngs)

        def __call__(self, x):
            return self.out(self.drop(self.norm(self.conv(x[..., None]))).reshape(len(x), -1))

    graph, state = nnx.split(Net(nnx.Rngs(0)))

    def run(state, x):
        return nnx.merge(graph, state)(x)

    with pytest.raises(
        tn.TnshareError, match=r"drop.rngs.count is a key that the network draws from, or its"
    ):
        tnj.share(varied(state), eps=0)
    # Dropout is switched off, so that its keys do not matter.
    still = {"drop.rngs.*": False}
    shared = check(varied(state), run, ["conv.kernel", "out.kernel"], "tt", state=still)
    assert set(shared.own) == {"conv.bias", "norm.bias", "norm.mean", "norm.scale", "norm.var", "out.bias"}
    assert isinstance(shared.compose(0), nnx.State)
    assert shared.codes["conv.kernel"]["U_task"].shape[0] == T


def test_equinox():
    eqx = pytest.importorskip("equinox")
    keys = jax.random.split(jax.random.key(0), 4)
    net = eqx.nn.Sequential(
        [
            eqx.nn.Conv1d(1, 5, 3, key=keys[0]),
            eqx.nn.LayerNorm((5, 4)),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Dropout(0.5, inference=True),
            eqx.nn.Linear(20, 4, key=keys[1]),
            eqx.nn.MLP(4, 2, 3, 1, key=keys[2]),
        ]
    )

    def run(net, x):
        return jax.vmap(net)(x[:, None])

    names = [f"layers.{name}.weight" for name in ("0", "4", "5.layers.0", "5.layers.1")]
    trees = varied(net)
    shared = check(trees, run, names, vmap=eqx.filter_vmap, jit=eqx.filter_jit)
    assert type(shared.compose(0)) is eqx.nn.Sequential
    networks = {name: network.shape for name, (network, _) in shared.decompositions().items()}
    assert networks[names[0]] == (3, 1, 5, T)  # kernel, in, out
    assert networks[names[1]] == (20, 4, T)
    stack = np.stack([tree.layers[4].weight.T for tree in trees], axis=-1)
    d = tn.decompose(stack, "tucker", eps=0)
    for name, value in {**shared.common[names[1]], **shared.codes[names[1]]}.items():
        np.testing.assert_array_equal(value, d.factors[name])
    cell = eqx.nn.GRUCell(5, 2, key=keys[3])
    cells = tnj.share(varied(cell), "laf", eps=0)
    assert {name: net.shape for name, (net, _) in cells.decompositions().items()} == {
        "weight_ih": (5, 6, T),
        "weight_hh": (2, 6, T),
    }
    assert tnj.share(varied(cell), "laf", axes={"weight_ih": (0, 1)}).decompositions()["weight_ih"][
        0
    ].shape == (6, 5, T)


def test_equinox_heads_of_different_sizes():
    eqx = pytest.importorskip("equinox")

    def net(size):
        keys = jax.random.split(jax.random.key(0))
        return eqx.nn.Sequential([eqx.nn.Linear(6, 4, key=keys[0]), eqx.nn.Linear(4, size, key=keys[1])])

    trees = [net(2), net(3), net(2)]
    shared = tnj.share(trees, "laf", eps=0)
    for number, tree in enumerate(trees):
        assert jax.tree.structure(shared.compose(number)) == jax.tree.structure(tree)
        close(shared.compose(number)(X[0]), tree(X[0]), TERMS)
    with pytest.raises(tn.TnshareError, match="the trees differ in what is static"):
        shared.compose()
    assert shared.add_task(net(7)).compose(3)(X[0]).shape == (7,)
    assert [head.shape for head in shared.remove_task(1).own["layers.1.weight"]] == [(2, 4), (2, 4)]


def test_haiku():
    hk = pytest.importorskip("haiku")

    def forward(x):
        x = hk.Conv1D(3, 3, data_format="NCW")(x[:, None])
        return hk.nets.MLP([4, 2])(hk.LayerNorm(-1, True, True)(x).reshape(len(x), -1))

    net = hk.without_apply_rng(hk.transform(forward))
    params = jax.jit(net.init)(jax.random.key(0), X)
    weights = ["conv1_d.w", "mlp/~/linear_0.w", "mlp/~/linear_1.w"]
    shared = check(varied(params), net.apply, weights, "laf")
    assert params["conv1_d"]["b"].ndim == 2  # a vector, and stays one
    assert set(shared.sharing()) == {"conv1_d", "mlp/~/linear_0", "mlp/~/linear_1"}


def test_torch_gives_the_same_names_numbers_and_report():
    torch, tnt = pytest.importorskip("torch"), pytest.importorskip("tnshare_torch")
    eqx = pytest.importorskip("equinox")
    nets = [torch.nn.Sequential(torch.nn.Conv1d(1, 3, 3), torch.nn.Linear(4, 2)) for _ in range(T)]
    net = eqx.nn.Sequential(
        [eqx.nn.Conv1d(1, 3, 3, key=jax.random.key(0)), eqx.nn.Linear(4, 2, key=jax.random.key(1))]
    )

    def ported(model):
        tensors = [p.detach().numpy() for p in model.parameters()]
        leaves, treedef = jax.tree.flatten(net, is_leaf=eqx.is_array)
        return jax.tree.unflatten(
            treedef, [jnp.asarray(t).reshape(a.shape) for t, a in zip(tensors, leaves, strict=True)]
        )

    trees = {name: ported(model) for name, model in zip("abc", nets, strict=True)}
    options = {"eps": 0.3, "layers": {"*1": {"method": "laf", "ranks": 2}}}
    ours = tnj.share(trees, "tt", **options)
    theirs = tnt.share(dict(zip("abc", nets, strict=True)), "tt", **options)
    assert [line.split()[-6:] for line in ours.report().splitlines()[1:] if "single" not in line] == [
        line.split()[-6:] for line in theirs.report().splitlines()[1:] if "single" not in line
    ]
    by_number = jax.jit(lambda shared, t: shared.compose(t).layers[1].weight)
    expected = {f"layers.{name}": rho for name, rho in theirs.sharing().items()}
    assert ours.sharing() == pytest.approx(expected, abs=1e-6)
    for task in "abc":
        np.testing.assert_allclose(
            by_number(ours, ours.names.index(task)),
            theirs.weights(theirs.index(task))["1.weight"].detach().numpy(),
            atol=1e-6,
        )
