"""Peers that are the same in every framework, written with its einsum and tensordot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import opt_einsum

from benchmarks.measuring.meters import Program
from tnshare.errors import TnshareError
from tnshare.network import Network

NUMBER = 4  # bytes
ADAPTER_RANK = 4  # of adapters in the manner of LoRA
Tensordot = Callable[[Any, Any, Any], Any]


@dataclass
class Programs:
    """Programs by name, tnshare first, and why some peers are not among them."""

    run: dict[str, Program] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, needs: int, limit: int, make: Callable[[], Program]) -> None:
        """Add a program, unless it needs more bytes than there may be or cannot be made."""
        if needs > limit:
            self.skipped[name] = f"needs {needs / 2**30:.1f} GiB"
            return
        try:
            self.run[name] = make()
        except Exception as error:  # another library's; what it cannot do is a result too
            self.skipped[name] = said(error)


def number_of(device: str) -> int:
    """Which of several devices: 1 of ``cuda:1``."""
    return int(device.partition(":")[2] or 0)


def not_here(framework: str, version: str, device: str) -> TnshareError:
    """What to say of a device that a framework does not see."""
    return TnshareError(f"device must be one that is here: {framework} {version} sees no {device!r}")


def said(error: Exception) -> str:
    """What an error says in one line, without anything that looks like a path."""
    line = next(iter(str(error).splitlines()), "")
    words = [word for word in line.split() if "/" not in word and "\\" not in word]
    return f"raises {type(error).__name__}: {' '.join(words)[:120]}"


def left_to_right(network: Network, factors: Sequence[Any], tensordot: Tensordot) -> tuple[Any, list[str]]:
    """The weights of all tasks as the paper's authors compose them, with the names of their axes.

    From the first factor (the core of a Tucker) on, each next factor is multiplied by all that it shares
    with what is there: ``core x_1 U_1 x_2 U_2 ...`` and ``U_1 U_2 ... U_T``.
    """
    nodes = network.nodes
    result, axes = factors[0], list(nodes[0].axes)
    for node, factor in zip(nodes[1:], factors[1:], strict=True):
        joined = [axis for axis in axes if axis in node.axes]
        dims = [axes.index(axis) for axis in joined], [node.axes.index(axis) for axis in joined]
        result = tensordot(result, factor, dims)
        axes = [a for a in axes if a not in joined] + [a for a in node.axes if a not in joined]
    return result, axes


def optimal(network: Network) -> tuple[Callable[..., Any], int]:
    """opt_einsum's optimal expression of a contraction, and the bytes of its largest intermediate."""
    shapes = [node.shape for node in network.nodes]
    expression = opt_einsum.contract_expression(network.equation, *shapes, optimize="optimal")
    return expression, largest(network, "optimal")


def largest(network: Network, path: str = "auto") -> int:
    """Bytes of the largest intermediate along a path."""
    shapes = [node.shape for node in network.nodes]
    info = opt_einsum.contract_path(network.equation, *shapes, shapes=True, optimize=path)[1]
    return NUMBER * int(info.largest_intermediate)
