"""What the core decides for shared networks is the same in torch and in JAX."""

from __future__ import annotations

import numpy as np
import pytest

import tnshare as tn

torch = pytest.importorskip("torch")
tnt, tnj = pytest.importorskip("tnshare_torch"), pytest.importorskip("tnshare_jax")

T = 3
NAMES = {  # of weights, and what their layers are called
    "dense.weight": "dense",
    "flax.kernel": "flax",
    "haiku.w": "haiku",
    "low.weight": "low.weight",
    "low.extra": "low.extra",
    "both.kernel": "both.kernel",
    "both.w": "both.w",
    "cell.weight_ih": "cell.weight_ih",
    "table": "table",
}


def values(task, **shapes):
    random = np.random.default_rng(task)
    drawn = {name: random.standard_normal(shapes.get(name, (4, 3))) for name in NAMES}
    return {name: value.astype(np.float32) for name, value in drawn.items()}


def network(task, **shapes):
    net = torch.nn.Module()
    for name, value in values(task, **shapes).items():
        layer, _, last = name.rpartition(".")
        if layer and not hasattr(net, layer):
            net.add_module(layer, torch.nn.Module())
        net.get_submodule(layer).register_parameter(last, torch.nn.Parameter(torch.from_numpy(value)))
    return net


def tree(task, **shapes):
    made = {}
    for name, value in values(task, **shapes).items():
        layer, _, last = name.rpartition(".")
        (made.setdefault(layer, {}) if layer else made)[last] = value
    return made


def share_in_torch(**options):
    return tnt.share([network(t) for t in range(T)], **options)


def share_in_jax(**options):
    return tnj.share([tree(t) for t in range(T)], **options)


BOTH = pytest.mark.parametrize("share", [share_in_torch, share_in_jax], ids=["torch", "jax"])


@BOTH
def test_layers_have_one_name(share):
    """Found: torch took ".weight" off and nothing else, so ``flax.w`` had another name there than in JAX."""
    shared = share(eps=0)
    assert set(shared.sharing()) == set(shared.similarity()) == set(NAMES.values())
    assert shared.sharing()["dense"] == pytest.approx(share_in_jax(eps=0).sharing()["dense"], abs=1e-5)


@BOTH
@pytest.mark.parametrize("ranks", [np.array([2, 2, 2]), (2, 2, 2)], ids=["array", "tuple"])
def test_ranks_may_be_an_array_of_numpy(share, ranks):
    """Found: an array was compared with None and "stack" to see whether it was given, and failed."""
    assert "Tucker((2, 2, 2))" in share(ranks=ranks).report()


@BOTH
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"relative_to": None}, "relative_to must be 'stack' or 'deviation': found None"),
        ({"eps": "stack"}, "eps must be a number with 0 <= eps < 1: found 'stack'"),
        ({"ranks": 2, "relative_to": "deviation"}, "relative_to and eps_rule go with eps: found ranks=2"),
    ],
    ids=str,
)
def test_keywords_are_checked_as_they_are_given(share, options, text):
    """Found: ``relative_to=None`` and ``eps="stack"`` were taken to be left out."""
    with pytest.raises(tn.TnshareError, match=f": {text}"):
        share(**options)


@BOTH
def test_a_report_tells_of_new_tasks(share):
    shared = share(only=["dense"], eps=0)
    grown = shared.add_task(tree(7) if share is share_in_jax else network(7))
    report = (grown if share is share_in_jax else shared).report()
    line = report.splitlines()[-1]
    assert line.startswith("task 3 was added, with errors: dense.weight 0.")


@BOTH
@pytest.mark.parametrize("kind", ["hard", "tt"])
def test_new_tasks_have_the_shapes_of_others(share, kind):
    """Found: torch compared a weight of all tasks with any that NumPy could broadcast, and took it."""
    shared, make = share(layers={"dense": kind}, eps=0), tree if share is share_in_jax else network
    for shape in ((1, 3), (4, 2)):
        text = rf"dense.weight must have shape \(4, 3\): found \({shape[0]}, {shape[1]}\)"
        for attempt in (shared.add_task, shared.fit_code):
            with pytest.raises(tn.TnshareError, match=text):
                attempt(make(7, **{"dense.weight": shape}))
