"""The tasks of a call: those of a shared network, or others that are given by their codes alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

import tnshare as tn
from tnshare.decomposition import code_parts

from ._soft_weight import Soft
from ._task_tensors import key_of

if TYPE_CHECKING:
    from tnshare_torch.shared._shared_network import Shared


class Cast:
    """The tasks of a shared network."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared

    def __len__(self) -> int:
        return len(self.shared.tasks)

    def softs(self, tasks: Sequence[int]) -> dict[str, Soft]:
        """The softly shared weights of some tasks, by name."""
        return {name: Soft(p, *self.factors(name, tasks)) for name, p in self.shared.programs.items()}

    def factors(self, name: str, tasks: Sequence[int]) -> tuple[list[torch.Tensor], int]:
        """Factors of a weight in the order of its nodes, with the codes of some tasks; their place."""
        network, common = self.shared.networks[name], self.shared.shared(key_of(name))
        found, place = [], 0
        for n, node in enumerate(network.nodes):
            if network.is_coded(node):
                place = n
                found.append(self.codes(name, node.name, tasks))
            else:
                found.append(common[node.name])
        return found, place

    def codes(self, name: str, node: str, tasks: Sequence[int]) -> torch.Tensor:
        """The codes of some tasks for a weight, as rows."""
        rows = [self.shared.own(task).get(f"{key_of(name)}:{node}") for task in tasks]
        return rows[0][None] if len(rows) == 1 else torch.stack(rows)

    def plain(self, task: int) -> dict[str, torch.Tensor]:
        """All other parameters and buffers of a task, by name."""
        shared, own = self.shared, self.own(task)
        return {
            name: shared.shared(key)["weight"] if key in shared.common else own(key)
            for name, key in shared.plain.items()
        }

    def own(self, task: int) -> Any:
        """What gives a tensor that the task has alone, by its key."""
        return self.shared.own(task).get


class Described(Cast):
    """Tasks given by codes (P, size), say from a user's network of what is known about them.

    What is not shared they have as the mean of the network's own tasks.
    """

    def __init__(self, shared: Shared, code: torch.Tensor) -> None:
        super().__init__(shared)
        expected, size = "(code_size,) or (tasks, code_size)", code_size(shared)
        if not isinstance(code, torch.Tensor) or code.ndim not in (1, 2) or code.shape[-1] != size:
            found = tuple(code.shape) if isinstance(code, torch.Tensor) else type(code).__name__
            raise tn.TnshareError(f"code must be a tensor {expected}, code_size={size}: found {found}")
        self.code = code if code.ndim == 2 else code[None]

    def __len__(self) -> int:
        return self.code.shape[0]

    def codes(self, name: str, node: str, tasks: Sequence[int]) -> torch.Tensor:
        part = self.parts[name]
        chosen = list(tasks)
        return part if chosen == list(range(len(self))) else part[chosen]

    @cached_property
    def parts(self) -> dict[str, torch.Tensor]:
        """The codes of all tasks for each weight."""
        return {name: part for name, _, part in split(self.shared, self.code)}

    def own(self, task: int) -> Any:
        return self.mean.__getitem__

    @cached_property
    def mean(self) -> dict[str, torch.Tensor]:
        """The means of what the network's tasks have of their own, by key."""
        return means(self.shared)


def split(shared: Shared, code: torch.Tensor) -> Iterator[tuple[str, str, torch.Tensor]]:
    """The parts of codes (..., code_size): for each weight its name, that of the factor, and (..., k)."""
    for part in code_parts(shared.networks):
        values = code[..., part.start : part.stop].reshape(*code.shape[:-1], *part.shape)
        yield part.weight, part.factor, values


def code_size(shared: Shared) -> int:
    """How many numbers the codes of a task have, of all weights together."""
    parts = code_parts(shared.networks)
    return parts[-1].stop if parts else 0


def means(shared: Shared) -> dict[str, torch.Tensor]:
    """What the tasks have of their own, by key, on average; of counts, that of the first."""
    found = {}
    for key in (key for key in shared.plain.values() if key not in shared.common):
        values = [shared.own(task).get(key) for task in range(len(shared.tasks))]
        if len({value.shape for value in values}) > 1:
            raise tn.TnshareError(
                f"{key} has another shape in every task, so there is no mean: give add_task a network"
            )
        averaged = values[0].is_floating_point() or values[0].is_complex()
        found[key] = torch.stack(values).mean(0) if averaged else values[0].clone()
    return found
