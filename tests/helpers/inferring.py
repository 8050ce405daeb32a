"""Layers in inference, and what they should give, for the tests of what is kept."""

from __future__ import annotations

import tnshare_torch as tnt
import torch
from tolerances import is_close

import tnshare as tn

T = 5
IN, OUT = 4, 3
TERMS, SHORT = (
    IN + 4 + 3 + 2 + 1,
    6,
)  # behind an output: sums of x, bonds, bias; roundings, if short
SPECS = {
    "laf": tn.LAF(2),
    "tucker": tn.Tucker((4, 3, 2)),
    "tt": tn.TT((4, 3)),
    "frozen": tn.LAF.evgeniou_pontil(T),
}
IDS = torch.tensor([4, 0, 4, 2, 1, 3])


def make(method="tucker", **options):
    """A layer; U_i of Tucker and TT are square."""
    return tnt.Linear(IN, OUT, T, SPECS[method], **{"seed": 1, **options}).eval()


def calls(layer):
    """The outputs of all ways, a few of the same kind."""
    dtype = next(layer.parameters()).dtype
    x = torch.linspace(-1, 1, T * 6 * IN, dtype=torch.float64).reshape(T, 6, IN).to(dtype)
    one = [layer(x[0], task) for task in range(T)]
    mixed = [layer(x[0], IDS), layer(x[0, :, None].expand(6, 2, IN), IDS)]
    return [*one, *mixed, layer(x), layer.fan_out(x[0]), layer(x[0, 0], 1)]


def infer(layer):
    with torch.no_grad():
        return calls(layer)


def expected(layer):
    """The same by composed weights, which are never kept."""
    with torch.no_grad():
        weights = layer.weight()
        bias = torch.zeros(T, OUT, dtype=weights.dtype) if layer.bias is None else layer.bias
        x = torch.linspace(-1, 1, T * 6 * IN, dtype=torch.float64).reshape(T, 6, IN).to(weights.dtype)
        every = torch.einsum("bi,toi->tbo", x[0], weights) + bias[:, None]
        mixed = every[IDS, torch.arange(6)]
        each = torch.einsum("tbi,toi->tbo", x, weights) + bias[:, None]
        return [*every, mixed, mixed[:, None].expand(6, 2, OUT), each, every, every[1, 0]]


def fresh(layer):
    """Whether inference gives what the factors say now, once and again."""
    wanted = expected(layer)
    return all(
        a.dtype == b.dtype and is_close(a, b, TERMS)
        for found in (infer(layer), infer(layer))
        for a, b in zip(found, wanted, strict=True)
    )


def without_gradients(function):
    def change(layer):
        with torch.no_grad():
            for parameter in layer.parameters():
                function(parameter)

    return change


def data_replaced(layer):
    for parameter in layer.parameters():
        parameter.data = parameter.data * 2 + 1


add = without_gradients(lambda p: p.add_(1))
