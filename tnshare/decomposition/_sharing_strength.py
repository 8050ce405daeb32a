"""How much is shared, and between which tasks, read off the factors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np

from tnshare.checks import check_numbers, flag
from tnshare.errors import TnshareError
from tnshare.network import Network, Node
from tnshare.ops import NDArray

from ._compose import factors_in_order, gram

# Singular values are found from their squares, so below this fraction of the largest they are not resolved.
_UNUSED = 1e-7
_LARGEST = math.log(np.finfo(np.float64).max)


def codes(
    network: Network,
    factors: Mapping[str, Any],
    *,
    gauge: Literal["paper", "stored"] = "paper",
    axis: str | None = None,
) -> NDArray:
    """The task codes ``S`` (K x T): what, of all factors, belongs to single tasks.

    Codes are defined up to an invertible matrix on their bond, so a convention is needed:

    - ``"paper"``: as a decomposition leaves them, whatever training did since: the other factors orthonormal,
      the scale on the codes (``S = diag(s) V^H`` of the flattened weights), or, where a core holds the scale
      (Tucker), orthonormal codes (``S = V^H``). Rows are ordered by singular value; the largest entry of each
      is positive.
    - ``"stored"``: the factor as it is.

    In the paper's convention there are min(K, T) rows. With two task axes, say which ``axis`` (LAF has one
    flattened axis of all pairs, and takes none).
    """
    if gauge not in ("paper", "stored"):
        raise TnshareError(f"gauge must be 'paper' or 'stored': found {gauge!r}")
    arrays, logarithm = _scaled(network, factors)
    node, own = _code_node(network, axis)
    bonds = tuple(a for a in node.axes if a not in own)
    rank = math.prod(network.sizes[a] for a in bonds)
    stored = arrays[node.name].reshape(-1, rank).T  # K x T: task axes come first in storage
    if gauge == "stored":
        kept: NDArray = np.asarray(factors[node.name]).reshape(-1, rank).T
        return kept.astype(stored.dtype)
    others = tuple(n for n in network.nodes if n != node)
    outer = tuple(a for a in network.output if a not in own)
    shared = Network(others, (*outer, *(b for b in bonds if b not in outer)))
    metric = gram(shared, arrays, bonds).reshape(rank, rank)
    # With a unit diagonal the metric keeps its digits even where the bond is scaled very unevenly.
    size = np.sqrt(np.maximum(np.diagonal(metric).real, np.finfo(np.float64).tiny))
    values, vectors = np.linalg.eigh(metric / size / size[:, None])
    root = np.sqrt(np.maximum(values, 0))[:, None] * vectors.conj().T  # root^H root = metric
    _, s, vh = np.linalg.svd(root @ (size[:, None] * stored), full_matrices=False)
    if _has_core(network, bonds):
        # A direction that no task uses has no code: what an SVD gives for it is rounding errors.
        return _positive(np.where(s[:, None] > _UNUSED * s[0], vh, 0))
    return _positive(math.exp(min(logarithm, _LARGEST)) * s[:, None] * vh)


def sharing_strength(codes: NDArray, normalise: bool = True) -> float:
    """The paper's rho: the mean cosine similarity of two tasks' codes (columns of a K x T matrix).

    ``normalise`` takes absolute values, then the softmax of each column, as the paper does for learnt codes.
    Without it the codes are compared as they are: 0 for single-task learning (``S = I``), 1 for hard sharing.
    """
    flag("normalise", normalise)
    S = _matrix(codes)
    if S.ndim != 2 or S.size == 0 or S.dtype.kind not in "fciu" or not np.isfinite(S).all():
        raise TnshareError(f"codes must be a finite K x T matrix: found {S.dtype} of shape {S.shape}")
    S = S.astype(np.complex128 if S.dtype.kind == "c" else np.float64)
    tasks = S.shape[1]
    if tasks < 2:
        raise TnshareError(f"sharing is between tasks: expected codes of at least 2, found {tasks}")
    if normalise:
        size = np.abs(S)
        S = np.exp(size - size.max(axis=0))
        S /= S.sum(axis=0)
    largest = np.abs(S).max(axis=0)
    S = np.divide(S, largest, out=np.zeros_like(S), where=largest > 0)  # no square can overflow now
    unit = S / np.maximum(np.linalg.norm(S, axis=0), 1)
    total = unit.sum(axis=1)
    # A pair is counted twice, no task with itself.
    pairs = np.vdot(total, total).real - np.vdot(unit, unit).real
    return float(pairs / (tasks * (tasks - 1)))


def task_similarity(network: Network, factors: Mapping[str, Any]) -> NDArray:
    """The cosine similarity of the weights of any two tasks (T x T), from the factors alone.

    It depends on no convention about codes. With two task axes a task is a pair, in row-major order. A task
    with all weights zero has similarity 0 to every task but itself.
    """
    arrays, _ = _scaled(network, factors)
    tasks = math.prod(network.sizes[axis] for axis in network.tasks)
    products = gram(network, arrays, network.tasks).reshape(tasks, tasks).real
    norms = np.sqrt(np.maximum(np.diagonal(products), 0))
    inverse = np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0)
    similarity: NDArray = np.clip(products * inverse[:, None] * inverse, -1, 1)
    np.fill_diagonal(similarity, 1)
    return similarity


def _matrix(codes: Any) -> NDArray:
    """Codes in NumPy; what it cannot read becomes an array of nothing."""
    if isinstance(codes, np.ma.MaskedArray):
        check_numbers("codes", codes)
    try:
        return np.asarray(codes)
    except ValueError:  # rows of different lengths
        return np.empty(0, object)


def _code_node(network: Network, axis: str | None) -> tuple[Node, tuple[str, ...]]:
    """The node that holds the task axis, and those of its axes that are task axes."""
    if not network.tasks:
        raise TnshareError(f"the network has no task axis, so no codes: found {network!r}")
    if axis is not None and axis not in network.tasks:
        raise TnshareError(f"axis must be one of the task axes {network.tasks}: found {axis!r}")
    holders = [node for node in network.nodes if set(node.axes) & {axis or network.tasks[-1]}]
    own = tuple(a for a in holders[0].axes if a in network.tasks)
    if axis is None and own != network.tasks:
        raise TnshareError(
            f"each of the task axes {network.tasks} has codes of its own: say which with axis="
        )
    if axis is not None and len(own) > 1:
        raise TnshareError(f"the task axes {own} are one flattened axis here: leave out axis={axis!r}")
    return holders[0], own


def _has_core(network: Network, bonds: tuple[str, ...]) -> bool:
    """Whether the codes hang on a core: a node that has no axis of the weights itself."""
    joined = {name for bond in bonds for name in network.bonds[bond]}
    return any(not set(network.node(name).axes) & set(network.output) for name in joined)


def _scaled(network: Network, factors: Mapping[str, Any]) -> tuple[dict[str, NDArray], float]:
    """The factors in double precision, each with the largest entry 1; the logarithm of what that took."""
    if isinstance(factors, Mapping):
        factors = {name: np.asarray(factor) for name, factor in factors.items()}
    arrays = factors_in_order(network, factors)
    scaled, logarithm = {}, 0.0
    for node, array in zip(network.nodes, arrays, strict=True):
        largest = float(np.abs(array).max())
        if not math.isfinite(largest):
            raise TnshareError(f"the factor {node!r} must be finite: found NaN or infinity")
        divisor = largest or 1.0
        scaled[node.name] = array.astype(np.complex128 if array.dtype.kind == "c" else np.float64) / divisor
        logarithm += math.log(divisor)
    return scaled, logarithm


def _positive(rows: NDArray) -> NDArray:
    """Each row times a sign (or phase) that makes its largest entry positive."""
    largest = np.take_along_axis(rows, np.abs(rows).argmax(axis=1)[:, None], axis=1)
    size = np.abs(largest)
    phase = np.divide(largest.conj(), size, out=np.ones_like(largest), where=size > 0)
    result: NDArray = rows * phase
    return result
