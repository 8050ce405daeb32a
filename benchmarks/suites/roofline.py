"""roofline: how far plans are from what the machine could do, measured in the same rounds.

The least time of a computation is what its flops take at the speed of a large matrix product, or what its
bytes take at the speed of memory, whichever is longer. Bytes are those that every program must move: input,
factors and output once. Composing writes far more than it reads, so its bytes are those of the weights, at
the speed at which an elementwise pass writes a new array of that size: by ordinary stores, as products write,
of memory that the process has already. (Stores past the caches would be twice as fast; no product has them.)

Two things keep a product of low rank from the least. It is thin: each number of its result takes few
operations, so that it is slower than a large product even if it stays within the caches, which "thin product"
measures, in blocks of the same shapes. And no product of a library computes and writes to memory at the same
time all the time.

What a machine can do changes while it is measured. Every number is therefore a median with its quartiles over
``ROUNDS`` rounds or more, and a time is divided by the least of the same round before the median is taken.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import torch

from benchmarks.case import METHODS, Case, low_ranks
from benchmarks.measuring.meters import Program
from benchmarks.measuring.rounds import Measured, Row, as_row, quartiles, rounds_of
from benchmarks.peers.common import NUMBER, Programs
from tnshare.planning import WAYS, depends_on_batch

from . import Job

# Weights of 5 million numbers and more: in, out, tasks, rank.
LAF = ((1024, 512, 10, 2), (1024, 512, 10, 5), (256, 256, 100, 16), (512, 512, 50, 10), (64, 64, 2000, 16))
SHAPE = (512, 512, 20)
BATCH = {"one": 1024, "mixed": 1024, "each": 64, "fan_out": 64}
COPY, WRITE, PRODUCT = "machine: copy", "machine: write", "machine: matrix product"
THIN = "machine: thin product"
ROUNDS = 20  # at least
_COPIED, _SIDE = 2**23, 768  # numbers, beyond caches; rows and columns of the product
_MOVED = 2 * NUMBER * _COPIED  # bytes that a copy reads and writes
_CACHED = 2**16  # numbers of a block that stays in a cache of half a megabyte


def jobs(bench: Any, full: bool) -> Iterator[Job]:
    """Composing LAF, then calls in every way."""
    for i, o, tasks, rank in LAF:
        case = Case("laf", (rank,), i, o, tasks, "one", 1, False)
        yield f"compose laf {rank} {i}x{o} T={tasks}", partial(_compose, bench, case)
    for method, way, training in product(METHODS, WAYS, (False, True) if full else (False,)):
        case = Case(method, low_ranks(method, *SHAPE), *SHAPE, way, BATCH[way], training)
        yield str(case), partial(_apply, bench, case)


def machine(bench: Any, written: int) -> Programs:
    """A copy of memory (bytes read and written), a pass that writes a new array, and a large product."""
    with torch.device(bench.device):
        source, target = torch.ones(_COPIED), torch.empty(_COPIED)
        row = torch.ones(min(written, 2**16))
        rows = row.expand(-(-written // len(row)), -1)
        square = torch.randn(_SIDE, _SIDE)
    found = Programs()
    found.run[COPY] = Program(lambda: target.copy_(source))
    found.run[WRITE] = Program(lambda: torch.add(rows, 1.0))
    found.run[PRODUCT] = Program(lambda: torch.mm(square, square))
    return found


def thin(bench: Any, case: Case) -> Program:
    """As many flops as all weights of LAF take, in products of codes that write one and the same block."""
    tasks = min(case.tasks, _CACHED // 64)
    columns = min(_CACHED // tasks, case.i * case.o)
    with torch.device(bench.device):
        codes, basis = torch.randn(tasks, case.ranks[0]), torch.randn(case.ranks[0], columns)
        block = torch.empty(tasks, columns)
    times = round(case.i * case.o * case.tasks / block.numel())

    def run() -> Any:
        for _ in range(times):
            torch.mm(codes, basis, out=block)
        return block

    return Program(run)


def _compose(bench: Any, case: Case, seconds: float) -> Row:
    written = case.i * case.o * case.tasks
    made = bench.compose(case, False)
    made.run[THIN] = thin(bench, case)
    flops = 2 * written * case.ranks[0]
    return _row(bench, made, case, "compose", flops, NUMBER * written, written, seconds)


def _apply(bench: Any, case: Case, seconds: float) -> Row:
    """Backwards there are two products for each of the forward pass, and gradients are written too."""
    made = bench.apply(case, peers=("opt_einsum", "dense"))
    times = 3 if case.training else 1
    flops, written = times * flops_of(bench, case), case.rows * case.o
    return _row(bench, made, case, case.way, flops, times * case.compulsory_bytes, written, seconds)


def flops_of(bench: Any, case: Case) -> int:
    """Of the forward pass of what tnshare chooses, without what inference keeps from earlier calls."""
    found = case.layer.candidates(case.way, case.batch, training=case.training, device=bench.profile)
    best = found[0]
    steps = [step for step in best.plan.steps if not best.kept or depends_on_batch(step.result)]
    return sum(step.flops(best.plan.network.sizes) for step in steps)


def _row(
    bench: Any, made: Programs, case: Case, kind: str, flops: int, moved: int, written: int, seconds: float
) -> Row:
    made.run |= machine(bench, written).run
    always = [name for name in (COPY, WRITE, PRODUCT, THIN) if name in made.run]
    found = rounds_of(made, bench.meter, seconds, always=always, least=ROUNDS)
    row = as_row(made, found, None)
    row["programs"] = {name: entry for name, entry in row["programs"].items() if name not in always}
    copied, wrote, squared = (_totals(found, name) for name in (COPY, WRITE, PRODUCT))
    by_flops = {n: flops / (2 * _SIDE**3) * taken for n, taken in squared.items()}
    by_bytes = wrote if kind == "compose" else {n: moved / _MOVED * taken for n, taken in copied.items()}
    least = {n: max(by_flops[n], by_bytes[n]) for n in by_flops}
    spread = {
        "bandwidth": quartiles(_MOVED / taken for taken in copied.values()),
        "write bandwidth": quartiles(NUMBER * written / taken for taken in wrote.values()),
        "peak flops": quartiles(2 * _SIDE**3 / taken for taken in squared.values()),
        "least seconds": quartiles(least.values()),
        "one after the other": quartiles((by_flops[n] + by_bytes[n]) / least[n] for n in least),
    }
    if THIN in always:
        spread["thin product"] = _ratios(found, THIN, least)
    times = {name: _ratios(found, name, least) for name in row["programs"]}
    row["facts"] |= {name: middle for name, (middle, *_) in spread.items()}
    row["facts"] |= {
        "flops": flops,
        "bytes": moved,
        "bound by": "flops" if sum(by_flops.values()) >= sum(by_bytes.values()) else "bytes",
        "times the least": {name: middle for name, (middle, *_) in times.items()},
        "quartiles": {name: ends for name, (_, *ends) in (spread | times).items()},
        "rounds": len(least),
    }
    return {"case": case.json, "kind": kind, **row}


def _totals(found: Measured, name: str) -> dict[int, float]:
    """Seconds of a program by number of the round."""
    return {n: sum(lap) for n, lap in found.rounds[name].items()}


def _ratios(found: Measured, name: str, least: Mapping[int, float]) -> list[float | None]:
    """How many times the least of the same round a program takes; in no rounds, the least in general."""
    if name not in found.rounds:
        return [sum(found.first[name]) / median(least.values()), None, None]
    return quartiles(taken / least[n] for n, taken in _totals(found, name).items())
