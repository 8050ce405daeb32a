"""What tnshare is compared with computes the same, or says why it is not there."""

from __future__ import annotations

from importlib.util import find_spec

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from test_meters import FakeCuda
from tolerances import close

import tnshare as tn
from benchmarks.case import METHODS, Case, low_ranks, spec_of
from benchmarks.measuring.meters import CpuMeter, CudaMeter
from benchmarks.measuring.rounds import measure
from benchmarks.peers import in_jax, in_torch, tensorly_torch, torch_calls
from benchmarks.peers.common import Programs, left_to_right, said
from benchmarks.peers.conv_in_torch import ConvCase
from benchmarks.peers.conv_in_torch import programs as convolutions
from benchmarks.planner.contestants import groups
from benchmarks.suites import roofline, scale
from benchmarks.suites.scale import per_row
from tnshare.planning import PROFILES

WAYS = ["one", "mixed", "each", "fan_out"]
TERMS = 16 + 12 + 16 + 12 + 5  # x, bonds of full rank; of gradients rows and outputs
OTHER_MODELS = ("dense", "LoRA", "PEFT")  # they have weights of their own
CONV_RANKS = {"laf": (3,), "tucker": (2, 2, 3, 4, 3), "tt": (2, 4, 6, 3)}


def case_of(method, way, *, batch=7, training=True, shape=(16, 12, 5)):
    return Case(method, low_ranks(method, *shape), *shape, way, batch, training)


def expected(case, factors, x, ids):
    """By plain loops over tasks, in NumPy."""
    network = case.layer.network
    W = np.einsum(network.equation, *factors, optimize=True)  # (i, o, task)
    if case.way == "one":
        return x @ W[..., case.task]
    if case.way == "mixed":
        return np.stack([row @ W[..., t] for row, t in zip(x, ids, strict=True)])
    return np.stack([(x[t] if case.way == "each" else x) @ W[..., t] for t in range(case.tasks)])


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("training", [True, False])
def test_programs_in_torch_compute_the_layer(method, way, training):
    case = case_of(method, way, training=training)
    bench = in_torch.Bench()
    torch.manual_seed(0)
    applied = in_torch.Applied(bench, case, in_torch.STRATEGIES, None)
    ids = applied.task.numpy() if way == "mixed" else None
    factors = [f.detach().numpy() for f in applied.factors]
    right = expected(case, factors, applied.x.detach().numpy(), ids)
    names = set(applied.found.run)
    assert {"tnshare", "tnshare factored", "tnshare materialised", "dense", "einsum", "authors"} <= names
    assert ("tltorch reconstructed" in names) == (method != "laf")
    installed = find_spec("peft") is not None
    assert ("PEFT" in names) == (way == "mixed" and not training and installed)
    for name, program in applied.found.run.items():
        y, gradients = program()
        assert y.shape == right.shape, name
        assert (gradients is not None) == training
        if not name.startswith(OTHER_MODELS):
            close(y.detach().numpy(), right, TERMS, what=name)
        if training:
            assert all(g.abs().sum() > 0 for g in gradients), name


def test_what_tensorly_torchs_own_layer_raises_is_noted_and_one_that_works_is_measured(monkeypatch):
    case = case_of("tucker", "each", training=False)
    bench, name = in_torch.Bench(), "tltorch FactorizedLinear"
    assert bench.apply(case).skipped[name] == "raises TypeError: 'int' object is not iterable"
    assert bench.apply(case_of("tt", "each")).skipped[name] == "it takes no TT"

    class Works:
        def __init__(self, i, o, *, factorization, n_layers, **_):
            assert (i, o, n_layers) == ((16,), (12,), 5)
            self.apply = tensorly_torch.one_task("tucker", factorization, "factorized")

        def __call__(self, x, indices):
            return self.apply(x, indices)

    monkeypatch.setattr("tltorch.factorized_layers.FactorizedLinear", Works)
    found = bench.apply(case).run
    close(found[name]()[0], found["tnshare"]()[0], TERMS)


def test_dense_weights_and_adapters_take_the_rows_of_their_tasks():
    x, ids = torch.randn(9, 6), torch.tensor([3, 0, 3, 1, 3, 0, 1, 1, 3])
    W = torch.randn(4, 6, 5)
    right = torch.einsum("bi,bio->bo", x, W[ids])
    close(torch_calls.grouped(x, ids, W), right, TERMS)
    close(torch_calls.looped(x, ids, lambda rows, t: rows @ W[t]), right, TERMS)
    all_present = torch.arange(4)
    close(torch_calls.grouped(x[:4], all_present, W), torch.einsum("bi,bio->bo", x[:4], W), TERMS)


def test_rows_have_different_tasks_where_there_are_enough():
    many = torch_calls.ids_of(case_of("tt", "mixed", batch=5, shape=(4, 4, 9)))
    assert len(many.unique()) == 5
    few = torch_calls.ids_of(case_of("tt", "mixed", batch=10, shape=(4, 4, 3)))
    assert sorted(few.bincount().tolist()) == [3, 3, 4]


@pytest.mark.parametrize("way", WAYS)
def test_arrays_are_made_on_the_device(way):
    """On a device without numbers, whatever stayed behind on the CPU would fail."""
    case = case_of("tucker", way)
    with torch.device("meta"):
        applied = in_torch.Applied(in_torch.Bench("meta", meter=CpuMeter()), case, {}, ())
    assert {tensor.device.type for tensor in (applied.x, applied.above, *applied.factors)} == {"meta"}
    if way == "mixed":
        assert applied.ids.is_meta


def test_measuring_goes_through_the_meter_of_the_device():
    class Meter(CudaMeter):
        def seconds(self, program):
            self.cuda.work(1)
            super().seconds(program)
            return 1e-3, 2e-3

    bench = in_torch.Bench(meter=Meter(FakeCuda()))
    found = measure(bench.apply(case_of("laf", "one"), peers=("dense",)), bench.meter, 0.01)
    assert found["programs"]["dense"]["forward"][0] == pytest.approx(1e-3)
    assert found["programs"]["dense"]["backward"][0] == pytest.approx(2e-3)
    assert found["programs"]["dense"]["peak"] == 0
    assert found["noise"] == pytest.approx(1)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", METHODS)
def test_programs_in_jax_compute_the_layer(method, way):
    case = case_of(method, way, training=False)
    with jax.disable_jit():
        applied = in_jax._Applied(in_jax.Bench(), case)
        applied.add_all()
        right = expected(case, [np.asarray(f) for f in applied.factors], np.asarray(applied.x), applied.ids)
        assert applied.found.skipped == {}
        names = {
            "tnshare",
            "tnshare factored",
            "tnshare materialised",
            "einsum",
            "opt_einsum",
            "authors",
            "dense",
        }
        mixed = {"dense, weight per row", "LoRA, batched"}
        assert applied.found.run.keys() == names | (mixed if way == "mixed" else set())
        for name, program in applied.found.run.items():
            y = program.forward()
            assert y.shape == right.shape
            if not name.startswith(OTHER_MODELS):
                close(y, right, TERMS, what=name)


def test_dense_weights_and_adapters_in_jax_take_the_rows_of_their_tasks():
    ids = np.array([3, 0, 3, 1, 3, 0, 1, 1, 3])
    W, A, B = in_jax._drawn((4, 6, 5), (4, 6, 2), (4, 2, 5))
    (x, shared) = in_jax._drawn((9, 6), (6, 5))
    right = np.einsum("bi,bio->bo", x, np.asarray(W)[ids])
    by_task = in_jax._grouped(lambda leaves: leaves[0])([W], x, *groups(ids))
    close(by_task, right, TERMS)
    close(in_jax._per_row([W], x, ids), right, TERMS)
    adapted = in_jax._adapted([shared, A, B], x, ids)
    weights = np.asarray(shared) + np.asarray(A) @ np.asarray(B)
    close(adapted, np.einsum("bi,bio->bo", x, weights[ids]), TERMS)


def test_gradients_of_rows_in_jax_are_those_of_their_tasks():
    """Compiled in two passes, with ids and groups as arguments."""
    case = case_of("tucker", "mixed")
    applied = in_jax._Applied(in_jax.Bench(), case)
    applied.add_all()
    factors, x = [np.asarray(f) for f in applied.factors], np.asarray(applied.x)

    def total(factors, x):
        W = jnp.einsum(case.layer.network.equation, *factors)
        return jnp.einsum("bi,iob->", x, W[..., applied.ids])

    right = [np.asarray(g) for g in jax.tree.leaves(jax.grad(total, (0, 1))(factors, x))]
    for name, program in applied.found.run.items():
        _, found = program()
        if not name.startswith(OTHER_MODELS):
            for g, r in zip(jax.tree.leaves(found), right, strict=True):
                close(g, r, TERMS, what=name)


def test_strategies_in_jax_are_what_they_are_called():
    case = case_of("tucker", "each", batch=2, training=False)
    applied = in_jax._Applied(in_jax.Bench(), case)
    applied.add_all()
    weights = 4 * case.i * case.o * case.tasks
    used = {n: applied.found.run[f"tnshare {n}"].analyse() for n in ("factored", "materialised")}
    assert used["factored"].temp_size_in_bytes < weights <= used["materialised"].temp_size_in_bytes


@pytest.mark.parametrize("one", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_composed_weights_agree(method, one):
    case = case_of(method, "one")
    torch.manual_seed(0)
    found = in_torch.Bench().compose(case, one)
    assert {"tnshare", "einsum", "opt_einsum", "authors"} <= found.run.keys()
    values = {name: program()[0].detach().double() for name, program in found.run.items()}
    total = values["tnshare"].pow(2).sum()
    for name, value in values.items():  # in layouts of their own
        torch.testing.assert_close(value.pow(2).sum(), total, rtol=1e-4, atol=0, msg=name)
        assert sorted(value.shape) == sorted(values["tnshare"].shape)


@pytest.mark.parametrize("way", ["one", "each", "mixed"])
@pytest.mark.parametrize("method", METHODS)
def test_convolutions_agree(method, way):
    case = ConvCase(method, CONV_RANKS[method], 4, 6, 3, 5, 4, way, 5, True)
    found = convolutions(in_torch.Bench(), case)
    right, _ = found.run["tnshare"]()
    assert {"authors", "opt_einsum", "dense"} <= found.run.keys()
    assert ("tltorch factorized" in found.run) == (method == "tucker")
    for name, program in found.run.items():
        y, gradients = program()
        if name == "dense":
            assert y.shape == right.shape
            tasks = () if way == "one" else (case.tasks,)
            assert gradients[1].shape == (*tasks, case.m, case.c, case.kernel, case.kernel)
        else:
            close(y, right, TERMS, what=name)
        assert all(g.abs().sum() > 0 for g in gradients), name


def test_the_authors_way_is_from_left_to_right():
    products = []

    def tensordot(a, b, dims):
        products.append((a.shape, b.shape))
        return np.tensordot(a, b, dims)

    network = tn.Tucker((3, 4, 2)).network(i=5, o=6, task=7)
    arrays = [np.ones(shape) for shape in network.shapes.values()]
    _, axes = left_to_right(network, arrays, tensordot)
    assert [second for _, second in products] == list(network.shapes.values())[1:]
    assert sorted(axes) == ["i", "o", "task"]


def test_what_cannot_run_is_left_out_with_a_reason():
    found = Programs()
    found.add("large", 2**31, 2**30, lambda: 1 / 0)
    found.add("broken", 0, 2**30, lambda: 1 / 0)
    assert found.skipped == {"large": "needs 2.0 GiB", "broken": "raises ZeroDivisionError: division by zero"}
    assert "secret" not in said(OSError("no file /home" + "/secret here"))
    case = case_of("tucker", "mixed", shape=(16, 12, 300), batch=300)
    made = in_torch.Bench(limit=3 * 4 * 16 * 12 * 300 - 1).apply(case)
    assert made.skipped["dense"].startswith("needs")
    assert made.skipped["PEFT"] == "300 adapters are as many modules"
    assert made.skipped["tltorch factorized"] == "a loop over 300 tasks"
    assert "dense" not in made.run


def test_per_row_plans_take_codes_alone():
    case = Case("tucker", (32, 32, 16), 256, 256, 100, "mixed", 1024, False)
    found = per_row(case, PROFILES["cpu"])
    assert not found.grouped
    assert "U_task[ids]" in found.name
    rows = case.layer.candidates("mixed", 1024, training=True)
    assert any("core)[ids]" in other.name for other in rows if not other.grouped)  # which are passed over


def test_ranks_go_with_their_method():
    with pytest.raises(tn.TnshareError, match=r"tucker of a linear layer has 3 rank\(s\)"):
        spec_of("tucker", (3, 4))
    with pytest.raises(tn.TnshareError, match="method must be one of"):
        spec_of("svd", (3,))
    case = case_of("tt", "each")
    assert Case.read({**case.json, "else": 1}) == case
    assert str(case) == "tt 2/2 16->12 T=5 each B=7 training"


def test_what_tnshare_chooses_is_asked_of_the_profile_of_the_device(monkeypatch):
    asked = []

    def candidates(job, profile, *form):
        asked.append(profile.name)
        return plans(job, profile, *form)

    plans = in_torch.candidates
    for module in (in_torch, scale):
        monkeypatch.setattr(module, "candidates", candidates)
    assert in_torch.Bench().profile is PROFILES["cpu"]
    monkeypatch.setattr(in_torch.Bench, "profile", PROFILES["h100"])
    bench = in_torch.Bench()
    case = Case("tucker", (4, 4, 3), 16, 12, 6, "mixed", 5, True)
    bench.apply(case, peers=())
    assert asked == ["h100"] * 3
    monkeypatch.setattr(scale, "TASKS", (1, 10, 20))
    monkeypatch.setattr(scale, "LARGE", 16)
    scale._per_row(bench, "tucker", 0.01)
    assert set(asked) == {"h100"}
    assert len(asked) == 4
    told = []
    monkeypatch.setattr(type(case.layer), "candidates", lambda *given, **said: told.append(said) or [best])
    best = per_row(case, PROFILES["h100"])
    roofline.flops_of(bench, case)
    assert told[0]["device"] is PROFILES["h100"]
