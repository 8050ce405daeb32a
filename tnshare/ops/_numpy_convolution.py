"""Convolutions in NumPy: the reference that frameworks are compared with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from tnshare.errors import TnshareError

NDArray = np.ndarray[Any, Any]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]
_MODES = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}  # NumPy's names


@dataclass(frozen=True)
class Geometry:
    """Where a kernel is laid: one entry for each of the kernel's dimensions; ``padding`` in front and behind.

    Channels fall into ``groups``, each seen by the output channels of its own group alone.
    """

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int
    mode: PaddingMode

    def places(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The size of the output along each dimension, for an input of these sizes."""
        every = zip(sizes, self.kernel, self.stride, self.padding, self.dilation, strict=True)
        return tuple((n + sum(pad) - d * (k - 1) - 1) // s + 1 for n, k, s, pad, d in every)

    def check(self, sizes: Sequence[int]) -> None:
        """Refuse an input that is smaller than the kernel, or than what a reflection of it needs."""
        if min(self.places(sizes), default=1) < 1:
            reach = tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilation, strict=True))
            raise TnshareError(
                f"the kernel reaches over {reach} places, more than the input has with its padding: found "
                f"an input of {tuple(sizes)} with padding {self.padding}"
            )
        spare = {"reflect": -1, "circular": 0}.get(self.mode)
        for size, pad in zip(sizes, self.padding, strict=True):
            if spare is not None and max(pad) > size + spare:
                raise TnshareError(
                    f"padding_mode={self.mode!r} repeats the input, so padding may be at most {size + spare} "
                    f"along an axis of {size} places: found {max(pad)}"
                )


def convolve(
    x: NDArray,
    kernels: NDArray,
    counts: tuple[int, ...] | None,
    bias: NDArray | None,
    geometry: Geometry,
) -> NDArray:
    """``y[r, o, p] = bias + sum_ik x[r, i, p + k] kernels[n, o, i, k]`` with the kernel n of each row r.

    ``counts`` says how many rows each kernel has, one kernel's after the other's; None means equally many.
    """
    many = len(kernels)
    parts = [len(x) // many] * many if counts is None else list(counts)
    results, start = [], 0
    for n, count in enumerate(parts):
        y = _convolved(x[start : start + count], kernels[n], geometry)
        results.append(y if bias is None else y + bias[n].reshape(-1, *[1] * len(geometry.kernel)))
        start += count
    return np.concatenate(results)


def _convolved(x: NDArray, kernel: NDArray, geometry: Geometry) -> NDArray:
    dims, groups = len(geometry.kernel), geometry.groups
    padded = np.pad(x, ((0, 0), (0, 0), *geometry.padding), mode=_MODES[geometry.mode])  # type: ignore[call-overload]
    reach = tuple(d * (k - 1) + 1 for k, d in zip(geometry.kernel, geometry.dilation, strict=True))
    space = tuple(range(2, 2 + dims))
    windows = sliding_window_view(padded, reach, axis=space)
    places = tuple(slice(None, None, step) for step in geometry.stride)
    inside = tuple(slice(None, None, step) for step in geometry.dilation)
    windows = windows[(slice(None), slice(None), *places, *inside)]  # (rows, channels, *places, *kernel)
    rows, channels = x.shape[:2]
    seen = windows.reshape(rows, groups, channels // groups, *windows.shape[2:])
    own = kernel.reshape(groups, len(kernel) // groups, *kernel.shape[1:])
    summed = tuple(range(2 + dims, 2 + 2 * dims))
    parts = [
        np.tensordot(seen[:, g], own[g], axes=((1, *summed), (1, *range(2, 2 + dims)))) for g in range(groups)
    ]
    return np.moveaxis(np.concatenate(parts, axis=-1), -1, 1)
