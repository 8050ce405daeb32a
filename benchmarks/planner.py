"""The planner against layers written by hand, the paper's authors' way, opt_einsum, einsum and dense weights.

`python -m benchmarks.planner --quick` measures 96 stated points, without it the whole grid; a run that was
stopped goes on where it stopped. Every point is one line of JSON in the file given by --results.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import opt_einsum
import tnshare_torch as tnt
import torch
from torch import Tensor

import tnshare as tn

from . import handwritten
from .timing import AGAIN, interleave

SHAPES = ((1024, 512, 10), (256, 256, 50), (64, 64, 1000), (128, 10, 10))
BATCHES = (1, 16, 128, 1024)


@dataclass(frozen=True)
class Point:
    """One measurement: which layer, which batch, in which way, with the backward pass or without."""

    method: str
    level: str
    shape: tuple[int, int, int]
    way: str
    batch: int
    training: bool

    @property
    def spec(self) -> tn.Spec:
        """The ranks of the level: low ones as one would choose them, or half of the largest."""
        i, o, tasks = self.shape
        half = max(tasks // 2, 1)
        low: dict[str, tn.Spec] = {
            "laf": tn.LAF(min(max(tasks // 5, 2), 16)),
            "tucker": tn.Tucker((i // 8, max(o // 4, 1), min(half, 25))),
            "tt": tn.TT((i // 8, min(half, 25))),
        }
        high: dict[str, tn.Spec] = {
            "laf": tn.LAF(half),
            "tucker": tn.Tucker((i // 2, o // 2, half)),
            "tt": tn.TT((min(i, o * half) // 2, half)),
        }
        spec = (low if self.level == "low" else high)[self.method]
        return spec.clipped({"i": i, "o": o}, {"task": tasks})


def points(quick: bool) -> Iterator[Point]:
    """The grid; the quick one has low ranks, training at batch 16 and inference at batch 128."""
    for method, shape, way in product(("laf", "tucker", "tt"), SHAPES, ("one", "mixed", "each", "fan_out")):
        if quick:
            yield Point(method, "low", shape, way, 16, True)
            yield Point(method, "low", shape, way, 128, False)
            continue
        for level, batch, training in product(("low", "high"), BATCHES, (True, False)):
            yield Point(method, level, shape, way, batch, training)


def programs(point: Point) -> dict[str, Callable[[], object]]:
    """tnshare first, then everything that it is compared with, on the same arrays."""
    torch.manual_seed(0)
    i, o, tasks = point.shape
    layer = tnt.Linear(i, o, tasks, point.spec, bias=False)
    factors: list[Tensor] = list(layer.parameters())
    shape = {"each": (tasks, point.batch, i)}.get(point.way, (point.batch, i))
    x = torch.randn(shape, requires_grad=point.training)
    task: Tensor | int | None = 3 if point.way == "one" else None
    if point.way == "mixed":
        task = torch.randint(tasks, (point.batch,))
    dense = torch.randn(tasks, i, o, requires_grad=point.training)
    run: dict[str, tuple[Callable[[], Tensor], list[Tensor]]] = {
        "tnshare": (
            (lambda: layer.fan_out(x)) if point.way == "fan_out" else (lambda: layer(x, task)),
            factors,
        )
    }
    for name, program in handwritten.programs(point.method, point.way, factors, x, task).items():
        run[f"by hand: {name}"] = (program, factors)
    run["authors"] = (lambda: _authors(point, factors, x, task), factors)
    fed = layer.description.plan(point.way, point.batch).network  # type: ignore[arg-type]
    shapes = [tuple(a.shape) for a in _operands(point, factors, x, task)]
    expression = opt_einsum.contract_expression(fed.equation, *shapes, optimize="optimal")
    run["opt_einsum"] = (lambda: expression(*_operands(point, factors, x, task), backend="torch"), factors)
    run["einsum"] = (lambda: torch.einsum(fed.equation, *_operands(point, factors, x, task)), factors)
    run["dense"] = (lambda: _dense(point.way, dense, x, task), [dense])
    return {name: _timed(program, [x, *leaves], point.training) for name, (program, leaves) in run.items()}


def measure(point: Point, seconds: float) -> dict[str, Any]:
    """The medians of one point, in as many rounds as the time allows (at least 5)."""
    candidates = programs(point)
    once = interleave(candidates, rounds=1)
    total = sum(timing.median for timing in once.values())
    rounds = min(max(5, int(seconds / total)), 200)
    timings = interleave(candidates, rounds=rounds)
    medians = {name: timing.median for name, timing in timings.items()}
    return {**asdict(point), "rounds": rounds, "medians": medians}


def summary(rows: list[dict[str, Any]]) -> str:
    """Ratios of each peer to tnshare, in geometric mean and at worst, training and inference apart."""
    lines = []
    for training in (True, False):
        chosen = [row["medians"] for row in rows if row["training"] is training]
        if not chosen:
            continue
        lines.append(f"\n{'training' if training else 'inference'}: {len(chosen)} points, peer / tnshare")
        lines.append(f"{'peer':24}{'mean':>8}{'worst':>8}{'slower than 1.1 x peer':>26}")
        peers = {"best by hand": "by hand", **{p: p for p in ("authors", "opt_einsum", "einsum", "dense")}}
        peers["the same again"] = "tnshare" + AGAIN
        for name, start in peers.items():
            ratios = [min(v for k, v in m.items() if k.startswith(start)) / m["tnshare"] for m in chosen]
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            slower = sum(ratio < 1 / 1.1 for ratio in ratios)
            lines.append(f"{name:24}{mean:8.2f}{min(ratios):8.2f}{slower:20} of {len(ratios)}")
    return "\n".join(lines)


def main() -> None:
    """Measure what is not in the file of results yet, and print the summary."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="96 points instead of the whole grid")
    parser.add_argument("--seconds", type=float, default=2.0, help="for each point (2)")
    parser.add_argument("--results", type=Path, default=Path("planner.jsonl"), help="lines are added to it")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = options.results.read_text().splitlines() if options.results.exists() else []
    rows = [json.loads(line) for line in found]
    done = {_key(row) for row in rows}
    wanted = list(points(options.quick))
    for n, point in enumerate(wanted, 1):
        if _key(asdict(point)) not in done:
            rows.append(measure(point, options.seconds))
            with options.results.open("a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
            print(f"{n} of {len(wanted)}: {point}", flush=True)
    print(summary(rows))


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(tuple(v) if isinstance(v := row[k], list) else v for k in Point.__dataclass_fields__)


def _timed(program: Callable[[], Tensor], leaves: list[Tensor], training: bool) -> Callable[[], object]:
    if training:

        def step() -> object:
            y = program()
            return torch.autograd.grad(y, leaves, torch.ones_like(y), allow_unused=True)

        return step

    def inference() -> object:
        with torch.no_grad():
            return program()

    return inference


def _operands(point: Point, factors: list[Tensor], x: Tensor, task: Tensor | int | None) -> list[Tensor]:
    """The operands of the whole equation; the last factor holds the tasks, and only the chosen are used."""
    *shared, codes = factors
    return [*shared, codes if task is None else codes[task], x]


def _authors(point: Point, factors: list[Tensor], x: Tensor, task: Tensor | int | None) -> Tensor:
    """Build the weights of all tasks from left to right, then multiply, as the paper's authors do."""
    if point.method == "laf":
        L, S = factors
        W = torch.tensordot(L, S, dims=([0], [1]))
    elif point.method == "tt":
        U_i, U_o, U_t = factors
        W = torch.tensordot(torch.tensordot(U_i, U_o, dims=([1], [1])), U_t, dims=([1], [1]))
    else:
        core, U_i, U_o, U_t = factors
        W = torch.tensordot(core, U_i, dims=([1], [1]))  # (kt, ko, i)
        W = torch.tensordot(W, U_o, dims=([1], [0]))  # (kt, i, o)
        W = torch.tensordot(W, U_t, dims=([0], [1]))  # (i, o, t)
    return _dense(point.way, W.permute(2, 0, 1), x, task)


def _dense(way: str, W: Tensor, x: Tensor, task: Tensor | int | None) -> Tensor:
    """T dense weights (t, i, o)."""
    if way == "one":
        return x @ W[task]
    if way == "mixed":
        assert isinstance(task, Tensor)
        return handwritten.grouped(x, W, task)
    return torch.bmm(x, W) if way == "each" else torch.matmul(x, W)


if __name__ == "__main__":
    main()
