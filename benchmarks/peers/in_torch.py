"""Programs in torch, on any device: tnshare by its strategies, and what one would use instead."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import tnshare_torch as tnt
import torch
from torch import Tensor

from benchmarks.case import Case
from benchmarks.measuring.meters import CpuMeter, CudaMeter, Meter, Program
from tnshare.planning import Candidate, Job, Profile, bucket, candidates, keep_limit, profile_for

from . import lora, tensorly_torch
from .common import NUMBER, Programs, largest, left_to_right, optimal
from .torch_calls import Task, differentiable, grouped, ids_of, looped
from .torch_weights import weights

# Programs of tnshare: the options of their layers, by name.
STRATEGIES: dict[str, dict[str, Any]] = {
    "tnshare": {"strategy": "auto"},
    "tnshare factored": {"strategy": "factored"},
    "tnshare materialised": {"strategy": "materialised"},
}


class Bench:
    """torch on a device; arrays are made there, and what needs more bytes than ``limit`` is left out."""

    name = "torch"
    strategies = STRATEGIES

    def __init__(self, device: str = "cpu", limit: int = 2**30, meter: Meter | None = None) -> None:
        self.device, self.limit = device, limit
        self.meter: Meter = meter or (CudaMeter() if device.startswith("cuda") else CpuMeter())

    @property
    def profile(self) -> Profile:
        """What is known of the device: what the layers plan by."""
        return profile_for(tnt.ops.device(torch.empty(0, device=self.device)))

    def apply(
        self,
        case: Case,
        peers: Sequence[str] | None = None,
        ours: Mapping[str, Mapping[str, Any]] = STRATEGIES,
    ) -> Programs:
        """Programs of one call: tnshare by its layer's options, the peers that are named, or all of them."""
        with torch.device(self.device):
            torch.manual_seed(0)
            return Applied(self, case, ours, peers).found

    def compose(self, case: Case, one: bool) -> Programs:
        """Programs that give the weights of all tasks, or of one."""
        with torch.device(self.device):
            torch.manual_seed(0)
            return weights(case, one, self.limit)


class Applied:
    """The programs of one case."""

    def __init__(
        self,
        bench: Bench,
        case: Case,
        ours: Mapping[str, Mapping[str, Any]],
        peers: Sequence[str] | None,
    ) -> None:
        self.bench, self.case, self.peers, self.found = bench, case, peers, Programs()
        self.factors: list[Tensor] = []
        first = self._layer({})
        self.factors = [getattr(first, name) for name in case.layer.network.shapes]
        self.x = torch.randn(case.x_shape, requires_grad=case.training)
        self.above = torch.randn(case.y_shape)
        self.task: Task = ids_of(case) if case.way == "mixed" else None
        if case.way == "one":
            self.task = case.task
        parameters = sum(factor.numel() for factor in self.factors)
        self.found.facts["parameters"] = {"tnshare": parameters, "dense": case.i * case.o * case.tasks}
        for name, options in ours.items():
            needs = self._needs(options.get("strategy", "auto"))
            self.found.add(name, needs, bench.limit, partial(self._ours, options))
        self._add_peers()

    @property
    def ids(self) -> Tensor:
        """The tasks of the rows, where rows have their own."""
        assert isinstance(self.task, Tensor)
        return self.task

    def wants(self, name: str) -> bool:
        """Whether a peer is asked for."""
        return self.peers is None or name in self.peers

    def add(self, name: str, needs: int, make: Callable[[], Program]) -> None:
        """Add a peer, if it is asked for and within the memory."""
        if self.wants(name):
            self.found.add(name, needs, self.bench.limit, make)

    def skip(self, name: str, why: str) -> None:
        """Say why a peer that is asked for is not there."""
        if self.wants(name):
            self.found.skipped[name] = why

    def _add_peers(self) -> None:
        self._dense()
        self._equations()
        self.add("authors", self._dense_size(3), self._authors)
        tensorly_torch.add(self)
        if self.case.way == "mixed":
            lora.add(self)

    def program(self, forward: Callable[[], Tensor], leaves: Sequence[Tensor]) -> Program:
        """With gradients of x and of the leaves in training."""
        return differentiable(forward, leaves, self.above, self.case.training, self.x)

    def _layer(self, options: Mapping[str, Any]) -> tnt.Linear:
        case = self.case
        made = tnt.Linear(case.i, case.o, case.tasks, case.spec, bias=False, **options)
        if self.factors:  # all layers work on the same tensors
            for name, factor in zip(case.layer.network.shapes, self.factors, strict=True):
                setattr(made, name, factor)
        return made.train(case.training)

    def _ours(self, options: Mapping[str, Any]) -> Program:
        layer, x, task = self._layer(options), self.x, self.task
        fan_out = self.case.way == "fan_out"
        made = self.program((lambda: layer.fan_out(x)) if fan_out else (lambda: layer(x, task)), self.factors)
        return replace(made, forget=layer.drop_cache)

    def _needs(self, strategy: Any) -> int:
        """Bytes alive at once, of what a strategy chooses."""
        if isinstance(strategy, Candidate):
            return strategy.peak
        case, network = self.case, self.case.layer.network
        keep = 0 if case.training else keep_limit(network, case.way)
        job = Job(network, case.way, bucket(case.batch), None, case.training, keep, bias=False)
        form: Any = strategy if strategy in ("factored", "materialised") else "any"
        return candidates(job, self.bench.profile, form)[0].peak

    def _dense_size(self, times: int) -> int:
        case = self.case
        return times * NUMBER * case.i * case.o * case.tasks

    def _dense(self) -> None:
        case, x, task = self.case, self.x, self.task
        learnt = case.training
        if isinstance(task, int):
            self.add("dense", 0, lambda: self._with_weight((case.i, case.o), lambda W: torch.mm(x, W)))
        elif case.way == "fan_out":  # one product with the weights of all tasks side by side

            def side_by_side(W: Tensor) -> Tensor:
                return torch.mm(x, W).view(case.batch, case.tasks, case.o).transpose(0, 1)

            size = self._dense_size(2 if learnt else 1)
            shape = (case.i, case.tasks * case.o)
            self.add("dense", size, lambda: self._with_weight(shape, side_by_side))
        elif isinstance(task, Tensor):
            ids, shape3 = task, (case.tasks, case.i, case.o)
            rows = NUMBER * case.batch * case.i * case.o * (2 if learnt else 1)
            size = self._dense_size(3 if learnt else 1)
            self.add("dense", size, lambda: self._with_weight(shape3, lambda W: grouped(x, ids, W)))
            self.add("dense, loop over tasks", size, lambda: self._loop(ids))
            self.add(
                "dense, weight per row",
                size + rows,
                lambda: self._with_weight(
                    shape3, lambda W: torch.bmm(x.unsqueeze(1), W.index_select(0, ids)).squeeze(1)
                ),
            )
        else:
            size = self._dense_size(2 if learnt else 1)
            shape3 = (case.tasks, case.i, case.o)
            self.add("dense", size, lambda: self._with_weight(shape3, lambda W: torch.bmm(x, W)))

    def _with_weight(self, shape: tuple[int, ...], apply: Callable[[Tensor], Tensor]) -> Program:
        W = torch.randn(shape, requires_grad=self.case.training)
        return self.program(lambda: apply(W), [W])

    def _loop(self, ids: Tensor) -> Program:
        """A weight of its own for each task that is present, as if every task had a module."""
        case, x = self.case, self.x
        own = {int(t): torch.randn(case.i, case.o, requires_grad=case.training) for t in torch.unique(ids)}
        return self.program(
            lambda: looped(x, ids, lambda rows, t: torch.mm(rows, own[t])), list(own.values())
        )

    def _equations(self) -> None:
        """The whole contraction by torch.einsum, and along opt_einsum's optimal path."""
        network = self.case.network
        times = 3 if self.case.training else 1

        def along_optimal() -> Program:
            expression, _ = optimal(network)
            return self.program(lambda: expression(*self._operands(), backend="torch"), self.factors)

        self.add(
            "einsum",
            times * largest(network),
            lambda: self.program(lambda: torch.einsum(network.equation, *self._operands()), self.factors),
        )
        self.add("opt_einsum", times * largest(network, "optimal"), along_optimal)

    def _operands(self) -> list[Tensor]:
        """The operands of the whole equation; the last factor holds the tasks."""
        *shared, codes = self.factors
        if isinstance(self.task, Tensor):
            codes = codes.index_select(0, self.task)
        elif self.task is not None:
            codes = codes[self.task]
        return [*shared, codes, self.x]

    def _authors(self) -> Program:
        """The weights of all tasks, left to right, then as dense ones."""
        case, x, task = self.case, self.x, self.task

        def forward() -> Tensor:
            W, axes = left_to_right(case.layer.network, self.factors, torch.tensordot)
            weights = W.permute(*(axes.index(axis) for axis in ("task", "i", "o")))
            if isinstance(task, int):
                return torch.mm(x, weights[task])
            if isinstance(task, Tensor):
                return grouped(x, task, weights)
            return torch.matmul(x, weights)

        return self.program(forward, self.factors)
