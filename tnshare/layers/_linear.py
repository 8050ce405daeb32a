"""A linear layer without a framework: its description, and how rows of it may be computed."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tnshare.checks import flag, whole
from tnshare.errors import TnshareError
from tnshare.network import Spec
from tnshare.planning import (
    PROFILES,
    WAYS,
    Candidate,
    Job,
    Plan,
    Profile,
    Way,
    bucket,
    candidates,
    check_profile,
    keep_limit,
)

from ._layer import Layer, Tasks, read_tasks

CPU = PROFILES["cpu"]


@dataclass(frozen=True)
class Linear(Layer):
    """``y = x W_t + b_t``, with ``W`` (i, o, task) kept as factors.

    ``tasks`` is their number, or, for tasks told apart by two things, ``{"site": 4, "user": 5}``. Weights and
    biases start with the variance that ``torch.nn.Linear`` gives them, 1 / (3 in_features).
    """

    in_features: int
    out_features: int
    tasks: Tasks
    spec: Spec
    bias: bool = True

    def __post_init__(self) -> None:
        self._set(
            in_features=whole("in_features", self.in_features),
            out_features=whole("out_features", self.out_features),
            tasks=read_tasks(self.tasks, reserved=("b", "m", "i", "o")),
        )

    @property
    def weight_sizes(self) -> dict[str, int]:
        return {"i": self.in_features, "o": self.out_features}

    @property
    def variance(self) -> float:
        return 1 / (3 * self.in_features)

    @property
    def bias_size(self) -> int:
        return self.out_features if self.bias else 0

    def plan(
        self, way: Way, batch: int, inner: int | None = None, *, training: bool = True, device: Profile = CPU
    ) -> Plan:
        """How rows are contracted as they come, as fast as a device can by its profile.

        ``batch`` counts the rows: of all tasks together (``"one"``, ``"mixed"``, ``"fan_out"``) or of each
        task (``"each"``). ``inner`` is the number of vectors in a row, if rows of ``"mixed"`` have several.
        Training counts the backward pass.
        """
        job = self._job(way, batch, inner, training, concrete=False)
        return candidates(job, check_profile(device))[0].plan

    def candidates(
        self, way: Way, batch: int, inner: int | None = None, *, training: bool = True, device: Profile = CPU
    ) -> tuple[Candidate, ...]:
        """The ways to compute a batch that are worth a look, the fastest by the profile first.

        What they are is said by their names: what is contracted with what, and whether rows of mixed tasks
        are grouped by task. In inference, what depends on factors alone is taken to be kept between calls.
        """
        job = self._job(way, batch, inner, training, concrete=True)
        check_profile(device)
        return candidates(job if training else replace(job, keep=keep_limit(self.network, way)), device)

    def _job(self, way: Way, batch: int, inner: int | None, training: bool, concrete: bool) -> Job:
        if way not in WAYS:
            raise TnshareError(f"way must be one of {WAYS}: found {way!r}")
        flag("training", training)
        rows = bucket(whole("batch", batch, least=0))
        vectors = None if inner is None else bucket(whole("inner", inner, least=0))
        return Job(self.network, way, rows, vectors, training, 0, concrete, self.bias)
