"""From a file to a shared network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

import tnshare as tn
from tnshare.files import task_count, translated, unstacked, with_constants
from tnshare.models import Roster, SharedModel

from ._shared_network import Shared
from .template._template import check_module, named_tensors, orders_of, template_of


def restore(network: nn.Module, state: tn.State, **keywords: Any) -> Shared:
    """The shared network that a state was taken from, given one network of its architecture.

    ``shared = tnt.restore(net, tn.load(path))``, whichever framework saved it: ``dense.kernel`` is found for
    ``dense.weight``. Precision, device and what is trained are those of ``network``, whose numbers do not
    matter. Keywords are those of `Shared`, as ``batch_dim``.
    """
    count = task_count(state)
    check_module(network, "the network")
    tensors, orders = named_tensors(network), orders_of(network)

    def read(saved: Mapping[str, Any]) -> dict[str, Any]:
        """In torch's words, and arrays with torch's order of axes."""
        words = translated(saved, tensors)
        named = {words[name]: value for name, value in saved.items()}
        return {name: _back(value, orders.get(name), tensors.get(name)) for name, value in named.items()}

    entries, tasks = read(state.entries), [read(task) for task in with_constants(state, tensors)]
    soft = {name: d for name, d in entries.items() if isinstance(d, tn.Decomposition)}
    hard = {name: a for name, a in entries.items() if not isinstance(a, tn.Decomposition)}
    own = tasks[0]
    _check_names(set(tensors), {*soft, *hard, *own})
    for name, saved in {**hard, **soft}.items():
        _check_shape(name, tuple(tensors[name].shape), _shape_of(saved, orders.get(name, ())))
    single = tuple(name for name in own if isinstance(tensors[name], nn.Parameter))
    model = SharedModel(soft, hard, single, {name: orders[name] for name in soft}, (), ())
    given = [{**tensors, **{n: _like(a, tensors[n]) for n, a in task.items()}} for task in tasks]
    return Shared(template_of(network), model, given, Roster(count, state.names), **keywords)


def _check_names(own: set[str], saved: set[str]) -> None:
    if own != saved:
        raise tn.TnshareError(
            "the state is of networks of another architecture: found "
            f"{sorted(saved - own)[:3]} only in it, {sorted(own - saved)[:3]} only in the network"
        )


def _check_shape(name: str, own: tuple[int, ...], saved: tuple[int, ...]) -> None:
    if own != saved:
        raise tn.TnshareError(f"{name} has shape {saved} in the state, but {own} in the network")


def _shape_of(saved: Any, order: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a weight in its network."""
    if not isinstance(saved, tn.Decomposition):
        return tuple(saved.shape)
    stacked = saved.network.shape[: len(order)]
    return tuple(stacked[order.index(axis)] for axis in range(len(order)))


def _back(saved: Any, order: tuple[int, ...] | None, tensor: torch.Tensor | None) -> Any:
    """An array with torch's axes, in torch's order in memory."""
    if isinstance(saved, tn.Decomposition) or tensor is None:
        return saved
    return np.array(unstacked(saved, order, tuple(tensor.shape)), order="C")


def _like(array: Any, tensor: torch.Tensor) -> torch.Tensor:
    made = torch.tensor(array).to(tensor.device, tensor.dtype)
    return nn.Parameter(made, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else made
