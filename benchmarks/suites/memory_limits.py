"""memory: time against the peak of memory, and a training step that dense weights have no room for."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from typing import Any

from benchmarks.case import METHODS, Case
from benchmarks.measuring.peak import status
from benchmarks.measuring.rounds import Row, measure
from tnshare.errors import TnshareError
from tnshare.planning import WAYS

from . import Job

SHAPE = (512, 512, 50)
RANKS = {"laf": (8,), "tucker": (64, 64, 16), "tt": (64, 16)}
BATCH = {"one": 1024, "mixed": 1024, "each": 32, "fan_out": 32}
LIMITS = (2, 4, 8)  # what a peak has above the least limit that works is divided by this
LARGE = Case("tucker", (64, 64, 16), 1024, 1024, 10_000, "mixed", 1024, True)


def jobs(bench: Any, full: bool) -> Iterator[Job]:
    """In short Tucker in training; in full all methods, and inference."""
    for method, way, training in product(METHODS if full else ("tucker",), WAYS, (True, False)):
        if training or full:
            case = Case(method, RANKS[method], *SHAPE, way, BATCH[way], training)
            yield str(case), partial(_measure, bench, case)
    if bench.device == "cpu":
        yield f"process: {LARGE}", partial(process, LARGE)


def _measure(bench: Any, case: Case, seconds: float) -> Row:
    """All strategies, and layers that are told to keep within parts of what the fastest needs."""
    peak = bench.meter.peak(bench.apply(case, peers=()).run["tnshare"])
    options = {name: {"memory_limit": limit} for name, limit in limits(peak, least(bench, case)).items()}
    made = bench.apply(case, peers=PEERS, ours={**bench.strategies, **options})
    row = measure(made, bench.meter, seconds)
    return {"case": case.json, "kind": "memory", **row}


PEERS = ("dense", "einsum", "opt_einsum", "authors")


def limits(peak: int, smallest: int) -> dict[str, int]:
    """Limits between the smallest that works and a peak, in bytes; none where there is nothing between."""
    spare = max(peak - smallest, 0)
    return {f"tnshare within 1/{n}": smallest + spare // n for n in LIMITS if spare // n}


def least(bench: Any, case: Case) -> int:
    """The smallest limit that works, which a layer tells that is given nothing."""
    nothing = bench.apply(case, peers=(), ours={"nothing": {"memory_limit": 0}})
    try:
        nothing.run["nothing"]()
    except TnshareError as error:
        (number,) = re.findall(r"smallest that works is (\d+) bytes", str(error))
        return int(number)
    return 0


def process(case: Case, seconds: float) -> Row:
    """The most memory that a new process has while it makes a factored layer and takes training steps."""
    code = f"from benchmarks.suites.memory_limits import steps; steps({json.dumps(json.dumps(case.json))})"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    told = json.loads(found.stdout.splitlines()[-1])
    dense = 4 * case.i * case.o * case.tasks
    facts = {**told, "dense bytes": dense, "measured by": "the process's high-water mark of resident memory"}
    return {
        "case": case.json,
        "kind": "process",
        "programs": {},
        "skipped": {},
        "noise": None,
        "facts": facts,
    }


def steps(text: str) -> None:
    """Run in a process of its own: three training steps with an optimiser; prints the high-water marks."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import tnshare_torch as tnt
    import torch

    torch.set_num_threads(1)
    case = Case.read(json.loads(text))
    imported = high_water()
    layer = tnt.Linear(case.i, case.o, case.tasks, case.spec, strategy="factored")
    optimiser = torch.optim.Adam(layer.parameters())
    x, target = torch.randn(case.batch, case.i), torch.randn(case.batch, case.o)
    for _ in range(3):
        ids = torch.randint(case.tasks, (case.batch,))
        optimiser.zero_grad()
        torch.nn.functional.mse_loss(layer(x, ids), target).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    finite = all(math.isfinite(float(p.sum())) for p in layer.parameters())
    print(json.dumps({"process bytes": high_water(), "of it imports": imported, "finite": finite}))


def high_water() -> int:
    """Bytes of memory that this process has had at most.

    Not by getrusage on Linux, where a process starts with the mark of the one that started it.
    """
    if sys.platform == "linux":
        return status("VmHWM")
    import resource  # which Windows does not have

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most
