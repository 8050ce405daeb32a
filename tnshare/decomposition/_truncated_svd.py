"""Split one factor off a tensor by a truncated SVD, in the memory of the tensor itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnshare.ops import NDArray

# Eigenvalues of a Gram matrix are right to about 1e-16 of the largest. What a truncation may drop must be
# far above that for them to decide it; else a proper SVD does.
_GRAM_RESOLUTION = 1e-8
# Below this many elements a proper SVD costs nothing worth saving.
_GRAM_SIZE = 2**14
_CHUNK = 2**19  # elements that are copied at once


@dataclass(frozen=True)
class Peel:
    """``tensor ~ basis . rest``: a basis (d, k) with orthonormal columns, and the rest (pre, k, post)."""

    basis: NDArray
    singular_values: NDArray
    rest: NDArray
    dropped: float


def peel(
    work: NDArray,
    *,
    allowed: float = 0.0,
    rank: int | None = None,
    exact: bool = False,
    scale: float | None = None,
) -> Peel:
    """Split the middle axis off a contiguous array (pre, d, post).

    Keeps the given rank, or the smallest one whose dropped singular values have squares that sum to at most
    ``allowed``. ``exact`` asks for an SVD even where a Gram matrix would do. The array is in double precision
    and is overwritten, unless a ``scale`` is given: then it is the user's, is left alone, and is read bit by
    bit, in double precision and divided by the scale.
    """
    pre, d, post = work.shape
    if d > pre * post:
        return _peel_tall(work, allowed, rank, exact, scale)
    found = None if exact else _by_gram(work, allowed, rank, scale)
    squares, basis = _by_svd(_read(work, ..., scale)) if found is None else found
    k = rank or smallest_rank(squares, allowed)
    basis = np.ascontiguousarray(basis[:, :k])
    return Peel(basis, np.sqrt(squares[:k]), _project(work, basis, scale), float(squares[k:].sum()))


def spectrum(work: NDArray, allowed: float) -> NDArray:
    """Squared singular values of the flattening (d, pre * post), falling, fit to drop ``allowed`` by."""
    squares = np.maximum(np.linalg.eigvalsh(_gram(work, None))[::-1], 0)
    return squares if allowed >= _GRAM_RESOLUTION * squares.sum() > 0 else _by_svd(work)[0]


def smallest_rank(squares: NDArray, allowed: float) -> int:
    """The smallest rank of at least 1 that drops no more than allowed, up to rounding."""
    tails = np.cumsum(squares[::-1])[::-1]  # tails[k]: what keeping k drops
    return max(1, int(np.count_nonzero(tails > allowed * (1 + 1e-12))))


def wide(dtype: np.dtype[Any]) -> type[np.float64 | np.complex128]:
    """The double precision that goes with a dtype."""
    return np.complex128 if dtype.kind == "c" else np.float64


def _peel_tall(work: NDArray, allowed: float, rank: int | None, exact: bool, scale: float | None) -> Peel:
    """More rows than the rest has entries: decompose the other side, ``A = (A V / s) (s V^H)``."""
    pre, d, post = work.shape
    if pre > 1:
        turned = np.ascontiguousarray(work.transpose(1, 0, 2)).reshape(1, d, pre * post)
        result = _peel_tall(turned, allowed, rank, exact, scale)
        rest = result.rest.reshape(-1, pre, post).transpose(1, 0, 2)
        return Peel(result.basis, result.singular_values, np.ascontiguousarray(rest), result.dropped)
    sideways = work.reshape(d, post, 1)
    found = None if exact else _by_gram(sideways, allowed, rank, scale)
    if found is not None:
        squares, v = found  # conj(V), as it is the left side of the transpose
        k = rank or smallest_rank(squares, allowed)
        if squares[k - 1] >= _GRAM_RESOLUTION * squares[0]:  # else A V / s would be mostly rounding errors
            v, s = np.ascontiguousarray(v[:, :k]), np.sqrt(squares[:k])
            basis = _project(sideways, v, scale)[:, :, 0]
            basis /= s
            return Peel(basis, s, (s[:, None] * v.T)[None], float(squares[k:].sum()))
    u, s, vh = np.linalg.svd(_read(work, 0, scale), full_matrices=False)
    k = rank or smallest_rank(s**2, allowed)
    return Peel(u[:, :k].copy(), s[:k], (s[:k, None] * vh[:k])[None], float((s[k:] ** 2).sum()))


def _project(work: NDArray, basis: NDArray, scale: float | None) -> NDArray:
    """``basis^H`` applied to the middle axis, in the memory of ``work`` unless that is a user's."""
    pre, d, post = work.shape
    k = basis.shape[1]
    adjoint = basis.conj().T
    memory = work.reshape(-1)[: pre * k * post] if scale is None else np.empty(pre * k * post, basis.dtype)
    result = memory.reshape(pre, k, post)
    # Blocks are written no further on than where they were read, so none is overwritten before its turn.
    if pre == 1:
        for columns in _blocks(post, d):
            result[0, :, columns] = adjoint @ _read(work, (0, slice(None), columns), scale)
    elif post == 1:
        for rows in _blocks(pre, d):
            result[rows, :, 0] = _read(work, (rows, slice(None), 0), scale) @ basis.conj()
    else:
        for rows in _blocks(pre, d * post):
            result[rows] = adjoint @ _read(work, rows, scale)
    return result


def _by_gram(
    work: NDArray, allowed: float, rank: int | None, scale: float | None
) -> tuple[NDArray, NDArray] | None:
    """The spectrum from a d x d Gram matrix, or None if that is too coarse to decide what may be dropped."""
    if work.size < _GRAM_SIZE:
        return None
    values, vectors = np.linalg.eigh(_gram(work, scale))
    squares = np.maximum(values[::-1], 0)
    decides = allowed if rank is None else float(squares[rank:].sum())
    if squares[0] > 0 and (decides >= _GRAM_RESOLUTION * squares.sum() or rank == len(squares)):
        return squares, vectors[:, ::-1]
    return None


def _gram(work: NDArray, scale: float | None) -> NDArray:
    """The flattening (d, pre * post) times its adjoint."""
    pre, d, post = work.shape
    gram = np.zeros((d, d), wide(work.dtype))
    if pre == 1:
        for columns in _blocks(post, d):
            block = _read(work, (0, slice(None), columns), scale)
            gram += block @ block.conj().T
    else:
        for rows in _blocks(pre, d * post):
            block = _read(work, rows, scale).transpose(1, 0, 2).reshape(d, -1)
            gram += block @ block.conj().T
    return gram


def _by_svd(work: NDArray) -> tuple[NDArray, NDArray]:
    """The spectrum from an SVD of the triangular factor, which is small where the flattening is long."""
    matrix = work.transpose(1, 0, 2).reshape(work.shape[1], -1)
    if matrix.shape[0] < matrix.shape[1]:
        triangle: NDArray = np.linalg.qr(matrix.conj().T, mode="r")  # type: ignore[assignment]
        matrix = triangle.conj().T
    basis, values, _ = np.linalg.svd(matrix, full_matrices=False)
    return values**2, basis


def _read(work: NDArray, where: Any, scale: float | None) -> NDArray:
    """A part of the array: as it is, or of a user's array a scaled copy in double precision."""
    block: NDArray = work[where]
    if scale is None:
        return block
    block = block.astype(wide(work.dtype), order="C")
    block /= scale
    return block


def _blocks(count: int, size: int) -> Iterator[slice]:
    """Slices over ``count`` items of ``size`` elements each, a few megabytes at a time."""
    step = max(1, _CHUNK // size)
    return (slice(start, start + step) for start in range(0, count, step))
