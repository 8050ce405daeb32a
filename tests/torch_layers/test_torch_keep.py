"""What inference keeps is never stale, whichever way of changing a factor that torch offers was taken."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tnshare as tn

torch = pytest.importorskip("torch")
prune = pytest.importorskip("torch.nn.utils.prune")

from inferring import (  # noqa: E402
    IN,
    OUT,
    SPECS,
    TERMS,
    T,
    add,
    calls,
    data_replaced,
    fresh,
    infer,
    make,
    without_gradients,
)
from tolerances import is_close  # noqa: E402


def step(optimiser, **options):
    def change(layer):
        chosen = optimiser(layer.parameters(), lr=0.5, **options)
        sum(y.square().sum() for y in calls(layer)).backward()
        chosen.step()

    return change


def replaced(layer):
    for name, parameter in list(layer.named_parameters()):
        setattr(layer, name, torch.nn.Parameter(parameter.detach() * 2 + 1))


def swapped(layer):
    for parameter in layer.parameters():
        torch.utils.swap_tensors(parameter, torch.nn.Parameter(parameter.detach() * 2 + 1))


def data_transposed(layer):
    layer.U_i.data = layer.U_i.data.t()


def loaded(**options):
    return lambda layer: layer.load_state_dict(
        {k: v * 2 + 1 for k, v in layer.state_dict().items()}, **options
    )


def decomposed(layer):
    stack = np.random.default_rng(0).standard_normal((IN, OUT, T))
    ranks = layer.description.spec.ranks
    layer.load_decomposition(tn.decompose(stack, layer.description.spec.method, ranks=ranks))


def parametrised(layer):
    class Twice(torch.nn.Module):
        def forward(self, value):
            return 2 * value

    torch.nn.utils.parametrize.register_parametrization(layer, first(layer), Twice())


def parametrised_then_changed(layer):
    parametrised(layer)
    infer(layer)
    without_gradients(lambda p: p.add_(1))(layer)


def first(layer):
    return next(name for name, _ in layer.named_parameters())


def in_inference_mode(function):
    def change(layer):
        with torch.inference_mode():
            function(layer)

    return change


def made_in_inference_mode(layer):
    with torch.inference_mode():
        for name, parameter in list(layer.named_parameters()):
            setattr(layer, name, torch.nn.Parameter(parameter * 2 + 1, requires_grad=False))
    calls_in_inference_mode(layer)
    with torch.inference_mode():
        for parameter in layer.parameters():
            parameter.add_(1)


def calls_in_inference_mode(layer):
    with torch.inference_mode():
        calls(layer)


def vector_written(layer):
    vector = torch.nn.utils.parameters_to_vector(layer.parameters()).detach()
    torch.nn.utils.vector_to_parameters(vector * 2 + 1, layer.parameters())


CHANGES = {
    "sgd, foreach": step(torch.optim.SGD, foreach=True),
    "sgd, fused": step(torch.optim.SGD, fused=True),
    "sgd, one by one": step(torch.optim.SGD, foreach=False),
    "adam, foreach": step(torch.optim.Adam, foreach=True),
    "adam, fused": step(torch.optim.Adam, fused=True),
    "adagrad": step(torch.optim.Adagrad),
    "add_": add,
    "detach().add_": without_gradients(lambda p: p.detach().add_(1)),
    "a view": without_gradients(lambda p: p.view(-1)[1:].mul_(3)),
    "p[...] =": without_gradients(lambda p: p.__setitem__(..., 2.0)),
    "one entry": without_gradients(lambda p: p.view(-1).__setitem__(0, 7.0)),
    "copy_": without_gradients(lambda p: p.copy_(2 * p + 1)),
    "out=": without_gradients(lambda p: torch.add(p, 1, out=p)),
    "foreach": without_gradients(lambda p: torch._foreach_add_([p], 1)),
    "set_": without_gradients(lambda p: p.set_(2 * p + 1)),
    "set_ in place": without_gradients(lambda p: p.set_(p.untyped_storage(), 0, p.shape, p.stride()).add_(1)),
    "nn.init": lambda layer: [torch.nn.init.normal_(p) for p in layer.parameters()],
    "nn.init.constant_": lambda layer: [torch.nn.init.constant_(p, 2.0) for p in layer.parameters()],
    "load_state_dict": loaded(),
    "load_state_dict, assign": loaded(assign=True),
    "a new parameter": replaced,
    "p.data =": data_replaced,
    "p.data = p.data.t()": data_transposed,
    "swap_tensors": swapped,
    "vector_to_parameters": vector_written,
    "reset_parameters": lambda layer: (setattr(layer, "seed", 9), layer.reset_parameters()),
    "load_decomposition": decomposed,
    "double": lambda layer: layer.double(),
    "half and back": lambda layer: (add(layer), layer.half().float()),
    "only the bias": lambda layer: torch.nn.init.constant_(layer.bias, 2.0),
    "parametrised": parametrised,
    "parametrised, then changed": parametrised_then_changed,
    "pruned": lambda layer: prune.random_unstructured(layer, first(layer), 0.5),
    "weight_norm": lambda layer: (
        torch.nn.utils.parametrizations.weight_norm(layer, first(layer)),
        add(layer),
    ),
    "add_ in inference mode": in_inference_mode(add),
    "made in inference mode": made_in_inference_mode,
    "calls in inference mode, then add_": lambda layer: (calls_in_inference_mode(layer), add(layer)),
    "share_memory_": lambda layer: (layer.share_memory(), add(layer)),
    "train, step, eval": lambda layer: (layer.train(), step(torch.optim.SGD)(layer), layer.eval()),
    "without requires_grad": lambda layer: add(layer.requires_grad_(False)),
    "written through .data, and told": lambda layer: (layer.L.data.add_(1), layer.drop_cache()),
}
ONLY = {"p.data = p.data.t()": ("tucker", "tt"), "written through .data, and told": ("laf", "frozen")}
NOT = {"load_decomposition": ("frozen",)}


@pytest.mark.parametrize("change", CHANGES)
def test_no_way_of_changing_a_factor_leaves_anything_stale(change):
    for method in ONLY.get(change, SPECS):
        if method in NOT.get(change, ()):
            continue
        layer = make(method)
        before = infer(layer)
        assert len(layer._kept) > 0
        CHANGES[change](layer)
        assert fresh(layer), method
        after = infer(layer)
        assert not all(a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(before, after, strict=True))


@settings(max_examples=15)
@given(
    st.lists(st.sampled_from(sorted({*CHANGES} - {*ONLY, *NOT})), max_size=4), st.sampled_from(sorted(SPECS))
)
def test_no_sequence_of_changes_leaves_anything_stale(changes, method):
    layer = make(method)
    for change in changes:
        infer(layer)
        if not any(word in change for word in ("inference", "parametrised", "norm", "pruned")):
            CHANGES[change](layer)
        assert fresh(layer)


def test_a_new_tensor_at_an_address_just_freed_is_noticed():
    layer = make("laf")
    for n in range(200):
        layer.L.data = torch.full_like(layer.L, float(n))  # the version stays; the address often comes again
        with torch.no_grad():
            x = torch.ones(2, IN)
            assert is_close(layer(x, 1), x @ layer.weight(1).T + layer.bias[1], TERMS)
