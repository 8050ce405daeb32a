"""What the laws compare with: plain NumPy that knows nothing of plans, and comparison up to rounding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tnshare.network import Network
from tnshare.ops import NDArray, Ops

from .cases import LinearCase


def einsum(network: Network, factors: Mapping[str, NDArray]) -> NDArray:
    """The whole contraction in one n-ary `np.einsum`, in double precision."""
    number = {axis: n for n, axis in enumerate(network.sizes)}
    operands: list[Any] = []
    for node in network.nodes:
        operands += [wide(factors[node.name]), [number[axis] for axis in node.axes]]
    result: NDArray = np.einsum(*operands, [number[axis] for axis in network.output], optimize=False)
    return result


def looped(case: LinearCase, params: Mapping[str, NDArray], x: NDArray, absolute: bool = False) -> NDArray:
    """The layer with dense weights, one vector and one task at a time."""
    layer = case.layer
    frozen = {name: np.abs(value) if absolute else value for name, value in layer.frozen.items()}
    dense = einsum(layer.network, {**params, **frozen})

    def vector(v: NDArray, task: tuple[int, ...]) -> NDArray:
        pick: Any = (..., *task)
        result: NDArray = wide(v) @ dense[pick]
        return result + wide(params["bias"][task]) if layer.bias else result

    every = list(np.ndindex(*layer.task_shape))
    lead = (*layer.task_shape, *x.shape[:-1]) if case.way == "fan_out" else x.shape[:-1]
    if case.way == "fan_out":
        rows = [(x, task) for task in every]
    elif case.way == "each":
        rows = [(x[task], task) for task in every]
    elif case.way == "one":
        rows = [(x, tuple(np.atleast_1d(case.task())))]
    else:
        ids = np.asarray(case.task()).reshape(len(x), len(layer.task_shape))
        rows = [(row, tuple(task)) for row, task in zip(x, ids, strict=True)]
    outputs = [vector(v, task) for row, task in rows for v in row.reshape(-1, layer.in_features)]
    return np.array(outputs, dtype=wide(x).dtype).reshape(*lead, layer.out_features)


def gauge_moved(
    network: Network, factors: Mapping[str, NDArray], seed: int, absolute: bool = False
) -> dict[str, NDArray]:
    """The same weights from other factors: every bond is turned by a random, well-conditioned matrix."""
    rng = np.random.default_rng([seed, 4])
    moved = {name: wide(factors[name]) for name in network.shapes}
    for bond, (first, second) in network.bonds.items():
        size = network.sizes[bond]
        rotation, scales = np.linalg.qr(rng.standard_normal((size, size)))[0], rng.uniform(0.5, 2, size)
        for name, turn in ((first, (rotation * scales).T), (second, (rotation / scales).T)):
            at = network.node(name).axes.index(bond)
            turned = np.tensordot(np.abs(turn) if absolute else turn, moved[name], axes=(1, at))
            moved[name] = np.moveaxis(turned, 0, at)
    return {name: value.astype(factors[name].dtype) for name, value in moved.items()}


def same(ops: Ops[Any], actual: Any, expected: NDArray) -> None:
    """Equal numbers, shape and dtype."""
    found = numbers(ops, actual)
    assert found.shape == expected.shape, f"shape {found.shape}, not {expected.shape}"
    assert found.dtype == expected.dtype, f"dtype {found.dtype}, not {expected.dtype}"
    assert np.array_equal(found, expected), f"{found}, not {expected}"


def close(ops: Ops[Any], actual: Any, expected: NDArray, bound: NDArray, terms: int) -> None:
    """Equal shape, and numbers within rounding of ``bound``, the same sum over absolute values."""
    found = numbers(ops, actual)
    assert found.shape == expected.shape, f"shape {found.shape}, not {expected.shape}"
    assert within(found, expected, bound, found.dtype, terms), f"{found}, not {expected}"


def within(found: Any, expected: Any, bound: Any, dtype: Any, terms: int) -> bool:
    """Whether numbers differ by no more than rounding errors of sums of so many terms of this size.

    In whatever order numbers are added, each passes at most ``terms`` roundings of half an eps, of a value
    that ``bound`` limits. The other half is for what is compared with, and for complex products.
    """
    limits = np.finfo(dtype)
    return bool(np.all(np.abs(found - expected) <= terms * limits.eps * bound + limits.tiny))


def numbers(ops: Ops[Any], array: Any) -> NDArray:
    """The array in NumPy."""
    values = ops.values(array)
    assert values is not None, "values() must give the numbers of an array outside of tracing"
    return values


def wide(value: NDArray) -> NDArray:
    """The array in double precision."""
    return value.astype(np.complex128 if value.dtype.kind == "c" else np.float64)


def magnitudes(factors: Mapping[str, NDArray]) -> dict[str, NDArray]:
    """The absolute values of each."""
    return {name: np.abs(value) for name, value in factors.items()}
