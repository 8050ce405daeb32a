"""Random factors whose composed weights have a stated variance in every task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tnshare.checks import positive, whole
from tnshare.errors import TnshareError
from tnshare.network import Network, Node, Spec
from tnshare.ops import NDArray

from ._compose import squared_norm
from ._decompose import quietly
from ._splitting import Factors, equalise_norms
from ._stack import DTYPES


def random_stream(seed: int, name: str) -> np.random.Generator:
    """The stream of one tensor: it depends on the seed and the tensor's name alone."""
    return np.random.default_rng([whole("a seed", seed, least=0), *name.encode()])


def random_factors(
    network: Network,
    *,
    variance: float,
    seed: int = 0,
    dtype: Any = np.float32,
    frozen: Mapping[str, NDArray] | None = None,
) -> Factors:
    """Factors whose composed weights have mean 0 and, in each task of each draw, this mean square.

    Every factor is an isometry from its bonds towards the tasks to its other axes, and every task's code a
    vector of the same length. So ``||W_t||`` is the same in all tasks, exactly, and no dense tensor is built.
    Where ranks allow no isometry (of two task axes, if a rank towards the tasks is larger than the ranks it
    comes from; given codes of unequal length or more rows than weights) columns have unit length, tasks
    scatter, and the mean over them is exact.
    """
    _check(network, variance, dtype)
    given = {name: np.asarray(value) for name, value in (frozen or {}).items()}
    for node in network.nodes:
        if not node.learnt and node.name not in given:
            raise TnshareError(f"{node!r} is not learnt: give its values, frozen=spec.frozen(network)")
    for name, value in given.items():
        if network.shapes.get(name) != np.shape(value):
            raise TnshareError(f"the frozen factor {name!r} has shape {np.shape(value)}: see network.shapes")
    factors = {
        n.name: given[n.name] if n.name in given else _draw(network, n, seed, dtype) for n in network.nodes
    }
    return _scaled(network, factors, variance, dtype, [name for name in factors if name not in given])


def decomposed_factors(
    spec: Spec, network: Network, *, variance: float, seed: int = 0, dtype: Any = np.float32
) -> Factors:
    """The paper's way: draw dense weights, decompose them, start from the factors.

    Truncation takes variance away, so the factors are scaled until the mean square over all tasks is the
    stated one; single tasks scatter around it. Needs memory for the dense weights.
    """
    _check(network, variance, dtype)
    weights, tasks = ({axis: network.sizes[axis] for axis in a} for a in (network.weight_axes, network.tasks))
    if spec.build(weights, tasks) != network:
        raise TnshareError(f"the network is not one of {spec!r}: found {network!r}")
    if spec.frozen(network):
        raise TnshareError("frozen codes leave nothing to decompose: draw the factors directly instead")
    stack = _normal(random_stream(seed, "dense"), network.shape, dtype)
    d = quietly(stack, spec.method, ranks=spec.ranks, axes=network.output, tasks=network.tasks)
    return _scaled(network, d.factors, variance, dtype, list(d.factors))


def rounded(values: NDArray, dtype: Any) -> NDArray:
    """Values in a dtype, short ones by way of single precision, as some frameworks do and all are to."""
    with np.errstate(over="ignore"):
        result = (values.astype(np.float32) if np.dtype(dtype).itemsize < 4 else values).astype(dtype)
    if not np.isfinite(result).all():
        raise TnshareError(f"{np.dtype(dtype)} cannot hold initial values of this variance: found infinity")
    return result


def _scaled(
    network: Network, factors: Mapping[str, NDArray], variance: float, dtype: Any, names: Sequence[str]
) -> Factors:
    total = squared_norm(network, factors)
    if total == 0:
        raise TnshareError("frozen factors that are zero make all weights zero: they cannot have a variance")
    wanted = math.sqrt(variance * math.prod(network.shape) / total)
    scaled = {name: factor.copy() if name in names else factor for name, factor in factors.items()}
    equalise_norms(scaled, names, wanted)
    return {name: rounded(factor, dtype) for name, factor in scaled.items()}


def _draw(network: Network, node: Node, seed: int, dtype: Any) -> NDArray:
    """A random isometry in the storage order of the node."""
    batch, rows, columns = _directions(network, node)
    axes = (*batch, *rows, *columns)
    shape = tuple(math.prod(network.sizes[a] for a in part) for part in (batch, rows, columns))
    stack = _isometries(_normal(random_stream(seed, node.name), shape, dtype))
    return (
        stack.reshape([network.sizes[a] for a in axes]).transpose([axes.index(a) for a in node.axes]).copy()
    )


def _directions(network: Network, node: Node) -> tuple[list[str], list[str], list[str]]:
    """The axes of a node: those of tasks, those towards the weights, those from the weights to the tasks."""
    batch = [axis for axis in node.axes if axis in network.tasks]
    columns = [
        axis for axis in node.axes if axis not in network.output and _leads_to_tasks(network, node, axis)
    ]
    return batch, [axis for axis in node.axes if axis not in (*batch, *columns)], columns


def _leads_to_tasks(network: Network, node: Node, bond: str) -> bool:
    """Whether cutting the bond leaves weights on the node's side and tasks on the other."""
    side = network.side(node.name, bond)
    here = {axis for member in side for axis in member.axes}
    there = {axis for other in network.nodes if other not in side for axis in other.axes}
    return bool(here & set(network.weight_axes)) and bool(there & set(network.tasks))


def _isometries(stack: NDArray) -> NDArray:
    """Orthonormal columns in each matrix (batch, rows, columns); unit columns where there are too many."""
    rows, columns = stack.shape[1:]
    if columns == 1 or columns > rows:
        unit: NDArray = stack / np.linalg.norm(stack, axis=1, keepdims=True)
        return unit
    q, r = np.linalg.qr(stack)
    diagonal = np.einsum("bkk->bk", r)
    # QR alone prefers one sign of R's diagonal; without it the isometries are uniformly distributed.
    result: NDArray = q * (diagonal / np.abs(diagonal))[:, None, :]
    return result


def _normal(stream: np.random.Generator, shape: Sequence[int], dtype: Any) -> NDArray:
    """Standard normal numbers in double precision, whatever the dtype, so that it changes no draw."""
    if np.dtype(dtype).kind != "c":
        return stream.standard_normal(shape)
    parts = stream.standard_normal((2, *shape))
    result: NDArray = (parts[0] + 1j * parts[1]) / math.sqrt(2)
    return result


def _check(network: Any, variance: Any, dtype: Any) -> None:
    if not isinstance(network, Network):
        raise TnshareError(f"network must be a tnshare.Network: found {type(network).__name__}")
    positive("variance", variance)
    try:
        name = np.dtype(dtype).name
    except TypeError:
        name = repr(dtype)
    if name not in DTYPES:
        raise TnshareError(f"dtype must be one of {DTYPES}: found {name}")
