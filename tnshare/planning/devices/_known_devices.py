"""Devices known by name or measured before: what plans are made for."""

from __future__ import annotations

import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path

from tnshare.errors import TnshareError
from tnshare.ops import Array, Ops

from . import _cache_folder as store
from . import _profile_tables as tables
from ._measuring import measure
from ._profile import Profile

_KIND = "profile"  # in the store
_CUDA = ("a100", "h100")  # as they occur in "NVIDIA A100-SXM4-80GB"


def _nvidia(name: str, sheet: str, peak: float, bandwidth: float) -> Profile:
    source = f"NVIDIA's data sheet of the {sheet}: FP32 without tensor cores; a guess for a call"
    return Profile.roofline(name, peak=peak, bandwidth=bandwidth, call=5e-6, source=source)


PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "cpu",
            "measured with tnshare.planning.measure, the best of three: torch 2.13, one thread of an AMD "
            "EPYC server (Zen 4), float32; bandwidths are medians",
            *tables.read(tables.CPU),
        ),
        Profile(
            "cpu-jax",
            "measured with tnshare.planning.measure, the best of two: jax 0.10.2, compiled, one thread of an "
            "AMD EPYC server (Zen 4), float32; bandwidths are means",
            *tables.read(tables.CPU_JAX),
        ),
        Profile.roofline(
            "laptop",
            peak=8 * 3.3e9 * 32,
            bandwidth=7.5e9 * 16,
            call=2e-6,
            source="published figures of the AMD Ryzen 7 7840U: 8 Zen 4 cores at a base clock of 3.3 GHz, 32 "
            "FP32 flops a clock (two 256-bit FMA), 128 bit of LPDDR5X-7500; a guess for a call",
        ),
        _nvidia("a100", "A100 80 GB SXM", peak=19.5e12, bandwidth=2.04e12),
        _nvidia("h100", "H100 SXM", peak=67e12, bandwidth=3.35e12),
    )
}


@dataclass(frozen=True)
class Device:
    """What a measurement is valid for: all that changes the speed of operations."""

    framework: str
    version: str
    kind: str  # "cpu", "cuda", ...
    model: str
    threads: int


def profile(name: str) -> Profile:
    """The device of that name."""
    if name not in PROFILES:
        raise TnshareError(f"no device is called {name!r}: expected one of {tuple(PROFILES)}")
    return PROFILES[name]


@lru_cache(maxsize=256)
def profile_for(device: Device) -> Profile:
    """The profile measured on exactly this device, or else the named one that its model says it is."""
    try:
        return Profile.from_json(store.read(_KIND, asdict(device)))
    except TnshareError:  # there is none, or it is damaged
        pass
    model = device.model.lower()
    for name in _CUDA if device.kind == "cuda" else ():
        if name in model:
            return PROFILES[name]
    if device.kind == "cuda":
        return PROFILES["a100"]  # more like the device than any processor
    return PROFILES["cpu-jax" if device.framework == "jax" else "cpu"]


def calibrate(
    ops: Ops[Array],
    device: Device,
    *,
    wait: Callable[[Array], object] | None = None,
    jit: Callable[[Callable[..., Array]], Callable[..., Array]] | None = None,
    seconds: float = 10,
    progress: Callable[[int, int], None] | None = None,
) -> Profile:
    """Measure a device (see `measure`) and keep the profile for `profile_for`, on disk too."""
    name = f"{device.framework} {device.version}, {device.model}, {device.threads} thread(s)"
    found = measure(ops, name, wait=wait, jit=jit, seconds=seconds, progress=progress)
    store.write(_KIND, asdict(device), found.to_json())
    profile_for.cache_clear()
    return found


def cpu_model() -> str:
    """What the processor is called, as far as the system says."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, named), "") or platform.processor() or platform.machine()
