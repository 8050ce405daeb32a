"""Convolutions and embeddings within a limit of memory: what is alive at once, how many rows at a time.

The bounds are simple and on the safe side: the parts of a call (what is contracted before, the kernels, the
convolution, what is contracted behind) are counted as if the most that each needs were alive together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from .chain import Chain
from .convolve import BLOCK, ConvCandidate, ConvJob
from .errors import TnshareError
from .lookup import LookupCandidate, LookupJob, holder
from .memory import peak
from .network import Network
from .parts import largest_part
from .plan import Plan
from .ways import GROUP


class Timed(Protocol):
    """A candidate."""

    @property
    def seconds(self) -> float: ...


Some = TypeVar("Some", bound=Timed)
_WORK = 16384  # bytes of work space that a library may take for a convolution, however small it is
_AGAIN = 1.4  # what is computed again in the backward pass takes so much longer


def fitting(
    found: Sequence[Some], rows: int, limit: int, needed: Callable[[Some, int], int]
) -> tuple[Some, int]:
    """The fastest candidate within a limit of bytes, and how many rows it takes at a time; 0 for all.

    ``needed`` gives the bytes of a candidate for so many of the rows at a time.
    """
    rows = max(rows, 1)
    within: list[tuple[float, int, Some, int]] = []
    for candidate in found:
        size = largest_part(rows, partial(needed, candidate), limit)
        if size:
            slower = 1 if size == rows else _AGAIN * (1 + 0.02 * rows / size)
            within.append((candidate.seconds * slower, len(within), candidate, size))
    if not within:
        smallest = min(needed(candidate, size) for candidate in found for size in (rows, 1))
        raise TnshareError(
            f"memory_limit={limit} is too little for {rows} rows: the smallest that works is {smallest} bytes"
        )
    _, _, chosen, size = min(within)
    return chosen, size % rows


def conv_bytes(job: ConvJob, candidate: ConvCandidate, rows: int, part: bool, itemsize: int) -> int:
    """A bound on the bytes alive at once for so many rows, which are all or a part of them."""
    layer, geometry, chain, training = job.layer, job.layer.geometry, candidate.chain, job.training
    sizes, tasks = chain.network.sizes, job.tasks
    images = rows * (tasks if job.way == "each" else 1)
    outputs = images * (tasks if job.way == "fan_out" else 1)
    places, results = math.prod(job.sizes), math.prod(geometry.places(job.sizes))
    padded = math.prod(n + sum(ends) for n, ends in zip(job.sizes, geometry.padding, strict=True))
    inputs = geometry.groups * math.prod(sizes[axis] for axis in chain.inputs)
    columns = math.prod(sizes[axis] for axis in chain.outputs)
    present = {"one": 1, "mixed": min(rows, tasks) if job.concrete else rows}.get(job.way, tasks)
    kernels = (1 if chain.late else present) * columns * inputs // geometry.groups * math.prod(layer.kernel)
    convolved = (images if chain.late else outputs) * columns * results
    own = outputs * layer.out_channels * results
    # The rows of a task or of several side by side, padded; and the windows that some libraries write down.
    alive = images * inputs * _copies(job, chain) * places + images * inputs * (padded - places) * 2
    alive += rows * inputs * math.prod(layer.kernel) * results
    # In the order of groups; of each task, put together, and in the order of rows.
    alive += kernels * (4 if training else 2) + convolved * (3 if training else 2)
    alive += own * (2 if training else 1) + outputs * layer.out_channels
    # Libraries bring channels into blocks, kernels twice (oneDNN, of few channels).
    groups = geometry.groups
    blocks = [BLOCK * math.ceil(channels / groups / BLOCK) for channels in (inputs, columns)]
    blocked = (1 if chain.late else present) * math.prod(blocks) * (2 * math.prod(layer.kernel) + 1)
    blocked += images * blocks[0] * places + (images if chain.late else outputs) * blocks[1] * results
    alive += groups * blocked * (2 if training else 1)
    if training:
        alive += _gradients(layer.network, part) + tasks * layer.bias_size
    spread = {"b": images * geometry.groups, "m": places}
    alive += 0 if candidate.before is None else _peak(candidate.before, spread, training, part)
    spread = {"b": rows if chain.late else outputs, "m": results}
    alive += 0 if candidate.after is None else _peak(candidate.after, spread, training, part)
    alive += _peak(candidate.kernels, {GROUP: present}, training, part)
    if part:
        alive += own + images * layer.in_channels * places * (2 if training else 1)
    return alive * itemsize + _WORK


def _copies(job: ConvJob, chain: Chain) -> int:
    """How many times the input of the convolution is alive, with its gradients."""
    several = not chain.late and job.way in ("each", "mixed")
    copies = (
        bool(chain.before) + several + (several and job.way == "mixed") + (job.layer.geometry.mode != "zeros")
    )
    return copies + (2 if job.training else 0)


def lookup_bytes(job: LookupJob, candidate: LookupCandidate, rows: int, part: bool, itemsize: int) -> int:
    """The same for an embedding; rows are tokens, or of mixed tasks rows of tokens."""
    layer, network, training = job.layer, job.layer.network, job.training
    tasks = math.prod(network.task_shape)
    tokens = rows * (job.inner or 1) * (tasks if job.way == "each" else 1)
    own = tokens * (tasks if job.way == "fan_out" else 1) * layer.embedding_dim
    spread = {"b": rows} if job.inner is None else {"b": rows, "m": job.inner}
    if candidate.table:
        whole = math.prod(candidate.plan.network.shape)
        alive = _peak(candidate.plan, {}, training, part) + whole * (2 if training else 1)
    else:
        whole = math.prod(holder(network).shape)
        width = whole // layer.num_embeddings
        alive = _peak(candidate.plan, spread, training, part) + tokens * width * (2 if training else 1)
        if training and holder(network).axes[0] != "n":
            alive += whole  # its gradient, with tokens first
    alive += own * (3 if training else 1) * (1 if layer.padding_idx is None else 2)
    alive += _gradients(network, part) if training else 0
    indices = 8 * tokens * (1 + 2 * len(network.tasks)) * (2 if training else 1)  # of 8 bytes each
    return (alive + (own if part else 0)) * itemsize + indices


def _peak(plan: Plan, spread: dict[str, int], training: bool, part: bool) -> int:
    return peak(plan, {**plan.network.sizes, **spread}, training=training, part=part)


def _gradients(network: Network, part: bool) -> int:
    """Of factors: of a part, before they are added to the others'; of tasks, before they are put together."""
    own = sum(math.prod(node.shape) for node in network.nodes if set(node.axes) & set(network.tasks))
    return own + (network.parameters if part else 0)
