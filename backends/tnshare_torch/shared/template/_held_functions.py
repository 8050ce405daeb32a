"""Functions that a network holds: hooks, and attributes. What they close over is not copied with it."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

from torch import nn

import tnshare as tn


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
