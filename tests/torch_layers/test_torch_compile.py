"""torch.compile, torch.export, strategies: the numbers of a plain call, with nothing measured or kept."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tnshare as tn
import tnshare.execution._timing
from tnshare.execution import fixed_axes

torch = pytest.importorskip("torch")
tnt = pytest.importorskip("tnshare_torch")
testing = pytest.importorskip("torch._dynamo.testing")

T = 5
TWO = {"site": 2, "user": 3}
LAYOUTS = {
    "laf": (T, tn.LAF(2)),
    "tucker": (T, tn.Tucker((3, 3, 2))),
    "frozen": (T, tn.LAF.evgeniou_pontil(T)),
    "two": (TWO, tn.TT((2, 2, 2))),
}
WAYS = ("one", "mixed", "each", "fan_out")
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def _forget_what_was_compiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def make(layout="tucker", **options):
    tasks, spec = LAYOUTS[layout]
    return tnt.Linear(6, 4, tasks, spec, **{"seed": 1, "dtype": torch.float64, "plan_for": (1, 8), **options})


def caller(layer, way):
    """The call as a function of x and ids."""
    one = (1, 2) if len(layer.description.task_shape) > 1 else 3
    return {
        "one": lambda x, ids: layer(x, one),
        "mixed": lambda x, ids: layer(x, ids),
        "each": lambda x, ids: layer(x),
        "fan_out": lambda x, ids: layer.fan_out(x),
    }[way]


def inputs(layer, way, *lead):
    torch.manual_seed(sum(lead))
    tasks = layer.description.task_shape
    x = torch.randn(*(tasks if way == "each" else ()), *lead, 6, dtype=next(layer.parameters()).dtype)
    ids = torch.stack([torch.randint(size, (lead[0],)) for size in tasks], 1)
    return x, ids[:, 0] if len(tasks) == 1 else ids


def everything(function, layer, x, ids):
    """What a call gives, with all gradients."""
    layer.zero_grad()
    x = x.detach().requires_grad_()
    y = function(x, ids)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(parameter.grad for parameter in layer.parameters())]


def same(found, wanted):
    return all(
        a.shape == b.shape and torch.allclose(a, b, atol=1e-9) for a, b in zip(found, wanted, strict=True)
    )


def compiled(layer, way, **options):
    counter = testing.CompileCounter()
    return torch.compile(caller(layer, way), fullgraph=True, backend=counter, **options), counter


@every_way
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_compiled_call_gives_the_numbers_of_an_eager_one(layout, way):
    layer = make(layout)
    function, counter = compiled(layer, way)
    for lead in ((7,), (7, 2)) if layout in ("tucker", "two") else ((7,),):
        call = inputs(layer, way, *lead)
        assert same(everything(function, layer, *call), everything(caller(layer, way), layer, *call))
        with torch.no_grad():
            assert same([function(*call)], [caller(layer, way)(*call)])
    assert 1 <= counter.frame_count <= 4


@every_way
@settings(max_examples=2)
@given(data=st.data())
def test_one_graph_serves_batches_of_all_sizes(way, data):
    torch._dynamo.reset()
    layer = make()
    function, counter = compiled(layer, way, dynamic=True)
    for rows in data.draw(st.lists(st.integers(1, 300), min_size=3, max_size=6)):
        call = inputs(layer, way, rows)
        assert same(everything(function, layer, *call), everything(caller(layer, way), layer, *call))
    assert counter.frame_count <= 2  # sizes 0 and 1 are graphs of their own


def plainly(layer, way, x, ids):
    """The outputs by composed weights."""
    weights, bias = layer.weight(), layer.bias
    if way == "one":
        return x @ weights[3].T + bias[3]
    if way == "mixed":
        return torch.einsum("bi,boi->bo", x, weights[ids]) + bias[ids]
    return x @ weights.mT + bias[:, None]


@pytest.mark.parametrize(("way", "first"), [*((way, 1) for way in WAYS), ("mixed", 300)])
def test_two_graphs_serve_every_batch_from_1_to_300(way, first):
    """One row is a graph of its own, as torch would have it, whichever comes first."""
    layer = make().requires_grad_(False)
    function, counter = compiled(layer, way, dynamic=True)
    for rows in range(1, 301) if first == 1 else range(300, 0, -1):
        call = inputs(layer, way, rows)
        assert same([function(*call)], [plainly(layer, way, *call)]), rows
        if rows == 2:
            assert counter.frame_count == (2 if first == 1 else 1)
    assert counter.frame_count == 2


@every_way
def test_a_graph_may_be_differentiated_ahead_of_time(way):
    layer = make()
    function = torch.compile(caller(layer, way), fullgraph=True, backend="aot_eager")
    call = inputs(layer, way, 7)
    assert same(everything(function, layer, *call), everything(caller(layer, way), layer, *call))


def test_the_task_may_be_traced():
    layer = make()
    function, counter = compiled(layer, "mixed", dynamic=True)
    x, _ = inputs(layer, "mixed", 7)
    for ids in (torch.arange(7) % T, torch.zeros(7, dtype=torch.int64), torch.full((7,), 4)):
        assert same([function(x, ids)], [layer(x, ids)])
    assert counter.frame_count == 1
    one = torch.compile(layer, fullgraph=True, backend=counter)
    assert same([one(x, torch.tensor(2)), one(x, torch.tensor(4))], [layer(x, 2), layer(x, 4)])
    assert counter.frame_count == 2, "a task that is a tensor is no constant"


@every_way
def test_nothing_is_timed_while_compiling(way, monkeypatch):
    def fail(*_):
        raise AssertionError("timed")

    monkeypatch.setattr(tnshare.execution._timing, "time_in_rounds", fail)
    monkeypatch.setattr(tnshare.execution._timing.store, "read", lambda *_: None)
    layer = make(strategy="autotune")
    call = inputs(layer, way, 7)
    with pytest.raises(AssertionError, match="timed"):
        caller(layer, way)(*call)
    function, _ = compiled(layer, way)
    assert same([function(*call)], [caller(make(), way)(*call)])


@every_way
def test_compiled_inference_keeps_nothing_and_is_never_stale(way):
    layer = make().eval()
    function, counter = compiled(layer, way)
    call = inputs(layer, way, 7)
    with torch.no_grad():
        for _ in range(3):
            assert same([function(*call)], [caller(make().train(), way)(*call)]) is (_ == 0)
            assert len(layer._kept) == 0
            fresh = make().train()
            fresh.load_state_dict(layer.state_dict())
            assert same([function(*call)], [caller(fresh, way)(*call)])
            for parameter in layer.parameters():
                parameter.add_(1)
    assert counter.frame_count == 1


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_call_of_one_task_can_be_exported(layout):
    layer = make(layout).eval()
    x, ids = inputs(layer, "one", 7)
    task = (1, 2) if layout == "two" else 3
    rows = torch.export.Dim("rows", min=2, max=4096)
    program = torch.export.export(
        layer, (x, task), dynamic_shapes=({0: rows}, (None, None) if layout == "two" else None)
    )
    for count in (7, 2, 100):
        x, ids = inputs(layer, "one", count)
        assert same([program.module()(x, task)], [layer(x, task)])
    mixed = torch.export.export(layer, (x, ids), dynamic_shapes=({0: rows}, {0: rows}))
    x, ids = inputs(layer, "mixed", 9)
    assert same([mixed.module()(x, ids)], [layer(x, ids)])


@every_way
def test_a_limit_is_not_promised_where_it_cannot_be_kept(way):
    layer = make(memory_limit=10**6)
    with pytest.raises(Exception, match="memory_limit is a promise that only eager calls can keep"):
        compiled(layer, way)[0](*inputs(layer, way, 7))


def test_a_candidate_of_another_layer_or_way_is_refused():
    layer = make()
    first, *_ = layer.description.candidates("fan_out", 8)
    other = make(strategy=first)
    x = torch.randn(8, layer.description.in_features, dtype=layer.U_i.dtype)
    assert other.fan_out(x).shape[1] == 8
    with pytest.raises(
        tn.TnshareError, match="is for another layer, or not for rows of one task: take one of"
    ):
        other(x, 0)
    alien = tn.Linear(3, 3, tasks=2, spec=tn.LAF(1)).candidates("fan_out", 8)[0]
    with pytest.raises(tn.TnshareError, match="is for another layer"):
        make(strategy=alien).fan_out(x)


@every_way
@pytest.mark.parametrize("layout", ["laf", "tucker", "two"])
def test_every_strategy_gives_the_same_numbers(layout, way, monkeypatch):
    monkeypatch.setattr(tnshare.execution._timing, "_SECONDS", 0.0)
    monkeypatch.setattr(tnshare.execution._timing.store, "read", lambda *_: None)
    monkeypatch.setattr(tnshare.execution._timing.store, "write", lambda *_: None)
    plain = make(layout)
    call = inputs(plain, way, 7)
    wanted = everything(caller(plain, way), plain, *call)
    for strategy in ("factored", "materialised", "autotune"):
        layer = make(layout, strategy=strategy)
        assert same(everything(caller(layer, way), layer, *call), wanted)
        layer.eval()
        with torch.no_grad():
            assert same([caller(layer, way)(*call) for _ in range(2)], wanted[:1] * 2)


@every_way
def test_a_candidate_forces_itself(way):
    layer = make()
    calls, call = layer._calls, inputs(layer, way, 8)
    job = calls.job(way, (8,), training=True, keep=False, concrete=True)
    found = calls.options(job, calls.profile(call[0]))
    assert len(found) > 1
    wanted = everything(caller(layer, way), layer, *call)
    for candidate in found:
        forced = make(strategy=candidate)
        assert same(everything(caller(forced, way), forced, *call), wanted)
        assert candidate.plan.source(fixed_axes(candidate.plan)) in forced.source(8, way)


BAD = [
    ({"strategy": "fast"}, r"strategy must be one of \('auto', .* found 'fast'"),
    ({"strategy": None}, "strategy must be one of .* found None"),
    ({"memory_limit": -1}, "memory_limit must be a whole number of at least 0: found -1"),
    ({"memory_limit": 1.5}, "memory_limit must be a whole number of at least 0: found 1.5"),
    ({"memory_limit": "1GB"}, "memory_limit must be a whole number of at least 0: found '1GB'"),
    ({"plan_for": ()}, r"plan_for must be one or more numbers of rows: found \(\)"),
    ({"plan_for": 16}, "plan_for must be one or more numbers of rows: found 16"),
    ({"plan_for": "16"}, "plan_for must be one or more numbers of rows: found '16'"),
    ({"plan_for": (0,)}, "plan_for must be a whole number of at least 1: found 0"),
    ({"plan_for": (1, 1.5)}, "plan_for must be a whole number of at least 1: found 1.5"),
]


@pytest.mark.parametrize(("options", "text"), BAD, ids=[str(options) for options, _ in BAD])
def test_bad_arguments_are_told(options, text):
    with pytest.raises(tn.TnshareError, match=text):
        make(**options)
