"""From the stacked weights of trained tasks to factors, with a guaranteed error."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from .balance import Factors, NDArray, balance_bonds, equalise_norms
from .errors import TnshareError
from .measure import Reference, read_stack, relative_errors
from .network import Network
from .ranks import ranks_per_svd, ranks_within
from .refine import hooi
from .spec import METHODS, Spec
from .split import Budget, Split, split


@dataclass(frozen=True, eq=False)
class Decomposition:
    """Factors that stand for a stack, and how far from it they are.

    ``error`` is ``||W - W'|| / ||W||``, ``deviation_error`` is ``||W - W'|| / ||W - mean_t W||``, both
    measured with the factors as they are, after rounding.
    """

    spec: Spec
    network: Network
    factors: Mapping[str, NDArray]
    error: float
    deviation_error: float

    @property
    def kept(self) -> float:
        """The number of parameters as a fraction of the stack's."""
        return self.network.parameters / math.prod(self.network.shape)

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.network.shape))
        kept = f"{self.network.parameters:,} of {math.prod(self.network.shape):,} parameters"
        return f"Decomposition({self.spec!r} of {shape}, error={self.error:.3g}, keeps {kept})"


def decompose(
    stack: Any,
    method: str,
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
    """Factorise stacked weights ``(..., T)`` by ``"laf"``, ``"tucker"`` or ``"tt"``.

    One of three says how much to keep (none of them: ``eps=0.1``):

    - ``eps``: ``||W - W'|| <= eps ||W||``, or ``<= eps ||W - mean_t W||`` with ``relative_to="deviation"``,
      up to rounding of the factors. ``eps_rule="per_svd"`` spends the whole eps in every SVD, as the authors
      of the paper do, and guarantees nothing.
    - ``ranks``: these ranks.
    - ``max_parameters``: the ranks, within that many parameters, whose dropped singular values are smallest.

    ``refine`` improves a Tucker decomposition by orthogonal iteration (HOOI) where that lowers the error.
    ``axes`` names the axes of the stack, ``tasks`` those of them, at the end, that tell tasks apart. Factors
    are balanced, computed in double precision and stored in the dtype of the stack, at least in float32.
    """
    family = _family(method, refine)
    original, weights, task_sizes = read_stack(stack, axes, tasks)
    reference = Reference.of(original, len(task_sizes))
    bound = _bound(eps, ranks, max_parameters, relative_to, eps_rule, reference)
    per_svd = eps_rule == "per_svd"
    square = (bound * reference.norm) ** 2
    budget = Budget(square, (reference.rounding * reference.norm) ** 2, per_svd)
    fixed: tuple[int, ...] | None = None
    if ranks is not None:
        spec = family(ranks)
        spec.check_ranks(weights, task_sizes)
        fixed = spec.ranks
    elif max_parameters is not None:
        fixed = ranks_within(family, reference.scaled(original), weights, task_sizes, max_parameters)
    elif per_svd and method == "tucker":  # the others' SVDs follow one another, Tucker's are all of the stack
        allowed = budget.allowed(0.0, 1)
        fixed = ranks_per_svd(family, reference.scaled(original), weights, task_sizes, allowed)

    def attempt(exact: bool) -> Decomposition:
        parts = split(family, original, weights, task_sizes, reference, budget, fixed, exact)
        result = _finish(parts, original, reference)
        if not refine or result.error <= reference.rounding:
            return result
        refined = _finish(hooi(parts, reference.scaled(original)), original, reference)
        return min(result, refined, key=lambda d: d.error)

    result = attempt(exact=False)
    # The Gram matrices that save time are coarse. What was promised is measured, and made good if need be.
    if fixed is None and not per_svd and result.error > bound * (1 + 1e-9) + 4 * reference.rounding:
        result = attempt(exact=True)
    return result


def _finish(parts: Split, original: NDArray, reference: Reference) -> Decomposition:
    """Balance the factors, round them to the stored dtype, measure the error. Uses the parts up."""
    network, factors = parts.network, parts.factors
    balance_bonds(network, factors, parts.spectra)
    equalise_norms(factors, tuple(factors), reference.scale)
    stored: Factors = {}
    for node in network.nodes:  # one after the other: each is in memory in both precisions for a moment only
        stored[node.name] = np.ascontiguousarray(factors.pop(node.name), reference.dtype)
    error, deviation_error = relative_errors(network, stored, original, reference)
    return Decomposition(parts.spec, network, stored, error, deviation_error)


def _family(method: str, refine: bool) -> Any:
    if not isinstance(method, str) or method not in METHODS:
        raise TnshareError(f"method must be one of {tuple(METHODS)}: found {method!r}")
    if refine and method != "tucker":
        raise TnshareError(f"refine=True is for method='tucker': found method={method!r}")
    return METHODS[method]


def _bound(
    eps: float | None,
    ranks: Any,
    max_parameters: int | None,
    relative_to: str,
    eps_rule: str,
    reference: Reference,
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
        return 0.0
    value = 0.1 if eps is None else eps
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating) or not 0 <= value < 1:
        raise TnshareError(f"eps must be a number with 0 <= eps < 1: found {value!r}")
    return float(value) * (reference.deviation if relative_to == "deviation" else 1.0)
