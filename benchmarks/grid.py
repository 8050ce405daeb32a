"""The points that the planner is measured at: the stated grid, and shapes that no profile was fitted to."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import tnshare as tn

if TYPE_CHECKING:
    from tnshare.planning import Way

METHODS = ("laf", "tucker", "tt")
WAYS: tuple[Way, ...] = ("one", "mixed", "each", "fan_out")  # stated: decisions asks other checkouts for them
AXES = {"laf": ("kio", "tk"), "tucker": ("kpq", "ip", "qo", "tk"), "tt": ("ir", "sro", "ts")}  # as stored
SHAPES = ((1024, 512, 10), (256, 256, 50), (64, 64, 1000), (128, 10, 10))
BATCHES = (1, 16, 128, 1024)
_LARGEST = 2e10  # flops of a dense layer, beyond which a random point would take seconds a call
_BYTES = 4


@dataclass(frozen=True)
class Point:
    """One measurement: which layer, which batch, in which way, with the backward pass or without.

    ``ranks`` are those of a random point, and empty where the level says what they are.
    """

    method: str
    level: str
    shape: tuple[int, int, int]
    way: Way
    batch: int
    training: bool
    ranks: tuple[int, ...] = ()

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Point:
        """The point of a line of results, where tuples have become lists."""
        values: dict[str, Any] = {name: row[name] for name in cls.__dataclass_fields__}
        values |= {name: tuple(values[name]) for name in ("shape", "ranks")}
        return cls(**values)

    def __str__(self) -> str:
        i, o, tasks = self.shape
        ranks = f" {self.ranks}" if self.ranks else ""
        mode = "training" if self.training else "inference"
        return f"{self.method} {self.level}{ranks} {i}->{o} T={tasks} {self.way} B={self.batch} {mode}"

    @property
    def spec(self) -> tn.Spec:
        """The ranks of the level: low ones as one would choose them, or half of the largest."""
        i, o, tasks = self.shape
        half = max(tasks // 2, 1)
        if self.ranks:
            spec = _spec(self.method, self.ranks)
        elif self.level == "low":
            laf, few = min(max(tasks // 5, 2), 16), min(half, 25)
            low = {"laf": (laf,), "tucker": (i // 8, max(o // 4, 1), few), "tt": (i // 8, few)}
            spec = _spec(self.method, low[self.method])
        else:
            high = {"laf": (half,), "tucker": (i // 2, o // 2, half), "tt": (min(i, o * half) // 2, half)}
            spec = _spec(self.method, high[self.method])
        return spec.clipped({"i": i, "o": o}, {"task": tasks})

    @property
    def equation(self) -> str:
        """The whole contraction, of the factors in their order, the codes of the chosen tasks last, and x."""
        *shared, codes = AXES[self.method]
        codes = {"one": codes[1:], "mixed": f"b{codes[1:]}"}.get(self.way, codes)
        x, y = {"each": ("tbi", "tbo"), "fan_out": ("bi", "tbo")}.get(self.way, ("bi", "bo"))
        return f"{','.join((*shared, codes, x))}->{y}"

    @property
    def rows(self) -> int:
        """The rows of the output: those of all tasks together."""
        return self.batch * (self.shape[2] if self.way in ("each", "fan_out") else 1)

    @property
    def dense_flops(self) -> int:
        """Multiplications and additions of dense weights in the forward pass."""
        i, o, _ = self.shape
        return 2 * self.rows * i * o

    @property
    def dense_bytes(self) -> int:
        """Bytes that their products read and write: input, the weights of the tasks present, and output."""
        i, o, tasks = self.shape
        present = {"one": 1, "mixed": min(tasks, self.batch)}.get(self.way, tasks)
        fed = self.rows if self.way == "each" else self.batch
        return _BYTES * (fed * i + present * i * o + self.rows * o)


def points(quick: bool) -> Iterator[Point]:
    """The grid; the quick one has low ranks, training at batch 16 and inference at batch 128."""
    for method, shape, way in product(METHODS, SHAPES, WAYS):
        if quick:
            yield Point(method, "low", shape, way, 16, True)
            yield Point(method, "low", shape, way, 128, False)
            continue
        for level, batch, training in product(("low", "high"), BATCHES, (True, False)):
            yield Point(method, level, shape, way, batch, training)


def unseen(count: int = 60, seed: int = 0) -> Iterator[Point]:
    """Random points, the same for the same seed: sizes and ranks are drawn evenly in their logarithm."""
    rng = random.Random(seed)
    while count:
        shape = (_draw(rng, 16, 1500), _draw(rng, 16, 1500), _draw(rng, 2, 500))
        method = rng.choice(METHODS)
        i, o, tasks = shape
        largest = {"laf": (tasks,), "tucker": shape, "tt": (min(i, o * tasks), tasks)}[method]
        ranks = tuple(_draw(rng, 1, max(size // 2, 1)) for size in largest)
        spec = _spec(method, ranks).clipped({"i": i, "o": o}, {"task": tasks})
        ranks = tuple(spec.ranks)
        way, training = rng.choice(WAYS), rng.random() < 0.5
        point = Point(method, "random", shape, way, _draw(rng, 1, 2000), training, ranks)
        if point.dense_flops <= _LARGEST and i * o * tasks <= 2**25:
            count -= 1
            yield point


def _draw(rng: random.Random, low: int, high: int) -> int:
    return round(math.exp(rng.uniform(math.log(low), math.log(high))))


def _spec(method: str, ranks: tuple[int, ...]) -> tn.Spec:
    if method == "laf":
        return tn.LAF(ranks[0])
    return tn.Tucker(ranks) if method == "tucker" else tn.TT(ranks)
