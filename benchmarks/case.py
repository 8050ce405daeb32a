"""One layer and one kind of call: what is measured, without a framework."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import tnshare as tn
from tnshare.network import Network
from tnshare.planning import Way

METHODS = ("laf", "tucker", "tt")
_BYTES = 4


class AnyCase:
    """A shared layer of so many tasks, called in one way with so many rows."""

    method: str
    ranks: tuple[int, ...]
    tasks: int
    way: Way
    batch: int
    training: bool

    def told(self, layer: str) -> str:
        """The case in a line, the layer in so many words."""
        ranks = "/".join(map(str, self.ranks))
        mode = "training" if self.training else "inference"
        return f"{self.method} {ranks} {layer} T={self.tasks} {self.way} B={self.batch} {mode}"

    @property
    def json(self) -> dict[str, Any]:
        """What a line of results says of the case."""
        return {**asdict(self), "ranks": list(self.ranks)}  # type: ignore[call-overload]

    @property
    def task(self) -> int:
        """The task of all rows, where there is one."""
        return min(3, self.tasks - 1)


@dataclass(frozen=True)
class Case(AnyCase):
    """A linear layer i -> o."""

    method: str
    ranks: tuple[int, ...]
    i: int
    o: int
    tasks: int
    way: Way
    batch: int
    training: bool

    def __str__(self) -> str:
        return self.told(f"{self.i}->{self.o}")

    @classmethod
    def read(cls, row: Mapping[str, Any]) -> Case:
        """The case of a line of results."""
        values: dict[str, Any] = {name: row[name] for name in cls.__dataclass_fields__}
        return cls(**(values | {"ranks": tuple(row["ranks"])}))

    @cached_property
    def spec(self) -> tn.Spec:
        """The factorisation, ranks cut to what the sizes allow."""
        made = spec_of(self.method, self.ranks)
        return made.clipped({"i": self.i, "o": self.o}, {"task": self.tasks})

    @cached_property
    def layer(self) -> tn.Linear:
        """The description of the layer, without bias."""
        return tn.Linear(self.i, self.o, tasks=self.tasks, spec=self.spec, bias=False)

    @cached_property
    def network(self) -> Network:
        """Factors and input of the whole contraction; rows of mixed tasks have their codes taken before."""
        own, batch = self.layer.network, self.batch
        if self.way == "one":
            return own.drop("task").feed("x", ("b", "i"), ("b", "o"), b=batch)
        if self.way == "mixed":
            return own.rename("task", "b", batch).feed("x", ("b", "i"), ("b", "o"))
        axes = ("task", "b", "i") if self.way == "each" else ("b", "i")
        return own.feed("x", axes, ("task", "b", "o"), b=batch)

    @property
    def x_shape(self) -> tuple[int, ...]:
        """The shape of the input."""
        return (self.tasks, self.batch, self.i) if self.way == "each" else (self.batch, self.i)

    @property
    def y_shape(self) -> tuple[int, ...]:
        """The shape of the output."""
        every = self.way in ("each", "fan_out")
        return (self.tasks, self.batch, self.o) if every else (self.batch, self.o)

    @property
    def rows(self) -> int:
        """The rows of the output, of all tasks together."""
        return math.prod(self.y_shape[:-1])

    @property
    def present(self) -> int:
        """How many tasks take part, at most."""
        return {"one": 1, "mixed": min(self.tasks, self.batch)}.get(self.way, self.tasks)

    @property
    def dense_bytes(self) -> int:
        """Bytes of a weight for each task, and in training of its gradient."""
        held = 1 if self.way == "one" else self.tasks
        return _BYTES * self.i * self.o * held * (2 if self.training else 1)

    @property
    def dense_flops(self) -> int:
        """Multiplications and additions of dense weights, forwards."""
        return 2 * self.rows * self.i * self.o

    @property
    def compulsory_bytes(self) -> int:
        """What every program reads and writes, forwards: input, factors of the tasks present, output."""
        shared, codes = self.layer.network.nodes[:-1], self.layer.network.nodes[-1]
        used = sum(math.prod(node.shape) for node in shared) + self.present * math.prod(codes.shape[1:])
        return _BYTES * (math.prod(self.x_shape) + used + math.prod(self.y_shape))


def spec_of(method: str, ranks: tuple[int, ...]) -> tn.Spec:
    """The factorisation of that name; refuses a number of ranks that does not go with it."""
    expected = {"laf": 1, "tucker": 3, "tt": 2}
    if method not in expected:
        raise tn.TnshareError(f"method must be one of {METHODS}: found {method!r}")
    if len(ranks) != expected[method]:
        order = {"laf": "k", "tucker": "k_i, k_o, k_task", "tt": "r_i, r_o"}[method]
        raise tn.TnshareError(
            f"{method} of a linear layer has {expected[method]} rank(s) ({order}): found {ranks}"
        )
    if method == "laf":
        return tn.LAF(ranks[0])
    return tn.Tucker(ranks) if method == "tucker" else tn.TT(ranks)


def low_ranks(method: str, i: int, o: int, tasks: int) -> tuple[int, ...]:
    """Ranks as one would choose them: an eighth of the input, a quarter of the output, few for tasks."""
    few = max(min(tasks // 2, 25), 1)
    low = {
        "laf": (min(max(tasks // 5, 2), 16),),
        "tucker": (max(i // 8, 1), max(o // 4, 1), few),
        "tt": (max(i // 8, 1), few),
    }
    return tuple(spec_of(method, low[method]).clipped({"i": i, "o": o}, {"task": tasks}).ranks)
