"""Convolutions and embeddings in the four ways, by every chain, against torch's own layers task by task."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tnshare_torch._ops import ops as torch_ops
from torch.nn import functional

import tnshare as tn
from tnshare.layers.convolution._chains import chains
from tnshare.layers.convolution._conv_candidates import ConvJob, conv_candidates
from tnshare.layers.convolution._conv_runner import conv_runner
from tnshare.layers.embedding._lookup_candidates import LookupJob, lookup_candidates
from tnshare.layers.embedding._lookup_runner import lookup_runner
from tnshare.ops import numpy_ops
from tnshare.planning import MOST_KEPT_NUMBERS, PROFILES, WAYS

_PAD = {"zeros": "constant", "reflect": "reflect", "replicate": "replicate", "circular": "circular"}


def as_torch(value: Any) -> Any:
    return torch.from_numpy(value) if isinstance(value, np.ndarray) else value


@st.composite
def convolutions(draw: Any) -> tn.Conv:
    """Any geometry, any method, one or two task axes."""
    dims = draw(st.integers(1, 3))
    groups = draw(st.integers(1, 2))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(dims))
    two = draw(st.booleans())
    tasks: Any = (
        {"site": draw(st.integers(1, 2)), "user": draw(st.integers(1, 3))} if two else draw(st.integers(1, 4))
    )
    axes = dims + 2 + (2 if two else 1)
    spec = draw(
        st.sampled_from(
            [tn.LAF(2), tn.Tucker((2,) * axes), tn.TT((2,) * (axes - 1)), tn.LAF(1), tn.Tucker((1,) * axes)]
        )
    )
    same = draw(st.booleans())
    geometry: dict[str, Any] = {
        "stride": 1 if same else tuple(draw(st.integers(1, 2)) for _ in range(dims)),
        "padding": "same" if same else tuple(draw(st.integers(0, 1)) for _ in range(dims)),
        "dilation": tuple(draw(st.integers(1, 2)) for _ in range(dims)),
        "padding_mode": draw(st.sampled_from(list(_PAD))),
    }
    channels = groups * draw(st.integers(1, 2)), groups * draw(st.integers(1, 2))
    return fitting(
        lambda s: tn.Conv(*channels, kernel, tasks, s, groups=groups, bias=draw(st.booleans()), **geometry),
        spec,
    )


def fitting(make: Any, spec: Any) -> Any:
    """The layer by this spec, or by ranks that its shape allows."""
    try:
        return make(spec)
    except tn.TnshareError:
        return make(tn.LAF(1))


def by_torch(layer: tn.Conv, params: Any, x: np.ndarray, task: tuple[int, ...]) -> np.ndarray:
    """One task by torch's convolution with its composed kernel."""
    network = layer.network
    whole = np.einsum(network.equation, *(params[n] for n in network.shapes), optimize=False)
    kernel = np.moveaxis(whole[(..., *task)], (-1, -2), (0, 1))  # (m, c, *kernel)
    dims = len(layer.kernel)
    run = [functional.conv1d, functional.conv2d, functional.conv3d][dims - 1]
    signal = torch.from_numpy(x)
    flat = [n for pair in reversed(layer.geometry.padding) for n in pair]
    padded = functional.pad(signal, flat, _PAD[layer.padding_mode])
    bias = torch.from_numpy(params["bias"][task]) if layer.bias else None
    g = layer.geometry
    y = run(padded, torch.from_numpy(kernel.copy()), bias, g.stride, 0, g.dilation, g.groups)
    return y.numpy()


def calls(layer: tn.Conv, rng: np.random.Generator, rows: int) -> dict[str, Any]:
    """For every way: x, ids, and (task, rows of x, place in the result) for all that is to come out."""
    sizes = tuple(d * (k - 1) + 2 for k, d in zip(layer.kernel, layer.geometry.dilation, strict=True))
    tasks = layer.task_shape
    x = rng.standard_normal((rows, layer.in_channels, *sizes))
    every = list(np.ndindex(*tasks))
    chosen = every[rng.integers(len(every))]
    ids = np.stack([rng.integers(n, size=rows) for n in tasks], -1)
    xs = rng.standard_normal((*tasks, rows, layer.in_channels, *sizes))
    return {
        "one": (x, chosen, [(chosen, x, ())]),
        "mixed": (x, ids, [(tuple(ids[r]), x[r : r + 1], (slice(r, r + 1),)) for r in range(rows)]),
        "each": (xs, None, [(t, xs[t], t) for t in every]),
        "fan_out": (x, None, [(t, x, t) for t in every]),
    }


def columns(ids: Any, way: str, tasks: int) -> Any:
    if ids is None:
        return None
    return tuple(ids) if way == "one" else tuple(ids[:, n] for n in range(tasks))


@given(
    layer=convolutions(),
    seed=st.integers(0, 99),
    rows=st.integers(1, 4),
    concrete=st.booleans(),
    keep=st.booleans(),
    framework=st.sampled_from([(numpy_ops, lambda v: v), (torch_ops, as_torch)]),
)
def test_every_chain_is_right_in_every_way(
    layer: tn.Conv, seed: int, rows: int, concrete: bool, keep: bool, framework: Any
) -> None:
    rng = np.random.default_rng(seed)
    params = layer.init(seed, np.float64)
    factors = [params[name] for name in layer.network.shapes]
    ops, own = framework
    keeper = (lambda key, factors, made: made()) if keep else None
    for way, (x, ids, parts) in calls(layer, rng, rows).items():
        sizes = x.shape[x.ndim - len(layer.kernel) :]
        job = ConvJob(layer, way, rows, sizes, not keep, keep, concrete)  # type: ignore[arg-type]
        found = conv_candidates(job, PROFILES["cpu"])
        expected = [by_torch(layer, params, part, task) for task, part, _ in parts]
        cols = columns(ids, way, len(layer.task_shape))
        cols = None if cols is None else tuple(own(c) for c in cols)
        bias = own(params["bias"]) if layer.bias else None
        for candidate in found:
            run = conv_runner(job, candidate, ops)
            y = np.asarray(run([own(f) for f in factors], bias, own(x), cols, keeper))
            for (_, _, place), right in zip(parts, expected, strict=True):
                assert y[place].shape == right.shape
                np.testing.assert_allclose(y[place], right, rtol=1e-9, atol=1e-11)


def test_chains_of_each_method() -> None:
    def names(spec: Any, groups: int = 1) -> set[str]:
        return {chain.name for chain in chains(tn.Conv(4, 6, (3, 3), 5, spec, groups=groups))}

    assert names(tn.LAF(3)) == {"convolution by L . S", "convolution by L then S"}
    tucker = names(tn.Tucker((2, 2, 2, 2, 2)))
    assert "U_c then convolution by core . U_h . U_w . U_task then U_m" in tucker
    assert "U_c then convolution by core . U_h . U_w then U_m then U_task" in tucker
    assert len(tucker) == 8
    assert "convolution by U_h . U_w . U_c then U_m then U_task" in names(tn.TT((2, 2, 2, 2)))
    assert not any("then U_m" in name for name in names(tn.Tucker((2, 2, 2, 2, 2)), groups=2))


@pytest.mark.parametrize("spec", [tn.LAF(2), tn.Tucker((3, 2, 2)), tn.TT((2, 2))])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("table", [False, True])
def test_embeddings_are_right_in_every_way(spec: Any, way: Any, table: bool) -> None:
    rng = np.random.default_rng(0)
    layer = tn.Embedding(7, 3, tasks=4, spec=spec, padding_idx=2)
    params = layer.init(0, np.float64)
    tables = np.moveaxis(tn.weight(layer, params), -1, 0).copy()
    tables[:, 2] = 0
    x = rng.integers(7, size=(4, 3, 2))
    job = LookupJob(layer, way, 4, 6 if way == "mixed" else None, True, False)
    (candidate,) = (c for c in lookup_candidates(job, PROFILES["cpu"]) if c.table == table)
    ids = {"one": (3,), "mixed": (np.array([3, 0, 0, 1]),)}.get(way)
    expected = {
        "one": tables[3][x],
        "mixed": tables[np.array([3, 0, 0, 1])[:, None, None], x],
        "each": tables[np.arange(4)[:, None, None], x],
        "fan_out": tables[:, x],
    }[way]
    for ops, own in ((numpy_ops, lambda v: v), (torch_ops, as_torch)):
        factors = [own(params[name]) for name in layer.network.shapes]
        cols = None if ids is None else tuple(own(c) for c in ids)
        y = lookup_runner(job, candidate, ops)(factors, None, own(x), cols)  # type: ignore[arg-type]
        np.testing.assert_allclose(np.asarray(y), expected, rtol=1e-12, atol=1e-14)


def test_two_task_axes_of_an_embedding() -> None:
    layer = tn.Embedding(6, 4, tasks={"site": 2, "user": 3}, spec=tn.Tucker((4, 3, 2, 3)))
    params = layer.init(1, np.float64)
    tables = np.moveaxis(tn.weight(layer, params), (-2, -1), (0, 1))
    x = np.random.default_rng(0).integers(6, size=(2, 3, 5))
    s, u = np.ix_(np.arange(2), np.arange(3))
    np.testing.assert_allclose(tn.apply(layer, params, x), tables[s[..., None], u[..., None], x])
    np.testing.assert_allclose(tn.fan_out(layer, params, x[0, 0]), tables[:, :, x[0, 0]])
    ids = np.array([[1, 2], [0, 0]])
    np.testing.assert_allclose(tn.apply(layer, params, x[:, 0], ids), tables[ids[:, :1], ids[:, 1:], x[:, 0]])
    np.testing.assert_allclose(tn.apply(layer, params, x, (1, 2)), tables[1, 2][x])


def test_same_padding_keeps_the_size_of_an_even_kernel() -> None:
    layer = tn.Conv(1, 1, (2, 4), 2, tn.LAF(1), padding="same")
    assert layer.padding == ((0, 1), (1, 2))
    assert layer.geometry.places((5, 6)) == (5, 6)
    assert math.prod(tn.Conv(1, 1, 3, 2, tn.LAF(1), stride=2).geometry.places((7,))) == 3


def conv(**given: Any) -> Any:
    return lambda: tn.Conv(2, 2, (3, 3), 4, tn.LAF(1), **given)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (conv(stride=0), "stride must be a whole number of at least 1: found 0"),
        (
            conv(stride=(1, 2, 3)),
            r"stride must be one number, or 2, one for each dimension: found \(1, 2, 3\)",
        ),
        (conv(padding=-1), "padding must be a whole number of at least 0: found -1"),
        (conv(padding="full"), "padding must be 'same', 'valid' or whole numbers: found 'full'"),
        (conv(padding="same", stride=2), r"padding='same' needs stride 1, .*: found \(2, 2\)"),
        (conv(padding=((1, 1),)), "padding needs a pair for each of 2 dimensions"),
        (conv(dilation="x"), "dilation must be a whole number"),
        (conv(padding_mode="mirror"), r"padding_mode must be one of \('zeros', .*: found 'mirror'"),
        (
            lambda: tn.Embedding(5, 3, 4, tn.LAF(1), padding_idx=5),
            "padding_idx is out of range: expected -5 <=",
        ),
    ],
)
def test_wrong_geometry_is_refused(make: Any, text: str) -> None:
    with pytest.raises(tn.TnshareError, match=text):
        make()


@pytest.mark.parametrize(
    ("x", "task", "text"),
    [
        (
            np.zeros((2, 3, 5, 5)),
            0,
            r"expected x of shape \(..., 2, h, w\), channels before the places: found",
        ),
        (
            np.zeros((2, 5, 5)),
            np.array([0]),
            r"one task id for each row: expected x of shape \(1, 2, h, w\) with 1 ids",
        ),
        (
            np.zeros((3, 2, 5, 5)),
            np.array([0]),
            r"one task id for each row: expected x of shape \(1, 2, h, w\)",
        ),
        (np.zeros((3, 2, 5, 5)), None, r"x of shape \(4, ..., 2, h, w\), found \(3, 2, 5, 5\); give a task"),
        (np.zeros((1, 2, 2, 5)), 0, r"the kernel reaches over \(3, 3\) places, more than the input has"),
        (np.zeros((1, 2, 5, 5)), 4, "task 4 is out of range: expected 0 <= task <= 3"),
        (np.zeros((2, 2, 5, 5)), np.array([0, 9]), "task 9 in row 1 is out of range"),
    ],
)
def test_wrong_inputs_of_a_convolution_are_refused(x: Any, task: Any, text: str) -> None:
    layer = tn.Conv(2, 2, (3, 3), 4, tn.LAF(1))
    with pytest.raises(tn.TnshareError, match=text):
        tn.apply(layer, layer.init(0), x.astype(np.float32), task)


def test_padding_that_repeats_more_than_there_is_is_refused() -> None:
    layer = tn.Conv(1, 1, 3, 2, tn.LAF(1), padding=3, padding_mode="reflect")
    with pytest.raises(tn.TnshareError, match="padding may be at most 2 along an axis of 3 places: found 3"):
        tn.apply(layer, layer.init(0), np.zeros((1, 1, 3), np.float32), 0)


@pytest.mark.parametrize(
    ("x", "text"),
    [
        (np.array([0, 7]), "x has 7, which is out of range: expected 0 <= x <= 6"),
        (np.array([-1]), "x has -1, which is out of range"),
        (np.array([0.5]), "x must be whole numbers, the rows of the table: found dtype float64"),
    ],
)
def test_wrong_tokens_are_refused(x: Any, text: str) -> None:
    layer = tn.Embedding(7, 3, tasks=4, spec=tn.LAF(2))
    with pytest.raises(tn.TnshareError, match=text):
        tn.apply(layer, layer.init(0), x, 1)


@pytest.mark.parametrize("task", [1, np.zeros(0, int)])
def test_empty_batches(task: Any) -> None:
    layer = tn.Conv(2, 3, (3, 3), 4, tn.Tucker((2, 2, 2, 2, 2)))
    assert tn.apply(layer, layer.init(0), np.zeros((0, 2, 5, 5), np.float32), task).shape == (0, 3, 3, 3)
    table = tn.Embedding(7, 3, tasks=4, spec=tn.LAF(2))
    assert tn.apply(table, table.init(0), np.zeros((0, 2), int), task).shape == (0, 2, 3)


def test_kernels_are_kept_only_while_they_are_few() -> None:
    def kept(tasks: int) -> set[bool]:
        layer = tn.Conv(64, 64, (5, 5), tasks, tn.LAF(2))
        job = ConvJob(layer, "mixed", 8, (9, 9), False, MOST_KEPT_NUMBERS, True)
        return {c.kept for c in conv_candidates(job, PROFILES["cpu"]) if not c.chain.late}

    assert kept(10) == {True}
    assert kept(1000) == {False}  # 102 million numbers


@pytest.mark.parametrize("spec", [tn.LAF(2), tn.Tucker((2, 2, 2, 2, 2)), tn.TT((2, 2, 2, 2))])
def test_traced_rows_of_mixed_tasks_meet_one_kernel_for_all(spec: Any) -> None:
    job = ConvJob(tn.Conv(4, 6, (3, 3), 5, spec), "mixed", 8, (9, 9), True, False, False)
    assert all(c.chain.late for c in conv_candidates(job, PROFILES["cpu"]))
    assert not any(c.chain.late for c in conv_candidates(job, PROFILES["cpu"], "materialised"))
