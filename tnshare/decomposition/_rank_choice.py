"""Choose ranks from the singular values of a stack."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tnshare.checks import is_whole
from tnshare.errors import TnshareError
from tnshare.network import Sizes, Spec
from tnshare.ops import NDArray

from ._truncated_svd import smallest_rank, spectrum

Ranks = tuple[int, ...]


def ranks_within(family: Any, work: NDArray, weights: Sizes, tasks: Sizes, limit: int, floor: float) -> Ranks:
    """Ranks with at most ``limit`` parameters that drop little, found greedily.

    From the largest downwards that keep anything above the ``floor``: each time the rank whose last singular
    value costs least for each parameter that it saves. What a last large saving left over is then spent
    where it gains most.
    """

    def parameters(ranks: Ranks) -> int:
        return sum(math.prod(node.shape) for node in family(ranks).nodes(weights, tasks))

    least = parameters((1,) * len(family.bonds((*weights, *tasks))))
    if not is_whole(limit) or limit < least:
        raise TnshareError(
            f"max_parameters must be a whole number of at least {least}, "
            f"which is {family.__name__} with all ranks 1: found {limit!r}"
        )
    spectra = bond_spectra(family, work, weights, tasks, math.inf)
    most = tuple(smallest_rank(squares, floor) for squares in spectra)
    ranks: Ranks = family(most).clipped(weights, tasks).ranks
    while parameters(ranks) > limit:
        now = parameters(ranks)
        lower = [_changed(ranks, n, -1) for n in range(len(ranks)) if ranks[n] > 1]
        ranks = min(lower, key=lambda new: _loss(spectra, new, ranks) / (now - parameters(new)))
    ranks = family(ranks).clipped(weights, tasks).ranks
    while True:
        higher = [_changed(ranks, n, 1) for n in range(len(ranks)) if ranks[n] < most[n]]
        useful = [
            new for new in higher if parameters(new) <= limit and _is_useful(family, new, weights, tasks)
        ]
        if not useful:
            break
        ranks = max(useful, key=lambda new: _loss(spectra, ranks, new))
    return ranks


def ranks_per_svd(family: Any, work: NDArray, weights: Sizes, tasks: Sizes, allowed: float) -> Ranks:
    """The smallest ranks that drop at most ``allowed`` in the flattening at each bond, one by one."""
    spectra = bond_spectra(family, work, weights, tasks, allowed)
    found = tuple(smallest_rank(squares, allowed) for squares in spectra)
    ranks: Ranks = family(found).clipped(weights, tasks).ranks
    return ranks


def bond_spectra(family: Any, work: NDArray, weights: Sizes, tasks: Sizes, allowed: float) -> list[NDArray]:
    """The squared singular values of the flattening at each bond, right enough to drop ``allowed``."""
    bonds = family.bonds((*weights, *tasks))
    network = family((1,) * len(bonds)).build(weights, tasks)
    result = []
    for bond in bonds:
        peeled = next(node.name for node in family.peeling(network) if bond in node.axes)
        inside = {axis for node in network.side(peeled, bond) for axis in node.axes}
        at = [n for n, axis in enumerate(network.output) if axis in inside]
        first, last = at[0], at[-1] + 1
        parts = (slice(first), slice(first, last), slice(last, None))
        result.append(_squares(work.reshape([math.prod(network.shape[part]) for part in parts]), allowed))
    return result


def _squares(work: NDArray, allowed: float) -> NDArray:
    pre, d, post = work.shape
    if d > pre * post:
        work = np.ascontiguousarray(work.transpose(1, 0, 2)).reshape(d, pre * post, 1)
    return spectrum(work, allowed)


def _changed(ranks: Ranks, n: int, by: int) -> Ranks:
    return (*ranks[:n], ranks[n] + by, *ranks[n + 1 :])


def _loss(spectra: list[NDArray], lower: Ranks, higher: Ranks) -> float:
    """What the lower ranks drop that the higher ones keep."""
    pairs = zip(spectra, lower, higher, strict=True)
    return sum(float(squares[low:high].sum()) for squares, low, high in pairs)


def _is_useful(family: Any, ranks: Ranks, weights: Sizes, tasks: Sizes) -> bool:
    spec: Spec = family(ranks)
    return spec.clipped(weights, tasks).ranks == ranks
