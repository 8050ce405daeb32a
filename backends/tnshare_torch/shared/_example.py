"""Try a shared network out on an example, before anybody relies on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import tnshare as tn

from ._shared_network import Shared
from .paths._probe import Measured, measured
from .paths._rows import Groups, stack_outputs
from .paths._task_calls import Call, Each, FanOut, Mixed
from .running._weights import CallTasks
from .template._template import named_tensors

Theirs = Callable[[Sequence[nn.Module], torch.Tensor], Any]


def try_out(shared: Shared, example: torch.Tensor) -> None:
    """Compare all ways with plain networks, and those of several tasks, all at once, with one at a time.

    In training and in evaluation. Numbers that differ from those of the plain networks are an error; of the
    others it is remembered which can run at once: what cannot runs one by one, as the plain networks do.
    """
    tasks = shared.own_tasks()
    dim, template = tasks.weights.batch_dim, tasks.weights.template
    if not isinstance(example, torch.Tensor) or example.ndim <= dim:
        found = tuple(example.shape) if isinstance(example, torch.Tensor) else type(example).__name__
        raise tn.TnshareError(
            f"an example must be an input of one task, with rows along axis {dim}: found {found}"
        )
    training = {path: part.training for path, part in template.named_modules()}
    was = shared.training
    try:
        for mode in (True, False):
            shared.train(mode)
            for way, (ours, theirs) in _ways(shared, tasks).items():
                _compare(shared, example, way, ours, theirs)
            for call in _calls(tasks, example).values():
                shared.paths.probe(call)
    finally:
        shared.train(was)
        for path, part in template.named_modules():
            part.training = training[path]


def _compare(
    shared: Shared, example: torch.Tensor, way: str, ours: Callable[[torch.Tensor], Any], theirs: Theirs
) -> None:
    """What a way computes, against plain networks with its weights: from the same random state."""
    plains, state = shared.unshare(), torch.get_rng_state()
    x = example.detach().clone().requires_grad_(example.is_floating_point() or example.is_complex())
    held = [buffer.clone() for buffer in shared.tasks.buffers()]
    tasks, tensors = shared.own_tasks(), [named_tensors(plain) for plain in plains]
    own, buffers = tasks.weights.own, tasks.weights.buffers
    parameters = [values[n] for values in map(tasks.own, range(len(tasks))) for n in own]
    try:
        # A way that these networks cannot go, say with rows of mixed tasks, they refuse when asked to.
        errors: tuple[type[Exception], ...] = () if way == "one" else (Exception,)
        expected = _of(lambda: theirs(plains, x), [x, *(each[n] for each in tensors for n in own)], errors)
        torch.set_rng_state(state)
        errors = () if way == "one" else (tn.TnshareError,)
        found = None if expected is None else _of(lambda: ours(x), [x, *parameters], errors)
        written = [values[n] for values in map(tasks.own, range(len(tasks))) for n in buffers]
        plain = [each[n] for each in tensors for n in buffers]
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


def _ways(shared: Shared, tasks: CallTasks) -> dict[str, tuple[Callable[[torch.Tensor], Any], Theirs]]:
    """Of each way what the shared network computes, one task after the other, and what plain ones do."""

    def grouped(plains: Sequence[nn.Module], x: torch.Tensor) -> Any:
        groups = Groups(_ids(tasks, x), len(tasks), tasks.weights.batch_dim)
        pairs = zip(groups.present, groups.parts(x), strict=True)
        return groups.joined([plains[task](rows) for task, rows in pairs])

    def every(plains: Sequence[nn.Module], x: torch.Tensor) -> Any:
        return stack_outputs([plain(x) for plain in plains], required=False)

    return {
        "one": (lambda x: shared(x, 0), lambda plains, x: plains[0](x)),
        "each": (lambda x: _calls(tasks, x)["each"].one_by_one(), every),
        "fan_out": (lambda x: _calls(tasks, x)["fan_out"].one_by_one(), every),
        "mixed": (lambda x: _calls(tasks, x)["mixed"].one_by_one(), grouped),
    }


def _calls(tasks: CallTasks, x: torch.Tensor) -> dict[str, Call]:
    """The ways of calling several tasks, with this input for all of them."""
    return {
        "each": Each(tasks, torch.stack([x] * len(tasks)), {}),
        "fan_out": FanOut(tasks, x, {}),
        "mixed": Mixed(tasks, x, {}, _ids(tasks, x)),
    }


def _ids(tasks: CallTasks, x: torch.Tensor) -> np.ndarray[Any, Any]:
    return np.arange(x.shape[tasks.weights.batch_dim]) % len(tasks)
