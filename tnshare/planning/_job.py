"""What a call is to compute, and what it may be computed by: values that the rest of planning makes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from tnshare.checks import flag, whole
from tnshare.errors import TnshareError
from tnshare.network import Network

from ._plan import Plan
from ._steps import BATCH_AXES
from ._ways import GROUP_AXIS, Way, of_present, with_input

MOST_KEPT_NUMBERS = 1 << 24  # numbers that inference may keep for a layer: 64 MB in single precision
READ = {"one": "of one task", "mixed": "of mixed tasks", "each": "of each task", "fan_out": "for every task"}

Grouping = Literal["", "present", "all"]


def keep_limit(network: Network, way: Way) -> int:
    """How many numbers a call in inference may keep; of calls of one task, there are as many as tasks."""
    return MOST_KEPT_NUMBERS // (math.prod(network.task_shape) if way == "one" else 1)


class AnyJob(ABC):
    """What is to be computed, by whichever layer. ``concrete`` calls may look at values of ids and tokens."""

    way: Way
    training: bool
    keep: int
    concrete: bool

    @property
    @abstractmethod
    def amount(self) -> str:
        """How much is computed, as users read it."""


class AnyOption(ABC):
    """What it may be computed by; ``bytes`` that are moved, ``peak`` and ``seconds`` are predictions."""

    name: str
    seconds: float
    bytes: int | None
    peak: int
    kept: bool

    @property
    @abstractmethod
    def parts(self) -> tuple[tuple[str, Plan, bool], ...]:
        """Plans, each with what it is of, and whether what depends on factors alone is kept."""

    @property
    def flops(self) -> int:
        """Multiplications and additions of the forward pass."""
        return sum(plan.flops for _, plan, _ in self.parts)


class OnePlan(AnyOption):
    """An option whose only part is a plan."""

    plan: Plan

    @property
    def parts(self) -> tuple[tuple[str, Plan, bool], ...]:
        return (("", self.plan, self.kept),)


@dataclass(frozen=True)
class Job(AnyJob):
    """What is to be computed: a way of choosing tasks, a batch, and what for.

    ``keep`` is how many numbers that depend on factors alone may be kept between calls. ``concrete`` calls
    may look at the values of ids, and make arrays of any shape of them; traced ones cannot. ``named``: the
    framework may be told the axes of products, and arrange them itself.
    """

    network: Network
    way: Way
    batch: int
    inner: int | None = None
    training: bool = True
    keep: int = 0
    concrete: bool = True
    bias: bool = True
    named: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.network, Network):
            raise TnshareError(f"a job is for a tnshare.Network: found {type(self.network).__name__}")
        if self.way not in tuple(READ):
            raise TnshareError(f"way must be one of {tuple(READ)}: found {self.way!r}")
        for name, number in (("batch", self.batch), ("inner", self.inner)):
            if number is not None or name == "batch":
                whole(name, number, least=0)
        flag("training", self.training)

    @property
    def amount(self) -> str:
        return f"{self.batch} rows"


@dataclass(frozen=True)
class Candidate(OnePlan):
    """One way to compute a call: a plan, with rows as they come or ``grouped`` by task.

    ``seconds`` is the prediction of a profile; ``bytes`` are moved by the products of the forward pass,
    ``peak`` is the most that is alive at once, beyond operands, result and their gradients; both in single
    precision. Groups of very different lengths are computed by ``ungrouped``. If ``by_einsum``, products are
    told their axes, and not brought into the order of the plan.
    """

    name: str
    plan: Plan
    seconds: float
    bytes: int
    peak: int
    grouped: Grouping = ""
    kept: bool = False
    ungrouped: Candidate | None = None
    by_einsum: bool = False


def check_fits(candidate: Candidate, job: Job) -> None:
    """Refuse a candidate that was made for another layer, or another way of choosing tasks."""
    if candidate.grouped == "present":
        expected = of_present(job.network, 1, 1, job.inner)
    else:
        expected = with_input(job.network, job.way, 1, job.inner)
    if (candidate.grouped and job.way != "mixed") or _kind(candidate.plan.network) != _kind(expected):
        raise TnshareError(
            f"the candidate {candidate.name!r} is for another layer, or not for rows {READ[job.way]}: take "
            "one of layer.candidates(way, batch) of this layer's description"
        )


def _kind(network: Network) -> tuple[object, ...]:
    """What plans of a network have to agree in: all but the sizes of the batch."""
    changing = (*BATCH_AXES, GROUP_AXIS)
    sizes = {axis: size for axis, size in network.sizes.items() if axis not in changing}
    return tuple((node.name, node.axes) for node in network.nodes), network.output, tuple(sizes.items())
