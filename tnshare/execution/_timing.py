"""Time the best few candidates on the device itself, once, and remember the fastest."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import zip_longest
from statistics import median
from typing import Any

from tnshare.ops import Ops
from tnshare.planning import Candidate, Job
from tnshare.planning.devices import store

from ._runners import Inputs, Runner, runner

KIND = "autotune"


COMPILED = 18  # candidates that are timed where each is compiled first


_FAR = 3.0  # times as slow by the prediction of a compiler's work: not worth compiling


SHORTLIST = 14  # candidates that are timed; fewer of those that take long


_SECONDS = 0.15  # for each candidate that is not out of the question, at least three rounds


_HOPELESS, _CLOSE = 2.0, 1.15  # times as slow as the fastest: not timed again; the less after many rounds


_SLICE = 0.02  # seconds that other processes may take at a time, which one in the first rounds is forgiven


_FIRST = 6


_MOST = 1000  # rounds


def tuned(
    job: Job, found: Sequence[Candidate], ops: Ops[Any], lead: tuple[int, ...], inputs: Inputs
) -> Candidate:
    """The fastest of the shortlist, by an earlier measurement of the same call here, or by one now."""
    shortlist = {candidate.name: candidate for candidate in shortlisted(found)}
    if len(shortlist) == 1:
        return found[0]
    key = tuning_key(job, ops, inputs[2], tuple(shortlist))
    seconds = measured(key, shortlist)
    if seconds is None:
        seconds = _measure(job, list(shortlist.values()), ops, lead, inputs)
        store.write(KIND, key, seconds)
    return shortlist[min(seconds, key=seconds.__getitem__)]


def shortlisted(found: Sequence[Candidate]) -> Sequence[Candidate]:
    """The candidates that are worth timing: half of them the best predictions, then the best of other trees.

    Predictions err the same way for all that differ in memory orders alone; and where a compiler arranges
    axes, they say little of memory orders. The best that groups rows is always there.
    """
    seconds = found[0].seconds
    near = [c for c in found if c.seconds < _FAR * seconds]
    if any(candidate.named for candidate in found):
        return _varied(near)[:COMPILED]
    most = SHORTLIST if seconds < 0.2 else SHORTLIST // 2
    chosen = list(dict.fromkeys([*found[: most // 2 + 1], *_varied(near)]))[:most]
    other = next((c for c in found if c.grouped and c.seconds < _HOPELESS * seconds), None)
    return [*chosen, *([other] if other is not None and other not in chosen else [])]


def _varied(found: Sequence[Candidate]) -> list[Candidate]:
    """First the best of every tree, then the second of every tree, and so on."""
    trees: dict[object, list[Candidate]] = {}
    for candidate in found:
        trees.setdefault((candidate.plan.tree, candidate.named, candidate.grouped), []).append(candidate)
    rounds = zip_longest(*trees.values())
    return [candidate for candidates in rounds for candidate in candidates if candidate is not None]


def measured(key: dict[str, Any], shortlist: Mapping[str, object]) -> dict[str, float] | None:
    """Seconds by name, if they are in the store and make sense."""
    found = store.read(KIND, key)
    if not isinstance(found, dict) or not found or not found.keys() <= shortlist.keys():
        return None
    sound = all(type(value) is float and 0 < value < float("inf") for value in found.values())
    return found if sound else None


def placed(key: dict[str, Any], ops: Ops[Any], like: Any, names: Iterable[str]) -> dict[str, Any]:
    """A key of times with the framework, the device and the dtype that they are valid for."""
    return {**_place(ops, like), **key, "candidates": list(names)}


def tuning_key(job: Job, ops: Ops[Any], x: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Everything that the times depend on."""
    network = job.network
    return {
        **_place(ops, x),
        "network": [[node.name, list(node.axes), list(node.shape)] for node in network.nodes],
        "way": [job.way, job.batch, job.inner, job.training, job.keep, job.bias],
        "candidates": list(names),
    }


def _place(ops: Ops[Any], x: Any) -> dict[str, Any]:
    from importlib.metadata import version  # here, as it takes a quarter of `import tnshare`

    device = getattr(ops, "device", None)
    return {
        "tnshare": version("tnshare"),
        "device": type(ops).__name__ if device is None else list(astuple(device(x))),
        "dtype": str(getattr(x, "dtype", None)),
    }


def _measure(
    job: Job, shortlist: list[Candidate], ops: Ops[Any], lead: tuple[int, ...], inputs: Inputs
) -> dict[str, float]:
    return timed({c.name: _program(runner(job, c, ops, lead), job.training, ops, inputs) for c in shortlist})


def fastest(
    key: dict[str, Any], runs: Mapping[str, Runner], training: bool, ops: Ops[Any], inputs: Inputs
) -> str:
    """The name of the fastest runner, by an earlier measurement under the same key, or by one now."""
    key = placed(key, ops, inputs[2], runs)
    seconds = measured(key, runs)
    if seconds is None:
        seconds = timed({name: _program(run, training, ops, inputs) for name, run in runs.items()})
        store.write(KIND, key, seconds)
    return min(seconds, key=seconds.__getitem__)


def timed(programs: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Times over rounds in which the programs run in an order that is shuffled anew.

    Who is put out is taken from ``programs``, and let go of with all that it keeps. It stays as many times
    as slow as the fastest as put it out, at least: few rounds may say anything when compared with others.
    """
    rounds: list[dict[str, float]] = []
    spent = dict.fromkeys(programs, 0.0)
    behind = dict.fromkeys(programs, 1.0)
    shuffle = random.Random(0).shuffle
    while len(rounds) < 4 or (len(rounds) < _MOST and sum(spent.values()) < _SECONDS * len(spent)):
        order = list(spent)
        shuffle(order)
        rounds.append({name: _seconds(programs[name]) for name in order})
        spent = {name: total + rounds[-1][name] for name, total in spent.items()}
        done = len(rounds)
        if done > 1 and done & (done - 1) == 0:  # 2, 4, 8 and so on
            hopeless = max(_CLOSE, 1 + (_HOPELESS - 1) / max(1, done / _FIRST))
            found = _compared(rounds, spent)
            limit = hopeless * min(found[name] for name in spent) + (_SLICE if done < _FIRST else 0.0)
            for name in [name for name in spent if found[name] > limit]:
                behind[name] = hopeless
                del spent[name], programs[name]
    found = _compared(rounds, spent)
    fastest = min(found[name] for name in spent)
    return {name: max(seconds, behind[name] * fastest) for name, seconds in found.items()}


def _compared(rounds: Sequence[Mapping[str, float]], steady: Collection[str]) -> dict[str, float]:
    """The time of each program: its median share of a round, by the ``steady`` ones, which ran in all.

    The speed of a busy machine may double from one moment to the next. Of times alone, who ran more often in
    the better moments would win. The first round was a warm-up.
    """
    rounds = rounds[1:]
    paces = [median(took[name] for name in steady) for took in rounds]
    usual = median(paces)
    shares: dict[str, list[float]] = {name: [] for name in rounds[0]}
    for took, pace in zip(rounds, paces, strict=True):
        for name, seconds in took.items():
            shares[name].append(seconds / pace if pace else 1.0)
    return {name: usual * median(values) for name, values in shares.items()}


def _seconds(program: Callable[[], object]) -> float:
    start = time.perf_counter()
    program()
    return time.perf_counter() - start


def _program(run: Runner, training: bool, ops: Ops[Any], inputs: Inputs) -> Callable[[], object]:
    """One run on the arrays of a call, with the backward pass when training.

    Each has a keeper of its own. In that of the layer there is room for what one of them keeps, not for all:
    they would put each other out, and be timed with what a call prepares once.
    """
    factors, bias, x, ids, keeper = inputs
    keeper = None if keeper is None else keeper.empty()
    wait = getattr(ops, "wait", ops.values)
    gradients = getattr(ops, "gradients", None)
    if not training or gradients is None:
        return lambda: wait(run(factors, bias, x, ids, keeper))
    arrays = [*factors, *(() if bias is None else (bias,)), *((x,) if smooth(x) else ())]
    weights = _in_order(ops, run(factors, bias, x, ids, None))

    def function(*given: Any) -> Any:
        rest = list(given[len(factors) :])
        own = None if bias is None else rest.pop(0)
        return run(given[: len(factors)], own, rest[0] if rest else x, ids, None)

    def step() -> None:
        for gradient in gradients(function, arrays, weights):
            wait(gradient)

    return step


def _in_order(ops: Ops[Any], y: Any) -> Any:
    """A gradient for a result: as its numbers lie, which is as the axes say, not as a candidate left them."""
    return ops.reshape(ops.reshape(y, (-1,)), y.shape)


def smooth(x: Any) -> bool:
    """Whether an input has a gradient: tokens have none."""
    return "int" not in str(getattr(x, "dtype", ""))


@dataclass(frozen=True)
class Contest:
    """The candidates that are worth timing, by name, the best prediction first.

    Their times are kept under ``key``; ``make`` gives the function of a candidate, ``text`` its code.
    """

    key: dict[str, Any]
    candidates: Mapping[str, Any]
    make: Callable[[Any], Runner]
    text: Callable[[Any], str]

    @property
    def chosen(self) -> Any:
        """The fastest by what was measured before, or else by the profile."""
        seconds = measured(self.key, self.candidates)
        name = min(seconds, key=seconds.__getitem__) if seconds else next(iter(self.candidates))
        return self.candidates[name]
