"""What tnshare asks of a framework, and NumPy as the reference that every framework is compared with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

NDArray = np.ndarray[Any, Any]


class HasShape(Protocol):
    """All that the core itself reads off an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...


Array = TypeVar("Array", bound=HasShape)


class Ops(Protocol[Array]):
    """The array operations of a framework.

    Task ids are the framework's own integer arrays (of which columns are taken as ``ids[..., 0]``), NumPy's,
    or whole numbers.
    """

    def matmul(self, a: Array, b: Array) -> Array:
        """The product of two matrices, or of two stacks of matrices with equally many items."""

    def reshape(self, a: Array, shape: Sequence[int]) -> Array:
        """The same numbers in row-major order, in another shape."""

    def transpose(self, a: Array, order: Sequence[int]) -> Array:
        """The axes in another order."""

    def multiply(self, a: Array, b: Array) -> Array:
        """The product of the entries, axes of size 1 being repeated."""

    def add(self, a: Array, b: Array) -> Array:
        """The sum of the entries, axes of size 1 being repeated."""

    def take(self, a: Array, ids: Sequence[Any]) -> Array:
        """``a[ids[0], ids[1], ...]``: one entry of the first axes for whole numbers, B for ids (B,)."""

    def asarray(self, value: NDArray, like: Array | None = None) -> Array:
        """A NumPy array as the framework's, with the dtype and on the device of ``like`` if it is given."""

    def values(self, a: Any) -> NDArray | None:
        """An array of the framework's, or ids, in NumPy; None while tracing, when there are no values yet."""


class NumpyOps:
    """NumPy: the reference."""

    def matmul(self, a: NDArray, b: NDArray) -> NDArray:
        result: NDArray = np.matmul(a, b)
        return result

    def reshape(self, a: NDArray, shape: Sequence[int]) -> NDArray:
        return a.reshape(shape)

    def transpose(self, a: NDArray, order: Sequence[int]) -> NDArray:
        return a.transpose(order)

    def multiply(self, a: NDArray, b: NDArray) -> NDArray:
        result: NDArray = a * b
        return result

    def add(self, a: NDArray, b: NDArray) -> NDArray:
        result: NDArray = a + b
        return result

    def take(self, a: NDArray, ids: Sequence[Any]) -> NDArray:
        result: NDArray = a[tuple(ids)]
        return result

    def asarray(self, value: NDArray, like: NDArray | None = None) -> NDArray:
        return value if like is None else value.astype(like.dtype)

    def values(self, a: Any) -> NDArray | None:
        return np.asarray(a)


numpy_ops = NumpyOps()
