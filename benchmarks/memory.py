"""The peak memory of a function: all of it, not only what Python's own allocator sees."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def peak_memory(function: Callable[[], object]) -> tuple[int, str]:
    """Bytes at the peak beyond those in use before, and how they were measured.

    On Linux the kernel's high-water mark of the process, which includes what LAPACK allocates; elsewhere
    Python's tracemalloc, which does not.
    """
    gc.collect()
    if _STATUS.exists() and _CLEAR.exists():
        before = _kilobytes("VmRSS")
        _CLEAR.write_text("5")  # sets the mark back to what is in use now
        function()
        return 1024 * (_kilobytes("VmHWM") - before), "resident memory of the process"
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1], "tracemalloc, without LAPACK's work space"
    finally:
        tracemalloc.stop()


def _kilobytes(field: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1])
    raise RuntimeError(f"{_STATUS} has no field {field}")
