"""Convolutions in torch: tnshare by its strategies, and what one would use instead."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial
from typing import Any

import tnshare_torch as tnt
import torch
from torch import Tensor
from torch.nn.functional import conv2d

import tnshare as tn
from benchmarks.case import METHODS
from benchmarks.measuring.meters import Program
from tnshare.network import Network
from tnshare.planning import Way

from .common import NUMBER, Programs, left_to_right, optimal
from .in_torch import STRATEGIES
from .torch_calls import differentiable, looped

AXES = ("h", "w", "c", "m")


@dataclass(frozen=True)
class ConvCase:
    """A shared convolution c -> m with square kernels, on square images, padded to their size."""

    method: str
    ranks: tuple[int, ...]
    c: int
    m: int
    kernel: int
    side: int
    tasks: int
    way: Way
    batch: int
    training: bool

    def __str__(self) -> str:
        ranks = "/".join(map(str, self.ranks))
        mode = "training" if self.training else "inference"
        return (
            f"{self.method} {ranks} {self.c}->{self.m} {self.kernel}x{self.kernel} on "
            f"{self.side}x{self.side} T={self.tasks} {self.way} B={self.batch} {mode}"
        )

    @property
    def json(self) -> dict[str, Any]:
        """What a line of results says of the case."""
        return {**asdict(self), "ranks": list(self.ranks)}

    @cached_property
    def spec(self) -> tn.Spec:
        """The factorisation, ranks cut to what the sizes allow."""
        kinds = dict(zip(METHODS, (tn.LAF, tn.Tucker, tn.TT), strict=True))
        made = tn.LAF(self.ranks[0]) if self.method == "laf" else kinds[self.method](self.ranks)
        sizes = {"h": self.kernel, "w": self.kernel, "c": self.c, "m": self.m}
        return made.clipped(sizes, {"task": self.tasks})

    @property
    def x_shape(self) -> tuple[int, ...]:
        """The shape of the input."""
        image = (self.batch, self.c, self.side, self.side)
        return (self.tasks, *image) if self.way == "each" else image

    @property
    def task(self) -> int:
        """The task of all rows, where there is one."""
        return min(3, self.tasks - 1)


def programs(bench: Any, case: ConvCase) -> Programs:
    """All programs of a case, tnshare first."""
    with torch.device(bench.device):
        torch.manual_seed(0)
        return _Convolved(bench, case).found


class _Convolved:
    """The programs of one case."""

    def __init__(self, bench: Any, case: ConvCase) -> None:
        self.bench, self.case, self.found = bench, case, Programs()
        self.factors: list[Tensor] = []
        first = self._layer({})
        self.network: Network = first.description.network
        self.factors = [getattr(first, name) for name in self.network.shapes]
        self.x = torch.randn(case.x_shape, requires_grad=case.training)
        lead = case.x_shape[:-3]
        self.above = torch.randn(*lead, case.m, case.side, case.side)
        self.ids = torch.arange(case.batch) % case.tasks
        for name, options in STRATEGIES.items():
            self._add(name, 0, partial(self._ours, options))
        self._peers()

    def _layer(self, options: Mapping[str, Any]) -> Any:
        case = self.case
        made = tnt.Conv2d(
            case.c, case.m, case.kernel, case.tasks, case.spec, padding="same", bias=False, **options
        )
        if self.factors:  # all layers work on the same tensors
            for name, factor in zip(self.network.shapes, self.factors, strict=True):
                setattr(made, name, factor)
        return made.train(case.training)

    def _add(self, name: str, needs: int, make: Callable[[], Program]) -> None:
        self.found.add(name, needs, self.bench.limit, make)

    def _program(self, forward: Callable[[], Tensor], leaves: Sequence[Tensor]) -> Program:
        return differentiable(forward, leaves, self.above, self.case.training, self.x)

    def _ours(self, options: Mapping[str, Any]) -> Program:
        layer = self._layer(options)
        task = {"one": self.case.task, "mixed": self.ids}.get(self.case.way)
        made = self._program(lambda: layer(self.x, task), self.factors)
        return replace(made, forget=layer.drop_cache)

    def _peers(self) -> None:
        case = self.case
        kernels = (case.m, case.c, case.kernel, case.kernel)
        one = NUMBER * math.prod(kernels) * (3 if case.training else 1)
        size = one * case.tasks

        def dense() -> Program:
            if case.way == "one":  # a module of its own: no gradient of the kernels of other tasks
                own = torch.randn(kernels, requires_grad=case.training)
                return self._program(lambda: conv2d(self.x, own, padding="same"), [own])
            W = torch.randn((case.tasks, *kernels), requires_grad=case.training)
            return self._program(lambda: self._convolve(W), [W])

        def composed(compose: Callable[[], Tensor]) -> Program:
            return self._program(lambda: self._convolve(compose()), self.factors)

        def authors() -> Tensor:
            W, axes = left_to_right(self.network, self.factors, torch.tensordot)
            found: Tensor = W.permute(*(axes.index(axis) for axis in ("task", "m", "c", "h", "w")))
            return found

        expression, needs = optimal(self.network)

        def along_optimal() -> Tensor:
            found: Tensor = expression(*self.factors, backend="torch")
            return found.permute(4, 3, 2, 0, 1)

        self._add("dense", one if case.way == "one" else size, dense)
        self._add("authors", size, lambda: composed(authors))
        self._add("opt_einsum", size + needs, lambda: composed(along_optimal))
        self._tensorly()

    def _convolve(self, W: Tensor) -> Tensor:
        """The input with kernels (task, m, c, h, w); of all tasks at once as a grouped convolution."""
        case, x = self.case, self.x
        if case.way == "one":
            return conv2d(x, W[case.task], padding="same")
        if case.way == "mixed":
            own = W.unbind(0)
            return looped(x, self.ids, lambda rows, t: conv2d(rows, own[t], padding="same"))
        side_by_side = x.transpose(0, 1).flatten(1, 2)
        y = conv2d(side_by_side, W.flatten(0, 1), padding="same", groups=case.tasks)
        return y.view(case.batch, case.tasks, case.m, *y.shape[2:]).transpose(0, 1)

    def _tensorly(self) -> None:
        """TensorLy-Torch's convolution of several layers, task by task."""
        names = {kind: f"tltorch {kind}" for kind in ("factorized", "reconstructed")}
        if self.case.method != "tucker":
            why = "its TT has the axes in another order" if self.case.method == "tt" else "it has no LAF"
            self.found.skipped |= dict.fromkeys(names.values(), why)
            return
        for kind, name in names.items():
            self._add(name, 0, partial(self._factorised, kind))

    def _factorised(self, implementation: str) -> Program:
        from tltorch.factorized_layers import FactorizedConv

        from .tensorly_torch import imported

        imported()
        case = self.case
        core, matrices = tucker_parts(self.network, self.factors)
        layer = FactorizedConv(
            case.c,
            case.m,
            kernel_size=case.kernel,
            order=2,
            n_layers=case.tasks,
            factorization="tucker",
            rank=tuple(core.shape),
            implementation=implementation,
            padding=case.kernel // 2,
            bias=False,
        )
        own = list(layer.parameters())
        with torch.no_grad():
            for parameter, value in zip(own, (core, *matrices), strict=True):
                parameter.copy_(value)
                parameter.requires_grad_(case.training)

        def every() -> Tensor:
            if case.way == "one":
                return layer(self.x, case.task)  # type: ignore[no-any-return]
            if case.way == "mixed":
                return looped(self.x, self.ids, layer)
            return torch.stack([layer(self.x[t], t) for t in range(case.tasks)])

        return self._program(every, own)


def tucker_parts(network: Network, factors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """The core and the matrices (size, rank) of a Tucker, in TensorLy-Torch's order: task, m, c, h, w."""
    arrays = {node.name: (node.axes, factor) for node, factor in zip(network.nodes, factors, strict=True)}
    (core,) = [own for own in arrays.values() if not set(own[0]) & set(network.output)]
    order, matrices = [], []
    for axis in ("task", "m", "c", "h", "w"):
        ((axes, matrix),) = [own for own in arrays.values() if axis in own[0]]
        (bond,) = set(axes) - {axis}
        order.append(core[0].index(bond))
        matrices.append(matrix.detach() if axes == (axis, bond) else matrix.detach().t())
    return core[1].detach().permute(*order), matrices
