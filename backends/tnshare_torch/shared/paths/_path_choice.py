"""Whether several tasks are computed at once, as one batch, or one after the other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import torch
from torch.utils._pytree import tree_map_only

import tnshare as tn
from tnshare_torch._ops import ops
from tnshare_torch.shared.running._replacing import Trial

from ._probe import compared
from ._task_calls import Call, Mixed

# Measured with PyTorch on a CPU, one thread, training steps of 4 to 64 tasks (multi-layer perceptrons, small
# convolutional networks, a transformer layer): at once took 0.13 to 0.94 times as long as one by one
# wherever an operation gave at most this many numbers, and up to twice as long beyond, past the caches.
NUMBERS = 8192


TASKS = 4


def at_once_pays(tasks: int, numbers: float) -> bool:
    """Whether calls are so short that one for all tasks beats one for each.

    ``numbers`` is what an operation of one task gives, on average.
    """
    return tasks >= TASKS and numbers <= NUMBERS


Strategy = Literal["auto", "loop", "vmap"]


@dataclass(frozen=True)
class ProbeResult:
    """About calls of one way: numbers that a function gives for a row, and what a probe found.

    ``reason`` says why tasks cannot run at once; "" if they can, None if that was not tried.
    """

    numbers: float
    reason: str | None = None


class PathChooser:
    """What is known of the calls of one shared network, by way and by whether it trains."""

    def __init__(self, strategy: Strategy = "auto") -> None:
        if strategy not in get_args(Strategy):
            raise tn.TnshareError(f"strategy must be one of {get_args(Strategy)}: found {strategy!r}")
        self.strategy = strategy
        self.known: dict[tuple[str, bool], ProbeResult] = {}

    def run(self, call: Call) -> Any:
        """The outputs of a call."""
        if torch.compiler.is_compiling():
            return call.at_once() if self._pays(call) and self._passed(call) else call.one_by_one()
        if self.strategy == "loop" or not ops.concrete(call.x) or _transformed():
            return call.one_by_one()
        key = (call.way, call.training)
        if key not in self.known:
            trial = Trial(still=False)
            y = call.one_by_one(trial)
            self.known[key] = ProbeResult(_numbers(call, trial))
            return y
        if not self._pays(call):
            return call.one_by_one()
        if self.known[key].reason is None:
            self.probe(call)
        return call.at_once() if self._passed(call) else call.one_by_one()

    def probe(self, call: Call) -> None:
        """Find out on a few rows whether both paths give the same, and remember it."""
        key = (call.way, call.training)
        with torch.inference_mode(False):  # gradients are compared too, whoever asks
            few, trial = _normal(call.sample()), Trial(still=True)
        if isinstance(few, Mixed) and len(few.ids) < 3:
            return  # too few to see whether rows are independent: some other call will show
        with torch.inference_mode(False):
            reason = compared(few, trial)
        self.known[key] = ProbeResult(
            self.known[key].numbers if key in self.known else _numbers(few, trial), reason
        )
        if reason and self.strategy == "vmap":
            raise tn.TnshareError(f"{call.way}: tasks cannot run at once: {reason}; use strategy='auto'")

    def rows_are_independent(self, training: bool) -> bool:
        """Whether a probe has shown that no row of a batch changes what becomes of another."""
        known = self.known.get(("mixed", training))
        return known is not None and known.reason == ""

    def explain(self) -> str:
        """A line for each way that was called: which path it takes, and why."""
        lines = []
        for (way, training), known in self.known.items():
            how = {None: "one by one", "": "at once where calls are short"}
            text = how.get(known.reason, f"one by one: {known.reason}")
            lines.append(f"{way} ({'training' if training else 'evaluation'}): {text}")
        return "\n".join(lines)

    def _pays(self, call: Call) -> bool:
        if self.strategy == "auto":
            known = self.known.get((call.way, call.training))
            return known is not None and at_once_pays(len(call.numbers), known.numbers * call.rows)
        return self.strategy == "vmap"

    def _passed(self, call: Call) -> bool:
        known = self.known.get((call.way, call.training))
        return known is not None and known.reason == ""


def _numbers(call: Call, trial: Trial) -> float:
    """What a function of one task gives for a row, on average."""
    return trial.numbers / max(trial.calls, 1) / max(call.rows, 1)


def _normal(call: Call) -> Call:
    """A call with inputs of its own, which autograd can use also if they were made in inference mode."""
    x, kwargs = tree_map_only(torch.Tensor, torch.clone, (call.x.detach(), dict(call.kwargs)))
    return replace(call, x=x, kwargs=kwargs)


def _transformed() -> bool:
    """Whether this runs inside a transform of torch.func, where nothing can be tried out."""
    return torch._C._functorch.peek_interpreter_stack() is not None
