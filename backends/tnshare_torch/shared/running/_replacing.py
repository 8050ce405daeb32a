"""Run a module with other tensors in the place of its own, without touching it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from tnshare_torch.shared.template._containers import mapped, tensors_in

from ._outside_vmap import OUTSIDE_VMAP, VmappedRows
from ._provenance import Owner, Provenance
from ._recomputing import current_checkpoint, enter_on_recompute, enter_reentrant
from ._soft_weight import SoftWeight

_DATA = torch.Tensor.data.__get__  # type: ignore[attr-defined]
# Asked of a weight, not of what composes it.
_ASKED = torch.Tensor.is_leaf.__get__, torch.Tensor.requires_grad.__get__  # type: ignore[attr-defined]
_DROPS = frozenset(
    {
        functional.dropout,
        functional.dropout1d,
        functional.dropout2d,
        functional.dropout3d,
        functional.alpha_dropout,
        functional.feature_alpha_dropout,
    }
)
Pairs = Sequence[tuple[torch.Tensor, torch.Tensor | SoftWeight]]


def run_with(
    module: nn.Module,
    pairs: Pairs,
    task: int,
    x: Any,
    kwargs: Mapping[str, Any],
    trial: Trial | None = None,
    rows: VmappedRows | None = None,
) -> Any:
    """What a module computes with tensors in the place of its placeholders.

    ``task`` is the place of a task among those of the call, whose weights the soft ones have; ``rows`` says
    that it is one of the rows of compiled code.
    """
    table = Replacements(pairs, task, rows)
    with ReplacingMode(table) if trial is None else TrialMode(table, trial, (x, kwargs)):
        y = module(x, **kwargs)
    return table.real(y) if isinstance(y, torch.Tensor) else mapped(table.real, y)


@dataclass
class Trial:
    """A run from which something is learnt: how many functions are called, and how many numbers they give.

    In a ``still`` one nothing is dropped out, so that two runs can be compared. In a ``watched`` one no task
    may use what was computed for another: ``owners`` are those that ran, the last one is running.
    """

    still: bool
    watched: bool = False
    calls: int = 0
    numbers: int = 0
    owners: list[Owner] = field(default_factory=list)


class Replacements:
    """Tensors by the id of their placeholders, and placeholders by the id of their tensors."""

    def __init__(self, pairs: Pairs, task: int, rows: VmappedRows | None = None) -> None:
        self.tensors = {id(placeholder): tensor for placeholder, tensor in pairs}
        self.placeholders = {id(tensor): p for p, tensor in pairs if isinstance(tensor, torch.Tensor)}
        self.task, self.rows, self.outer = task, rows, current_checkpoint()
        self.pairs, self.trains = pairs, torch.is_grad_enabled()

    def real(self, tree: Any) -> Any:
        """The same with tensors where it has placeholders."""
        if isinstance(tree, torch.Tensor):
            # Only placeholders are looked up: compiled code that has read the id of an input serves it alone.
            found = self.tensors.get(id(tree), tree) if tree.is_meta else tree
            return found.composed(self.task) if isinstance(found, SoftWeight) else found
        if type(tree) is tuple:
            return tuple([self.real(part) for part in tree])
        if type(tree) is list:
            return [self.real(part) for part in tree]
        if isinstance(tree, tuple | list | dict):
            return tree_map_only(torch.Tensor, self.real, tree)
        return tree

    def afresh(self) -> Replacements:
        """The same, with soft weights that are composed anew: a graph of their own goes through them."""
        alone = [(p, t.alone(self.task) if isinstance(t, SoftWeight) else t) for p, t in self.pairs]
        return Replacements(alone, 0, self.rows)

    def soft(self, placeholder: Any) -> SoftWeight | None:
        """The softly shared weight that a placeholder stands for, if it is one."""
        found = self.tensors.get(id(placeholder))
        return found if isinstance(found, SoftWeight) else None


class ReplacingMode(TorchFunctionMode):
    """Every torch function that is given a placeholder is given its tensor instead.

    The table is by the id of placeholders, which refuse every operation: one that were missed would not
    compute with some task's numbers. A mode belongs to a thread, and so several may run at once.
    """

    def __init__(self, table: Replacements) -> None:
        super().__init__()
        self.table = table

    def another(self) -> ReplacingMode:
        """The same mode, to be entered again: while it runs, it cannot be entered twice."""
        return ReplacingMode(self.table)

    def afresh(self) -> ReplacingMode:
        """The same for a part of the network that has a backward pass of its own."""
        return ReplacingMode(self.table.afresh())

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        table, named = self.table, kwargs or {}
        if not torch.compiler.is_compiling():
            enter_on_recompute(self.another, table.outer)
            if table.trains and not torch.is_grad_enabled():
                enter_reentrant(self.afresh)
        if func is functional.linear:
            soft = table.soft(args[1] if len(args) > 1 else named.get("weight"))
            if soft is not None and soft.programs.is_matrix:
                x = table.real(args[0] if args else named["input"])
                bias = args[2] if len(args) > 2 else named.get("bias")
                return soft.linear(table.task, x, table.real(bias))
        if table.rows is not None and func in OUTSIDE_VMAP:
            return OUTSIDE_VMAP[func](table.rows, *table.real(args), **table.real(named))
        if not torch.compiler.is_compiling() and func in _ASKED and table.soft(args[0]) is not None:
            return func(*args)
        result = func(*table.real(args), **table.real(named))
        if not torch.compiler.is_compiling() and func == _DATA and (soft := table.soft(args[0])) is not None:
            soft.watched(result)
        # What was written to in place is the placeholder again, so that `self.count += 1` assigns no tensor.
        return table.placeholders.get(id(result), result)


class TrialMode(ReplacingMode):
    """The same for a trial."""

    def __init__(self, table: Replacements, trial: Trial, given: Any) -> None:
        super().__init__(table)
        self.trial = trial
        self.provenance = Provenance(trial.owners[-1], tensors_in(given)) if trial.watched else None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(kwargs or {})
        if self.trial.still and func in _DROPS:
            return args[0] if args else named["input"]
        if self.trial.still and "dropout_p" in named:
            named["dropout_p"] = 0.0
        watch = self.provenance
        depends = watch is not None and watch.check((args, named), self._is_own)
        result = super().__torch_function__(func, types, args, named)
        if watch is not None and depends:
            watch.mark(result)
        if isinstance(result, torch.Tensor):
            self.trial.calls += 1
            self.trial.numbers += result.numel()
        return result

    def _is_own(self, tensor: torch.Tensor) -> bool:
        return id(tensor) in self.table.tensors or id(tensor) in self.table.placeholders
