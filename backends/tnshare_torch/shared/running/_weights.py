"""The weights of a shared network: which there are, where they are kept, and those of the tasks of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import nn

import tnshare as tn
from tnshare.decomposition import CodeLayout
from tnshare.models import SharedModel
from tnshare_torch._ops import array_of
from tnshare_torch.shared.template._template import named_tensors

from ._soft_weight import SoftWeight, WeightPrograms


@dataclass(frozen=True)
class Weights:
    """Which weights a shared network has, and how a call reads them: all but the tensors.

    ``programs`` are those of the soft ones. ``hard`` are of all tasks, ``own`` of each, buffers too: for each
    name the key under which modules keep it. ``layout`` is that of codes in a row. Rows are along
    ``batch_dim``, those of keyword arguments along ``batch_dims``; attributes that match ``scratch`` may
    change, and in those that match ``ignore`` networks may differ.
    """

    template: nn.Module
    placeholders: Mapping[str, torch.Tensor]
    programs: Mapping[str, WeightPrograms]
    hard: Mapping[str, str]
    own: Mapping[str, str]
    buffers: frozenset[str]
    layout: CodeLayout
    batch_dim: int
    batch_dims: Mapping[str, int | str | None]
    scratch: tuple[str, ...]
    ignore: tuple[str, ...]

    @staticmethod
    def of(
        template: nn.Module,
        model: SharedModel,
        batch_dim: int,
        batch_dims: Mapping[str, int | str | None],
        scratch: Sequence[str],
        ignore: Sequence[str],
    ) -> Weights:
        """Those of a template, as a model shares them."""
        placeholders, networks = named_tensors(template), {name: d.network for name, d in model.soft.items()}
        keys = {name: key_of(name) for name in placeholders}
        return Weights(
            template,
            placeholders,
            {
                name: WeightPrograms(
                    network,
                    tuple(np.argsort(model.orders[name]).tolist()),
                    keys[name],
                    placeholders[name].stride(),
                )
                for name, network in networks.items()
            },
            {name: key for name, key in keys.items() if name in model.hard},
            {name: key for name, key in keys.items() if name not in model.hard and name not in networks},
            frozenset(dict(template.named_buffers())),
            CodeLayout(networks),
            batch_dim,
            dict(batch_dims),
            tuple(scratch),
            tuple(ignore),
        )


class TaskTensors(nn.Module):
    """What a task has of its own: codes, weights that are not shared, buffers; under names with slashes."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            copied = tensor.detach().clone()
            if isinstance(tensor, nn.Parameter):
                self.register_parameter(name, nn.Parameter(copied, requires_grad=tensor.requires_grad))
            else:
                self.register_buffer(name, copied)

    def get(self, name: str) -> torch.Tensor:
        """A parameter or buffer."""
        found = self._parameters.get(name)
        return self._buffers[name] if found is None else found  # type: ignore[return-value]


def contents(
    weights: Weights, model: SharedModel, tensors: Sequence[Mapping[str, torch.Tensor]]
) -> tuple[nn.ModuleDict, nn.ModuleList]:
    """What all tasks have in common, and what each has of its own."""
    first, common = tensors[0], nn.ModuleDict()
    codes: list[dict[str, torch.Tensor]] = [{} for _ in tensors]
    for name, programs in weights.programs.items():
        factors = {node: _parameter(array, first[name]) for node, array in model.soft[name].factors.items()}
        for own, code in zip(codes, factors.pop(programs.coded), strict=True):
            own[programs.code_key] = nn.Parameter(code, code.requires_grad)
        common[programs.key] = nn.ParameterDict(factors)
    for name, key in weights.hard.items():
        common[key] = nn.ParameterDict({"weight": _parameter(model.hard[name], first[name])})
    tasks = nn.ModuleList(
        TaskTensors({**own, **{key: given[name] for name, key in weights.own.items()}})
        for own, given in zip(codes, tensors, strict=True)
    )
    return common, tasks


def _parameter(array: Any, like: torch.Tensor) -> nn.Parameter:
    """An array as a parameter, where and how ``like`` is."""
    tensor = torch.as_tensor(np.ascontiguousarray(array)).to(like.device, like.dtype)
    return nn.Parameter(tensor.clone(), requires_grad=like.requires_grad)


def key_of(name: str) -> str:
    """The name of a weight as a module can have it: no dots, and none that a module has itself, as "keys"."""
    return name.replace(".", "/") if "." in name else f"/{name}"


def mean_of(every: torch.Tensor) -> torch.Tensor:
    """The mean along the first axis, summed in float32 at least: half precision ends at 65,504."""
    return every.to(torch.promote_types(every.dtype, torch.float32)).mean(0).to(every.dtype)


class CallTasks:
    """The tasks of a shared network: modules keep what all have in ``common``, and each in ``kept``."""

    def __init__(self, weights: Weights, common: nn.ModuleDict, kept: nn.ModuleList) -> None:
        self.weights, self.common, self.kept = weights, common, kept

    def __len__(self) -> int:
        return len(self.kept)

    def softs(self, tasks: Sequence[int]) -> dict[str, SoftWeight]:
        """The softly shared weights of some tasks, by name."""
        return {name: SoftWeight(p, self.factors(name, tasks)) for name, p in self.weights.programs.items()}

    def factors(self, name: str, tasks: Sequence[int]) -> list[torch.Tensor]:
        """Factors of a weight in the order of its nodes, with the codes of some tasks as rows."""
        programs = self.weights.programs[name]
        common = self.shared(programs.key)
        return [self.codes(name, tasks) if n == programs.coded else common[n] for n in programs.factors]

    def codes(self, name: str, tasks: Sequence[int]) -> torch.Tensor:
        """The codes of some tasks for a weight, as rows."""
        programs = self.weights.programs[name]
        rows = [self.task_tensors(task).get(programs.code_key) for task in tasks]
        return rows[0][None] if len(rows) == 1 else torch.stack(rows)

    def hard(self) -> dict[str, torch.Tensor]:
        """The weights that are the same for all tasks, by name."""
        return {name: self.shared(key)["weight"] for name, key in self.weights.hard.items()}

    def own(self, task: int) -> dict[str, torch.Tensor]:
        """The parameters and buffers that a task has alone, by name."""
        kept = self.task_tensors(task)
        return {name: kept.get(key) for name, key in self.weights.own.items()}

    def shared(self, key: str) -> nn.ParameterDict:
        """The factors of a weight that all tasks have in common."""
        return self.common[key]  # type: ignore[return-value]

    def task_tensors(self, task: int) -> TaskTensors:
        """Where a task of the network keeps what it has of its own."""
        return self.kept[task]  # type: ignore[return-value]

    def owner(self, task: int) -> object:
        """What tells a task from all others, whatever its number is by then."""
        return self.kept[task]

    def like(self, name: str) -> torch.Tensor:
        """A factor of a weight, which says of what dtype and where all are."""
        found: torch.Tensor = next(iter(self.shared(self.weights.programs[name].key).values()))
        return found

    def code(self, task: int) -> torch.Tensor:
        """The codes of a task in a row."""
        parts = [self.codes(part.weight, [task]).reshape(-1) for part in self.weights.layout.parts]
        return torch.cat(parts) if parts else torch.zeros(0)

    def mean(self) -> dict[str, torch.Tensor]:
        """What tasks have of their own, by name, on average; of counts, that of the first."""
        found, every = {}, [CallTasks.own(self, task) for task in range(len(self.kept))]
        for name in self.weights.own:
            values = [own[name] for own in every]
            if len({value.shape for value in values}) > 1:
                raise tn.TnshareError(
                    f"{name} has another shape in every task, so there is no mean: give add_task a network"
                )
            averaged = values[0].is_floating_point() or values[0].is_complex()
            found[name] = mean_of(torch.stack(values)) if averaged else values[0].clone()
        return found

    def decompositions(self) -> dict[str, tuple[tn.Network, dict[str, Any]]]:
        """Network and factors of every soft weight, codes of all tasks stacked, in NumPy."""
        found = {}
        for name, programs in self.weights.programs.items():
            arrays = map(array_of, self.factors(name, range(len(self))))
            factors = dict(zip(programs.factors, arrays, strict=True))
            found[name] = programs.network.for_tasks(len(self)), factors
        return found


class TasksByCode(CallTasks):
    """Tasks given by codes (P, size), say from a user's network of what is known about them.

    What is not shared they have as the mean of the network's own tasks.
    """

    def __init__(
        self, weights: Weights, common: nn.ModuleDict, kept: nn.ModuleList, code: torch.Tensor
    ) -> None:
        super().__init__(weights, common, kept)
        check_code(self, code)
        self.given = code if code.ndim == 2 else code[None]

    def __len__(self) -> int:
        return self.given.shape[0]

    def codes(self, name: str, tasks: Sequence[int]) -> torch.Tensor:
        part, chosen = self.parts[name], list(tasks)
        return part if chosen == list(range(len(self))) else part[chosen]

    def own(self, task: int) -> dict[str, torch.Tensor]:
        return self.means

    def owner(self, task: int) -> object:
        return self, task  # of this call alone

    @cached_property
    def parts(self) -> dict[str, torch.Tensor]:
        """The codes of all tasks for each weight."""
        return {part.weight: values for part, values in self.weights.layout.split(self.given)}

    @cached_property
    def means(self) -> dict[str, torch.Tensor]:
        """What all of them have alike."""
        return self.mean()


def check_code(tasks: CallTasks, code: torch.Tensor) -> None:
    """Refuse codes of another size, kind or place than those that the networks have."""
    weights = tasks.weights
    weights.layout.check(code, torch.Tensor, "a tensor")
    for like in map(tasks.like, list(weights.programs)[:1]):
        if code.device != like.device or not (code.is_floating_point() or code.is_complex()):
            raise tn.TnshareError(
                f"code must be floating numbers on the device {like.device}: found {code.dtype} on "
                f"{code.device}"
            )
        if code.is_complex() and not like.is_complex():
            raise tn.TnshareError(f"code must be of real numbers, as the networks' are: found {code.dtype}")
