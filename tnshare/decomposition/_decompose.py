"""From the stacked weights of trained tasks to factors, with a guaranteed error."""

from __future__ import annotations

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, ParamSpec

import numpy as np

from tnshare.checks import flag
from tnshare.errors import TnshareError, TnshareWarning
from tnshare.network import METHODS, Network, Spec, Tucker
from tnshare.ops import NDArray

from ._copies import columns, distinct
from ._rank_choice import ranks_per_svd, ranks_within
from ._splitting import Budget, Factors, Split, balance_bonds, equalise_norms, hooi, peel_factors
from ._stack import StackNorms, read_stack, relative_errors

_Given = ParamSpec("_Given")


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Factors that stand for a stack, and how far from it they are.

    ``error`` is ``||W - W'|| / ||W||``, ``deviation_error`` is ``||W - W'|| / ||W - mean_t W||``, both
    measured with the factors as they are, after rounding; NaN where nobody knows the stack, as for factors
    of a trained layer. ``given`` is the number of parameters that came in: those of T dense weights, copies
    counted once; None where nobody knows. ``warnings`` says in words where a stack looks as if its tasks were
    not aligned, where what differs between them was lost, and where factors are larger than what came in.
    """

    spec: Spec
    network: Network
    factors: Mapping[str, NDArray]
    error: float = math.nan
    deviation_error: float = math.nan
    warnings: tuple[str, ...] = ()
    given: int | None = None

    @property
    def kept(self) -> float:
        """The number of parameters as a fraction of the stack's: of T dense weights."""
        return self.network.parameters / math.prod(self.network.shape)

    @property
    def kept_of_given(self) -> float:
        """The number of parameters as a fraction of those that came in; NaN where nobody knows them."""
        return self.network.parameters / self.given if self.given else math.nan

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.network.shape))
        kept = f"{self.network.parameters:,} of {math.prod(self.network.shape):,} parameters"
        return f"Decomposition({self.spec!r} of {shape}, error={self.error:.3g}, keeps {kept})"


def _aloud(function: Callable[_Given, Decomposition]) -> Callable[_Given, Decomposition]:
    """What a decomposition warns of, as Python warnings too."""

    @functools.wraps(function)
    def warning(*args: _Given.args, **kwargs: _Given.kwargs) -> Decomposition:
        found = function(*args, **kwargs)
        for text in found.warnings:
            warnings.warn(text, TnshareWarning, stacklevel=2)
        return found

    return warning


@_aloud
def decompose(
    stack: Any,
    method: str | type[Spec],
    *,
    eps: float | None = None,
    ranks: int | Sequence[int] | None = None,
    max_parameters: int | None = None,
    relative_to: Literal["stack", "deviation"] = "stack",
    eps_rule: Literal["split", "per_svd"] = "split",
    refine: bool = False,
    axes: Sequence[str] | None = None,
    tasks: Sequence[str] | None = None,
) -> Decomposition:
    """Factorise stacked weights ``(..., T)`` by ``"laf"``, ``"tucker"``, ``"tt"``, or a `Spec` class.

    One of three says how much to keep (none of them: ``eps=0.1``):

    - ``eps``: ``||W - W'|| <= eps ||W||``, or ``<= eps ||W - mean_t W||`` with ``relative_to="deviation"``,
      up to rounding of the factors. ``eps_rule="per_svd"`` spends the whole eps in every SVD, as the authors
      of the paper do, and guarantees nothing.
    - ``ranks``: these ranks.
    - ``max_parameters``: ranks within that many parameters, chosen greedily to drop little.

    ``refine`` improves a Tucker decomposition by orthogonal iteration (HOOI) where that lowers the error.
    ``axes`` names the axes of the stack, ``tasks`` those of them, at the end, that tell tasks apart. Factors
    are balanced, computed in double precision and stored in the dtype of the stack, at least in float32.
    Those that are larger than what came in are given all the same, with a `TnshareWarning`.
    """
    family = _family(method, refine)
    original, weights, task_sizes = read_stack(stack, axes, tasks)
    reference = StackNorms.of(original, len(task_sizes))
    bound = _bound(eps, ranks, max_parameters, relative_to, eps_rule, reference)
    per_svd = eps_rule == "per_svd"
    floor = (reference.rounding * reference.norm) ** 2
    budget = Budget((bound * reference.norm) ** 2, floor, per_svd)
    sizes = (weights, task_sizes)
    fixed: tuple[int, ...] | None = None
    if ranks is not None:
        spec = family(ranks)
        spec.check_ranks(*sizes)
        fixed = spec.ranks
    elif max_parameters is not None:
        fixed = ranks_within(family, reference.scaled(original), *sizes, max_parameters, floor)
    elif per_svd and family is Tucker:  # the others' SVDs follow one another, Tucker's are all of the stack
        fixed = ranks_per_svd(family, reference.scaled(original), *sizes, budget.allowed(0.0, 1))

    def attempt(exact: bool) -> Decomposition:
        parts = peel_factors(family, original, *sizes, reference, budget, fixed, exact)
        refined = hooi(parts, reference.scaled(original)) if refine and reference.norm else None
        results = [_finish(p, original, reference) for p in (parts, refined) if p is not None]
        return min(results, key=lambda d: d.error)

    result = attempt(exact=False)
    # The Gram matrices that save time are coarse. What was promised is measured, and made good if need be.
    if fixed is None and not per_svd and result.error > bound * (1 + 1e-9) + 4 * reference.rounding:
        result = attempt(exact=True)
    size, count = math.prod(weights.values()), math.prod(task_sizes.values())
    result = replace(result, given=size * (1 + max(distinct(columns(original, count)))))
    said = _warnings(result, bound, reference) if fixed is None else ()
    return replace(result, warnings=(*said, *_larger(result)))


def _larger(d: Decomposition) -> tuple[str, ...]:
    """That factors are larger than what they stand for, if they are."""
    if d.given is None or d.network.parameters <= d.given:
        return ()
    return (
        f"larger than what came in: {d.network.parameters:,} parameters for {d.given:,}; ask for less with "
        "eps=, ranks= or max_parameters=, or leave the weights as they are",
    )


def _finish(parts: Split, original: NDArray, reference: StackNorms) -> Decomposition:
    """Balance the factors, round them to the stored dtype, measure the error. Uses the parts up."""
    network, factors = parts.network, parts.factors
    balance_bonds(network, factors, parts.spectra)
    equalise_norms(factors, tuple(factors), reference.scale)
    stored: Factors = {}
    for node in network.nodes:  # one after the other: each is in memory in both precisions for a moment only
        stored[node.name] = np.ascontiguousarray(factors.pop(node.name), reference.dtype)
    error, deviation_error = relative_errors(network, stored, original, reference)
    return Decomposition(parts.spec, network, stored, error, deviation_error)


def _warnings(d: Decomposition, bound: float, reference: StackNorms) -> tuple[str, ...]:
    """What the ranks of the task axes say about the stack."""
    found = []
    for axis in d.network.tasks:
        size = d.network.sizes[axis]
        (node,) = (node for node in d.network.nodes if axis in node.axes)
        rank = math.prod(d.network.sizes[a] for a in node.axes if a not in d.network.output)
        if rank >= size > 2 and bound >= 0.05:
            found.append(
                f"unaligned: at eps={bound:.2g} nothing is shared along {axis!r}, rank {rank} of {size}; "
                "train all tasks from the same initial values"
            )
        elif rank == 1 and size > 1 and reference.deviation > 10 * reference.rounding:
            found.append(
                f"collapsed: at eps={bound:.2g} all that differs along {axis!r} is lost, rank 1, and it is "
                f"{reference.deviation:.2g} of the norm; measure eps with relative_to='deviation'"
            )
    return tuple(found)


def _family(method: Any, refine: bool) -> Any:
    own = isinstance(method, type) and issubclass(method, Spec) and not inspect.isabstract(method)
    flag("refine", refine)
    if not own and (not isinstance(method, str) or method not in METHODS):
        raise TnshareError(f"method must be one of {tuple(METHODS)}: found {method!r}")
    family = method if own else METHODS[method]
    if refine and family is not Tucker:
        raise TnshareError(f"refine=True is for method='tucker': found method={method!r}")
    return family


def _bound(
    eps: float | None,
    ranks: Any,
    max_parameters: int | None,
    relative_to: str,
    eps_rule: str,
    reference: StackNorms,
) -> float:
    """The error that is allowed, relative to the norm of the stack; 0 if ranks are asked for instead."""
    given = {"eps": eps, "ranks": ranks, "max_parameters": max_parameters}
    named = [f"{name}={value!r}" for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise TnshareError(f"eps, ranks and max_parameters exclude each other: found {' and '.join(named)}")
    if relative_to not in ("stack", "deviation"):
        raise TnshareError(f"relative_to must be 'stack' or 'deviation': found {relative_to!r}")
    if eps_rule not in ("split", "per_svd"):
        raise TnshareError(f"eps_rule must be 'split' or 'per_svd': found {eps_rule!r}")
    if ranks is not None or max_parameters is not None:
        if (relative_to, eps_rule) != ("stack", "split"):
            raise TnshareError(f"relative_to and eps_rule go with eps: found {named[0]}")
        return 0.0
    value = 0.1 if eps is None else eps
    plain = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not plain or not 0 <= value < 1:
        raise TnshareError(f"eps must be a number with 0 <= eps < 1: found {value!r}")
    return float(value) * (reference.deviation if relative_to == "deviation" else 1.0)


quietly = inspect.unwrap(decompose)  # for whoever says what it warns of in words of his own
