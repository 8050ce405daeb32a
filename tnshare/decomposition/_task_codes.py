"""T trained models in: which of their weights are shared, and how; framework-free."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tnshare.checks import fresh
from tnshare.errors import TnshareError
from tnshare.network import Network
from tnshare.ops import NDArray

from ._compose import compose


def code_of(
    network: Network, factors: Mapping[str, NDArray], weight: NDArray
) -> tuple[dict[str, NDArray], float]:
    """The code with which the shared factors come closest to a weight, and the relative error.

    Least squares over the one factor that has the task axis; ``weight`` has the axes of the stack without it.
    """
    (node,) = (node for node in network.nodes if set(node.axes) & set(network.tasks))
    rank = math.prod(node.shape[1:])
    unit = np.eye(rank, dtype=factors[node.name].dtype).reshape(rank, *node.shape[1:])
    wide = network.rename(network.tasks, fresh("basis", network.sizes), rank)
    precise = np.complex128 if unit.dtype.kind == "c" else np.float64
    basis = compose(wide, {**factors, node.name: unit}).reshape(-1, rank).astype(precise)
    target = weight.reshape(-1).astype(precise)
    if not np.isfinite(target).all():
        raise TnshareError("the weights of a network must be finite: found NaN or infinity")
    code, *_ = np.linalg.lstsq(basis, target, rcond=None)
    error = float(np.linalg.norm(basis @ code - target)) / (float(np.linalg.norm(target)) or 1.0)
    return {node.name: code.astype(factors[node.name].dtype).reshape(node.shape[1:])}, error


@dataclass(frozen=True)
class CodePart:
    """The codes of one weight: which factor holds them, their shape in it, and where they begin in a row."""

    weight: str
    factor: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        """Where those of the next weight begin."""
        return self.start + math.prod(self.shape)


def code_parts(networks: Mapping[str, Network]) -> tuple[CodePart, ...]:
    """Where the codes of each weight are in the code of a task, which has all of them in a row."""
    parts: list[CodePart] = []
    for name, network in networks.items():
        (node,) = (node for node in network.nodes if network.is_coded(node))
        parts.append(CodePart(name, node.name, node.shape[1:], parts[-1].stop if parts else 0))
    return tuple(parts)
