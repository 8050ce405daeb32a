"""What several tests draw: devices of all kinds, and numbers for the operands of a network."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from tnshare.network import Network
from tnshare.planning import IDS, Profile
from tnshare.planning.devices._profile import GRID, SIZES


class Device(Profile):
    """A profile whose tables are not shown when a test fails."""

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(f"Device(call={self.call}, view={self.view}, ...)")


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    """Devices of all kinds: for some calls are free, for some bytes; every order is the best for one."""
    size = st.floats(1e-9, 1.0)
    return some_profile(draw(size), draw(size), draw(size), draw(size), draw(st.integers(0, 999)))


def some_profile(call: float, view: float, passing: float, turning: float, seed: int) -> Profile:
    """Seconds of a call, a view, a byte passed over, a byte turned; the speed of products is by chance."""
    rng = np.random.default_rng(seed)
    rates = [tuple(np.exp(rng.uniform(0, 20, 4 * len(GRID) ** 3)).tolist()) for _ in range(2)]
    passes = [(1 / seconds,) * len(SIZES) for seconds in (passing, turning)]
    return Device("any", "drawn", call, view, *passes, *rates)


def arrays_of(network: Network, seed: int = 0) -> tuple[list[Any], dict[str, np.ndarray]]:
    """Operands for a plan, and the same as arrays by name: ids are rows of zeros with a one at the task."""
    rng = np.random.default_rng(seed)
    arrays = {node.name: rng.standard_normal(node.shape) for node in network.nodes}
    operands: list[Any] = list(arrays.values())
    for n, node in enumerate(network.nodes):
        if node.name == IDS:
            *tasks, rows = node.shape
            operands[n] = tuple(rng.integers(0, size, rows) for size in tasks)
            arrays[IDS] = np.zeros(node.shape)
            arrays[IDS][(*operands[n], np.arange(rows))] = 1
    return operands, arrays
