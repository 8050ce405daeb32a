"""The few operations that a framework must offer, those that it may, and NumPy's."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from tnshare.errors import TnshareError

from ._numpy_convolution import NDArray, convolve


class HasShape(Protocol):
    """All that the core itself reads off an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...


Array = TypeVar("Array", bound=HasShape)


class Ops(Protocol[Array]):
    """The array operations of a framework.

    Task ids are the framework's own integer arrays (of which columns are taken as ``ids[..., 0]``), NumPy's,
    or whole numbers.

    What a backend may have besides, each for the sake of speed or memory:

    - ``device(like) -> tnshare.planning.Device``: where an array is, so that plans suit it;
    - ``concrete(a) -> bool``: whether an array has values now and shapes may follow them (not while tracing);
    - ``guards(ids) -> bool``: whether ids are an array (b,) of which ``take`` itself refuses those that are
      out of range, so that nobody else has to look at them;
    - ``told``: the attributes of an array that say how a call runs, if these are not shape and dtype alone;
    - ``mm(a, b)`` and ``bmm(a, b)``: the product of two matrices, and of two stacks of equally many, if that
      is quicker than finding out which of them ``matmul`` was given;
    - ``einsum(equation, a, b)``: the product of two arrays along named axes, where a compiler arranges axes;
    - ``jit(function)``: the function compiled, if calls are usually traced, so that such calls are timed;
    - ``row(a, i)``: row i of a matrix as a matrix (1, n), if that is quicker than taking and reshaping it;
    - ``wait(a)``: returns when an array is computed; by default its values are read;
    - ``gradients(function, arrays, weights)``: derivatives of ``sum(weights * function(*arrays))``;
    - ``in_chunks(function, arrays, x, ids, axis, result_axis, size)``: ``function(arrays, x, ids)`` on parts
      of x along an axis, put together again, with no more than one part's intermediates alive at a time;
    - ``convolve(x, kernels, counts, bias, geometry)``: rows x (b, channels, *places) convolved by kernels
      (n, output channels, channels of a group, *kernel), each by its own: ``counts[0]`` rows by the first and
      so on, or equally many where counts is None; bias (n, output channels) or None.
    """

    def matmul(self, a: Array, b: Array) -> Array:
        """The product of two matrices, of two stacks (n, ..., ...) of equally many, or of one and a stack.

        One matrix is the same for all items of the stack.
        """

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

    def __hash__(self) -> int:
        """Programs are kept by backend: any object has this."""

    def values(self, a: Any) -> NDArray | None:
        """An array of the framework's, or ids, in NumPy; None while tracing, when there are no values yet."""


_NEEDED = ("matmul", "reshape", "transpose", "multiply", "add", "take", "asarray", "values")


def check_ops(ops: Any) -> None:
    """Refuse what is no operations of a framework: the name of one, a module, a class."""
    missing = [name for name in _NEEDED if not hasattr(ops, name)]
    if missing or isinstance(ops, type):
        what = "an instance of it" if isinstance(ops, type) else f"what has {', '.join(_NEEDED)}"
        raise TnshareError(f"ops must be a framework's, as tnshare.ops.numpy_ops, {what}: found {ops!r:.60}")


class NumpyOps:
    """NumPy: the reference."""

    matmul = staticmethod(operator.matmul)
    multiply = staticmethod(operator.mul)
    add = staticmethod(operator.add)
    convolve = staticmethod(convolve)

    def reshape(self, a: NDArray, shape: Sequence[int]) -> NDArray:
        return a.reshape(shape)

    def transpose(self, a: NDArray, order: Sequence[int]) -> NDArray:
        return a.transpose(order)

    def take(self, a: NDArray, ids: Sequence[Any]) -> NDArray:
        result: NDArray = a[tuple(ids)]
        return result

    def asarray(self, value: NDArray, like: NDArray | None = None) -> NDArray:
        return value if like is None else value.astype(like.dtype)

    def values(self, a: Any) -> NDArray | None:
        return np.asarray(a)

    def concrete(self, a: NDArray) -> bool:
        return True

    def in_chunks(
        self,
        function: Callable[..., NDArray],
        arrays: Sequence[NDArray],
        x: NDArray,
        ids: Sequence[NDArray],
        axis: int,
        result_axis: int,
        size: int,
    ) -> NDArray:
        parts = range(size, x.shape[axis], size)
        xs, columns = np.split(x, parts, axis), [np.split(column, parts) for column in ids]
        result = np.empty(0)
        for n, part in enumerate(xs):
            y = function(arrays, part, tuple(column[n] for column in columns))
            if not n:
                shape = (*y.shape[:result_axis], x.shape[axis], *y.shape[result_axis + 1 :])
                result = np.empty(shape, y.dtype)
            place = slice(n * size, n * size + y.shape[result_axis])
            result[(slice(None),) * result_axis + (place,)] = y
            del y  # before the next part is computed
        return result


numpy_ops = NumpyOps()
