"""predicted: what named profiles say of devices that are not here. Nothing in it is measured.

A profile of a GPU is its published peak and bandwidth; a call is a guess. It says which plan wins, and about
by how much where arrays are large, no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from benchmarks.case import METHODS, Case, low_ranks
from benchmarks.measuring.rounds import Row
from tnshare.planning import PROFILES, WAYS, Form, Profile, bucket, candidates, keep_limit
from tnshare.planning import Job as Call

from . import Job

FORMS: tuple[Form, ...] = ("factored", "materialised")
DEVICES = ("a100", "h100", "laptop")
SHAPE = (1024, 1024, 100)
BATCH = {"one": 1024, "mixed": 1024, "each": 64, "fan_out": 64}


def jobs(bench: Any, full: bool) -> Iterator[Job]:
    """A large layer in every way, training."""
    for name, method, way in product(DEVICES, METHODS, WAYS):
        case = Case(method, low_ranks(method, *SHAPE), *SHAPE, way, BATCH[way], True)
        yield f"{name}: {case}", partial(_row, case, PROFILES[name])


def predict(case: Case, profile: Profile) -> dict[str, float]:
    """Seconds of tnshare's strategies and of dense weights, by a profile."""
    keep = 0 if case.training else keep_limit(case.layer.network, case.way)
    call = Call(case.layer.network, case.way, bucket(case.batch), None, case.training, keep, bias=False)
    found = {"tnshare": candidates(call, profile)[0].seconds}
    for form in FORMS:
        found[f"tnshare {form}"] = candidates(call, profile, form)[0].seconds
    rows = max(case.rows // case.present, 1)
    forward = profile.product(case.present, rows, case.i, case.o)
    backward = profile.product(case.present, rows, case.o, case.i)
    backward += profile.product(case.present, case.i, rows, case.o)
    return {**found, "dense": forward + (backward if case.training else 0.0)}


def _row(case: Case, profile: Profile, seconds: float) -> Row:
    facts = {"profile": profile.name, "source": profile.source, "predicted seconds": predict(case, profile)}
    found = {"case": case.json, "kind": "predicted", "programs": {}, "skipped": {}, "noise": None}
    return {**found, "facts": facts}
