"""Whether several tasks are computed at once, as one batch, or one after the other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch

import tnshare as tn
from tnshare_torch._ops import ops
from tnshare_torch.shared.running._replacing import Trial
from tnshare_torch.shared.running._weights import CallTasks

from ._probe import compared
from ._task_calls import Call, Kind, casts

# Measured with PyTorch on a CPU, one thread, training steps of 4 to 64 tasks (multi-layer perceptrons, small
# convolutional networks, a transformer layer): at once took 0.13 to 0.94 times as long as one by one
# wherever an operation gave at most this many numbers, and up to twice as long beyond, past the caches.
NUMBERS = 8192
TASKS = 4  # fewer are not worth it
_MOST = 256  # kinds of calls that are remembered; others run one by one


def at_once_pays(tasks: int, numbers: float) -> bool:
    """Whether calls are so short that one for all tasks beats one for each.

    ``numbers`` is what an operation of one task gives, on average.
    """
    return tasks >= TASKS and numbers <= NUMBERS


Strategy = Literal["auto", "loop", "vmap"]


@dataclass
class ProbeResult:
    """About calls of one kind: numbers that a function gives for a row, and what a probe found.

    ``reason`` says why tasks cannot run at once, ``dependent`` why a row is not to be run alone; "" if it is
    so, None if that was not tried. Neither says anything of groups that are longer than the ``longest`` that
    was tried. ``seen`` are the tasks that were watched.
    """

    numbers: float
    reason: str | None = None
    dependent: str | None = None
    longest: int = 0
    seen: set[int] = field(default_factory=set)


class PathChooser:
    """What is known of the calls of one shared network, by what tells them apart."""

    def __init__(self, strategy: Strategy = "auto") -> None:
        if strategy not in get_args(Strategy):
            raise tn.TnshareError(f"strategy must be one of {get_args(Strategy)}: found {strategy!r}")
        self.strategy = strategy
        self.known: dict[Kind, ProbeResult] = {}
        self.tensors: set[tuple[object, ...]] = set()  # of what kinds one task was given alone before
        self.suspicious = False  # something was left where other tasks would find it: every call is watched

    def run(self, call: Call) -> Any:
        """The outputs of a call."""
        call.check()
        if torch.compiler.is_compiling():
            return self._traced(call)
        known = self.known.get(call.kind())
        if call.x is None or not ops.concrete(call.x) or _transformed():
            return call.one_by_one()
        if self.suspicious or known is None or not known.seen.issuperset(call.numbers):
            return self._watched(call)
        if call.alone or not self._pays(call, known):
            return call.one_by_one()
        if not known.reason and not self._fits(call, known):
            self.probe(call)
        return call.at_once() if self._fits(call, known) else call.one_by_one()

    def _traced(self, call: Call) -> Any:
        """In compiled code nothing is tried out or watched: what is known of calls of this kind decides."""
        if self.suspicious:
            raise tn.TnshareError(
                "the network leaves something where other tasks find it, as an earlier call has shown, and "
                "compiled code cannot watch it: call it without torch.compile, which says what it is"
            )
        if call.alone:
            return call.one_by_one()
        known = self.known.get(call.kind())
        # Groups of these ways are not padded: how long they are changes nothing for a program.
        passed = known is not None and known.reason == "" and self._pays(call, known)
        return call.at_once() if passed else call.one_by_one()

    def is_known(self, task: int, x: torch.Tensor, training: bool) -> bool:
        """Whether a task was given a tensor like this one alone before: then there is nothing to look at."""
        return (task, x.dtype, x.ndim, training, *_modes()) in self.tensors and not self.suspicious

    def probe(self, call: Call) -> None:
        """Find out whether both paths give the same, for groups as long as those of a call."""
        with torch.inference_mode(False):  # gradients are compared too, whoever asks
            tried = call.probed()
            if tried is None:
                return
            trial = Trial(still=True)
            found = compared(_normal(tried), trial)
        known = self.known.setdefault(call.kind(), ProbeResult(_numbers(tried, trial)))
        known.reason, known.dependent = found.reason, found.dependent
        known.longest = max(known.longest, call.longest)
        if known.reason and self.strategy == "vmap":
            raise tn.TnshareError(
                f"{call.way}: tasks cannot run at once: {known.reason}; use strategy='auto'"
            )

    def watch(self, call: Call) -> None:
        """Refuse a network of which one task uses what another left. What a way cannot do, calls say."""
        try:
            self._watched(call, keep=False)
        except Exception:
            if self.suspicious or call.way == "one":
                raise

    def rows_are_independent(self, call: Call, rows: int) -> bool:
        """Whether a probe has shown that no row of so many changes what becomes of another."""
        known = self.known.get(call.kind())
        return known is not None and known.dependent == "" and rows <= known.longest

    def reasons(self, way: str, training: bool) -> set[str | None]:
        """Why calls of a way cannot run at once: "" of those that can, None of those that nobody tried."""
        every = self.known.items()
        return {known.reason for kind, known in every if kind[:2] == (way, training)}

    def forget(self) -> None:
        """Tasks have other numbers now."""
        self.tensors.clear()
        for known in self.known.values():
            known.seen = set()

    def explain(self) -> str:
        """A line for each way that was called: which path it takes, and why."""
        lines = []
        for kind, known in self.known.items():
            if kind.way not in ("one", "list"):
                how = {None: "one by one", "": "at once where calls are short"}
                text = how.get(known.reason, f"one by one: {known.reason}")
                lines.append(f"{kind.way} ({'training' if kind.training else 'evaluation'}): {text}")
        return "\n".join(dict.fromkeys(lines))

    def _watched(self, call: Call, keep: bool = True) -> Any:
        """A call unlike those before: one by one, and nothing is left by one task for the next.

        If it is refused, or nothing is to be kept, buffers are as before.
        """
        trial, buffers = Trial(still=False, watched=True), list(call.tasks.kept.buffers())
        held = [buffer.clone() for buffer in buffers]
        try:
            y = call.one_by_one(trial)
        except tn.TnshareError:
            keep = False
            self.suspicious = self.suspicious or any(owner.met for owner in trial.owners)
            for owner in trial.owners:
                owner.valid = False
            raise
        finally:
            if not keep:
                with torch.no_grad():
                    for buffer, value in zip(buffers, held, strict=True):
                        buffer.copy_(value)
        if len(self.known) < _MOST:
            known = self.known.setdefault(call.kind(), ProbeResult(_numbers(call, trial)))
            known.seen.update(call.numbers)
            if (
                call.way == "one"
                and call.given.plain
                and call.x is not None
                and type(call.tasks) is CallTasks
            ):
                kind = call.numbers[0], call.x.dtype, call.x.ndim, call.training
                self.tensors.add((*kind, *_modes()))
        return y

    def _fits(self, call: Call, known: ProbeResult) -> bool:
        """Whether a probe has found both paths the same, for groups as long as those of a call."""
        return known.reason == "" and call.longest <= known.longest

    def _pays(self, call: Call, known: ProbeResult) -> bool:
        if self.strategy == "auto":
            return at_once_pays(len(call.numbers), known.numbers * call.rows)
        return self.strategy == "vmap"


def _modes() -> tuple[bool, bool]:
    """Besides training and evaluation, what a forward may ask about."""
    return torch.is_grad_enabled(), casts()


def _numbers(call: Call, trial: Trial) -> float:
    """What a function of one task gives for a row, on average."""
    return trial.numbers / max(trial.calls, 1) / max(call.rows, 1)


def _normal(call: Call) -> Call:
    """A call with inputs of its own, which autograd can use also if they were made in inference mode."""
    return replace(call, given=call.given.changed(lambda x, _: x.detach().clone()))


def _transformed() -> bool:
    """Whether this runs inside a transform of torch.func, where nothing can be tried out."""
    return torch._C._functorch.peek_interpreter_stack() is not None
