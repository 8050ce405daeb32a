"""Time the functions of a call on the device itself, once, and remember the seconds."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple
from statistics import median
from typing import Any

from tnshare.ops import Ops
from tnshare.planning.devices import store

from ._array_facts import has_gradient
from ._runners import Inputs, Runner

_STORED = "autotune"
_SECONDS = 0.15  # for each candidate that is not out of the question, at least three rounds
_HOPELESS, _CLOSE = 2.0, 1.15  # times as slow as the fastest: not timed again; the less after many rounds
_SLICE = 0.02  # seconds that other processes may take at a time, which one in the first rounds is forgiven
_FIRST = 6
_MOST = 1000  # rounds


def measured(key: dict[str, Any], options: Mapping[str, object]) -> dict[str, float] | None:
    """Seconds by name, if they are in the store and make sense."""
    found = store.read(_STORED, key)
    if not isinstance(found, dict) or not found or not found.keys() <= options.keys():
        return None
    sound = all(type(value) is float and 0 < value < float("inf") for value in found.values())
    return found if sound else None


def remember(key: dict[str, Any], seconds: Mapping[str, float]) -> None:
    """Keep seconds by name in the store."""
    store.write(_STORED, key, seconds)


def key_on_device(key: dict[str, Any], ops: Ops[Any], like: Any, names: Iterable[str]) -> dict[str, Any]:
    """A key of times with the framework, the device and the dtype that they are valid for."""
    from importlib.metadata import version  # here, as it takes a quarter of `import tnshare`

    device = getattr(ops, "device", None)
    return {
        "tnshare": version("tnshare"),
        "device": type(ops).__name__ if device is None else list(astuple(device(like))),
        "dtype": str(getattr(like, "dtype", None)),
        **key,
        "candidates": list(names),
    }


def seconds_of_runs(
    runs: Mapping[str, Runner], *, training: bool, ops: Ops[Any], inputs: Inputs
) -> dict[str, float]:
    """Seconds of the functions of a call, with the backward pass when training."""
    return time_in_rounds({name: _program(run, training, ops, inputs) for name, run in runs.items()})


def time_in_rounds(programs: dict[str, Callable[[], object]]) -> dict[str, float]:
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
    arrays = [*factors, *(() if bias is None else (bias,)), *((x,) if has_gradient(x) else ())]
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
