"""A framework on a device, with as many threads as asked for."""

from __future__ import annotations

import os
from typing import Any

from .common import not_here, number_of


def fix_threads(threads: int, backend: str) -> None:
    """As many threads as asked for, in every library; JAX must be told before it is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    if backend == "jax":
        eigen = "true" if threads > 1 else "false"
        os.environ["XLA_FLAGS"] = (
            f"--xla_cpu_multi_thread_eigen={eigen} intra_op_parallelism_threads={threads}"
        )
        if hasattr(os, "sched_setaffinity"):  # its pool has a thread for each core that it may use
            allowed = sorted(os.sched_getaffinity(0))
            os.sched_setaffinity(0, set(allowed[-threads:]))
        return
    import torch

    torch.set_num_threads(threads)


def make_bench(backend: str, device: str, limit: int = 2**30) -> Any:
    """A framework on a device, which must be here; what needs more bytes than ``limit`` is left out."""
    if backend == "jax":
        if device == "cpu":
            os.environ.setdefault("JAX_PLATFORMS", "cpu")
        from . import in_jax

        return in_jax.Bench(device, limit)
    import torch

    from . import in_torch

    if device.startswith("cuda"):
        number = number_of(device)
        if not torch.cuda.is_available() or number >= torch.cuda.device_count():
            raise not_here("torch", torch.__version__, device)
        torch.cuda.set_device(number)  # of which events and statistics of memory are
    return in_torch.Bench(device, limit)
