"""Improve a Tucker decomposition by higher-order orthogonal iteration, with TensorLy."""

from __future__ import annotations

import math

import numpy as np

from tnshare.ops import NDArray

from ._balancing import Factors, Spectrum
from ._splitting import Split
from ._truncated_svd import peel


def hooi(parts: Split, stack: NDArray) -> Split:
    """Iterate from a split, which is left as it is; the caller keeps whichever is better."""
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


def _iterate(
    stack: NDArray, ranks: list[int], start: tuple[NDArray, list[NDArray]]
) -> tuple[NDArray, list[NDArray]]:
    import tensorly
    from tensorly.decomposition import tucker

    tensorly.set_backend("numpy", local_threadsafe=True)
    core, matrices = tucker(stack, ranks, init=start, n_iter_max=50, tol=1e-8)
    return np.ascontiguousarray(core), [np.asarray(matrix) for matrix in matrices]
