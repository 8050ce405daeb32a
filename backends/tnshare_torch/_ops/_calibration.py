"""Measure a device once, so that plans suit it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import tnshare as tn
from tnshare.checks import positive
from tnshare.ops import NDArray
from tnshare.planning import Profile
from tnshare.planning import calibrate as _calibrate

from ._torch_ops import TorchOps


class _OpsOn(TorchOps):
    """The same operations, with arrays made on a device."""

    def __init__(self, place: torch.device) -> None:
        self.place = place

    def asarray(  # type: ignore[override]
        self, value: NDArray, like: torch.Tensor | None = None
    ) -> torch.Tensor:
        return torch.tensor(value, device=self.place) if like is None else torch.tensor(value).to(like)


def check_device(device: Any) -> None:
    """Refuse what torch knows as no device; None is its default."""
    try:
        torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError):
        raise tn.TnshareError(
            f"device must be one of torch's, as 'cpu' or 'cuda:0': found {device!r}"
        ) from None


def calibrate(
    device: torch.device | str = "cpu",
    *,
    seconds: float = 10,
    progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """Measure a device, with as many threads as torch uses now, and keep the profile in the cache folder.

    Layers that are made or first called from now on are planned by it. ``progress(done, total)`` is called
    after every part. The folder is that of the environment variable TNSHARE_CACHE, or the user's own.
    """
    positive("seconds", seconds)
    check_device("cpu" if device is None else device)
    if torch.device(device).type == "meta":
        raise tn.TnshareError(f"device must be one that computes: found {device!r}")
    if not (progress is None or callable(progress)):
        raise tn.TnshareError(f"progress must be a function (done, total): found {progress!r}")
    ops = _OpsOn(torch.device(device))
    like = torch.empty(1, device=device)
    with torch.no_grad():
        return _calibrate(ops, ops.device(like), wait=ops.wait, seconds=seconds, progress=progress)
