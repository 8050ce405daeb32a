"""Size is measured against what came in: no weight grows unless that is asked for, and a report says both."""

from __future__ import annotations

import math
import warnings

import jax
import numpy as np
import pytest
import tnshare_jax as tnj
import tnshare_torch as tnt
import torch
from hypothesis import given
from hypothesis import strategies as st

import tnshare as tn
from tnshare.decomposition import distinct
from tnshare.models import share_arrays

METHODS = ("laf", "tucker", "tt")
ORDER = {"dense.weight": (1, 0), "conv.weight": (2, 1, 0), "head.weight": (1, 0)}
METHOD = pytest.mark.parametrize("method", METHODS)


@st.composite
def stacks(draw):
    """Weights of T networks: from noise, from one start, with copies, of low rank, zeros."""
    random, tasks = np.random.default_rng(draw(st.integers(0, 9999))), draw(st.integers(1, 7))
    shapes = {
        "dense.weight": draw(st.tuples(st.integers(1, 9), st.integers(1, 9))),
        "conv.weight": draw(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(1, 3))),
        "dense.bias": (draw(st.integers(1, 4)),),
    }
    start = {name: draw(st.sampled_from([0.0, 1.0])) * random.normal(size=s) for name, s in shapes.items()}
    noise = draw(st.sampled_from([0.0, 0.01, 0.3, 1.0]))
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    kinds = draw(st.lists(st.integers(0, tasks - 1), min_size=tasks, max_size=tasks))
    made = [
        {name: (v + noise * random.normal(size=v.shape)).astype(dtype) for name, v in start.items()}
        for _ in range(tasks)
    ]
    return [made[kind] for kind in kinds] if draw(st.booleans()) else made


def kept(model, name, task, shape):
    """A weight of a task, composed."""
    if name in model.soft:
        d = model.soft[name]
        return tn.compose(d.network, d.factors)[..., task].transpose(np.argsort(model.orders[name]))
    return model.hard.get(name)


@given(stacks(), st.sampled_from(METHODS), st.sampled_from([1e-6, 0.05, 0.3, 0.9]), st.booleans())
def test_no_weight_is_larger_than_what_came_in_and_all_are_within_eps(models, method, eps, deviation):
    relative = "deviation" if deviation else "stack"
    found = share_arrays(models, ORDER, method, eps=eps, relative_to=relative, except_=["dense.bias"])
    for name in ("dense.weight", "conv.weight"):
        weights = [model[name] for model in models]
        numbers = distinct(weights)
        count, size, tasks = 1 + max(numbers), weights[0].size, len(weights)
        came_in, dense = count * size, tasks * size
        if name in found.single:
            assert dense == came_in or count * (size + tasks) >= dense
            continue
        stored = found.hard[name].size if name in found.hard else found.soft[name].network.parameters
        codes = 0 if name in found.hard or count in (1, tasks) else count * tasks  # which of them a task has
        assert stored <= min(came_in + codes, dense)
        stack = np.stack(weights).astype(np.float64)
        back = np.stack([kept(found, name, t, weights[t].shape) for t in range(tasks)])
        reference = stack - stack.mean(0) if deviation else stack
        bound = eps * np.linalg.norm(reference) + 1e-5 * np.linalg.norm(stack)
        assert np.linalg.norm(stack - back) <= bound
        if name in found.hard or stored == count * (size + tasks) > came_in:
            np.testing.assert_array_equal(back, stack)  # kept as it was, exactly


@METHOD
@pytest.mark.parametrize("asked", ["ranks", "max_parameters", "eps"])
def test_what_is_asked_for_is_done_with_a_warning(method, asked):
    random = np.random.default_rng(0)
    models = [{"dense.weight": random.normal(size=(4, 4))} for _ in range(2)]
    ranks = {"laf": 2, "tucker": (4, 4, 2), "tt": (4, 2)}[method]
    value = {"ranks": ranks, "max_parameters": 90, "eps": 0}[asked]
    with pytest.warns(
        tn.TnshareWarning, match=r"dense\.weight: larger than what came in: \d+ parameters for 32"
    ):
        found = share_arrays(models, {"dense.weight": (1, 0)}, method, **{asked: value})
    assert found.soft["dense.weight"].kept_of_given > 1
    with pytest.warns(tn.TnshareWarning, match="^larger than what came in"):
        d = tn.decompose(np.stack([m["dense.weight"] for m in models], -1), method, **{asked: value})
    assert d.given == 32
    assert d.kept_of_given == d.kept == d.network.parameters / 32
    assert any("larger than what came in" in text for text in d.warnings)


def test_copies_count_once():
    random = np.random.default_rng(0)
    one, other = random.normal(size=(2, 6, 5)).astype(np.float32)
    zero = np.zeros_like(one)
    assert distinct([one, other, one.copy(), zero, -zero, np.asfortranarray(other)]) == [0, 1, 0, 2, 3, 1]
    assert distinct([one, one[:3]]) == [0, 1]
    late = one.copy()
    late = np.concatenate([np.zeros((200, 5)), one])
    later = late.copy()
    later[-1, -1] += 1
    assert distinct([late, later, late]) == [0, 1, 0]  # that differ behind their beginnings
    with pytest.warns(tn.TnshareWarning, match="larger than what came in"):
        d = tn.decompose(np.stack([one] * 10, -1), "tucker", eps=0.01)
    assert d.given == one.size
    assert d.kept_of_given == pytest.approx(10 * d.kept)
    assert math.isnan(tn.Decomposition(d.spec, d.network, d.factors).kept_of_given)
    models = [{"dense.weight": w} for w in (one, other, one, one, other, one)]
    found = share_arrays(models, {"dense.weight": (1, 0)}, "tucker", eps=0.01)
    assert found.soft["dense.weight"].network.parameters == 2 * (one.size + 6)
    for task, model in enumerate(models):
        np.testing.assert_array_equal(kept(found, "dense.weight", task, one.shape), model["dense.weight"])


def nets(count, noise, seed=0, alike=True):
    """Small networks from one start, that differ by noise."""
    torch.manual_seed(seed)
    made = [
        torch.nn.Sequential(torch.nn.Linear(8, 12), torch.nn.Tanh(), torch.nn.Linear(12, 3))
        for _ in range(count)
    ]
    for net in made:
        if alike:
            net.load_state_dict(made[0].state_dict())
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(noise * torch.randn_like(parameter))
    return made


def tree_of(net):
    return {
        f"layer{n}": {"kernel": net[n].weight.detach().numpy().T.copy(), "bias": net[n].bias.detach().numpy()}
        for n in (0, 2)
    }


def run_tree(tree, x):
    hidden = jax.numpy.tanh(x @ tree["layer0"]["kernel"] + tree["layer0"]["bias"])
    return hidden @ tree["layer2"]["kernel"] + tree["layer2"]["bias"]


def size(parameters):
    return sum(p.numel() for p in parameters)


@METHOD
@pytest.mark.parametrize("noise", [0.0, 0.01, 0.3, 1.0])
def test_shared_networks_are_not_larger_than_the_networks(method, noise):
    """Found: at eps=0.3, small networks that differ by noise came out larger than they were."""
    given_nets = nets(4, noise)
    weights = sum(p.numel() for p in given_nets[0].parameters() if p.ndim > 1)
    biases = sum(p.numel() for p in given_nets[0].parameters() if p.ndim == 1)
    most = (1 if noise == 0 else 4) * weights + 4 * biases
    shared = tnt.share(given_nets, method, eps=0.3)
    assert size(shared.parameters()) <= most
    ours = tnj.share([tree_of(net) for net in given_nets], method, eps=0.3)
    assert sum(leaf.size for leaf in jax.tree.leaves(ours)) == size(shared.parameters())
    whole = next(line for line in shared.report().splitlines() if line.startswith("in all"))
    assert whole.startswith(f"in all {size(shared.parameters()):,} parameters: ")
    assert "that came in" in whole


KEPT_SOME = {"layers": {"0*": {"method": "laf", "ranks": 2}}, "eps": 1e-6}
KEPT_ALL = {"eps": 1e-6}


@pytest.mark.parametrize("options", [KEPT_SOME, KEPT_ALL], ids=["some", "all"])
def test_torch_goes_on_with_kept_weights(options, tmp_path):
    given_nets = nets(4, 1.0)
    if options is KEPT_ALL:
        with pytest.warns(tn.TnshareWarning, match="nothing is shared"):
            shared = tnt.share(given_nets, "tucker", **options)
        assert shared.code_size == 0
    else:
        with pytest.warns(tn.TnshareWarning, match=r"2\.weight: kept as it was, each task its own"):
            shared = tnt.share(given_nets, "tucker", **options)
        assert shared.code_size == 2
    for task, net in enumerate(given_nets):
        assert torch.equal(shared.weights(task)["2.weight"], net[2].weight)
        assert torch.equal(shared.task_model(task)[2].weight, net[2].weight)
    new, x = nets(1, 1.0, seed=5)[0], torch.randn(6, 8)
    fit = shared.fit_code(new)
    assert fit.code.shape == (shared.code_size,)
    number = shared.add_task(new)
    assert torch.equal(shared.weights(number)["2.weight"], new[2].weight)
    shared.remove_task(0)
    ids = [0, 3, 2, 3, 1, 0]
    expected = shared(x, ids)
    torch.testing.assert_close(
        expected, torch.stack([shared.task_model(t)(r) for t, r in zip(ids, x, strict=True)])
    )
    tn.save(tmp_path / "kept", shared)
    back = tnt.restore(given_nets[0], tn.load(tmp_path / "kept"))
    torch.testing.assert_close(back(x, ids), expected)
    assert back.code_size == shared.code_size
    by_code = shared(x, code=torch.zeros(shared.code_size))
    several = shared(x, ids, code=torch.zeros(4, shared.code_size))
    torch.testing.assert_close(by_code, several)
    shared.add_task(code=torch.zeros(shared.code_size))
    shared.add_task()
    shared.fan_out(x).sum().backward()
    assert all(p.grad is not None for p in shared.parameters())


@pytest.mark.parametrize("options", [KEPT_SOME, KEPT_ALL], ids=["some", "all"])
def test_jax_goes_on_with_kept_weights(options, tmp_path):
    trees = [tree_of(net) for net in nets(4, 1.0)]
    layers = {"layer0.kernel": {"method": "laf", "ranks": 2}} if options is KEPT_SOME else {}
    text = r"layer2\.kernel: kept as it was" if layers else "nothing is shared"
    with pytest.warns(tn.TnshareWarning, match=text):
        shared = tnj.share(trees, "tucker", eps=1e-6, layers=layers)
    assert shared.code_size == (2 if layers else 0)
    for one, tree in zip(shared.unshare(), trees, strict=True):
        np.testing.assert_array_equal(one["layer2"]["kernel"], tree["layer2"]["kernel"])
    new, x = tree_of(nets(1, 1.0, seed=5)[0]), np.random.default_rng(0).normal(size=(6, 8)).astype(np.float32)
    assert shared.fit_code(new).code.shape == (shared.code_size,)
    shared = shared.add_task(new)
    np.testing.assert_array_equal(shared.compose(4)["layer2"]["kernel"], new["layer2"]["kernel"])
    shared = shared.remove_task(0)
    tn.save(tmp_path / "kept", shared)
    back = tnj.restore(trees[0], tn.load(tmp_path / "kept"))
    for one, other in zip(jax.tree.leaves(back), jax.tree.leaves(shared), strict=True):
        np.testing.assert_array_equal(one, other)
    code = np.zeros(shared.code_size, np.float32)
    one = jax.jit(lambda s, c: run_tree(s.compose(code=c), x))(shared, code)
    rows = jax.vmap(run_tree, (0, None))(shared.compose([1, 0], code=np.stack([code, code])), x)
    np.testing.assert_allclose(rows[0], one, atol=1e-5)
    grown = shared.add_task(code=code).add_task()
    assert grown.tasks == 6
    grads = jax.grad(lambda s: run_tree(s.compose(1), x).sum())(shared)
    assert jax.tree.structure(grads) == jax.tree.structure(shared)


def test_ten_copies_of_one_network_are_one_network():
    copies = tnt.replicate(nets(1, 0.0)[0], 10)
    with pytest.warns(tn.TnshareWarning, match="kept as it was, one weight for all tasks"):
        shared = tnt.share(copies, "tucker", eps=1e-3)
    weights = sum(p.numel() for p in copies[0].parameters() if p.ndim > 1)
    assert size(shared.shared_parameters()) == weights
    for name, value in shared.weights(7).items():
        assert torch.equal(value, copies[7].get_parameter(name))
    row = next(line for line in shared.report().splitlines() if line.startswith("0.weight"))
    assert "10.0 %" in row
    assert "100.0 %" in row


@pytest.mark.parametrize("adapter", ["torch", "jax", "decompose"])
def test_unaligned_and_collapsed_are_python_warnings(adapter):
    models = {"unaligned": nets(5, 1.0, alike=False), "collapsed": nets(5, 0.003)}
    for kind, given_nets in models.items():
        stack = np.stack([net[0].weight.detach().numpy() for net in given_nets], axis=-1)
        how = {
            "torch": lambda: tnt.share(given_nets, "laf", eps=0.1),  # noqa: B023
            "jax": lambda: tnj.share([tree_of(net) for net in given_nets], "laf", eps=0.1),  # noqa: B023
            "decompose": lambda: tn.decompose(stack, "laf", eps=0.1),  # noqa: B023
        }
        with pytest.warns(tn.TnshareWarning, match=f"{kind}: at eps=0.1") as found:
            how[adapter]()
        assert {one.filename for one in found} == {__file__}  # the line that called is to blame


def test_no_warning_where_all_is_well():
    random = np.random.default_rng(0)
    stack = random.normal(size=(20, 20, 1)) + 0.3 * random.normal(size=(20, 20, 1)) * random.normal(size=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tn.decompose(stack, "laf", eps=0.1)
        share_arrays([{"w": stack[..., t]} for t in range(8)], {"w": (0, 1)}, "laf", eps=0.1)
        tn.Linear(4, 4, tasks=2, spec=tn.Tucker((4, 4, 2)))
        tn.decomposed_factors(
            tn.Tucker((4, 4, 2)), tn.Tucker((4, 4, 2)).network(i=4, o=4, task=2), variance=1.0
        )
