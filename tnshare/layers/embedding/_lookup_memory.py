"""Convolutions and embeddings within a limit of memory: what is alive at once, how many rows at a time.

The bounds are simple and on the safe side: the parts of a call (what is contracted before, the kernels, the
convolution, what is contracted behind) are counted as if the most that each needs were alive together.
"""

from __future__ import annotations

import math

from tnshare.planning._peak_memory import _gradients, _peak

from ._lookup_candidates import LookupCandidate, LookupJob, holder


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
