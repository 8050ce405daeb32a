"""A layer bound to a framework: checks, chooses, remembers and explains every kind of call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Literal, get_args

from tnshare.checks import flag, listed, whole
from tnshare.errors import TnshareError
from tnshare.planning import (
    PROFILES,
    READ,
    WAYS,
    AnyJob,
    AnyOption,
    Candidate,
    Form,
    Profile,
    Way,
    check_fits,
    choose,
    explain,
    fastest_within,
    profile_for,
    seconds_in_parts,
)

from ._call_cache import EVERY, CallCache
from ._call_kind import CallKind
from ._runners import Inputs, Keeper, Runner, Shape, chunked, has_gradient, is_contiguous, itemsize
from ._timing import key_on_device, measured, remember, seconds_of_runs

Strategy = Literal["auto", "factored", "materialised", "autotune"]
Measure = Callable[[Mapping[str, Runner]], dict[str, float]]


@dataclass(frozen=True)
class Decision:
    """What a job is computed by, out of which options.

    It is the fastest by ``seconds``, if they were measured, or else by the predictions of the options; where
    memory is limited, the fastest that keeps the limit: so many ``rows_at_a_time`` (0 for all), with a
    ``peak`` of so many bytes.
    """

    job: AnyJob
    options: Sequence[AnyOption]
    chosen: AnyOption
    seconds: Mapping[str, float] | None = None
    rows_at_a_time: int = 0
    peak: int = 0


class Calls:
    """Calls of one layer, in one framework, by one strategy.

    The first call of a kind (a way of choosing tasks, a shape of x, training or not) is checked and planned;
    later ones find their function in the ``cache``.
    """

    def __init__(
        self,
        kind: CallKind[Any, Any],
        strategy: Strategy | Candidate = "auto",
        memory_limit: int | None = None,
    ) -> None:
        if not isinstance(strategy, Candidate) and strategy not in get_args(Strategy):
            raise TnshareError(f"strategy must be one of {get_args(Strategy)}: found {strategy!r}")
        self.kind, self.layer, self.ops, self.strategy = kind, kind.layer, kind.ops, strategy
        self.memory_limit = None if memory_limit is None else whole("memory_limit", memory_limit, least=0)
        self._only_tasks = self.layer.task_shape[0] if len(self.layer.task_shape) == 1 else 0
        self._guards: Callable[[Any], bool] = getattr(self.ops, "guards", _never) if kind.guarded else _never
        self._compiles = hasattr(self.ops, "jit")
        told = getattr(self.ops, "told", ("shape", "dtype"))
        self.cache = CallCache(told, self._only_tasks, memory_limit is not None)
        self.plans_ahead: dict[tuple[Way, bool], list[tuple[int, Runner]]] = {}

    def apply(
        self,
        factors: Sequence[Any],
        bias: Any,
        x: Any,
        task: Any,
        training: bool,
        keeper: Keeper | None = None,
        remember: bool = False,
    ) -> Any:
        """The outputs of one task, of a task for each row, or of all tasks, each on its own rows.

        What ran is remembered, if asked for, where ``cache.find`` finds it for the next call of the kind.
        """
        if type(task) is int and 0 <= task < self._only_tasks:  # what most calls give, and quickly done
            return self._call("one", None, training, (factors, bias, x, (task,), keeper), task, remember)
        if task is None:
            return self._call("each", None, training, (factors, bias, x, None, keeper), task, remember)
        if self._only_tasks and self._guards(task):
            inputs = (factors, bias, x, (task,), keeper)
            try:
                return self._call("mixed", task.shape[0], training, inputs, task, remember)
            except (IndexError, RuntimeError):
                choose(task, self.layer.network, self.ops)  # says what is wrong with the ids, if they are it
                raise
        choice = choose(task, self.layer.network, self.ops)
        way: Way = "one" if choice.rows is None else "mixed"
        return self._call(way, choice.rows, training, (factors, bias, x, choice.ids, keeper))

    def fan_out(
        self,
        factors: Sequence[Any],
        bias: Any,
        x: Any,
        training: bool,
        keeper: Keeper | None = None,
        remember: bool = False,
    ) -> Any:
        """The same x through every task."""
        return self._call("fan_out", None, training, (factors, bias, x, None, keeper), EVERY, remember)

    def ahead(self, like: Any, batches: Sequence[int]) -> None:
        """Plan calls of these numbers of rows, in every way, for calls that are traced."""
        if self.plans_ahead:
            return
        if self.memory_limit is not None:
            raise TnshareError(
                "memory_limit is a promise that only eager calls can keep, since a compiled one is planned "
                "before its batch is known: compile a layer without it"
            )
        planned = {}
        for way, training in product(WAYS, (True, False)):
            runs = []
            for rows in self.kind.planned_for(sorted(batches)):
                job = self.job(way, (rows,), training=training, keep=False, concrete=False)
                chosen = self.choose(job, (rows,), like).chosen
                runs.append((rows, self.kind.function(job, chosen, None)))
            planned[way, training] = runs
        self.plans_ahead = planned

    def traced(
        self,
        way: Way,
        ids: Any,
        factors: Sequence[Any],
        bias: Any,
        x: Any,
        training: bool,
        known: Callable[[Any], bool],
    ) -> Any:
        """A call whose sizes may be symbols, by the nearest of the plans made ahead, or else a middle one.

        ``known`` says whether something is true of all values that a symbol can have, so that the choice of
        a plan restricts none.
        """
        rows = math.prod(self.kind.rows_of(way, None, tuple(x.shape)))
        runs = self.plans_ahead[way, training]
        run = runs[len(runs) // 2][1]
        for most, other in reversed(runs):
            if known(rows <= most):
                run = other
        return run(factors, bias, x, ids)

    def explain(
        self, way: Way, batch: int, like: Any, *, training: bool, sizes: Sequence[int] | None = None
    ) -> str:
        """The options for an eager call of so many rows, what each costs, and the steps of the chosen.

        ``sizes`` are those of the axes of x that are neither rows nor features, if it has some.
        """
        d = self._asked(way, batch, like, training, sizes)
        profile = self.profile(like)
        return explain(d.job, d.options, d.chosen, profile, d.seconds, d.rows_at_a_time, d.peak)

    def source(
        self, way: Way, batch: int, like: Any, *, training: bool, sizes: Sequence[int] | None = None
    ) -> str:
        """What runs for such a call, in terms of a framework's operations."""
        return self.kind.code(self._asked(way, batch, like, training, sizes).chosen)

    def _asked(
        self, way: Way, batch: int, like: Any, training: bool, sizes: Sequence[int] | None
    ) -> Decision:
        """What an eager call decides; where calls are compiled, what a traced one does."""
        flag("training", training)
        if sizes is not None:
            sizes = tuple(whole("sizes", size) for size in listed("sizes", sizes, "whole numbers"))
        shape = self.shape(way, (whole("batch", batch, least=0),), sizes)
        rows = self.kind.rows_of(way, None, shape)
        concrete = 0 not in rows and self._may_look(like, ())
        return self.choose(self._job(way, rows, shape, training, not self._compiles, concrete), rows, like)

    def shape(self, way: Way, rows: Shape, sizes: Sequence[int] | None = None) -> Shape:
        """The shape of an x of so many rows."""
        if way not in WAYS:
            raise TnshareError(f"way must be one of {WAYS}: found {way!r}")
        own = self.kind.shape(rows, sizes)
        return (*self.layer.task_shape, *own) if way == "each" else own

    def job(
        self,
        way: Way,
        rows: Shape,
        sizes: Sequence[int] | None = None,
        *,
        training: bool,
        keep: bool,
        concrete: bool,
    ) -> Any:
        """What is to be computed for so many rows; with a keeper or without, with values or traced."""
        shape = self.shape(way, rows, sizes)
        return self._job(way, self.kind.rows_of(way, None, shape), shape, training, keep, concrete)

    def options(self, job: Any, profile: Profile) -> tuple[Any, ...]:
        """What the strategy allows, the fastest by the profile first."""
        strategy = self.strategy
        if isinstance(strategy, Candidate):
            check_fits(strategy, job)
            return (strategy,)
        form: Form = "any" if strategy == "auto" or strategy == "autotune" else strategy
        return self.kind.options(job, profile, form)

    def choose(
        self, job: Any, rows: Shape, like: Any, *, copies: int = 0, measure: Measure | None = None
    ) -> Decision:
        """What the job is computed by; nothing else decides.

        ``like`` says where the arrays are, and their dtype. ``copies`` are bytes that are alive besides.
        ``measure`` gives the seconds of functions, for want of known ones.
        """
        profile = self.profile(like)
        options = self.options(job, profile)
        if self.memory_limit is not None:
            return self._within(job, rows, options, profile, itemsize(like), copies)
        seconds = None
        if self._compiles or (self.strategy == "autotune" and job.concrete):
            some = {option.name: option for option in self.kind.worth_timing(options)}
            key = key_on_device(self.kind.key(job), self.ops, like, some)
            seconds = measured(key, some)
            if seconds is None and measure is not None and (len(some) > 1 or self._compiles):
                runs = {name: self.kind.function(job, option, rows) for name, option in some.items()}
                seconds = measure(runs)
                remember(key, seconds)
        best = min(seconds, key=seconds.__getitem__) if seconds else options[0].name
        return Decision(job, options, next(option for option in options if option.name == best), seconds)

    def function(self, decision: Decision, rows: Shape) -> Runner:
        """What was decided, as a function of an x that has these axes of rows."""
        job, size = decision.job, decision.rows_at_a_time
        run = self.kind.function(job, decision.chosen, None if size else rows)
        return chunked(run, self.ops, job.way, self.layer.task_shape, rows, size) if size else run

    def profile(self, like: Any) -> Profile:
        """What is known about the device of an array."""
        device = getattr(self.ops, "device", None)
        return PROFILES["cpu"] if device is None else profile_for(device(like))

    def forget(self) -> None:
        """Plan anew: for another device, or dtype."""
        self.plans_ahead = {}
        self.cache.forget()

    def anew(self) -> Calls:
        """The same calls, of which none was made yet: without functions, which cannot be pickled."""
        return Calls(self.kind, self.strategy, self.memory_limit)

    def _call(
        self,
        way: Way,
        ids: int | None,
        training: bool,
        inputs: Inputs,
        task: Any = None,
        remember: bool = False,
    ) -> Any:
        x, bare, cache = inputs[2], inputs[4] is None, self.cache
        kind = cache.checked(way, ids, x, training, bare)
        run = cache.recall(kind)
        if run is None:
            run = self._prepared(way, ids, training, inputs)
            cache.remember(kind, run)
        y = run(*inputs)
        if remember:
            cache.keep(x, task, training, bare, run)
        return y

    def _prepared(self, way: Way, ids: int | None, training: bool, inputs: Inputs) -> Runner:
        """Check the shape of x, and make a function of what is chosen for it."""
        factors, _, x, columns, keeper = inputs
        shape = tuple(x.shape)
        rows = self.kind.rows_of(way, ids, shape)
        concrete = 0 not in rows and self._may_look(x, columns if way == "mixed" else ())
        job = self._job(way, rows, shape, training, keeper is not None, concrete)
        like, copies, measure = x if has_gradient(x) else factors[0], 0, None
        if self.memory_limit is not None and not is_contiguous(x):  # folding copies it, and its gradient back
            copies = math.prod(shape) * itemsize(x) * (2 if like is x else 1)
        if concrete and self.strategy == "autotune":
            measure = partial(seconds_of_runs, training=training, ops=self.ops, inputs=inputs)
        decision = self.choose(job, rows, like, copies=copies, measure=measure)
        return self.function(decision, rows)

    def _may_look(self, x: Any, ids: Sequence[Any]) -> bool:
        """Whether a call has values, so that they may be looked at, and it may be timed."""
        ops = self.ops
        known = not self._compiles and getattr(ops, "concrete", _never)(x)
        return known and all(ops.values(column) is not None for column in ids)

    def _job(self, way: Way, rows: Shape, shape: Shape, training: bool, keep: bool, concrete: bool) -> Any:
        keep = keep and not training and self.memory_limit is None
        return self.kind.job(way, rows, shape, training, keep, concrete)

    def _within(
        self, job: Any, rows: Shape, options: Sequence[Any], profile: Profile, size: int, copies: int
    ) -> Decision:
        """The fastest that keeps the limit of memory."""
        assert self.memory_limit is not None
        kind, count = self.kind, self.kind.rows_in(job.way, rows)

        def peak_bytes(option: Any, part: int) -> int:
            return kind.peak_bytes(job, option, rows, part, size) + copies

        def in_parts(option: Any, part: int) -> float:
            once = partial(kind.seconds, job, option, profile, part)
            parts = math.ceil(count / part)
            return seconds_in_parts(self.layer.network, profile, parts, job.training, once)

        what = f"{READ[job.way]} in {'training' if job.training else 'inference'}"
        some = kind.measurable(options)
        chosen, part = fastest_within(some, count, self.memory_limit, peak_bytes, in_parts, what)
        return Decision(job, some, chosen, None, part, peak_bytes(chosen, part or max(count, 1)))


def _never(ids: Any) -> bool:
    return False  # no lambda: layers are pickled with their calls
