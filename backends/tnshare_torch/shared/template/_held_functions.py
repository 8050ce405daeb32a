"""Functions that a network holds: hooks, and attributes. What they close over is not copied with it."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

import tnshare as tn

_PLAIN = (bool, int, float, complex, str, bytes, tuple, frozenset, type(None))


def hooks(module: nn.Module) -> list[object]:
    """What tells the hooks of a module apart: their code, and the numbers and words they close over."""
    found = [*module._forward_pre_hooks.values(), *module._forward_hooks.values()]
    return [("hook", *_told(hook)) for hook in found]


def refuse_captured(model: nn.Module, called: str) -> None:
    """Refuse functions that close over parts of the network: in a copy they would mean the old ones."""
    own = {id(part) for part in model.modules()}
    own |= {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    for path, part in model.named_modules():
        kept = {"a hook": [*part._forward_pre_hooks.values(), *part._forward_hooks.values()]}
        kept |= {name: [value] for name, value in vars(part).items()}
        for name, values in kept.items():
            for value in values:
                if any(id(held) in own for held in _cells(value)):
                    where = f" of {path!r}" if path else ""
                    raise tn.TnshareError(
                        f"{called}: {name}{where} is a function that closes over a part of the network, and "
                        "would go on to use that one's weights for every task: make it a method"
                    )


def _told(function: Any) -> tuple[object, ...]:
    if isinstance(function, functools.partial):
        given = (*function.args, *function.keywords.items())
        return ("partial", *_told(function.func), *map(_plain, given))
    if isinstance(function, types.MethodType):
        return ("method", *_told(function.__func__))
    if isinstance(function, types.FunctionType):
        values = (*(function.__defaults__ or ()), *_cells(function))
        return (function.__qualname__, function.__code__.co_code, *map(_plain, values))
    kept = getattr(function, "__dict__", {})
    return (type(function).__qualname__, *map(_plain, kept.items()))


def _plain(value: Any) -> object:
    """A value that can be compared; of others, the kind."""
    if isinstance(value, torch.Tensor):
        return value.dtype, tuple(value.shape), tuple(value.detach().cpu().flatten().tolist())
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value if isinstance(value, _PLAIN) else type(value).__qualname__


def _cells(function: Any) -> Iterator[Any]:
    """What a function closes over."""
    if isinstance(function, functools.partial):
        yield from _cells(function.func)
    if isinstance(function, types.FunctionType):
        for cell in function.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # a cell that was never filled
                continue
