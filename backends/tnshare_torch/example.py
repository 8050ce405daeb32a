"""Try a shared network out on an example, before anybody relies on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

import tnshare as tn

from .calls import Call, Each, FanOut, Mixed
from .cast import Cast
from .probe import measured
from .template import tensors_of

if TYPE_CHECKING:
    from .shared import Shared


def try_out(shared: Shared, example: torch.Tensor) -> None:
    """Compare one task with a plain network, and the other ways, all at once, with one task at a time.

    In training and in evaluation. Numbers that differ from those of the plain network are an error; of the
    other ways it is remembered which can run at once.
    """
    if not isinstance(example, torch.Tensor) or example.ndim <= shared.batch_dim:
        found = tuple(example.shape) if isinstance(example, torch.Tensor) else type(example).__name__
        raise tn.TnshareError(
            f"an example must be an input of one task, with rows along axis {shared.batch_dim}: found {found}"
        )
    training = {path: part.training for path, part in shared._template.named_modules()}
    was = shared.training
    for mode in (True, False):
        shared.train(mode)
        _try_one(shared, example)
        for call in _calls(shared, example):
            shared.paths.probe(call)
    shared.train(was)
    for path, part in shared._template.named_modules():
        part.training = training[path]


def _try_one(shared: Shared, example: torch.Tensor) -> None:
    """What the first task computes, against a plain network with its weights: from the same random state."""
    plain, state = shared.task_model(0), torch.get_rng_state()
    x = example.detach().clone().requires_grad_(example.is_floating_point() or example.is_complex())
    held = [buffer.clone() for buffer in shared.tasks.buffers()]
    own = [name for name, key in shared.plain.items() if key not in shared.common]
    theirs, ours = tensors_of(plain), shared.weights(0)
    try:
        expected = measured(lambda: plain(x), [x, *(theirs[n] for n in own)], plain.buffers())
        torch.set_rng_state(state)
        buffers = [ours[name] for name, _ in plain.named_buffers()]
        found = measured(lambda: shared(x, 0), [x, *(ours[n] for n in own)], buffers)
    finally:
        torch.set_rng_state(state)
        with torch.no_grad():
            for buffer, value in zip(shared.tasks.buffers(), held, strict=True):
                buffer.copy_(value)
    if not found.alike(expected):
        raise tn.TnshareError(
            "the shared network does not compute what a plain one with its weights does: outputs, gradients "
            "or buffers differ on the example; look for state that the forward keeps outside of buffers"
        )


def _calls(shared: Shared, example: torch.Tensor) -> list[Call]:
    cast, rows, tasks = Cast(shared), example.shape[shared.batch_dim], len(shared.tasks)
    ids = np.arange(rows) % tasks
    return [
        Each(shared, cast, torch.stack([example] * tasks), {}),
        FanOut(shared, cast, example, {}),
        Mixed(shared, cast, example, {}, ids),
    ]
