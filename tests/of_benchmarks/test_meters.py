"""The clocks and meters of each framework, on stand-ins for devices that are not here."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
import torch
from tolerances import is_close

from benchmarks.case import Case
from benchmarks.measuring.allocator import give_back, keep_memory
from benchmarks.measuring.meters import CpuMeter, CudaMeter, JaxMeter, Program
from benchmarks.measuring.peak import status
from benchmarks.peers.in_jax import compiled
from benchmarks.peers.in_torch import Bench


class FakeCuda:
    """A device whose work takes time only where it is recorded, and whose memory is counted by hand."""

    def __init__(self):
        self.now, self.pending = 0.0, 0.0  # milliseconds
        self.used = self.most = 1000
        self.log = []

    def Event(self, enable_timing):  # noqa: N802
        assert enable_timing
        return FakeEvent(self)

    def work(self, milliseconds, size=0):
        self.pending += milliseconds
        self.used += size
        self.most = max(self.most, self.used)

    def synchronize(self):
        self.log.append("synchronize")
        self.now, self.pending = self.now + self.pending, 0.0

    def memory_allocated(self):
        return self.used

    def reset_peak_memory_stats(self):
        self.most = self.used

    def max_memory_allocated(self):
        return self.most


class FakeEvent:
    def __init__(self, cuda):
        self.cuda, self.at = cuda, None

    def record(self):
        self.at = self.cuda.now + self.cuda.pending

    def synchronize(self):
        self.cuda.log.append("wait")

    def elapsed_time(self, other):
        return other.at - self.at


def test_cuda_times_are_those_between_events_in_seconds():
    cuda = FakeCuda()
    meter = CudaMeter(cuda)
    cuda.work(500)  # of before: not timed
    training = Program(lambda: cuda.work(3), lambda y: cuda.work(7))
    assert meter.seconds(training) == pytest.approx((0.003, 0.007))
    assert cuda.log == ["synchronize", "wait"]
    assert meter.seconds(Program(lambda: cuda.work(2))) == pytest.approx((0.002, 0.0))


def test_cuda_peaks_leave_out_what_was_there_and_what_is_returned():
    cuda = FakeCuda()
    result = torch.zeros(16)  # 64 bytes

    def forward():
        cuda.work(0, 64)
        cuda.work(0, 300)
        cuda.work(0, -300)
        return [result, result[:4]]  # a view is not counted twice

    assert CudaMeter(cuda).peak(Program(forward)) == 300
    assert CudaMeter(cuda).peak(Program(lambda: None)) == 0


def test_parts_are_timed_apart_on_a_cpu(monkeypatch):
    clock = iter([0.0, 2.0, 7.0, 10.0, 11.0])
    monkeypatch.setattr("benchmarks.measuring.meters.time.perf_counter", lambda: next(clock))
    seen = []
    program = Program(lambda: "y", seen.append)
    assert CpuMeter().seconds(program) == (2.0, 5.0)
    assert seen == ["y"]
    assert CpuMeter().seconds(Program(lambda: None)) == (1.0, 0.0)


def test_peaks_on_a_cpu_are_those_of_both_parts():
    x = torch.ones(256, requires_grad=True)
    program = Program(lambda: x.exp().exp(), lambda y: torch.autograd.grad(y, x, torch.ones(256)))
    assert CpuMeter().peak(program) >= 1024  # the first exp is saved for the backward pass
    assert CpuMeter().peak(Program(lambda: x.detach().exp())) == 0


@pytest.mark.parametrize("meter", [CpuMeter(), CudaMeter(FakeCuda())], ids=["cpu", "cuda"])
def test_what_is_kept_between_calls_is_dropped_before_the_peak(meter):
    log = []
    meter.peak(Program(lambda: log.append("called"), forget=lambda: log.append("forgotten")))
    assert log == ["forgotten", "called"]


def test_weights_that_inference_keeps_count():
    case = Case("tucker", (4, 8, 5), 64, 32, 10, "each", 2, False)
    ours = Bench().apply(case, peers=("dense",))
    layer, dense = ours.run["tnshare materialised"], ours.run["dense"]
    layer()
    assert CpuMeter().peak(layer) >= 4 * 64 * 32 * 10
    assert dense.parameters == 4 * 64 * 32 * 10
    assert layer.parameters == 4 * (4 * 8 * 5 + 64 * 4 + 32 * 8 + 10 * 5)
    assert layer.gradients == dense.gradients == 0
    learnt = Bench().apply(replace(case, training=True), peers=("dense",)).run["dense"]
    assert learnt.gradients == learnt.parameters == dense.parameters


def test_jax_waits_for_arrays_and_knows_what_is_compiled():
    waited = []
    program = Program(lambda: "y", lambda y: f"grad {y}", lambda: SimpleNamespace(temp_size_in_bytes=512))
    meter = JaxMeter(lambda found: waited.append(found) or found)
    forward, backward = meter.seconds(program)
    assert waited == ["y", "grad y"]
    assert forward >= 0
    assert backward >= 0
    assert meter.peak(program) == 512
    with pytest.raises(ValueError, match="not compiled"):
        meter.peak(Program(lambda: None))


def test_a_compiled_program_has_both_parts_and_an_analysis():
    W, x = jnp.ones((64, 8)), jnp.ones((3, 64))
    program = compiled(lambda W, x: jnp.tanh(x @ W), (W, x), tuple, True)
    (y, _), (dW, dx) = program()
    assert y.shape == (3, 8)
    expected = jax.grad(lambda W: jnp.tanh(x @ W).sum())(W)
    assert is_close(dW, expected, 64 + 3)
    assert dx.shape == x.shape
    assert JaxMeter().peak(program) > 0
    assert program.parameters == program.gradients == 4 * 64 * 8
    assert compiled(lambda W, x: x @ W, (W, x), tuple, False).backward is None


def test_memory_is_kept_and_given_back():
    assert keep_memory()
    give_back()  # what other tests have left would be taken again
    before = status("VmRSS")
    block = torch.ones(2**24)
    assert status("VmRSS") - before > 2**25
    del block
    give_back()
    assert status("VmRSS") - before < 2**25
