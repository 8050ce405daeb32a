"""Decomposing: its time against the textbook's SVDs, its peak memory in copies of the stack."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import tnshare as tn
from benchmarks.measuring.peak import peak_memory
from benchmarks.measuring.timing import interleave, noise_floor, ratio

SHAPE = (1024, 512, 10)
EPS = 0.1
NDArray = np.ndarray[Any, Any]


def stacks() -> dict[str, NDArray]:
    """Two stacks in float32: tasks that share much, and tasks that share nothing."""
    rng = np.random.default_rng(1)
    return {"aligned": aligned(SHAPE), "random": rng.standard_normal(SHAPE).astype(np.float32)}


def aligned(shape: tuple[int, ...]) -> NDArray:
    """A task mean plus a deviation of 10 % of its norm, as of networks trained from the same initial values.

    The singular values of the deviation fall as 1/k along every axis, but for the mean over tasks, which is
    taken off. The same for the same shape; a single task has no deviation.
    """
    rng = np.random.default_rng(0)
    falling = rng.standard_normal(shape)
    for axis, size in enumerate(shape):
        fall = [size if n == axis else 1 for n in range(len(shape))]
        falling /= np.arange(1, size + 1).reshape(fall)
    rotated = falling
    for size in shape:
        turn = np.linalg.qr(rng.standard_normal((size, size)))[0]
        rotated = np.tensordot(rotated, turn, axes=(0, 0))
    deviation = rotated - rotated.mean(axis=-1, keepdims=True)
    mean = np.broadcast_to(rng.standard_normal(shape[:-1])[..., None], shape)
    stack = mean / np.linalg.norm(mean) + 0.1 * deviation / (np.linalg.norm(deviation) or 1.0)
    return np.asarray(stack, np.float32)


def textbook_svds(stack: NDArray, method: str) -> Callable[[], None]:
    """The SVDs of SVD, HOSVD or TT-SVD alone, on matrices that lie ready in double precision."""
    wide = stack.astype(np.float64)
    if method == "laf":
        matrices = [wide.reshape(-1, stack.shape[-1])]
    elif method == "tucker":
        matrices = [
            np.ascontiguousarray(np.moveaxis(wide, n, 0)).reshape(d, -1) for n, d in enumerate(stack.shape)
        ]
    else:
        rank = tn.decompose(stack, "tt", eps=EPS).spec.ranks[0]
        rest = np.random.default_rng(0).standard_normal((rank * stack.shape[1], stack.shape[2]))
        matrices = [wide.reshape(stack.shape[0], -1), rest]

    def run() -> None:
        for matrix in matrices:
            np.linalg.svd(matrix, full_matrices=False)

    return run


def run(rounds: int) -> list[dict[str, Any]]:
    """A row for each stack and method."""
    rows = []
    for kind, stack in stacks().items():
        for method in ("laf", "tucker", "tt"):

            def ours(stack: NDArray = stack, method: str = method) -> None:
                tn.decompose(stack, method, eps=EPS)

            programs = {"tnshare": ours, "textbook": textbook_svds(stack, method)}
            timings = interleave(programs, rounds=rounds, label=f"decompose {kind} {method}")
            rows.append(
                {
                    "stack": kind,
                    "method": method,
                    "tnshare / textbook SVDs": ratio(timings, "tnshare", "textbook"),
                    "noise floor": noise_floor(timings),
                    "peak memory / stack": _peak(kind, method) / stack.nbytes,
                }
            )
    return rows


def _peak(kind: str, method: str) -> int:
    """In a process of its own, whose memory holds nothing to be used again: freed arrays are given back."""
    code = f"from benchmarks.suites.decompose import measure_peak; print(measure_peak({kind!r}, {method!r}))"
    give_back = {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}
    found = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **give_back},
    )
    return int(found.stdout)


def measure_peak(kind: str, method: str) -> int:
    """Bytes at the peak of one call, beyond those of the stack itself."""
    stack = stacks()[kind]
    tn.decompose(stack[:8, :8], method, eps=EPS)  # imports and work space that every call needs
    return peak_memory(lambda: tn.decompose(stack, method, eps=EPS))[0]
