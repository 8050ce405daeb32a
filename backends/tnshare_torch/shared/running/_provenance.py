"""Whose tensors are used: what was computed for one task must not come to another by a way of its own.

Parameters and buffers are put in for each task. What a cache of a helper, a closure or an object keeps is
not: what one task left there, the next would use. So a run that is unlike those before marks what it computes
from weights and inputs with whom that is for, and refuses what bears another mark.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

import tnshare as tn

# By the tensor itself: an attribute of it would be copied and saved with it.
_OWNERS: Any = WeakTensorKeyDictionary()


class Owner:
    """A task in a run, for which something is computed.

    Of a call that is refused nothing is ``valid``. It is refused if one has ``met`` what is another task's.
    """

    def __init__(self, task: object) -> None:
        self.task, self.valid, self.met = task, True, False


class Provenance:
    """What is computed while one task runs; ``owner`` tells whom it is for."""

    def __init__(self, owner: Owner, given: Iterable[Any]) -> None:
        self.owner = owner
        self.given = [x for x in given if isinstance(x, torch.Tensor)]  # kept alive, for their ids
        self.known = {id(x) for x in self.given}

    def check(self, args: Any, own: Any) -> bool:
        """Whether something is computed from weights or inputs; it must not be another task's.

        ``own`` says whether a tensor stands for one of the task's own.
        """
        depends = False
        for x in tree_leaves(args):
            if not isinstance(x, torch.Tensor):
                continue
            if own(x) or id(x) in self.known:
                depends = True
                continue
            owner = _OWNERS.get(x)
            if owner is not None and (owner.task is not self.owner.task or not owner.valid):
                self.owner.met = True
                raise tn.TnshareError(
                    f"a tensor of shape {tuple(x.shape)} that was computed for another task is used"
                    f"{_place()}: something that all tasks have in common keeps it, say a cache of a helper "
                    "or a closure; compute it anew, or register a buffer and write to it in place"
                )
            depends = depends or owner is not None
        return depends

    def mark(self, result: Any) -> None:
        """Say of what was computed whom it is for."""
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor):
                _OWNERS[x] = self.owner


def _place() -> str:
    """Where in the user's code this is."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not f"{name}.".startswith(("torch.", "tnshare_torch.")):
            file = frame.f_code.co_filename.rpartition("/")[2]
            return f" in {frame.f_code.co_qualname} (line {frame.f_lineno} of {file})"
        frame = frame.f_back
    return ""
