"""Tasks of shared trees that are given by codes alone: fitted to a tree, or from what describes them."""

from __future__ import annotations

import jax
import numpy as np
import pytest
import tnshare_jax as tnj
import tolerances

import tnshare as tn

jnp = jax.numpy

T = 4
TERMS = 24 + 20 + 10 + 10  # all weights of a tree, and bonds
WEIGHTS = {"conv": (3, 2, 4), "fc": (4, 5), "head": (5, 2)}


def trees(count=T, bare=False, seed=0):
    """Trees whose weights differ; so do biases, unless they are ``bare``."""
    random = np.random.default_rng(seed)
    base = {name: random.normal(size=shape) for name, shape in WEIGHTS.items()}

    def tree(number):
        biases = np.random.default_rng(0 if bare else number)
        return {
            name: {
                "kernel": jnp.asarray(value + 0.3 * random.normal(size=value.shape), jnp.float32),
                "bias": jnp.asarray(biases.normal(size=value.shape[-1]), jnp.float32),
            }
            for name, value in base.items()
        } | {"steps": 7}

    return [tree(number) for number in range(count)]


def close(one, other):
    assert jax.tree.structure(one) == jax.tree.structure(other)
    jax.tree.map(lambda a, b: tolerances.close(a, b, TERMS), one, other)


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_the_codes_of_tasks_are_tasks(method):
    shared = tnj.share(trees(bare=True), method, eps=0)
    codes = shared.code()
    assert codes.shape == (T, shared.code_size)
    compose = jax.jit(lambda shared, code, task=None: shared.compose(task, code=code))
    own = jax.jit(lambda shared, task=None: shared.compose(task))
    for t in (0, 3):
        np.testing.assert_array_equal(shared.code(t), codes[t])
        close(compose(shared, codes[t]), own(shared, t))
        close(compose(shared, codes, t), own(shared, t))
    close(compose(shared, codes), own(shared))
    ids = np.array([1, 0, 1])
    np.testing.assert_array_equal(shared.code(ids), codes[ids])
    close(compose(shared, codes[1:3], ids), own(shared, ids + 1))


def test_codes_are_in_the_order_of_leaves_and_keep_their_shapes():
    shared = tnj.share(trees(), layers={"*": {"method": "laf", "ranks": 2}, "*.bias": "single"})
    shared = jax.tree.map(lambda leaf: leaf + 0.1 * jnp.arange(leaf.size).reshape(leaf.shape), shared)
    assert shared.code_size == 6
    expected = [shared.codes[f"{name}.kernel"]["S"] for name in WEIGHTS]
    np.testing.assert_array_equal(shared.code(), np.concatenate(expected, axis=1))


def test_gradients_of_codes_are_those_of_tasks():
    shared, target = tnj.share(trees(bare=True), eps=0), trees(1, seed=3)[0]

    def loss(tree):
        pairs = zip(jax.tree.leaves(tree), jax.tree.leaves(target), strict=True)
        return sum(jnp.square(a - b).sum() for a, b in pairs)

    own = jax.jit(jax.grad(lambda shared: loss(shared.compose(2))))(shared)
    expected = np.concatenate([np.ravel(own.codes[f"{name}.kernel"]["U_task"][2]) for name in WEIGHTS])
    found = jax.jit(jax.grad(lambda code: loss(shared.compose(code=code))))(shared.code(2))
    tolerances.close(found, expected, TERMS)
    assert np.abs(expected).max() > 0.1


def test_what_is_not_shared_is_the_mean_and_what_is_static_the_first():
    given = trees()
    shared = tnj.share(given, eps=0, layers={"head.kernel": "hard"})
    tree = shared.compose(code=shared.code(1))
    for name in WEIGHTS:
        mean = np.mean([one[name]["bias"] for one in given], axis=0)
        tolerances.close(tree[name]["bias"], mean, TERMS)
    tolerances.close(tree["fc"]["kernel"], given[1]["fc"]["kernel"], TERMS)
    assert tree["steps"] == 7
    several = shared.compose(code=shared.code()[:2])
    assert several["head"]["kernel"].shape == (2, 5, 2)
    assert several["fc"]["bias"].shape == (2, 5)


def test_codes_take_the_dtypes_of_the_tree():
    half = [{"a": jnp.full((3, 2), 1.0 + n, jnp.bfloat16)} for n in range(T)]
    shared = tnj.share(half, "laf", ranks=1)
    found = shared.compose(code=np.asarray(shared.code(0), np.float32))
    assert found["a"].dtype == jnp.bfloat16
    mixed = [{"a": jnp.full((3, 2), 1.0 + n), "b": jnp.full((3, 2), 1j + n)} for n in range(T)]
    shared = tnj.share(mixed, "laf", ranks=1)
    tree = shared.compose(code=shared.code(1))
    assert (tree["a"].dtype, tree["b"].dtype) == (jnp.float32, jnp.complex64)
    close(tree, shared.compose(1))


@pytest.mark.parametrize(
    ("code", "found"),
    [
        (np.zeros(3), r"\(3,\)"),
        (np.zeros((1, 2, 3)), r"\(1, 2, 3\)"),
        ([1.0], "list"),
        (np.array(1.0), r"\(\)"),
    ],
    ids=str,
)
def test_codes_of_wrong_shapes_are_refused(code, found):
    shared = tnj.share(trees(), "laf", ranks=2)
    with pytest.raises(tn.TnshareError, match=rf"code must be an array .*code_size=6: found {found}$"):
        shared.compose(code=code)
    with pytest.raises(tn.TnshareError, match="give add_task a tree or a code, not both"):
        shared.add_task(trees(1)[0], code=shared.code(0))
    with pytest.raises(tn.TnshareError, match="takes the code of one task: found 2 codes"):
        shared.add_task(code=np.zeros((2, 6)))
    with pytest.raises(tn.TnshareError, match=r"task.* 2"):
        shared.compose(2, code=np.zeros((2, 6)))


def test_heads_of_different_sizes_have_no_mean():
    given = trees()
    for number, tree in enumerate(given):
        tree["head"]["kernel"] = jnp.ones((5, 2 + number))
    shared = tnj.share(given, "laf", ranks=2)
    with pytest.raises(tn.TnshareError, match=r"head.kernel has another shape in every task, so there is no"):
        shared.compose(code=shared.code(0))


def test_fit_code_is_least_squares():
    given = trees(T + 1)
    shared = tnj.share(given[:T], "laf", ranks=2, layers={"head": "hard"})
    fit = shared.fit_code(given[T])
    assert set(fit.errors) == {"conv.kernel", "fc.kernel", "head.kernel", "head.bias"}
    for name in ("conv", "fc"):
        span = np.stack([np.ravel(shared.compose(t)[name]["kernel"]) for t in range(T)], 1).astype(float)
        target = np.ravel(given[T][name]["kernel"]).astype(float)
        best = span @ np.linalg.lstsq(span, target, rcond=1e-5)[0]
        error = np.linalg.norm(best - target) / np.linalg.norm(target)
        assert fit.errors[f"{name}.kernel"] == pytest.approx(error, rel=1e-4)
        close(shared.compose(code=fit.code)[name]["kernel"].ravel(), jnp.asarray(best, jnp.float32))
    assert fit.code.shape == (4,) == (shared.code_size,)
    theirs = given[T]["head"]["kernel"]
    off = np.linalg.norm(theirs - shared.compose(0)["head"]["kernel"]) / np.linalg.norm(theirs)
    assert fit.errors["head.kernel"] == pytest.approx(float(off))
    grown = shared.add_task(given[T])
    np.testing.assert_array_equal(grown.code(T), fit.code)
    assert f"task {T} was added, with errors: conv.kernel {fit.errors['conv.kernel']:.3g}" in grown.report()
    known = shared.fit_code(shared.compose(1))
    assert max(error for name, error in known.errors.items() if "head" not in name) < 1e-5
    np.testing.assert_allclose(known.code, shared.code(1), atol=1e-4)
    with pytest.raises(tn.TnshareError, match=r"head.kernel must have shape \(5, 2\): found \(5, 3\)"):
        shared.fit_code(given[T] | {"head": {"kernel": jnp.ones((5, 3)), "bias": jnp.ones(2)}})


def test_fits_need_numbers():
    shared, tree = tnj.share(trees(), "laf", ranks=2), trees(1, seed=4)[0]
    with pytest.raises(tn.TnshareError, match="a traced array has no numbers to look at: do this outside"):
        jax.jit(lambda shared: shared.fit_code(tree).code)(shared)
    grown = jax.jit(lambda shared, code: shared.add_task(code=code))(shared, shared.code(2) + 0.5)
    close(grown.code(T), shared.code(2) + 0.5)


def test_a_described_task_can_stay_and_others_stay_as_they_are():
    shared = tnj.share(trees(), "tt", eps=0)
    code = shared.code(1) + 0.1
    grown = shared.add_task(code=code)
    assert grown.tasks == T + 1
    close(grown.compose(T), shared.compose(code=code))
    for t in range(T):
        jax.tree.map(np.testing.assert_array_equal, grown.compose(t), shared.compose(t))
    mean = shared.add_task()
    close(mean.compose(T), shared.compose(code=shared.code().mean(0)))
    assert mean.report() == shared.report()


@pytest.mark.parametrize("method", ["laf", "tucker", "tt"])
def test_codes_and_fits_are_those_of_torch(method):
    torch, tnt = pytest.importorskip("torch"), pytest.importorskip("tnshare_torch")

    class Net(torch.nn.Module):
        def __init__(self, tree):
            super().__init__()
            for name in ("fc", "head"):
                kernel = np.asarray(tree[name]["kernel"])
                layer = torch.nn.Linear(*kernel.shape)
                layer.weight.data = torch.tensor(kernel.T.copy())
                layer.bias.data = torch.tensor(np.asarray(tree[name]["bias"]))
                self.add_module(name, layer)

        def forward(self, x):
            return self.head(torch.tanh(self.fc(x)))

    def run(tree, x):
        hidden = jnp.tanh(x @ tree["fc"]["kernel"] + tree["fc"]["bias"])
        return hidden @ tree["head"]["kernel"] + tree["head"]["bias"]

    given = [{name: tree[name] for name in ("fc", "head")} for tree in trees(T + 1)]
    ours = tnj.share(given[:T], method, eps=0)
    theirs = tnt.share([Net(tree) for tree in given[:T]], method, eps=0)
    assert ours.code_size == theirs.code_size
    for t in range(T):
        np.testing.assert_allclose(ours.code(t), theirs.code(t).detach(), atol=1e-5)
    fit, same = ours.fit_code(given[T]), theirs.fit_code(Net(given[T]))
    np.testing.assert_allclose(fit.code, same.code, atol=1e-5)
    words = {name.replace("kernel", "weight"): error for name, error in fit.errors.items()}
    assert words == pytest.approx(same.errors, abs=1e-5)
    x = np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)
    expected = theirs(torch.from_numpy(x), code=same.code).detach()
    tolerances.close(run(ours.compose(code=fit.code), x), expected, TERMS)
    codes = torch.stack([same.code, theirs.code(1)]).detach()
    expected = theirs.fan_out(torch.from_numpy(x), code=codes).detach()
    found = jax.vmap(run, (0, None))(ours.compose(code=codes.numpy()), x)
    tolerances.close(found, expected, TERMS)
