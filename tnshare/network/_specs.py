"""LAF, Tucker and TT: which tensors, joined how, stand for the stacked weights of all tasks."""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from tnshare.checks import fresh, is_whole, whole
from tnshare.errors import TnshareError

from ._frozen_codes import FrozenCodes
from ._nodes import Network, Node

Sizes = Mapping[str, int]


class Spec(ABC):
    """A factorisation with its ranks. A subclass says which nodes there are and which ranks are of use."""

    method: ClassVar[str]
    ranks: tuple[int, ...]

    def network(self, /, *, tasks: Sequence[str] | None = None, **sizes: int) -> Network:
        """The network for weights with these axes; the task axis is the last, or those named in ``tasks``."""
        weights, task_sizes = _split_axes(sizes, tasks)
        return self.checked(weights, task_sizes)

    def checked(self, weights: Sizes, tasks: Sizes) -> Network:
        """The network over these axes; refuses ranks that do not fit them."""
        self.check_ranks(weights, tasks)
        return self.build(weights, tasks)

    def build(self, weights: Sizes, tasks: Sizes) -> Network:
        """The network, whether or not its ranks are of use."""
        return Network(self.nodes(weights, tasks), (*weights, *tasks), tuple(tasks))

    def clipped(self, weights: Sizes, tasks: Sizes) -> Self:
        """The same with every rank lowered to its largest useful value."""
        lowered = tuple(map(min, self.ranks, self.maxima(weights, tasks)))
        return self if lowered == self.ranks else type(self)(lowered).clipped(weights, tasks)  # type: ignore[call-arg]

    @classmethod
    def peeling(cls, network: Network) -> tuple[Node, ...]:
        """The nodes in the order in which SVDs split them off a stack; the last remains, with the scale."""
        return network.nodes

    @classmethod
    @abstractmethod
    def bonds(cls, axes: Sequence[str]) -> tuple[str, ...]:
        """The name of the bond that each rank is the size of, given the names of all axes."""

    @abstractmethod
    def maxima(self, weights: Sizes, tasks: Sizes) -> tuple[int, ...]:
        """The largest useful value of each rank, the others being as they are."""

    @abstractmethod
    def nodes(self, weights: Sizes, tasks: Sizes) -> tuple[Node, ...]:
        """The tensors, in the order and with the axes in which they are stored."""

    def frozen(self, network: Network) -> dict[str, np.ndarray[Any, Any]]:
        """The values of the nodes that are given rather than learnt."""
        return {}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ranks})"

    def check_ranks(self, weights: Sizes, tasks: Sizes) -> None:
        """Refuse a wrong number of ranks, and ranks that are out of range."""
        axes = (*weights, *tasks)
        name = type(self).__name__
        bonds = self.bonds(axes)
        if len(bonds) != len(self.ranks):
            raise TnshareError(
                f"{name} over the axes ({', '.join(axes)}) takes {len(bonds)} ranks ({', '.join(bonds)}): "
                f"found {len(self.ranks)}, {self.ranks}"
            )
        for bond, rank, maximum in zip(bonds, self.ranks, self.maxima(weights, tasks), strict=True):
            if not 1 <= rank <= maximum:
                raise TnshareError(
                    f"{name} rank {bond}={rank} is out of range: expected 1 <= {bond} <= {maximum}"
                )


@dataclass(frozen=True, repr=False)
class LAF(Spec):
    """Last axis flattening: ``W[..., t] = sum_k L[..., k] S[k, t]``.

    Several task axes are one flattened axis here. Codes ``S`` may be given and frozen, which makes
    single-task learning, hard sharing and the method of Evgeniou & Pontil special cases.
    """

    rank: int
    codes: FrozenCodes | None = None

    method: ClassVar[str] = "laf"

    def __post_init__(self) -> None:
        (rank,) = _as_ranks(self.rank, "LAF", one=True)
        object.__setattr__(self, "rank", rank)
        if not isinstance(self.codes, FrozenCodes | None):
            raise TnshareError("LAF's codes are FrozenCodes: for codes of your own use LAF.with_codes(array)")
        if self.codes is not None and self.codes.rank != rank:
            raise TnshareError(f"LAF rank k={rank} does not fit {self.codes.rank} rows of frozen codes")

    @classmethod
    def single_task(cls, tasks: int) -> LAF:
        """``S = I``: every task has weights of its own, nothing is shared."""
        codes = FrozenCodes.identity(tasks)
        return cls(codes.rank, codes)

    @classmethod
    def hard_sharing(cls) -> LAF:
        """``S = [1 ... 1]``: all tasks have the same weights."""
        return cls(1, FrozenCodes.ones())

    @classmethod
    def evgeniou_pontil(cls, tasks: int) -> LAF:
        """``S = [1; I]``: ``w_t = w_0 + v_t``, shared through penalties on ``groups`` of ``L``."""
        codes = FrozenCodes.ones_and_identity(tasks)
        return cls(codes.rank, codes)

    @classmethod
    def with_codes(cls, codes: np.ndarray[Any, Any]) -> LAF:
        """Any given codes ``S`` (K x T), frozen."""
        frozen = FrozenCodes.given(codes)
        return cls(frozen.rank, frozen)

    @property
    def ranks(self) -> tuple[int, ...]:  # type: ignore[override]
        """The one rank."""
        return (self.rank,)

    @property
    def groups(self) -> dict[str, slice]:
        """What frozen codes make of ``L``: the slices along its first axis that all tasks or one task use.

        The penalties of Evgeniou & Pontil are one on ``L[groups["shared"]]``, one on
        ``L[groups["specific"]]``. Empty if the codes are learnt or given.
        """
        return {} if self.codes is None else self.codes.groups

    @classmethod
    def bonds(cls, axes: Sequence[str]) -> tuple[str, ...]:
        return (fresh("k", axes),)

    def maxima(self, weights: Sizes, tasks: Sizes) -> tuple[int, ...]:
        if self.codes is not None:
            self.codes.check_tasks(math.prod(tasks.values()))
            return (self.rank,)
        return (min(math.prod(weights.values()), math.prod(tasks.values())),)

    def nodes(self, weights: Sizes, tasks: Sizes) -> tuple[Node, ...]:
        (k,) = self.bonds((*weights, *tasks))
        sizes = {**weights, **tasks, k: self.rank}
        return (_node("L", (k, *weights), sizes), _node("S", (*tasks, k), sizes, learnt=self.codes is None))

    def frozen(self, network: Network) -> dict[str, np.ndarray[Any, Any]]:
        if self.codes is None:
            return {}
        shape = network.node("S").shape
        return {"S": self.codes.array(math.prod(shape[:-1])).T.reshape(shape).copy()}

    def __repr__(self) -> str:
        return f"LAF({self.rank})" if self.codes is None else f"LAF({self.rank}, codes={self.codes!r})"


@dataclass(frozen=True, repr=False)
class Tucker(Spec):
    """``W = core x_1 U_1 ... x_N U_N x_task U_task``: one rank for every axis, the task axis last."""

    ranks: tuple[int, ...]

    method: ClassVar[str] = "tucker"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranks", _as_ranks(self.ranks, "Tucker"))

    @classmethod
    def peeling(cls, network: Network) -> tuple[Node, ...]:
        return (*network.nodes[1:], network.nodes[0])

    @classmethod
    def bonds(cls, axes: Sequence[str]) -> tuple[str, ...]:
        return _bond_names("k", axes, axes)

    def maxima(self, weights: Sizes, tasks: Sizes) -> tuple[int, ...]:
        product = math.prod(self.ranks)
        sizes = (*weights.values(), *tasks.values())
        return tuple(min(d, product // max(k, 1)) for d, k in zip(sizes, self.ranks, strict=True))

    def nodes(self, weights: Sizes, tasks: Sizes) -> tuple[Node, ...]:
        axes = (*weights, *tasks)
        bonds = dict(zip(axes, self.bonds(axes), strict=True))
        sizes = {**weights, **tasks, **dict(zip(bonds.values(), self.ranks, strict=True))}
        last = axes[len(weights) - 1]
        core = _node("core", [bonds[axis] for axis in (*tasks, *weights)], sizes)
        return (core, *(_node(f"U_{a}", (b, a) if a == last else (a, b), sizes) for a, b in bonds.items()))


@dataclass(frozen=True, repr=False)
class TT(Spec):
    """``W = U_1[d1, r1] U_2[r1, d2, r2] ... U_task[rN, t]``: one rank between any two neighbouring axes."""

    ranks: tuple[int, ...]

    method: ClassVar[str] = "tt"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranks", _as_ranks(self.ranks, "TT"))

    @classmethod
    def bonds(cls, axes: Sequence[str]) -> tuple[str, ...]:
        return _bond_names("r", axes[:-1], axes)

    def maxima(self, weights: Sizes, tasks: Sizes) -> tuple[int, ...]:
        sizes = (*weights.values(), *tasks.values())
        r = (1, *self.ranks, 1)
        return tuple(min(r[n] * sizes[n], sizes[n + 1] * r[n + 2]) for n in range(len(self.ranks)))

    def nodes(self, weights: Sizes, tasks: Sizes) -> tuple[Node, ...]:
        axes = (*weights, *tasks)
        bonds = self.bonds(axes)
        sizes = {**weights, **tasks, **dict(zip(bonds, self.ranks, strict=True))}
        nodes = []
        for n, axis in enumerate(axes):
            left, right = bonds[max(n - 1, 0) : n], bonds[n : n + 1]
            lead = axis in tasks or n == 0
            nodes.append(_node(f"U_{axis}", (axis, *right, *left) if lead else (*right, *left, axis), sizes))
        return tuple(nodes)


METHODS: dict[str, type[LAF] | type[Tucker] | type[TT]] = {"laf": LAF, "tucker": Tucker, "tt": TT}


def _node(name: str, axes: Sequence[str], sizes: Sizes, learnt: bool = True) -> Node:
    return Node(name, tuple(axes), tuple(sizes[axis] for axis in axes), learnt)


def _bond_names(letter: str, axes: Sequence[str], taken: Sequence[str]) -> tuple[str, ...]:
    """A bond for each axis, named after it, and after no axis of the user's or other bond."""
    names: list[str] = []
    for axis in axes:
        names.append(fresh(f"{letter}_{axis}", {*taken, *names}))
    return tuple(names)


def _as_ranks(ranks: Any, name: str, one: bool = False) -> tuple[int, ...]:
    ordered = isinstance(ranks, Sequence) or getattr(ranks, "ndim", 0) > 0  # an array, of any framework
    values = tuple(ranks) if ordered and not isinstance(ranks, str | bytes) else (ranks,)
    if not values or not all(is_whole(rank) and rank >= 1 for rank in values):
        raise TnshareError(f"{name} ranks must be whole numbers of at least 1: found {ranks!r}")
    if one and len(values) != 1:
        raise TnshareError(f"{name} takes one rank: found {ranks!r}")
    return tuple(operator.index(rank) for rank in values)


def _split_axes(sizes: Sizes, tasks: Sequence[str] | None) -> tuple[dict[str, int], dict[str, int]]:
    """The weight axes and the task axes, which must be the last ones."""
    axes = tuple(sizes)
    if isinstance(tasks, str):
        tasks = (tasks,)
    if not isinstance(tasks, Sequence | None):
        raise TnshareError(f"tasks must name the task axes: found {tasks!r}")
    names = axes[-1:] if tasks is None else tuple(tasks)
    if len(axes) <= len(names):
        raise TnshareError(f"expected at least one weight axis and one task axis: found {axes}")
    if tasks is None and "task" in axes[:-1]:
        raise TnshareError(f"the task axes come last: found the axes {axes} with 'task' before the end")
    if not names or axes[-len(names) :] != names:
        raise TnshareError(f"the task axes come last: found the axes {axes} with the task axes {names}")
    checked = {axis: whole(f"the size of axis {axis!r}", size) for axis, size in sizes.items()}
    return {a: checked[a] for a in axes[: -len(names)]}, {a: checked[a] for a in names}
