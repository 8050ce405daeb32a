"""Have the C library keep the memory that it is given back, as the allocators of GPUs do.

By default glibc returns large arrays to the system, or does not, by what was freed before. Asking for them
again costs more than computing them (a page at a time), so the same program takes 2 ms or 36 ms by the
history of the process. Kept memory takes that out of all programs alike.
"""

from __future__ import annotations

import ctypes
import gc
import platform

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4  # of mallopt


def keep_memory() -> str:
    """Ask for it, and say what allocates from now on."""
    if not _is_glibc():
        return "the system's"
    mallopt = ctypes.CDLL(None).mallopt
    done = [mallopt(_MMAP_THRESHOLD, 2**30), mallopt(_TRIM_THRESHOLD, 2**31 - 1), mallopt(_MMAP_MAX, 0)]
    return "glibc, keeping what is freed" if all(done) else "glibc"


def give_back() -> None:
    """Return what is kept, between measurements: a long run would pile it up."""
    gc.collect()
    if _is_glibc():
        ctypes.CDLL(None).malloc_trim(0)


def _is_glibc() -> bool:
    return platform.libc_ver()[0] == "glibc"
