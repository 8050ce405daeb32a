"""Time the best few candidates on the device itself, once, and remember the fastest."""

from __future__ import annotations

import importlib.metadata
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any

from . import store
from .candidate import Candidate, Job
from .ops import Ops
from .runners import Inputs, runner

KIND = "autotune"
SHORTLIST = 10  # candidates that are timed; fewer of those that take long
_SECONDS = 0.1  # for each candidate, at least three rounds
_HOPELESS = 2.0  # times as slow as the fastest after the first round: not timed again


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
    """The candidates that are worth timing, the best prediction first, and the best that groups rows."""
    seconds = found[0].seconds
    most = SHORTLIST if seconds < 0.02 else SHORTLIST // 2 if seconds < 0.2 else 3
    other = next((c for c in found if c.grouped and c.seconds < _HOPELESS * seconds), None)
    return [*found[:most], *([other] if other is not None and other not in found[:most] else [])]


def measured(key: dict[str, Any], shortlist: dict[str, Candidate]) -> dict[str, float] | None:
    """Seconds by name, if they are in the store and make sense."""
    found = store.read(KIND, key)
    if not isinstance(found, dict) or not found or not found.keys() <= shortlist.keys():
        return None
    sound = all(type(value) is float and 0 < value < float("inf") for value in found.values())
    return found if sound else None


def tuning_key(job: Job, ops: Ops[Any], x: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """Everything that the times depend on."""
    device = getattr(ops, "device", None)
    network = job.network
    return {
        "tnshare": importlib.metadata.version("tnshare"),
        "device": type(ops).__name__ if device is None else list(astuple(device(x))),
        "dtype": str(getattr(x, "dtype", None)),
        "network": [[node.name, list(node.axes), list(node.shape)] for node in network.nodes],
        "way": [job.way, job.batch, job.inner, job.training, job.keep, job.bias],
        "candidates": list(names),
    }


def _measure(
    job: Job, shortlist: list[Candidate], ops: Ops[Any], lead: tuple[int, ...], inputs: Inputs
) -> dict[str, float]:
    """Times over rounds in which the candidates run in an order that is shuffled anew."""
    programs = {c.name: _program(job, c, ops, lead, inputs) for c in shortlist}
    times: dict[str, list[float]] = {name: [] for name in programs}
    shuffle = random.Random(0).shuffle
    rounds = 0
    while programs and (rounds < 4 or sum(map(sum, times.values())) < _SECONDS * len(programs)):
        order = list(programs)
        shuffle(order)
        for name in order:
            start = time.perf_counter()
            programs[name]()
            times[name].append(time.perf_counter() - start)
        rounds += 1
        fastest = min(min(values) for values in times.values())
        if rounds > 1:
            programs = {n: p for n, p in programs.items() if min(times[n]) < _HOPELESS * fastest}
    # On a busy machine the shortest time says the most; the first run was a warm-up.
    return {name: min(values[1:]) for name, values in times.items() if len(values) > 1}


def _program(
    job: Job, candidate: Candidate, ops: Ops[Any], lead: tuple[int, ...], inputs: Inputs
) -> Callable[[], object]:
    """One run of a candidate on the arrays of a call, with the backward pass when training."""
    run = runner(job, candidate, ops, lead)
    factors, bias, x, ids, keeper = inputs
    wait = getattr(ops, "wait", ops.values)
    gradients = getattr(ops, "gradients", None)
    if not job.training or gradients is None:
        return lambda: wait(run(factors, bias, x, ids, keeper))
    arrays = [*factors, *(() if bias is None else (bias,)), x]
    weights = run(factors, bias, x, ids, None)

    def function(*given: Any) -> Any:
        return run(given[: len(factors)], None if bias is None else given[-2], given[-1], ids, None)

    def step() -> None:
        for gradient in gradients(function, arrays, weights):
            wait(gradient)

    return step
