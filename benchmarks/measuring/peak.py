"""The peak memory of a function: all of it, not only what Python's own allocator sees."""

from __future__ import annotations

import gc
import os
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")


def peak_memory(function: Callable[[], object]) -> tuple[int, str]:
    """Bytes at the peak beyond those in use before, and how they were measured.

    On Linux the kernel's high-water mark of the process, which includes what LAPACK allocates; elsewhere
    Python's tracemalloc, which does not.
    """
    gc.collect()
    if _STATUS.exists() and _CLEAR.exists():
        before = status("VmRSS")
        _CLEAR.write_text("5")  # sets the mark back to what is in use now
        function()
        return status("VmHWM") - before, "resident memory of the process"
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1], "tracemalloc, without LAPACK's work space"
    finally:
        tracemalloc.stop()


def peak_bytes(function: Callable[[], object]) -> int:
    """The most bytes of torch's tensors on the CPU that were alive at once, beyond those of before.

    Tensors that the function returns, also in tuples and lists, are excused; of a view its own numbers,
    not all of the memory behind it.
    """
    import torch

    activities = [torch.profiler.ProfilerActivity.CPU]
    with _silent(), torch.profiler.profile(activities=activities, profile_memory=True) as run:
        result = function()
    excused: dict[int, int] = {}  # address -> bytes
    for tensor in tensors(result):
        address = tensor.untyped_storage().data_ptr()
        excused[address] = excused.get(address, 0) + tensor.nbytes
    events = list(_allocations(run.profiler.kineto_results.experimental_event_tree()))
    lasting = {address: n for n, (_, address, _) in enumerate(events)}  # the last event at each address
    sizes: dict[int, int] = {}
    alive = most = 0
    for n, (_, address, size) in enumerate(events):
        if size >= 0:
            own = excused.get(address, 0) if lasting[address] == n else 0
            sizes[address] = max(size - own, 0)
            alive += sizes[address]
            most = max(most, alive)
        else:  # what was there before is not known, and does not count
            alive -= sizes.pop(address, 0)
    return most


@contextmanager
def _silent() -> Iterator[None]:
    """The profiler reports its start and stop on the standard error of the process, past Python."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def status(field: str) -> int:
    """What Linux says of the memory of this process, in bytes."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(field + ":"):
            return 1024 * int(line.split()[1])
    raise RuntimeError(f"{_STATUS} has no field {field}")


def tensors(found: Any) -> Iterator[Any]:
    """All tensors in tuples and lists, at any depth."""
    if isinstance(found, tuple | list):
        for part in found:
            yield from tensors(part)
    elif found is not None:
        yield found


def _allocations(events: Iterable[Any]) -> list[tuple[int, int, int]]:
    """Time, address and bytes of every allocation, and with negative bytes of every release."""
    found = []
    todo = list(events)
    while todo:
        event = todo.pop()
        todo += event.children
        if event.name == "[memory]":
            found.append((event.start_time_ns, event.extra_fields.ptr, event.extra_fields.alloc_size))
    return sorted(found, key=lambda event: event[0])
