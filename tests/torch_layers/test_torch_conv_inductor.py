"""Convolutions compiled by Inductor, for training, with sizes that it does not know."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")
testing = pytest.importorskip("torch._dynamo.testing")
inductor = pytest.importorskip("torch._inductor.graph")

from tolerances import close  # noqa: E402

import tnshare as tn  # noqa: E402

# Inductor itself uses what torch has deprecated, and warns of it.
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
T = 3
CALLS = {
    "one": lambda layer, x: layer(x, 1),
    "folded": lambda layer, x: layer(x[:, None], 1)[:, 0],
    "each": lambda layer, x: layer(torch.stack([x] * T)),
}


@pytest.fixture(autouse=True)
def _compile_anew():
    torch._dynamo.reset()
    with torch._inductor.config.patch(fx_graph_cache=False, compile_threads=1):
        yield
    torch._dynamo.reset()


def conv(dims, spec, **options):
    kind = {1: tnt.Conv1d, 2: tnt.Conv2d}[dims]
    return kind(2, 4, 3, T, spec, padding=1, plan_for=(8,), seed=1, **options)


class _LoweredError(Exception):
    """The graph was understood: what follows is a C++ compiler."""


@pytest.mark.parametrize(("way", "spec"), [("one", tn.Tucker((2, 2, 2, 3, 2))), ("each", tn.LAF(2))])
def test_sizes_may_be_unknown(way, spec, monkeypatch):
    """Inductor asks for the longest stride of a view that it keeps, which is a symbol: it must see none."""

    def stop(_):
        raise _LoweredError

    monkeypatch.setattr(inductor.GraphLowering, "compile_to_module", stop)
    layer = conv(2, spec)
    function = torch.compile(lambda x: CALLS[way](layer, x), fullgraph=True, dynamic=True)
    with pytest.raises(Exception, match="_LoweredError"):
        function(torch.randn(6, 2, 5, 6, requires_grad=True))


def test_one_graph_trains_with_batches_of_all_sizes():
    layer = conv(1, tn.Tucker((2, 2, 3, 2)))
    counter = testing.CompileCounterWithBackend("inductor")

    def call(x):
        return CALLS["folded"](layer, x)

    function = torch.compile(call, fullgraph=True, dynamic=True, backend=counter)
    for rows in (6, 9, 2):  # from 16 on torch convolves otherwise, and compiles again
        x, found = torch.randn(rows, 2, 7), []
        for run in (function, call):
            layer.zero_grad()
            given = x.clone().requires_grad_()
            y = run(given)
            y.square().sum().backward()
            found.append([y.detach(), given.grad, *(p.grad.clone() for p in layer.parameters())])
        for a, b in zip(*found, strict=True):
            close(a, b, 9 * 5 + 24)  # a gradient: rows and places; kernel, squares and bonds
    assert counter.frame_count == 1
