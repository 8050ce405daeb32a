"""The factors of a network, split off a stack by truncated SVDs, refined, and balanced."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tnshare.network import Network, Node, Sizes, Spec
from tnshare.ops import NDArray

from ._stack import StackNorms
from ._truncated_svd import peel

Factors = dict[str, NDArray]
# The node that has orthonormal columns along a bond, and the bond's singular values, falling.
Spectrum = tuple[str, NDArray]

# Below this fraction of the largest, a singular value counts as zero: halving it would silence both sides.
_NEGLIGIBLE = 1e-6


@dataclass(frozen=True)
class Budget:
    """How much of the (scaled) stack may be dropped: a total to be shared out, or the same in every SVD."""

    square: float
    floor: float
    per_svd: bool = False

    def allowed(self, spent: float, parts: int) -> float:
        """What the next SVD may drop; what is left of the budget is shared by the ``parts`` still to come."""
        share = self.square if self.per_svd else (self.square - spent) / parts
        return max(share, self.floor)


@dataclass(frozen=True)
class Split:
    """Factors in double precision, in storage order; all but the remainder have orthonormal columns."""

    spec: Spec
    network: Network
    factors: Factors
    spectra: dict[str, Spectrum]


def peel_factors(
    family: type[Spec],
    stack: NDArray,
    weights: Sizes,
    tasks: Sizes,
    reference: StackNorms,
    budget: Budget,
    ranks: tuple[int, ...] | None = None,
    exact: bool = False,
) -> Split:
    """Factorise a stack, within a budget or with these ranks."""
    bonds = family.bonds((*weights, *tasks))
    wanted = {} if ranks is None else dict(zip(bonds, ranks, strict=True))
    skeleton = _with_ranks(family, (1,) * len(bonds)).build(weights, tasks)
    *nodes, remainder = family.peeling(skeleton)
    axes, sizes = list(skeleton.output), dict(skeleton.sizes)
    work, scale, spent = stack, reference.scale or 1.0, 0.0
    factors: Factors = {}
    spectra: dict[str, Spectrum] = {}
    for n, node in enumerate(nodes):
        rows = [axis for axis in axes if axis in node.axes]
        (bond,) = set(node.axes) - set(rows)
        at = axes.index(rows[0])
        parts = (axes[:at], rows, axes[at + len(rows) :])
        view = work.reshape([math.prod(sizes[axis] for axis in part) for part in parts])
        allowed = budget.allowed(spent, len(nodes) - n)
        # The first SVD reads the user's stack; what it leaves is ours, and all others work in its memory.
        peeled = peel(view, allowed=allowed, rank=wanted.get(bond), exact=exact, scale=None if n else scale)
        sizes[bond] = len(peeled.singular_values)
        factors[node.name] = _stored(node, [*rows, bond], peeled.basis, sizes)
        spectra[bond] = (node.name, peeled.singular_values)
        axes[at : at + len(rows)] = [bond]
        work, spent = peeled.rest, spent + peeled.dropped
    factors[remainder.name] = _stored(remainder, axes, work, sizes)
    spec = _with_ranks(family, tuple(sizes[bond] for bond in bonds))
    return drop_useless_ranks(Split(spec, spec.build(weights, tasks), factors, spectra), weights, tasks)


def drop_useless_ranks(parts: Split, weights: Sizes, tasks: Sizes) -> Split:
    """Lower ranks that later truncations left larger than of any use, losing nothing.

    A bond of rank r whose other side has only m < r entries needs m: an SVD of that side, its own bonds
    weighted by their singular values, gives the m combinations that matter.
    """
    spec, factors, spectra = parts.spec, dict(parts.factors), dict(parts.spectra)
    bonds = spec.bonds((*weights, *tasks))
    while True:
        network = spec.build(weights, tasks)
        maxima = spec.maxima(weights, tasks)
        over = [b for b, rank, most in zip(bonds, spec.ranks, maxima, strict=True) if rank > most]
        if not over:
            return Split(spec, network, factors, spectra)
        bond = over[-1]
        peeled = spectra[bond][0]
        (other,) = (name for name in network.bonds[bond] if name != peeled)
        node = network.node(other)
        weighted = factors[other]
        for held, (holder, values) in spectra.items():
            if holder == other:
                weighted = weighted * along_bond(network, other, held, values)
        at = node.axes.index(bond)
        matrix = np.moveaxis(weighted, at, 0).reshape(weighted.shape[at], -1)
        mix, values, _ = np.linalg.svd(matrix, full_matrices=False)
        factors[other] = _mixed(factors[other], at, mix.conj().T)
        factors[peeled] = _mixed(factors[peeled], network.node(peeled).axes.index(bond), mix.T)
        spectra[bond] = (peeled, values)
        ranks = (len(values) if b == bond else rank for b, rank in zip(bonds, spec.ranks, strict=True))
        spec = _with_ranks(type(spec), tuple(ranks))


def hooi(parts: Split, stack: NDArray) -> Split:
    """Improve a split of Tucker's by higher-order orthogonal iteration, with TensorLy.

    The split that is given is left as it is; the caller keeps whichever is better.
    """
    from concurrent.futures import ThreadPoolExecutor  # here, as `import tnshare` is to be quick

    network = parts.network
    core_node, *bases = network.nodes
    axes = [next(axis for axis in node.axes if axis in network.output) for node in bases]
    ranks = [network.sizes[bond] for bond in parts.spec.bonds(network.output)]
    # TensorLy keeps its backend for each thread, and a thread of our own is the one place where setting it
    # changes nothing for anybody else: its context manager sets the backend of the whole process on leaving.
    tasks = len(network.tasks)
    start = np.moveaxis(parts.factors[core_node.name], range(tasks), range(-tasks, 0))
    matrices = [
        parts.factors[node.name] if node.axes[0] == axis else parts.factors[node.name].T
        for node, axis in zip(bases, axes, strict=True)
    ]
    with ThreadPoolExecutor(max_workers=1) as thread:
        core, matrices = thread.submit(_iterate, stack, ranks, (start, matrices)).result()
    factors: Factors = {}
    spectra: dict[str, Spectrum] = {}
    # The core's own singular vectors turn each bond to its singular basis, losing nothing.
    for n, (node, axis, matrix) in enumerate(zip(bases, axes, matrices, strict=True)):
        (bond,) = set(node.axes) - {axis}
        shape = (math.prod(core.shape[:n]), core.shape[n], math.prod(core.shape[n + 1 :]))
        turned = peel(core.reshape(shape), rank=core.shape[n], exact=True)
        core = np.ascontiguousarray(turned.rest).reshape(core.shape)
        basis = matrix @ turned.basis
        factors[node.name] = basis if node.axes[0] == axis else basis.T.copy()
        spectra[bond] = (node.name, turned.singular_values)
    order = (*range(core.ndim - tasks, core.ndim), *range(core.ndim - tasks))
    factors[core_node.name] = np.ascontiguousarray(core.transpose(order))
    return Split(parts.spec, network, factors, spectra)


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


def _iterate(
    stack: NDArray, ranks: list[int], start: tuple[NDArray, list[NDArray]]
) -> tuple[NDArray, list[NDArray]]:
    import tensorly
    from tensorly.decomposition import tucker

    tensorly.set_backend("numpy", local_threadsafe=True)
    core, matrices = tucker(stack, ranks, init=start, n_iter_max=50, tol=1e-8)
    return np.ascontiguousarray(core), [np.asarray(matrix) for matrix in matrices]


def _with_ranks(family: Any, ranks: tuple[int, ...]) -> Spec:
    spec: Spec = family(ranks)
    return spec


def _stored(node: Node, axes: list[str], array: NDArray, sizes: Sizes) -> NDArray:
    """An array with these axes, in the storage order of the node."""
    return array.reshape([sizes[axis] for axis in axes]).transpose([axes.index(axis) for axis in node.axes])


def _mixed(array: NDArray, axis: int, matrix: NDArray) -> NDArray:
    """A matrix applied to one axis."""
    return np.moveaxis(np.tensordot(matrix, array, axes=(1, axis)), 0, axis)
