"""The meter of torch's memory, on allocations that are known."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from benchmarks.measuring.peak import peak_bytes  # noqa: E402


def two_then_three():
    a, b = torch.empty(100, dtype=torch.uint8), torch.empty(200, dtype=torch.uint8)
    del a
    return torch.empty(500, dtype=torch.uint8), [b]


def one_then_another():
    for size in (300, 200):
        torch.empty(size, dtype=torch.uint8)


KNOWN = {
    "nothing": (lambda: None, 0),
    "one after the other": (one_then_another, 300),
    "what is returned is excused": (lambda: torch.empty(100, dtype=torch.uint8), 0),
    "at any depth": (two_then_three, 100),
    "a view excuses its own numbers": (lambda: torch.empty(100, dtype=torch.uint8)[:30], 70),
    "once for every view": (lambda: torch.empty(100, dtype=torch.uint8).split([30, 60, 10])[:2], 10),
    "expanded numbers are no more": (lambda: torch.empty(100, dtype=torch.uint8).expand(9, 100), 0),
    "temporaries of an expression": (lambda: (torch.empty(64).exp() + torch.empty(64)).exp(), 3 * 256),
    "backwards": (
        lambda: torch.ones(64, requires_grad=True).exp().exp().backward(torch.ones(64)),
        6 * 256,
    ),
}


@pytest.mark.parametrize("known", KNOWN)
def test_the_meter_counts_known_allocations(known):
    function, expected = KNOWN[known]
    function()
    assert peak_bytes(function) == expected


def test_the_meter_ignores_what_was_there_before():
    old = [torch.empty(1000)]
    assert peak_bytes(lambda: (old.clear(), torch.empty(10).clone())[1:]) == 40
