"""What is framework specific about measuring: a clock that knows when work is done, and a meter of memory.

A program has a forward part and, in training, a backward part, which are timed apart. On a CPU work is done
when a call returns; on a CUDA device when an event has been passed; in JAX when an array is ready. Peaks come
from the framework itself: torch.profiler's memory events, CUDA's statistics, or the analysis of the compiled
program. They are bytes beyond those in use before, results not counted, and gradients of parameters counted
as results. What a program keeps from one call to the next is dropped before, so that it counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from .peak import peak_bytes, tensors

Laps = tuple[float, float]  # seconds forwards and backwards; backwards 0 in inference


@dataclass(frozen=True)
class Program:
    """``forward()`` gives outputs; ``backward(outputs)`` the gradients, or there is none in inference.

    ``analyse`` gives the compiled program's own analysis of its memory, where programs are compiled;
    ``forget`` drops what it keeps between calls, if it keeps anything.
    """

    forward: Callable[[], Any]
    backward: Callable[[Any], Any] | None = None
    analyse: Callable[[], Any] | None = None
    parameters: int = 0  # bytes
    forget: Callable[[], None] = lambda: None

    @property
    def gradients(self) -> int:
        """Bytes of the gradients of its parameters."""
        return 0 if self.backward is None else self.parameters

    def __call__(self) -> tuple[Any, Any]:
        """Outputs and gradients."""
        outputs = self.forward()
        return outputs, None if self.backward is None else self.backward(outputs)


class Meter(Protocol):
    """Times programs and finds the most memory that they need at once."""

    memory: str  # how peaks are found
    clock: str  # how times are taken

    def seconds(self, program: Program) -> Laps:
        """Run once: seconds forwards, and backwards."""

    def peak(self, program: Program) -> int:
        """The most bytes alive at once in a run, beyond those of before and of what it returns."""


class CpuMeter:
    """torch on a CPU."""

    clock = "time.perf_counter"
    memory = "torch.profiler's memory events"

    def seconds(self, program: Program) -> Laps:
        start = time.perf_counter()
        outputs = program.forward()
        middle = time.perf_counter()
        if program.backward is None:
            return middle - start, 0.0
        program.backward(outputs)
        return middle - start, time.perf_counter() - middle

    def peak(self, program: Program) -> int:
        program.forget()
        return peak_bytes(program)


class CudaMeter:
    """torch on a CUDA device: events in its stream, and its allocator's statistics."""

    clock = "CUDA events"
    memory = "CUDA's allocator (max_memory_allocated)"

    def __init__(self, cuda: Any = None) -> None:
        if cuda is None:
            import torch

            cuda = torch.cuda
        self.cuda = cuda

    def seconds(self, program: Program) -> Laps:
        start, middle, end = (self.cuda.Event(enable_timing=True) for _ in range(3))
        self.cuda.synchronize()  # what came before is not timed
        start.record()
        outputs = program.forward()
        middle.record()
        if program.backward is not None:
            program.backward(outputs)
        end.record()
        end.synchronize()
        forwards = start.elapsed_time(middle) / 1e3  # from milliseconds
        backwards = middle.elapsed_time(end) / 1e3 if program.backward is not None else 0.0
        return forwards, backwards

    def peak(self, program: Program) -> int:
        program.forget()
        self.cuda.synchronize()
        before = self.cuda.memory_allocated()
        self.cuda.reset_peak_memory_stats()
        found = program()
        self.cuda.synchronize()
        returned = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors(found)}
        most: int = self.cuda.max_memory_allocated() - before - sum(returned.values())
        return max(most, 0)


class JaxMeter:
    """JAX on any device: arrays are waited for; the compiler says what it will allocate."""

    clock = "time.perf_counter, with block_until_ready"
    memory = "memory_analysis() of the compiled program (temporaries)"

    def __init__(self, ready: Callable[[Any], Any] | None = None) -> None:
        if ready is None:
            import jax

            ready = jax.block_until_ready
        self.ready: Callable[[Any], Any] = ready

    def seconds(self, program: Program) -> Laps:
        start = time.perf_counter()
        outputs = self.ready(program.forward())
        middle = time.perf_counter()
        if program.backward is None:
            return middle - start, 0.0
        self.ready(program.backward(outputs))
        return middle - start, time.perf_counter() - middle

    def peak(self, program: Program) -> int:
        if program.analyse is None:
            raise ValueError("the program was not compiled, so nothing is known of its memory")
        return int(program.analyse().temp_size_in_bytes)
