"""The exact path: one task after the other, each as if it were alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

import tnshare as tn
from tnshare_torch.shared.running._replacing import Trial, run_with
from tnshare_torch.shared.template._attribute_guard import AttributeGuard

if TYPE_CHECKING:
    from tnshare_torch.shared._shared_network import Shared
    from tnshare_torch.shared.running._call_tasks import CallTasks
    from tnshare_torch.shared.running._soft_weight import SoftWeight

Kwargs = Mapping[str, Any]


def one_by_one(
    shared: Shared,
    cast: CallTasks,
    tasks: Sequence[int],
    inputs: Sequence[Any],
    kwargs: Sequence[Kwargs],
    trial: Trial | None = None,
) -> list[Any]:
    """The outputs of some tasks, each on its own input; weights are composed for all of them at once."""
    if torch.compiler.is_compiling():
        return _outputs(shared, cast, tasks, inputs, kwargs, trial)
    with AttributeGuard(shared._template, shared.scratch):
        return _outputs(shared, cast, tasks, inputs, kwargs, trial)


def _outputs(
    shared: Shared,
    cast: CallTasks,
    tasks: Sequence[int],
    inputs: Sequence[Any],
    kwargs: Sequence[Kwargs],
    trial: Trial | None = None,
) -> list[Any]:
    softs, placeholders = cast.softs(tasks), shared.placeholders
    outputs = []
    for place, (task, x, named) in enumerate(zip(tasks, inputs, kwargs, strict=True)):
        tensors: dict[str, torch.Tensor | SoftWeight] = {**cast.plain(task), **softs}
        pairs = [(placeholder, tensors[name]) for name, placeholder in placeholders.items()]
        outputs.append(run_with(shared._template, pairs, place, x, named, trial))
    refuse_written(softs)
    return outputs


def refuse_written(softs: Mapping[str, Any]) -> None:
    """Writing to a weight that is composed anew in every call would have no effect."""
    for name, soft in softs.items():
        if soft.written():
            raise tn.TnshareError(
                f"the network writes to {name!r} in its forward, which is softly shared and composed anew in "
                f"every call: leave it to each task, layers={{{name!r}: 'single'}}"
            )
