"""`python -m benchmarks profile`: how well a profile predicts times of products that it was not made from.

Draws products of matrices and of stacks of matrices, times them in torch, and compares: a ratio of 1.2 means
that the prediction is 1.2 times too long or too short.
"""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable
from typing import Any

import tnshare_torch
import torch

from benchmarks.measuring.options import count, threads, told
from benchmarks.showing.cells import table
from tnshare.planning import Profile, measure, profile

Shape = tuple[int, int, int, int]  # batch, rows, inner, columns
LAYOUTS = {
    "in order": (False, False),
    "right turned": (False, True),
    "left turned": (True, False),
    "both turned": (True, True),
}


def main(arguments: list[str] | None = None) -> None:
    """Compare, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks profile", description=__doc__)
    parser.add_argument("--profile", default="cpu", help="a name, or 'here' to measure one first (cpu)")
    parser.add_argument("--shapes", type=count, default=150, help="how many products (150)")
    parser.add_argument("--threads", type=threads, default=1, help="threads of torch (1)")
    parser.add_argument("--passes", type=count, default=4, help="how often everything is timed (4)")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    with told():
        chosen = measured() if options.profile == "here" else profile(options.profile)
    timed = time_all(draw(options.shapes, random.Random(1)), options.passes)
    print(f"profile {chosen.name!r}, {options.threads} thread(s): predicted / measured, whichever way is > 1")
    print(table(rows(chosen, timed)))


def measured() -> Profile:
    """A profile of torch here."""

    def wait(tensor: torch.Tensor) -> torch.Tensor:
        return tensor  # on a CPU it is there

    return measure(tnshare_torch.ops, "here", wait=wait)


def draw(count: int, rng: random.Random) -> list[Shape]:
    """Shapes off the grid of a profile, a third of them of plain matrices."""
    shapes: list[Shape] = []
    while len(shapes) < count:
        batch = 1 if len(shapes) % 3 == 0 else max(2, round(1000 ** rng.random()))
        r, k, c = (round(1024 ** rng.random()) for _ in range(3))
        if 2 * batch * r * k * c <= 2**27 and batch * (r * k + k * c + r * c) <= 2**25:
            shapes.append((batch, r, k, c))
    return shapes


def time_all(shapes: list[Shape], passes: int) -> dict[tuple[Shape, str], float]:
    """The shortest times; the passes lie apart, so that what disturbs one does not disturb all."""
    best = {(shape, layout): math.inf for shape in shapes for layout in LAYOUTS}
    keys = list(best)
    for n in range(passes):
        random.Random(n).shuffle(keys)
        for shape, layout in keys:
            best[shape, layout] = min(best[shape, layout], seconds(program(shape, LAYOUTS[layout])))
    return best


def program(shape: Shape, turned: tuple[bool, bool]) -> Callable[[], torch.Tensor]:
    """The product in torch."""
    batch, r, k, c = shape
    left = torch.randn(batch, k, r).mT if turned[0] else torch.randn(batch, r, k)
    right = torch.randn(batch, c, k).mT if turned[1] else torch.randn(batch, k, c)
    if batch == 1:
        left, right = left[0], right[0]
        return lambda: torch.mm(left, right)
    return lambda: torch.bmm(left, right)


def seconds(run: Callable[[], object], budget: float = 0.01) -> float:
    """The shortest of some runs."""
    run()
    best, spent, repeat = math.inf, 0.0, 1
    while spent < budget:
        start = time.perf_counter()
        for _ in range(repeat):
            run()
        took = time.perf_counter() - start
        best, spent = min(best, took / repeat), spent + took
        repeat = max(1, min(16, int(2e-5 / best)))
    return best


def rows(chosen: Profile, timed: dict[tuple[Shape, str], float]) -> list[dict[str, Any]]:
    """The ratios of matrices and stacks in each layout, from the smallest to the largest."""
    found = []
    for what, stacked in (("matrices", False), ("stacks", True)):
        for layout, turned in LAYOUTS.items():
            times = {s: t for (s, place), t in timed.items() if place == layout and (s[0] > 1) == stacked}
            logs = sorted(abs(math.log(chosen.product(*s, turned=turned) / t)) for s, t in times.items())
            median, most, worst = (math.exp(logs[int(q * (len(logs) - 1))]) for q in (0.5, 0.9, 1))
            entry = {"products": what, "operands": layout, "shapes": len(logs)}
            found.append(entry | {"median": median, "90 %": most, "worst": worst})
    return found
