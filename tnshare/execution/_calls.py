"""A layer bound to a framework: chooses a program for every kind of call, and remembers it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any, Literal, get_args

from tnshare.checks import whole
from tnshare.errors import TnshareError
from tnshare.ops import Ops
from tnshare.planning import (
    PROFILES,
    WAYS,
    Candidate,
    Form,
    Job,
    Profile,
    Way,
    bucket,
    candidates,
    check_fits,
    choose,
    leading_axes,
    profile_for,
    room,
    within,
)

from ._known_calls import EVERY, Known
from ._runners import Inputs, Keeper, Runner, fixed_axes, runner
from ._timing import Contest, measured, shortlisted, tuned, tuning_key

if TYPE_CHECKING:
    from tnshare.layers import Layer

Strategy = Literal["auto", "factored", "materialised", "autotune"]
_MOST = 512  # kinds of calls that are remembered


class Calls:
    """Calls of one layer, in one framework, by one strategy.

    The first call of a kind (a way of choosing tasks, a shape of x, training or not) is checked and planned;
    later ones find their program under that key.
    """

    layer: Any
    guarded = True  # whether ids go to where a framework itself refuses those that are out of range

    def __init__(
        self,
        layer: Layer,
        ops: Ops[Any],
        strategy: Strategy | Candidate = "auto",
        memory_limit: int | None = None,
    ) -> None:
        if not isinstance(strategy, Candidate) and strategy not in get_args(Strategy):
            raise TnshareError(f"strategy must be one of {get_args(Strategy)}: found {strategy!r}")
        self.layer, self.ops, self.strategy = layer, ops, strategy
        self.memory_limit = None if memory_limit is None else whole("memory_limit", memory_limit, least=0)
        self._only_tasks = layer.task_shape[0] if len(layer.task_shape) == 1 else 0
        self._guards: Callable[[Any], bool] = getattr(ops, "guards", _never) if self.guarded else _never
        self._runs: dict[Any, Runner] = {}
        self.known = Known(getattr(ops, "told", ("shape", "dtype")), self._only_tasks)
        self.planned: dict[tuple[Way, bool], list[tuple[int, Runner]]] = {}

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

        What ran is remembered, if asked for, in ``known``, where the next call of the kind may find it.
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
        if self.planned:
            return
        self._refuse_limit()
        profile, planned = self.profile(like), {}
        for way, training in product(WAYS, (True, False)):
            runs = []
            for rows in sorted(batches):
                job = self.job(way, (rows,), training=training, keep=False, concrete=False)
                runs.append((rows, runner(job, self.shortlist(job, profile)[0], self.ops, (rows,))))
            planned[way, training] = runs
        self.planned = planned

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
        tasks = len(self.layer.task_shape) if way == "each" else 0
        lead = x.shape[tasks:-1]
        folded = x if len(lead) == 1 else self.ops.reshape(x, (*x.shape[:tasks], -1, x.shape[-1]))
        rows = folded.shape[tasks]
        runs = self.planned[way, training]
        run = runs[len(runs) // 2][1]
        for most, other in reversed(runs):
            if known(rows <= most):
                run = other
        y = run(factors, bias, folded, ids)
        if len(lead) == 1:
            return y
        return self.ops.reshape(y, (*y.shape[: y.ndim - 2], *lead, y.shape[-1]))

    def explain(self, way: Way, batch: int, like: Any, *, training: bool) -> str:
        """The candidates for an eager call of so many rows, what each costs, and the steps of the chosen."""
        from tnshare.planning import explain

        job, profile, found, times, chosen = self._chosen(way, batch, like, training)
        return explain(job, found, chosen, profile, times)

    def source(self, way: Way, batch: int, like: Any, *, training: bool) -> str:
        """What runs for an eager call of so many rows, in terms of a framework's operations."""
        chosen = self._chosen(way, batch, like, training)[-1]
        fixed = fixed_axes(chosen.plan)
        if not chosen.grouped:
            return chosen.plan.source(fixed)
        note = (
            "# Rows are sorted by task and padded to groups of one length: place n of all groups takes row "
            "rows[n],\n# and row n is at the place back[n]; ids are not used. Factors are those of "
            f"{'all tasks' if chosen.grouped == 'all' else 'the tasks that are present'}.\n"
        )
        return note + chosen.plan.source(fixed)

    def _chosen(
        self, way: Way, batch: int, like: Any, training: bool
    ) -> tuple[Job, Profile, tuple[Candidate, ...], dict[str, float] | None, Candidate]:
        """What a call would choose from, the times if it was tuned before, and what it would choose."""
        if way not in WAYS:
            raise TnshareError(f"way must be one of {WAYS}: found {way!r}")
        rows = (whole("batch", batch, least=0),)
        job = self.job(way, rows, training=training, keep=not training, concrete=True)
        profile = self.profile(like)
        found = self.shortlist(job, profile)
        if self.memory_limit is not None:
            chosen = within(job, found, profile, self.memory_limit, like.dtype.itemsize)
            return job, profile, found, None, chosen
        key = tuning_key(job, self.ops, like, tuple(c.name for c in shortlisted(found)))
        times = measured(key, {c.name: c for c in found}) if self.strategy == "autotune" else None
        best = min(times, key=times.__getitem__) if times else found[0].name
        return job, profile, found, times, next(c for c in found if c.name == best)

    def contest(
        self, way: Way, rows: int | None, training: bool, like: Any, shape: tuple[int, ...]
    ) -> Contest:
        """The candidates of a traced call for x of this shape; ``like`` says where it is, and its dtype."""
        lead = self._lead(way, rows, shape)
        job = self.job(way, lead, training=training, keep=False, concrete=False)
        found = {c.name: c for c in shortlisted(self.shortlist(job, self.profile(like)))}
        return Contest(
            tuning_key(job, self.ops, like, tuple(found)),
            found,
            lambda c: runner(job, c, self.ops, lead),
            lambda c: c.plan.source(fixed_axes(c.plan), named=c.named),
        )

    def shape(self, rows: int, sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of an x of so many rows; ``sizes`` are those of the axes between rows and features."""
        return (rows, *sizes, self.layer.in_features)

    def forget(self) -> None:
        """Plan anew: for another device, or dtype."""
        self._runs, self.planned = {}, {}
        self.known.forget()

    def job(self, way: Way, lead: Sequence[int], *, training: bool, keep: bool, concrete: bool) -> Job:
        """What is to be computed for an x whose axes, between those of tasks and the last, are ``lead``."""
        several = way == "mixed" and len(lead) > 1
        rows = lead[0] if several else math.prod(lead)
        inner = math.prod(lead[1:]) if several else None
        if self.memory_limit is None:
            rows, inner = bucket(rows), None if inner is None else bucket(inner)
        network = self.layer.network
        kept = room(network, way) if keep and not training and self.memory_limit is None else 0
        named = hasattr(self.ops, "einsum")
        return Job(network, way, rows, inner, training, kept, concrete, self.layer.bias, named)

    def shortlist(self, job: Job, profile: Profile) -> tuple[Candidate, ...]:
        """The candidates that the strategy allows, the fastest by the profile first."""
        if isinstance(self.strategy, Candidate):
            check_fits(self.strategy, job)
            return (self.strategy,)
        return candidates(job, profile, self.form)

    @property
    def form(self) -> Form:
        """The forms of plans that the strategy allows."""
        strategy = self.strategy
        return strategy if strategy == "factored" or strategy == "materialised" else "any"

    def profile(self, like: Any) -> Profile:
        """What is known about the device of an array."""
        device = getattr(self.ops, "device", None)
        return PROFILES["cpu"] if device is None else profile_for(device(like))

    def _refuse_limit(self) -> None:
        if self.memory_limit is not None:
            raise TnshareError(
                "memory_limit is a promise that only eager calls can keep, since a compiled one is planned "
                "before its batch is known: compile a layer without it"
            )

    def _call(
        self,
        way: Way,
        rows: int | None,
        training: bool,
        inputs: Inputs,
        task: Any = None,
        remember: bool = False,
    ) -> Any:
        x = inputs[2]
        key: Any = (way, x.shape, rows, training, inputs[4] is None, getattr(x, "dtype", None))
        if self.memory_limit is not None:
            key = (*key, in_order(x))
        run = self._runs.get(key)
        if run is None:
            run = self._made(way, rows, training, inputs)
            if len(self._runs) >= _MOST:
                self._runs.clear()
            self._runs[key] = run
        y = run(*inputs)
        if remember and self.memory_limit is None:
            self.known.keep(x, task, training, inputs[4] is None, run)
        return y

    def _made(self, way: Way, rows: int | None, training: bool, inputs: Inputs) -> Runner:
        """Check the shape of x, choose a candidate, and make a function of it."""
        x = inputs[2]
        lead = self._lead(way, rows, tuple(x.shape))
        concrete = 0 not in lead and getattr(self.ops, "concrete", lambda _: False)(x)
        if way == "mixed" and concrete:
            concrete = all(self.ops.values(column) is not None for column in inputs[3])
        job = self.job(way, lead, training=training, keep=inputs[4] is not None, concrete=concrete)
        profile = self.profile(x)
        found = self.shortlist(job, profile)
        if self.memory_limit is not None:
            itemsize = getattr(getattr(x, "dtype", None), "itemsize", 4)
            # Folding an x whose numbers do not lie in order copies it, and its gradient back.
            copies = 0 if in_order(x) else 2 * math.prod(x.shape)
            chosen = within(job, found, profile, self.memory_limit, itemsize, copies)
            return runner(job, chosen, self.ops, lead)
        if self.strategy == "autotune" and concrete:
            return runner(job, tuned(job, found, self.ops, lead, inputs), self.ops, lead)
        if hasattr(self.ops, "jit"):
            contest = self.contest(way, rows, training, x, tuple(x.shape))
            return contest.make(contest.chosen)
        return runner(job, found[0], self.ops, lead)

    def _lead(self, way: Way, rows: int | None, shape: tuple[int, ...]) -> tuple[int, ...]:
        return leading_axes(way, rows, shape, self.layer.in_features, self.layer.task_shape)


def _never(ids: Any) -> bool:
    return False  # no lambda: layers are pickled with their calls


def in_order(x: Any) -> bool:
    """Whether the numbers of an array lie in memory as its axes say, as far as its framework tells."""
    ask = getattr(x, "is_contiguous", None)
    return bool(ask()) if ask is not None else True
