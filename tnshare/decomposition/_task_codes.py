"""The codes of a task: fitted to its weights, and those of all weights in a row."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Generic, NamedTuple

import numpy as np

from tnshare.checks import fresh
from tnshare.errors import TnshareError
from tnshare.network import Network, Node
from tnshare.ops import Array, NDArray

from ._compose import compose


def code_of(
    network: Network, factors: Mapping[str, NDArray], weight: NDArray
) -> tuple[dict[str, NDArray], float]:
    """The code with which the shared factors come closest to a weight, and the relative error.

    Least squares over the one factor that has the task axis; ``weight`` has the axes of the stack without it.
    """
    node = _coded(network)
    rank = math.prod(node.shape[1:])
    unit = np.eye(rank, dtype=factors[node.name].dtype).reshape(rank, *node.shape[1:])
    wide = network.rename(network.tasks, fresh("basis", network.sizes), rank)
    precise = np.complex128 if unit.dtype.kind == "c" else np.float64
    basis = compose(wide, {**factors, node.name: unit}).reshape(-1, rank).astype(precise)
    target = weight.reshape(-1).astype(precise)
    if not np.isfinite(target).all():
        raise TnshareError("the weights of a network must be finite: found NaN or infinity")
    code, *_ = np.linalg.lstsq(basis, target, rcond=None)
    found = code.astype(factors[node.name].dtype).reshape(node.shape[1:])
    return {node.name: found}, _relative(basis @ code - target, target)


class Fit(NamedTuple, Generic[Array]):
    """The code with which a shared network comes closest to a given one, and how close, weight by weight.

    Errors are relative, ``||W - W'|| / ||W||``; also those of weights that all tasks have in common, in which
    a task has no say.
    """

    code: Array
    errors: dict[str, float]


def fit_codes(
    shared: Mapping[str, tuple[Network, Mapping[str, NDArray]] | NDArray],
    orders: Mapping[str, tuple[int, ...] | None],
    given: Mapping[str, NDArray],
) -> tuple[dict[str, dict[str, NDArray]], dict[str, float]]:
    """Codes and errors of a network's weights, by name.

    What is ``shared`` is a network and its factors, with an order in which the axes of a weight are stacked,
    or one array for all tasks, which has no code.
    """
    found: dict[str, dict[str, NDArray]] = {}
    errors: dict[str, float] = {}
    for name, own in shared.items():
        weight = given[name]
        if isinstance(own, tuple):
            order = orders[name] or ()
            _check_shape(name, weight, tuple(own[0].shape[axis] for axis in np.argsort(order)))
            found[name], errors[name] = code_of(*own, weight.transpose(order))
        else:
            _check_shape(name, weight, own.shape)
            errors[name] = _relative(own - weight, weight)
    return found, errors


class CodePart(NamedTuple):
    """The codes of one weight: which factor holds them, their shape in it, and where they begin in a row."""

    weight: str
    factor: str
    shape: tuple[int, ...]
    start: int

    @property
    def stop(self) -> int:
        """Where those of the next weight begin."""
        return self.start + math.prod(self.shape)


class CodeLayout:
    """Where the codes of each weight are in the code of a task, which has those of all weights in a row.

    ``parts`` are in the order of the networks; ``size`` is how many numbers a code has.
    """

    def __init__(self, networks: Mapping[str, Network]) -> None:
        parts: list[CodePart] = []
        self.size = 0
        for name, network in networks.items():
            node = _coded(network)
            parts.append(CodePart(name, node.name, node.shape[1:], self.size))
            self.size = parts[-1].stop
        self.parts = tuple(parts)

    def split(self, code: Any) -> Iterator[tuple[CodePart, Any]]:
        """For each weight, its part of codes (..., size), with the shape (..., *k) of its factor.

        Of any framework: arrays are sliced and reshaped, nothing else.
        """
        for part in self.parts:
            yield part, code[..., part.start : part.stop].reshape(*code.shape[:-1], *part.shape)

    def check(self, code: Any, kind: type = object, called: str = "an array") -> None:
        """Refuse what is no code (size,), nor several (tasks, size), in an array of this kind."""
        shape = getattr(code, "shape", None) if isinstance(code, kind) else None
        if shape is None or len(shape) not in (1, 2) or shape[-1] != self.size:
            found = type(code).__name__ if shape is None else tuple(shape)
            raise TnshareError(
                f"code must be {called} (code_size,) or (tasks, code_size), code_size={self.size}: "
                f"found {found}"
            )


def _check_shape(name: str, weight: NDArray, expected: tuple[int, ...]) -> None:
    if weight.shape != expected:
        raise TnshareError(f"{name} must have shape {expected}: found {weight.shape}")


def _relative(difference: NDArray, to: NDArray) -> float:
    return float(np.linalg.norm(difference)) / (float(np.linalg.norm(to)) or 1.0)


def _coded(network: Network) -> Node:
    """The factor that holds the codes."""
    (node,) = (node for node in network.nodes if network.is_coded(node))
    return node
