"""The state of a shared network: a state dict that knows what it is of, and a state for `tnshare.save`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

import tnshare as tn
from tnshare.files import stacked
from tnshare.models import HARD, SINGLE, Roster
from tnshare.network import described, differences, inferred, spec_of, spelled
from tnshare_torch._ops import array_of
from tnshare_torch.layers import SpecInState, shape_of

from .running._weights import CallTasks, Weights
from .template._template import orders_of


class SharedState(SpecInState):
    """The state of a shared network.

    The specification has no number of tasks, so that one more leaves all that was there as it was.
    """

    _weights: Weights
    common: nn.ModuleDict
    tasks: nn.ModuleList
    roster: Roster

    @property
    def networks(self) -> dict[str, tn.Network]:
        """The network of every softly shared weight."""
        return {name: programs.network for name, programs in self._weights.programs.items()}

    @property
    def names(self) -> list[str]:
        """What tasks are called, if they have names."""
        return list(self.roster.names)

    @property
    def _template(self) -> nn.Module:
        return self._weights.template  # its placeholders are nobody's parameters

    def own_tasks(self) -> CallTasks:
        """The network's tasks, with the weights that they have now."""
        return CallTasks(self._weights, self.common, self.tasks)

    def decompositions(self) -> dict[str, tuple[tn.Network, dict[str, Any]]]:
        """Network and factors of every soft weight, codes of all tasks stacked, in NumPy."""
        return self.own_tasks().decompositions()

    def specification(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, _ in self._template.named_parameters():
            if name in self._weights.programs:
                network = self._weights.programs[name].network
                found[name] = described(spec_of(network), network)
                del found[name]["tasks"]
            else:
                found[name] = HARD if name in self._weights.hard else SINGLE
        return {"weights": found, "names": self.names}

    def state(self) -> tn.State:
        """Its numbers without torch, for `tnshare.save`, by the names that they have in its networks.

        Weights have the axes of a stack, (..., in, out), whether they are factors or not: torch's own order
        would mean another one elsewhere.
        """
        orders, tasks = orders_of(self._template), self.own_tasks()

        def saved(tensors: Mapping[str, torch.Tensor]) -> dict[str, Any]:
            return {name: stacked(array_of(tensor), orders.get(name)) for name, tensor in tensors.items()}

        entries: dict[str, Any] = saved(tasks.hard())
        for name, (network, factors) in tasks.decompositions().items():
            entries[name] = tn.Decomposition(spec_of(network), network, factors)
        placed = {name: entries[name] for name in self._weights.placeholders if name in entries}
        own = tuple(saved(tasks.own(task)) for task in range(len(tasks)))
        return tn.State(placed, own, self.roster.names)

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
        for name, programs in self._weights.programs.items():
            network, shapes = programs.network, {}
            for node in network.nodes:
                if node.name == programs.coded:
                    code = tensors.get(f"tasks.0.{programs.code_key}")
                    shapes[node.name] = (node.shape[0], *shape_of(code))
                else:
                    shapes[node.name] = shape_of(tensors.get(f"common.{programs.key}.{node.name}"))
            found[name] = inferred(spec_of(network), network, shapes)
            del found[name]["tasks"]
        return found


def _difference(own: Any, saved: Any) -> str:
    if isinstance(own, str) or isinstance(saved, str):
        one, other = (kind if isinstance(kind, str) else spelled(kind) for kind in (saved, own))
        return f"{one}, here {other}"
    return ", ".join(differences(own, saved))


def _setting(name: str, saved: Any) -> dict[str, Any]:
    own = isinstance(saved, str)
    return {name: saved if own else {"method": saved["method"], "ranks": tuple(saved["ranks"])}}
