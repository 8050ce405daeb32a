"""State dicts that know what they are of and say what does not fit; and states for `tnshare.save`."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

import tnshare as tn
from tnshare.models import HARD, SINGLE
from tnshare.network import described, differences, inferred, spec_of, spelled
from tnshare_torch._ops import array_of
from tnshare_torch.layers import SpecInState, shape_of

from .running._task_tensors import key_of
from .template._template import orders_of


class SharedState(SpecInState):
    """The state of a shared network.

    The specification has no number of tasks, so that one more leaves all that was there as it was.
    """

    _template: nn.Module
    networks: dict[str, tn.Network]
    common: nn.ModuleDict
    tasks: nn.ModuleList
    names: list[str]

    @abstractmethod
    def decompositions(self) -> dict[str, tuple[tn.Network, dict[str, Any]]]:
        """Network and factors of every soft weight, codes of all tasks stacked, in NumPy."""

    def specification(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, _ in self._template.named_parameters():
            if name in self.networks:
                network = self.networks[name]
                found[name] = described(spec_of(network), network)
                del found[name]["tasks"]
            else:
                found[name] = HARD if key_of(name) in self.common else SINGLE
        return {"weights": found, "names": self.names}

    def state(self) -> tn.State:
        """Its numbers without torch, for `tnshare.save`, by the names that they have in its networks.

        Weights have the axes of a stack, (..., in, out), whether they are factors or not: torch's own order
        would mean another one elsewhere.
        """
        entries: dict[str, Any] = {}
        orders = orders_of(self._template)
        own: list[dict[str, Any]] = [{} for _ in self.tasks]
        soft = self.decompositions()
        for name in dict((*self._template.named_parameters(), *self._template.named_buffers())):
            key = key_of(name)
            if name in soft:
                network, factors = soft[name]
                entries[name] = tn.Decomposition(spec_of(network), network, factors, math.nan, math.nan)
            elif key in self.common:
                entries[name] = _turned(self.common[key]["weight"], orders.get(name))  # type: ignore[index]
            else:
                for found, task in zip(own, self.tasks, strict=True):
                    found[name] = _turned(task.get(key), orders.get(name))  # type: ignore[operator]
        return tn.State(entries, tuple(own), tuple(self.names))

    def _misfits(self, saved: Mapping[str, Any] | None, tensors: Mapping[str, Any]) -> Iterator[str]:
        own = self.specification()
        weights = self._inferred(tensors) if saved is None else saved["weights"]
        for name, kind in own["weights"].items():
            if name in weights and kind != weights[name]:
                text = _difference(kind, weights[name])
                yield f"{name} {text}: share the networks with layers={_setting(name, weights[name])}"
        count = len({name.split(".")[1] for name in tensors if name.startswith("tasks.")})
        here = len(self.tasks)
        if count not in (0, here):
            verb = "add_task()" if count > here else "remove_task(t)"
            yield f"{count} tasks, here {here}: call {verb} {abs(count - here)} times before loading"
        names = [] if saved is None else saved["names"]
        if count == here and names and self.names and names != self.names:
            yield f"tasks {tuple(names)}, here {tuple(self.names)}: share the networks in that order"

    def _inferred(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        """The specification that shapes tell."""
        found = {}
        for name, network in self.networks.items():
            key, shapes = key_of(name), {}
            for node in network.nodes:
                coded = network.is_coded(node)
                tensor = tensors.get(f"tasks.0.{key}:{node.name}" if coded else f"common.{key}.{node.name}")
                shapes[node.name] = (*node.shape[: int(coded)], *shape_of(tensor))
            found[name] = inferred(spec_of(network), network, shapes)
            del found[name]["tasks"]
        return found


def _turned(tensor: torch.Tensor, order: tuple[int, ...] | None) -> np.ndarray[Any, Any]:
    array = array_of(tensor)
    return array if order is None else array.transpose(order)


def _difference(own: Any, saved: Any) -> str:
    if isinstance(own, str) or isinstance(saved, str):
        one, other = (kind if isinstance(kind, str) else spelled(kind) for kind in (saved, own))
        return f"{one}, here {other}"
    return ", ".join(differences(own, saved))


def _setting(name: str, saved: Any) -> dict[str, Any]:
    own = isinstance(saved, str)
    return {name: saved if own else {"method": saved["method"], "ranks": tuple(saved["ranks"])}}
