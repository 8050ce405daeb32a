"""What frameworks have in common: same seed, same weights; plans that can be pasted; torch.func."""

from __future__ import annotations

import numpy as np
import pytest
import tnshare_jax as tnj
import tnshare_torch as tnt
import torch
from hypothesis import given
from hypothesis import strategies as st
from tolerances import close

import tnshare as tn
from tnshare.testing import linear_cases


@given(linear_cases(), st.integers(0, 2**64))
def test_the_same_seed_is_the_same_weights_in_numpy_torch_and_jax(case, seed):
    layer = case.layer
    values = layer.init(seed)
    module = tnt.Linear(
        layer.in_features, layer.out_features, layer.task_sizes, layer.spec, layer.bias, seed=seed
    )
    params = tnj.init(layer, seed)
    assert list(values) == list(params) == [name for name, _ in module.named_parameters()]
    for name, value in values.items():
        np.testing.assert_array_equal(module.get_parameter(name).detach().numpy(), value)
        np.testing.assert_array_equal(params[name], value)


@pytest.mark.parametrize("scheme", ["direct", "decomposed"])
def test_both_schemes_can_be_had_from_the_adapters(scheme):
    layer = tn.Linear(6, 5, tasks=4, spec=tn.TT((3, 2)))
    values = layer.init(3, scheme=scheme)
    module = tnt.Linear(6, 5, 4, tn.TT((3, 2)), seed=3, scheme=scheme)
    np.testing.assert_array_equal(module.U_i.detach().numpy(), values["U_i"])
    np.testing.assert_array_equal(tnj.init(layer, 3, scheme=scheme)["U_i"], values["U_i"])


def test_what_jax_cannot_do_without_double_precision_it_says_itself():
    layer = tn.Linear(6, 5, tasks=4, spec=tn.LAF(2))
    with pytest.warns(UserWarning, match="float64"):
        tnj.init(layer, dtype=np.float64)


def test_networks_given_to_random_factors_must_have_their_frozen_values():
    network = tn.LAF.hard_sharing().network(i=3, task=4)
    with pytest.raises(tn.TnshareError, match=r"S\(task=4, k=1\) is not learnt: give its values"):
        tn.random_factors(network, variance=1.0)


@pytest.mark.parametrize("way", ["one", "mixed", "each"])
def test_torch_func_goes_through_a_layer(way):
    layer = tnt.Linear(4, 3, 5, tn.Tucker((2, 2, 2)), dtype=torch.float64)
    x = torch.randn(*((5, 2, 4) if way == "each" else (6, 4)), dtype=torch.float64)
    task = {"one": 2, "mixed": torch.tensor([0, 1, 4, 4, 2, 0]), "each": None}[way]
    params = dict(layer.named_parameters())

    def loss(p, x):
        return torch.func.functional_call(layer, p, (x, task)).square().sum()

    by_params, by_x = torch.func.grad(loss, argnums=(0, 1))(params, x)
    x.requires_grad_()
    expected = torch.autograd.grad(layer(x, task).square().sum(), [*params.values(), x])
    for found, wanted in zip((*by_params.values(), by_x), expected, strict=True):
        torch.testing.assert_close(found, wanted)


def test_torch_vmap_over_ids_and_rows_is_a_mixed_batch():
    layer = tnt.Linear(4, 3, 5, tn.LAF(2))
    x, ids = torch.randn(6, 4), torch.tensor([0, 1, 4, 4, 2, 0])
    close(torch.vmap(layer)(x, ids), layer(x, ids), 4 + 3 + 3 + 2 + 4)


@pytest.mark.parametrize("way", ["one", "mixed", "each", "fan_out"])
def test_the_source_of_a_layer_runs_when_pasted(way):
    spec, x = tn.Tucker((3, 3, 2)), torch.randn(*((5, 2, 4) if way == "each" else (6, 4)))
    layer = tnt.Linear(4, 3, 5, spec, bias=False)
    task = {"one": 2, "mixed": torch.tensor([0, 1, 4, 4, 2, 0])}.get(way)
    *shared, codes = (factor.detach() for factor in layer.parameters())
    operands = [*shared, codes[task] if way == "one" else codes, x]
    expected = (layer.fan_out(x) if way == "fan_out" else layer(x, task)).detach()
    for text in (layer.source(batch=6, way=way), tnj.source(layer.description, 6, way)):
        scope = {}
        exec(text, scope)
        convert = torch.as_tensor if "torch" in text else np.asarray
        own = [*map(convert, operands), *([(convert(task),)] if way == "mixed" else [])]
        close(np.asarray(scope["contract"](*own)), expected, 4 + 3 + 3 + 2 + 4)
