"""What is alive at once in a call of a convolution.

The bound is simple and on the safe side: the parts of a call (what is contracted before, the kernels, the
convolution, what is contracted behind) are counted as if the most that each needs were alive together.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tnshare.planning import GROUP_AXIS, plan_peak, task_gradients

from ._chains import Chain

if TYPE_CHECKING:
    from ._conv_candidates import ConvCandidate, ConvJob

BLOCK = 16  # output channels that libraries bring together
_WORK = 16384  # bytes of work space that a library may take for a convolution, however small it is


def conv_bytes(job: ConvJob, candidate: ConvCandidate, rows: int, part: bool, itemsize: int) -> int:
    """A bound on the bytes alive at once for so many rows, which are all or a part of them."""
    layer, geometry, chain, training = job.layer, job.layer.geometry, candidate.chain, job.training
    sizes, tasks, plans = chain.network.sizes, job.tasks, candidate.plans
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
        alive += task_gradients(layer.network, part) + tasks * layer.bias_size
    spread = {"b": images * geometry.groups, "m": places}
    alive += plan_peak(plans["before"], spread, training, part) if "before" in plans else 0
    spread = {"b": rows if chain.late else outputs, "m": results}
    alive += plan_peak(plans["after"], spread, training, part) if "after" in plans else 0
    alive += plan_peak(plans["kernels"], {GROUP_AXIS: present}, training, part)
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
