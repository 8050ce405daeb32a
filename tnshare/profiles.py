"""Devices known by name: what a plan is made for where none has been measured."""

from __future__ import annotations

from .cost import Profile
from .errors import TnshareError

# Gigaflops a second over GRID x GRID x GRID (rows, inner, columns), the best of four measurements.
_CPU_RATES = """
    0.00429 0.0171 0.0687 0.269 1.07 4.09 0.0172 0.0683 0.274 1.08 4.22 16 0.0687 0.273 1.09 4.23 15.9 24.2
    0.272 1.07 4.26 16.1 23.4 25.5 1.02 4.04 15.8 21.3 25.8 22.4 1.44 5.38 19 23.5 19.4 24.8
    0.0174 0.0678 0.269 1.06 4.16 14.9 0.0686 0.263 1.01 3.95 10.5 19.4 0.275 1.05 4 13.2 25 28.3
    1.09 3.93 13 25.8 35.9 23.6 4.32 5.24 26.6 36.4 39.4 24.9 16.4 5.4 39.1 39.8 36.1 27.1
    0.069 0.264 1.06 4.16 15.4 20 0.275 1.02 4 13.4 23.9 20.2 1.1 3.92 15.1 32.4 47.3 49.7
    4.29 5.38 31.5 51.3 60.7 48.4 16.2 5.48 48.5 60.4 63.3 52.8 26.8 5.54 57 61.5 62.3 55.2
    0.271 1.01 4.03 11.9 17.7 21.2 1.07 2.41 12.6 25 32.3 12.7 4.16 5.57 32.1 51.1 60.7 55.7
    15.7 6.27 51.1 67.5 71.4 68.4 22.4 5.67 60.3 71.6 75.9 73.1 26.8 5.54 61.6 72.7 76.5 72.4
    1.04 1.59 6.44 14 19.4 19.1 4.01 3.08 22.7 32.8 36.8 12.7 8.98 6.54 47.1 60.5 64.1 60.5
    17.4 6.5 61.2 71.3 76.7 76.3 24.4 5.69 62 75.9 79.7 78.3 23.2 5.55 60.5 76 80.5 80.5
    2.92 1.7 7.29 14.8 17.6 21.1 5.08 3.28 30.3 36.5 31.4 14.7 9.77 6.54 53.9 61.9 64 62.6
    18.8 6.52 61.7 73.2 77.3 77.6 19.1 5.68 58.7 75.3 80.8 80.8 24.2 5.57 59.8 74.3 80.8 80.8
"""

PROFILES = {
    profile.name: profile
    for profile in (
        Profile(
            "cpu",
            "measured with tnshare.cost.measure: torch 2.13, one thread of an AMD EPYC server, float32; "
            "bandwidths are medians of three that differed by 1.7 and 3 times",
            call=4.6e-06,
            item=1.3e-07,
            bandwidth=2.5e10,
            turning=3.2e09,
            rates=tuple(1e9 * float(rate) for rate in _CPU_RATES.split()),
        ),
        Profile.roofline(
            "a100",
            peak=19.5e12,
            bandwidth=2.04e12,
            call=5e-6,
            source="NVIDIA's data sheet of the A100 80 GB SXM: FP32 without tensor cores; a guess for a call",
        ),
        Profile.roofline(
            "h100",
            peak=67e12,
            bandwidth=3.35e12,
            call=5e-6,
            source="NVIDIA's data sheet of the H100 SXM: FP32 without tensor cores; a guess for a call",
        ),
    )
}


def profile(name: str) -> Profile:
    """The device of that name."""
    if name not in PROFILES:
        raise TnshareError(f"no device is called {name!r}: expected one of {tuple(PROFILES)}")
    return PROFILES[name]
