"""Spread the scale of a network evenly over its factors, so that training moves all of them alike."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np

from tnshare.network import Network
from tnshare.ops import NDArray

Factors = dict[str, NDArray]
# The node that has orthonormal columns along a bond, and the bond's singular values, falling.
Spectrum = tuple[str, NDArray]

# Below this fraction of the largest, a singular value counts as zero: halving it would silence both sides.
_NEGLIGIBLE = 1e-6


def balance_bonds(network: Network, factors: Factors, spectra: Mapping[str, Spectrum]) -> None:
    """Give the square root of each singular value to either side of its bond, in place."""
    for bond, (peeled, values) in spectra.items():
        if values[0] == 0:
            continue
        root = np.sqrt(np.maximum(values, _NEGLIGIBLE * values[0]))
        (other,) = (name for name in network.bonds[bond] if name != peeled)
        factors[peeled] *= along_bond(network, peeled, bond, root)
        factors[other] *= along_bond(network, other, bond, 1 / root)


def equalise_norms(factors: Factors, names: Collection[str], scale: float = 1.0) -> None:
    """One scalar for each named factor, in place: equal Frobenius norms, and a product larger by ``scale``.

    If one of them is zero, there is no scale to spread: the others keep theirs, so that gradients can flow.
    """
    norms = {name: float(np.linalg.norm(factors[name])) for name in names}
    if scale <= 0 or not all(norms.values()):
        return
    target = math.exp((math.log(scale) + sum(map(math.log, norms.values()))) / len(norms))
    for name, norm in norms.items():
        factors[name] *= target / norm


def along_bond(network: Network, name: str, bond: str, values: NDArray) -> NDArray:
    """One number for each index of the bond, ready to multiply the factor of that name."""
    return values.reshape([-1 if axis == bond else 1 for axis in network.node(name).axes])
