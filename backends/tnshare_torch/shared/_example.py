"""Try a shared network out on an example, before anybody relies on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

import tnshare as tn
from tnshare_torch.shared.running._weights import CallTasks
from tnshare_torch.shared.template._template import named_tensors

from ._probe import Measured, measured
from ._rows import Groups, stack_outputs
from ._task_calls import Call, Each, FanOut, Mixed

if TYPE_CHECKING:
    from tnshare_torch.shared._shared_network import Shared

Theirs = Callable[[Sequence[nn.Module], torch.Tensor], Any]


def try_out(shared: Shared, example: torch.Tensor) -> None:
    """Compare all ways with plain networks, and those of several tasks, all at once, with one at a time.

    In training and in evaluation. Numbers that differ from those of the plain networks are an error; of the
    others it is remembered which can run at once: what cannot runs one by one, as the plain networks do.
    """
    if not isinstance(example, torch.Tensor) or example.ndim <= shared.batch_dim:
        found = tuple(example.shape) if isinstance(example, torch.Tensor) else type(example).__name__
        raise tn.TnshareError(
            f"an example must be an input of one task, with rows along axis {shared.batch_dim}: found {found}"
        )
    training = {path: part.training for path, part in shared._template.named_modules()}
    was = shared.training
    try:
        for mode in (True, False):
            shared.train(mode)
            for way, (ours, theirs) in _ways(shared).items():
                _compare(shared, example, way, ours, theirs)
            for call in _calls(shared, example):
                shared.paths.probe(call)
    finally:
        shared.train(was)
        for path, part in shared._template.named_modules():
            part.training = training[path]


def _compare(
    shared: Shared, example: torch.Tensor, way: str, ours: Callable[[torch.Tensor], Any], theirs: Theirs
) -> None:
    """What a way computes, against plain networks with its weights: from the same random state."""
    plains, state = shared.unshare(), torch.get_rng_state()
    x = example.detach().clone().requires_grad_(example.is_floating_point() or example.is_complex())
    held = [buffer.clone() for buffer in shared.tasks.buffers()]
    own = [name for name, key in shared.plain.items() if key not in shared.common]
    tensors = [named_tensors(plain) for plain in plains]
    parameters = [shared.task_tensors(task).get(shared.plain[n]) for task in range(len(plains)) for n in own]
    try:
        # A way that these networks cannot go, say with rows of mixed tasks, they refuse when asked to.
        errors: tuple[type[Exception], ...] = () if way == "one" else (Exception,)
        expected = _of(lambda: theirs(plains, x), [x, *(each[n] for each in tensors for n in own)], errors)
        torch.set_rng_state(state)
        errors = () if way == "one" else (tn.TnshareError,)
        found = None if expected is None else _of(lambda: ours(x), [x, *parameters], errors)
        written = [
            shared.task_tensors(t).get(shared.plain[n]) for t in range(len(plains)) for n in shared.written
        ]
        plain = [each[n] for each in tensors for n in shared.written]
        same = found is None or expected is None or found.alike(expected)
        same = same and (found is None or all(map(_near, written, plain)))
    finally:
        torch.set_rng_state(state)
        with torch.no_grad():
            for buffer, value in zip(shared.tasks.buffers(), held, strict=True):
                buffer.copy_(value)
    if not same:
        raise tn.TnshareError(
            f"{way}: the shared network does not compute what plain ones with its weights do: outputs, "
            "gradients or buffers differ on the example; look for state that the forward keeps outside of "
            "buffers"
        )


def _of(
    run: Callable[[], Any], parameters: Sequence[torch.Tensor], errors: tuple[type[Exception], ...]
) -> Measured | None:
    """What a run gives; None if it gives one of these errors."""
    try:
        return measured(run, parameters, ())
    except errors:
        return None


def _near(a: torch.Tensor, b: torch.Tensor) -> bool:
    return Measured([a], [], []).alike(Measured([b], [], []))


def _ways(shared: Shared) -> dict[str, tuple[Callable[[torch.Tensor], Any], Theirs]]:
    """Of each way what the shared network computes, one task after the other, and what plain ones do."""
    cast, tasks, dim = CallTasks(shared), len(shared.tasks), shared.batch_dim

    def ids(x: torch.Tensor) -> np.ndarray[Any, Any]:
        return np.arange(x.shape[dim]) % tasks

    def grouped(plains: Sequence[nn.Module], x: torch.Tensor) -> Any:
        groups = Groups(ids(x), dim)
        pairs = zip(groups.present, groups.parts(x), strict=True)
        return groups.joined([plains[task](rows) for task, rows in pairs])

    def every(plains: Sequence[nn.Module], x: torch.Tensor) -> Any:
        return stack_outputs([plain(x) for plain in plains], required=False)

    return {
        "one": (lambda x: shared(x, 0), lambda plains, x: plains[0](x)),
        "each": (lambda x: Each(shared, cast, torch.stack([x] * tasks), {}).one_by_one(), every),
        "fan_out": (lambda x: FanOut(shared, cast, x, {}).one_by_one(), every),
        "mixed": (lambda x: Mixed(shared, cast, x, {}, ids(x)).one_by_one(), grouped),
    }


def _calls(shared: Shared, example: torch.Tensor) -> list[Call]:
    cast, rows, tasks = CallTasks(shared), example.shape[shared.batch_dim], len(shared.tasks)
    ids = np.arange(rows) % tasks
    return [
        Each(shared, cast, torch.stack([example] * tasks), {}),
        FanOut(shared, cast, example, {}),
        Mixed(shared, cast, example, {}, ids),
    ]
