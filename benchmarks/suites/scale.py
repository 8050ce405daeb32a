"""scale: the cost of 1,024 rows of different tasks as the number of tasks grows from 1 to 100,000.

"tnshare per row" is the best plan that takes each row as it comes, so that nothing in it depends on which
tasks are present. Dense weights stop where memory does.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from benchmarks.case import METHODS, Case
from benchmarks.measuring.rounds import Row, measure
from benchmarks.peers.common import Programs
from tnshare.planning import Candidate, Profile, Take, bucket, candidates, with_input
from tnshare.planning import Job as Call

from . import Job

TASKS = (1, 10, 100, 1000, 10_000, 100_000)
ROWS, SIDE, LARGE = 1024, 128, 256  # rows; inputs and outputs, of the lines and of what must hold
RANKS = {"laf": (8,), "tucker": (32, 32, 16), "tt": (32, 16)}
PER_ROW = "tnshare per row"


def jobs(bench: Any, full: bool) -> Iterator[Job]:
    """In short Tucker and TT in training, which has a forward pass too."""
    methods = METHODS if full else ("tucker", "tt")
    for method, training in product(methods, (True, False) if full else (True,)):
        for tasks in TASKS:
            yield (
                str(_case(method, tasks, training)),
                partial(_measure, bench, _case(method, tasks, training)),
            )
    for method in METHODS:
        yield f"per row: {method}", partial(_per_row, bench, method)


def _case(method: str, tasks: int, training: bool, side: int = SIDE) -> Case:
    return Case(method, RANKS[method], side, side, tasks, "mixed", ROWS, training)


def _measure(bench: Any, case: Case, seconds: float) -> Row:
    made = bench.apply(case, peers=("dense", "dense, loop over tasks", "LoRA, batched"))
    return {"case": case.json, "kind": "scale", **measure(made, bench.meter, seconds)}


def _per_row(bench: Any, method: str, seconds: float) -> Row:
    """Layers of more and more tasks, all in the same rounds, forwards."""
    made = Programs()
    for tasks in TASKS[2:]:
        case = _case(method, tasks, False, LARGE)
        layer = {PER_ROW: {"strategy": per_row(case, bench.profile)}}
        own = bench.apply(case, peers=(), ours=layer)
        made.run[f"{PER_ROW}, T={tasks}"] = own.run[PER_ROW]
    row = measure(made, bench.meter, 2 * seconds, memory=False)
    return {"case": _case(method, TASKS[-1], False, LARGE).json, "kind": "per row", **row}


def per_row(case: Case, profile: Profile) -> Candidate:
    """The best way to compute rows as they come that takes their codes, and nothing made of all codes."""
    call = Call(case.layer.network, case.way, bucket(case.batch), None, case.training, bias=False)
    nodes = len(with_input(case.layer.network, case.way, case.batch).nodes)

    def from_codes(found: Candidate) -> bool:
        taken = [step.operand for step in found.plan.steps if isinstance(step, Take)]
        return not found.grouped and all(operand < nodes for operand in taken)

    return next(filter(from_codes, candidates(call, profile)))
