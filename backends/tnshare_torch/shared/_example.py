"""Try a shared network out on an example, before anybody relies on it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

import tnshare as tn

from ._shared_network import Shared
from .paths._probe import Measured, measured
from .paths._rows import Arguments, Groups, stack_outputs
from .paths._task_calls import Call, Each, FanOut, Mixed, One
from .running._weights import CallTasks
from .template._template import named_tensors

Theirs = Callable[[Sequence[nn.Module], torch.Tensor], Any]
Example = Any  # an input, or (input, keyword arguments)
_ROWS = 1024  # to which an example is repeated, to see whether rows depend on one another
_NUMBERS = 2**20  # of which it has at most then


def try_out(shared: Shared, models: Sequence[nn.Module], example: Example) -> Shared:
    """Compare all ways with the networks given, and those of several tasks, all at once, with one at a time.

    In training and in evaluation. Numbers that differ from those of the networks given, with the weights that
    are shared now, are an error; of the others it is remembered which can run at once: what cannot runs one
    by one, as the plain networks do.
    """
    tasks = shared.own_tasks()
    dim, template = tasks.weights.batch_dim, tasks.weights.template
    x, kwargs = _read(example, dim)
    training = {path: part.training for path, part in template.named_modules()}
    was = shared.training
    try:
        for mode in (True, False):
            shared.train(mode)
            state = torch.get_rng_state()
            for call in _calls(tasks, x, kwargs).values():
                shared.paths.watch(call)
            torch.set_rng_state(state)
            for way, (ours, theirs) in _ways(tasks, kwargs).items():
                _compare(shared, models, x, way, ours, theirs)
            for graded in (True, False):
                with torch.set_grad_enabled(graded):
                    for call in _calls(tasks, x, kwargs, long=True).values():
                        shared.paths.probe(call)
    finally:
        shared.train(was)
        for path, part in template.named_modules():
            part.training = training[path]
    return shared


def _read(example: Example, dim: int) -> tuple[torch.Tensor, dict[str, Any]]:
    pair = isinstance(example, tuple) and len(example) == 2 and isinstance(example[1], dict)
    x, kwargs = example if pair else (example, {})
    if not isinstance(x, torch.Tensor) or x.ndim <= dim:
        found = tuple(x.shape) if isinstance(x, torch.Tensor) else type(x).__name__
        raise tn.TnshareError(
            f"an example must be an input of one task, with rows along axis {dim}, or (input, keyword "
            f"arguments): found {found}"
        )
    return x, kwargs


def _compare(
    shared: Shared,
    models: Sequence[nn.Module],
    example: torch.Tensor,
    way: str,
    ours: Callable[[torch.Tensor], Any],
    theirs: Theirs,
) -> None:
    """What a way computes, against the networks given with its weights: from the same random state."""
    plains, state = _with_weights(models, shared), torch.get_rng_state()
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
            f"{way}: the shared network does not compute what the networks given do with its weights: "
            "outputs, gradients or buffers differ on the example; look for state that the forward keeps "
            "outside of buffers, and for what tells the networks apart besides tensors"
        )


def _with_weights(models: Sequence[nn.Module], shared: Shared) -> list[nn.Module]:
    """Copies of the networks given, in the mode and with the weights of the shared one."""
    made = []
    for task, model in enumerate(models):
        modes = {path: part.training for path, part in shared.own_tasks().weights.template.named_modules()}
        twin = copy.deepcopy(model)
        weights = shared.weights(task)
        with torch.no_grad():
            for name, tensor in named_tensors(twin).items():
                tensor.copy_(weights[name])
        for path, part in twin.named_modules():
            part.training = modes[path]
        made.append(twin)
    return made


def _of(
    run: Callable[[], Any], parameters: Sequence[torch.Tensor], errors: tuple[type[Exception], ...]
) -> Measured | None:
    """What a run gives; None if it gives one of these errors."""
    try:
        return measured(run, parameters, (), graded=True)
    except errors:
        return None


def _near(a: torch.Tensor, b: torch.Tensor) -> bool:
    return Measured([a], [], []).alike(Measured([b], [], []))


def _ways(
    tasks: CallTasks, kwargs: Mapping[str, Any]
) -> dict[str, tuple[Callable[[torch.Tensor], Any], Theirs]]:
    """Of each way what the shared network computes, one task after the other, and what plain ones do."""

    def grouped(plains: Sequence[nn.Module], x: torch.Tensor) -> Any:
        call = _calls(tasks, x, kwargs)["mixed"]
        assert isinstance(call, Mixed)
        call.check()
        groups = Groups(call.ids, len(tasks), tasks.weights.batch_dim)
        pairs = zip(groups.present, groups.parts(call.given), strict=True)
        return groups.joined([_called(plains[task], given) for task, given in pairs])

    def every(plains: Sequence[nn.Module], x: torch.Tensor) -> Any:
        given = _calls(tasks, x, kwargs)["fan_out"].given
        outputs = [_called(plain, given.task(task)) for task, plain in enumerate(plains)]
        return stack_outputs(outputs, required=False)

    def first(plains: Sequence[nn.Module], x: torch.Tensor) -> Any:
        return _called(plains[0], _calls(tasks, x, kwargs)["one"].given.task(0))

    def ours(way: str) -> Callable[[torch.Tensor], Any]:
        return lambda x: _calls(tasks, x, kwargs)[way].one_by_one()

    return {
        "one": (ours("one"), first),
        "each": (ours("each"), every),
        "fan_out": (ours("fan_out"), every),
        "mixed": (ours("mixed"), grouped),
    }


def _called(plain: nn.Module, given: Arguments) -> Any:
    x, named = given.given()
    return plain(x, **named)


def _calls(
    tasks: CallTasks, x: torch.Tensor, kwargs: Mapping[str, Any], long: bool = False
) -> dict[str, Call]:
    """The ways of calling, with this input for all tasks; in a ``long`` one mixed rows are repeated."""
    weights, count = tasks.weights, len(tasks)
    dim, rows = weights.batch_dim, x.shape[weights.batch_dim]

    def given(x: torch.Tensor, kwargs: Mapping[str, Any]) -> Arguments:
        return Arguments.of(x, kwargs, dim, weights.batch_dims)

    plain = given(x, kwargs)
    stacked = plain.changed(lambda x, b: torch.stack([x] * count) if isinstance(b, int) else x)
    most = max(rows, min(_ROWS, _NUMBERS // max(x.numel() // max(rows, 1), 1))) if long and rows else rows
    index = np.arange(most) % max(rows, 1)
    ids = np.zeros(most, int) if long else np.arange(most) % count
    calls = {
        "each": Each(tasks, stacked),
        "fan_out": FanOut(tasks, plain),
        "mixed": Mixed(tasks, plain.rows(index) if long else plain, ids),
    }
    return calls if long else {"one": One(tasks, plain, 0), **calls}
