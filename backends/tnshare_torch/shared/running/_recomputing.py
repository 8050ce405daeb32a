"""torch.utils.checkpoint in a network's forward: what it runs again, it runs with the same tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import CheckpointFunction, _CheckpointFrame

Mode = Callable[[], AbstractContextManager[Any]]


def current_checkpoint() -> Any:
    """The checkpoint that is running for the first time, if there is one.

    It is known to the hook through which torch saves tensors.
    """
    if torch.compiler.is_compiling():
        return None
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(False)
    if hooks is None:
        return None
    cells = getattr(hooks[0], "__closure__", None) or ()
    return next((c.cell_contents for c in cells if isinstance(c.cell_contents, _CheckpointFrame)), None)


def enter_on_recompute(mode: Mode, outer: Any) -> None:
    """Have a mode entered when the part of the network that is running is run again, in the backward pass.

    A checkpoint runs its function again outside of every mode. The ``outer`` one, which runs the whole call,
    enters it by itself.
    """
    frame = current_checkpoint()
    if frame is not None and frame is not outer and not isinstance(frame.recompute_fn, _Entered):
        frame.recompute_fn = _Entered(mode, frame.recompute_fn)


def enter_reentrant(mode: Mode) -> None:
    """The same for a checkpoint with ``use_reentrant=True``, of which only its function on the stack knows.

    It runs a part of the network without gradients first: look for it only where they were switched off.
    """
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code is not CheckpointFunction.forward.__code__:
        frame = frame.f_back
    ctx: Any = None if frame is None else frame.f_locals["ctx"]
    again = getattr(ctx, "run_function", None)  # there is none before it runs for the first time
    if again is not None and not isinstance(again, _Entered):
        ctx.run_function = _Entered(mode, again)


def unrecorded(outer: Any) -> AbstractContextManager[Any]:
    """For what is computed once for all tasks: a checkpoint of a part of one must not run it again."""
    frame = current_checkpoint()
    return nullcontext() if frame is None or frame is outer else saved_tensors_hooks(_same, _same)


class _Entered:
    def __init__(self, mode: Mode, function: Callable[..., Any]) -> None:
        self.mode, self.function = mode, function

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.mode():
            return self.function(*args, **kwargs)


def _same(tensor: torch.Tensor) -> torch.Tensor:
    return tensor
